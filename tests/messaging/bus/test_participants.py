"""Participants: how they come, go, fail and are started again; nothing of them is left behind."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from sapwood import Ref, Runtime
from sapwood.errors import BusUnavailable, InvalidEnvelope, InvalidOption, UnknownParticipant, WrongThread
from sapwood.messaging import Bus, Envelope, HandlerOptions
from sapwood.messaging.bus import BatchOptions, ByKind
from sapwood.supervision import TreeNode
from tests.messaging.bus.kit import Member, Note, Number, Recorder, open_bus


def find(runtime: Runtime, title: str) -> Ref:
    for cell in runtime.system.actors:
        if cell.label == title:
            return cell.ref
    raise LookupError(title)


def nodes(node: TreeNode) -> list[str]:
    return [node.label, *(label for child in node.children for label in nodes(child))]


@pytest.mark.row("S2-007", "S2-018")
async def test_a_participant_that_leaves_takes_its_subscriptions_and_its_actor_along(
    autojump_clock: MockClock,
) -> None:
    async with open_bus() as (bus, runtime):
        got = Recorder()
        bob = await bus.register("bob", got, topics=["news", "sport.*"])
        assert bus.subscriptions("bob") == ("news", "sport.*")
        assert any("bus/bob" in label for label in nodes(runtime.tree()))
        bus.client("alice").send_nowait("bob", Note("too late"))
        assert bob.unregister()
        assert not bob.unregister()
        assert (bus.participants(), bus.subscriptions("bob")) == ([], ())
        await trio.testing.wait_all_tasks_blocked()
        assert got.texts == [], "no handler starts after unregister has returned"
        assert [letter.reason for letter in bus.dead_letters.inspect(target="bob")] == ["recipient_down"]
        assert not any("bus/bob" in label for label in nodes(runtime.tree()))
        report = await bus.client("alice").publish("news", Note("x"), wait=True)
        assert report.status == "no_recipients"


@pytest.mark.row("BR-80")
async def test_an_actor_that_ends_in_any_way_is_no_participant_any_more_and_leaves_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_bus() as (bus, runtime):
        await bus.register("stays", Recorder(), topics=["*"])
        desk = bus._desk

        def sizes() -> tuple[int, ...]:
            directory = desk.directory
            return (
                len(bus.participants()), len(desk.subscriptions), len(desk.subscriptions._by_pattern),
                len(directory._labels), len(directory.all_consumers()), runtime.system.statistics().actors,
                find(runtime, "keeper").statistics().monitoring,
            )  # fmt: skip

        before = sizes()
        for number in range(300):
            member = await runtime.spawn(Member)
            await bus.register(f"member {number}", member, topics=[f"topic.{number}", "topic.*"])
            match number % 3:
                case 0:
                    await member.stop()
                case 1:
                    member.kill()
                case _:
                    member.exit(member.exit_reason or _crash())
            await member.wait_stopped()
            await trio.testing.wait_all_tasks_blocked()
        assert sizes() == before


def _crash() -> Any:
    from sapwood.actors import Crashed

    return Crashed.of(ValueError("on purpose"))


async def test_functions_that_come_and_go_leave_nothing_behind(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, runtime):
        before = runtime.system.statistics().actors
        for _ in range(100):
            await bus.register("bob", Recorder(), topics=["a.*"])
            bus.unregister("bob")
        await trio.testing.wait_all_tasks_blocked()
        assert runtime.system.statistics().actors == before
        assert bus._desk.directory._labels == {}
        assert len(bus._desk.subscriptions) == 0


async def test_the_same_handler_twice_under_one_name_is_refused(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, runtime):
        got = Recorder()
        await bus.register("bob", got)
        with pytest.raises(InvalidOption, match="registered already"):
            await bus.register("bob", got)
        await bus.register("carol", got)
        dead = await runtime.spawn(Member)
        await dead.stop()
        for wrong in (5, None, dead):
            with pytest.raises(InvalidOption):
                await bus.register("dave", wrong)  # type: ignore[arg-type]  # what a caller without types may do
        with pytest.raises(InvalidOption, match="name"):
            await bus.register("", Recorder())
        member = await runtime.spawn(Member)
        with pytest.raises(InvalidOption, match="own mailbox"):
            await bus.register("erin", member, HandlerOptions(capacity=5))
        assert bus.participants() == ["bob", "carol"]


async def test_an_actor_under_two_names_gets_the_messages_of_both(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, runtime):
        member = await runtime.spawn(Member)
        await bus.register("one", member)
        await bus.register("two", member)
        alice = bus.client("alice")
        await alice.send("one", Note("a"))
        await alice.send("two", Note("b"))
        await trio.testing.wait_all_tasks_blocked()
        assert [one.payload.text for one in (await member.get_state())["got"]] == ["a", "b"]
        member.kill()
        await member.wait_stopped()
        await trio.testing.wait_all_tasks_blocked()
        assert bus.participants() == []


async def test_a_worker_that_is_killed_is_started_again_and_goes_on_with_the_next_message(
    autojump_clock: MockClock,
) -> None:
    async def handler(envelope: Envelope[Any]) -> None:
        started.append(envelope.payload.text)
        await trio.sleep(10)

    started: list[str] = []
    async with open_bus() as (bus, runtime):
        await bus.register("bob", handler)
        alice = bus.client("alice")
        for text in ("first", "second"):
            alice.send_nowait("bob", Note(text))
        await trio.testing.wait_all_tasks_blocked()
        find(runtime, "bus/bob/1.1").kill()
        await trio.testing.wait_all_tasks_blocked()
        reasons = {letter.original.payload.text: letter.reason for letter in bus.dead_letters.inspect()}
        assert reasons == {"first": "interrupted", "second": "unread"}
        alice.send_nowait("bob", Note("third"))
        await trio.testing.wait_all_tasks_blocked()
        assert started == ["first", "third"]
        assert bus.participants() == ["bob"]


@pytest.mark.parametrize("victim", ["clerk", "keeper", "workers", "participants", "bus"])
async def test_functions_stay_registered_whatever_part_of_the_bus_is_killed(
    victim: str, autojump_clock: MockClock
) -> None:
    async with open_bus() as (bus, runtime):
        got = Recorder()
        await bus.register("bob", got, topics=["news"])
        member = await runtime.spawn(Member)
        await bus.register("member", member)
        find(runtime, victim).kill()
        accepted, states = 0, set[str]()
        for _ in range(20):
            try:
                bus.client("alice").send_nowait("bob", Note("meanwhile"))
                accepted += 1
            except BusUnavailable as refused:
                states.add(refused.state)
            await trio.lowlevel.checkpoint()
        await trio.sleep(1)
        assert bus.state == "running"
        assert states <= {"restarting"}
        assert len(got.texts) + len(bus.dead_letters) == accepted, "each that was accepted is handled or a dead letter"
        got.envelopes.clear()
        report = await bus.client("alice").publish("news", Note("again"), wait=True)
        assert (report.status, got.texts) == ("delivered", ["again"])
        member.kill()
        await trio.sleep(1)
        assert bus.participants() == ["bob"], "the new keeper watches the actors that its forerunner watched"


async def test_a_bus_outside_of_a_tree_says_so(autojump_clock: MockClock) -> None:
    bus = Bus()
    assert bus.state == "not started"
    with pytest.raises(BusUnavailable, match="bus_child"):
        await bus.register("bob", Recorder())
    with pytest.raises(BusUnavailable):
        _ = bus.dead_letters
    async with open_bus() as (bus, _):
        await bus.register("bob", Recorder())
    assert bus.state == "restarting"
    with pytest.raises(BusUnavailable):
        bus.client("alice").send_nowait("bob", Note("x"))


@pytest.mark.row("S2-014")
async def test_stopping_lets_what_waits_be_handled_and_starting_takes_messages_again(
    autojump_clock: MockClock,
) -> None:
    async def handler(envelope: Envelope[Any]) -> None:
        await trio.sleep(0.5)
        got(envelope)

    async with open_bus() as (bus, _):
        got = Recorder()
        await bus.register("bob", handler)
        alice = bus.client("alice")
        for number in range(3):
            alice.send_nowait("bob", Note(str(number)))
        assert await bus.stop() == 0
        assert got.texts == ["0", "1", "2"]
        assert trio.current_time() == pytest.approx(1.5)
        assert await bus.stop() == 0
        with pytest.raises(BusUnavailable, match="stopped"):
            alice.send_nowait("bob", Note("refused"))
        bus.start()
        bus.start()
        await alice.send("bob", Note("3"), wait=True)
        assert got.texts == ["0", "1", "2", "3"]


@pytest.mark.row("S2-014")
async def test_a_stop_ends_in_time_and_what_still_waits_is_dead_letters(autojump_clock: MockClock) -> None:
    async def handler(envelope: Envelope[Any]) -> None:
        got(envelope)
        await trio.sleep(1.5)

    async with open_bus() as (bus, _):
        got = Recorder()
        await bus.register("bob", handler)
        for number in range(5):
            bus.client("alice").send_nowait("bob", Note(str(number)))
        assert await bus.stop(timeout=2.0) == 4
        assert trio.current_time() == 2.0
        await trio.sleep(5)
        assert got.texts == ["0", "1"]
        left = bus.dead_letters.inspect()
        assert [letter.original.payload.text for letter in left] == ["2", "3", "4"]
        assert {letter.reason for letter in left} == {"unread"}


@pytest.mark.row("S2-025")
@pytest.mark.parametrize(
    ("options", "order"),
    [
        (HandlerOptions(order="fifo"), [0, 1, 2, 3]),
        (HandlerOptions(order="priority"), [2, 0, 1, 3]),
    ],
    ids=["fifo", "priority"],
)
async def test_a_handler_gets_its_messages_in_the_order_it_asked_for(
    options: HandlerOptions, order: list[int], autojump_clock: MockClock
) -> None:
    async with open_bus() as (bus, _):
        got: list[int] = []
        await bus.register("bob", lambda envelope: got.append(envelope.payload.value), options)
        for number, priority in enumerate(["normal", "normal", "urgent", "low"]):
            bus.client("alice").send_nowait("bob", Number(number), priority=priority)  # type: ignore[arg-type]  # names
        await trio.testing.wait_all_tasks_blocked()
        assert got == order


@pytest.mark.row("S2-025", "S2-041")
async def test_messages_of_one_key_keep_their_order_and_keys_run_side_by_side(autojump_clock: MockClock) -> None:
    async def handler(envelope: Envelope[Any]) -> None:
        await trio.sleep(1)
        got.setdefault(envelope.payload.value % 5, []).append(envelope.payload.value)

    got: dict[int, list[int]] = {}
    async with open_bus() as (bus, _):
        options = HandlerOptions(order="partitioned", workers=4, key=lambda envelope: envelope.payload.value % 5)
        await bus.register("bob", handler, options)
        for number in range(40):
            bus.client("alice").send_nowait("bob", Number(number))
        await trio.sleep(39)
        assert sum(map(len, got.values())) == 40, "keys run side by side"
        assert all(numbers == sorted(numbers) for numbers in got.values())

        def broken(envelope: Envelope[Any]) -> object:
            raise KeyError("no key")

        await bus.register("carol", handler, HandlerOptions(order="partitioned", workers=2, key=broken))
        report = await bus.client("alice").send("carol", Number(1), wait=True)
        assert "KeyError" in report.errors[0]


@pytest.mark.row("S2-025", "S2-040")
async def test_without_an_order_the_work_is_spread_evenly_over_the_workers(autojump_clock: MockClock) -> None:
    by_worker: dict[str, int] = {}

    async def handler(envelope: Envelope[Any]) -> None:
        from sapwood.actors import current_actor

        me = current_actor()
        assert me is not None
        by_worker[me.label] = by_worker.get(me.label, 0) + 1
        await trio.sleep(1)

    async with open_bus() as (bus, _):
        await bus.register("bob", handler, HandlerOptions(order="none", workers=5))
        for number in range(50):
            bus.client("alice").send_nowait("bob", Number(number))
        await trio.sleep(11)
        assert sorted(by_worker.values()) == [10] * 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": "random"}, {"workers": 0}, {"workers": 2}, {"workers": 2, "order": "fifo"}, {"order": "partitioned"},
        {"key": "no order"}, {"capacity": 0}, {"timeout": 0}, {"size": 0}, {"seconds": -1},
    ],
    ids=str,
)  # fmt: skip
def test_handler_options_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        BatchOptions(**wrong)


async def test_batch_options_for_a_plain_handler_are_refused(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        with pytest.raises(InvalidOption, match="register_batch"):
            await bus.register("bob", Recorder(), BatchOptions())


@pytest.mark.row("S2-036")
async def test_a_sender_waits_for_room_in_a_bounded_mailbox(autojump_clock: MockClock) -> None:
    async def handler(envelope: Envelope[Any]) -> None:
        await trio.sleep(1)
        got.append(envelope.payload.value)

    got: list[int] = []
    async with open_bus() as (bus, _):
        await bus.register("bob", handler, HandlerOptions(capacity=2))
        alice = bus.client("alice")
        for number in range(10):
            assert (await alice.send("bob", Number(number))).status == "delivered"
        assert trio.current_time() == pytest.approx(7), "three are taken at once, each of the rest waits for one more"
        assert bus.metrics().queue_depth == 2
        refused = alice.send_nowait("bob", Number(99))
        assert (refused.status, refused.deliveries[0].reason) == ("failed", "overflow")
        late = await alice.send("bob", Number(98), timeout=0.5)
        assert (late.status, late.deliveries[0].reason) == ("failed", "overflow")
        await trio.sleep(10)
        assert got == list(range(10))
        assert [letter.original.payload.value for letter in bus.dead_letters.inspect(reason="overflow")] == [99, 98]


@pytest.mark.row("S2-037")
async def test_an_overloaded_handler_sheds_the_least_urgent_first_and_urgent_ones_never(
    autojump_clock: MockClock,
) -> None:
    async def handler(envelope: Envelope[Any]) -> None:
        await trio.sleep(1000)

    async with open_bus(shed_above=10) as (bus, _):
        await bus.register("bob", handler)
        alice = bus.client("alice")
        taken = dict.fromkeys(("low", "normal", "high", "urgent"), 0)
        for priority in taken:
            for _ in range(60):
                report = alice.send_nowait("bob", Number(1), priority=priority)  # type: ignore[arg-type]  # names
                taken[priority] += report.status == "delivered"
        assert taken == {"low": 10, "normal": 10, "high": 20, "urgent": 60}
        assert len(bus.dead_letters.inspect(reason="shed", limit=None)) == 50 + 50 + 40


@pytest.mark.row("S2-038")
async def test_a_batch_is_handled_when_it_is_full_or_has_waited_long_enough(autojump_clock: MockClock) -> None:
    async def handler(envelopes: tuple[Envelope[Any], ...]) -> None:
        await trio.lowlevel.checkpoint()
        batches.append(([one.payload.value for one in envelopes], trio.current_time()))

    batches: list[tuple[list[int], float]] = []
    async with open_bus() as (bus, _):
        await bus.register_batch("bob", handler, BatchOptions(size=3, seconds=0.5))
        alice = bus.client("alice")
        for number in range(7):
            alice.send_nowait("bob", Number(number))
        report = await alice.send("bob", Number(7), wait=True)
        assert batches == [([0, 1, 2], 0.0), ([3, 4, 5], 0.0), ([6, 7], 0.5)]
        assert report.status == "delivered"
        assert bus.metrics().received == 8


@pytest.mark.row("S2-038")
async def test_a_batch_that_fails_makes_each_of_its_messages_a_dead_letter(autojump_clock: MockClock) -> None:
    def handler(envelopes: tuple[Envelope[Any], ...]) -> None:
        raise ValueError("bad batch")

    async with open_bus() as (bus, _):
        await bus.register_batch("bob", handler, BatchOptions(size=2))
        alice = bus.client("alice")
        alice.send_nowait("bob", Number(1))
        report = await alice.send("bob", Number(2), wait=True)
        assert report.errors == ("Handler 1 on 'bob' raised ValueError: bad batch",)
        assert len(bus.dead_letters) == 2


async def test_a_batch_that_a_killed_worker_had_collected_is_handled_by_the_next_one(
    autojump_clock: MockClock,
) -> None:
    batches: list[list[int]] = []

    def handler(envelopes: tuple[Envelope[Any], ...]) -> None:
        batches.append([one.payload.value for one in envelopes])

    async with open_bus() as (bus, runtime):
        await bus.register_batch("bob", handler, BatchOptions(size=3, seconds=5))
        bus.client("alice").send_nowait("bob", Number(1))
        await trio.testing.wait_all_tasks_blocked()
        find(runtime, "bus/bob/1.1").kill()
        await trio.sleep(10)
        assert batches == [[1]]
        bus.client("alice").send_nowait("bob", Number(2))
        await trio.testing.wait_all_tasks_blocked()
        bus.unregister("bob")
        await trio.testing.wait_all_tasks_blocked()
        assert batches == [[1]]
        assert [letter.original.payload.value for letter in bus.dead_letters.inspect()] == [2]


async def test_a_participant_gets_nothing_before_its_workers_have_started(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        for number in range(20):
            got = Recorder()

            async def register(got: Recorder = got, number: int = number) -> None:
                await bus.register(f"late {number}", got)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(register)
                for _ in range(5):
                    bus.client("alice").make(Note("x"))
                    report = await bus.client("alice").broadcast(Note("x"))
                    assert report.status in {"delivered", "no_recipients"}
        assert len(bus.dead_letters) == 0


async def test_the_bus_is_refused_to_other_threads_with_what_to_write(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        got = Recorder()
        alice = await bus.register("alice", got)
        outcome: list[BaseException] = []

        def outside() -> None:
            try:
                bus.send_nowait(envelope)
            except WrongThread as error:
                outcome.append(error)

        envelope = alice.make(Note("x"), recipient="alice")
        thread = threading.Thread(target=outside)
        thread.start()
        thread.join()
        assert "runtime.portal.call" in str(outcome[0])
        assert bus.history() == []


@pytest.mark.row("S2-017")
async def test_a_participant_has_an_inbox_of_its_own_and_a_function_for_each_kind(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        got: list[str] = []

        async def order(envelope: Envelope[Any]) -> str:
            await trio.sleep(1)
            got.append(f"order {envelope.payload.text}")
            return "done"

        def other(envelope: Envelope[Any]) -> None:
            got.append(f"{envelope.kind} {envelope.payload.text}")

        await bus.register("bob", ByKind({"command": order, "event": other}, default=other))
        await bus.register("strict", ByKind({"command": order}))
        alice = bus.client("alice")
        for kind in ("command", "event", "heartbeat"):
            alice.send_nowait("bob", Note("x"), kind=kind)
        assert got == [], "they wait in bob's inbox"
        assert await alice.request("bob", Note("y"), kind="command") == "done"
        assert got == ["order x", "event x", "heartbeat x", "order y"]
        report = await alice.send("strict", Note("z"), kind="event", wait=True)
        assert "no handler for kind 'event'" in report.errors[0]
    with pytest.raises(InvalidEnvelope, match="gossip"):
        ByKind({"gossip": other})


async def test_subscribing_a_stranger_is_refused(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        with pytest.raises(UnknownParticipant, match="registered: none"):
            bus.subscribe("nobody", "news")
