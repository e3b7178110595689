"""Failures: each stays where it happened, is reported, and becomes one dead letter that somebody can look after."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from sapwood import Actor, Runtime, handle, open_runtime
from sapwood.actors import MailboxOptions, RealEnvironment, SimulatedEnvironment
from sapwood.errors import InvalidOption, StoreUnavailable
from sapwood.messaging import Bus, BusOptions, DeadLetter, DeliveryReport, Envelope, HandlerOptions
from sapwood.messaging.bus import NOTICE, TRANSIENT, DeadLetterAlert, DeadLetterOffice, StoredDeadLetters
from sapwood.messaging.envelope import make_envelope
from sapwood.persistence import open_store
from tests.messaging.bus.kit import Member, Note, Number, Recorder, open_bus


@pytest.fixture
async def pair(autojump_clock: MockClock) -> AsyncIterator[tuple[Bus, Runtime]]:
    async with open_bus() as made:
        yield made


def fail(envelope: Envelope[Any]) -> None:
    raise ValueError(f"cannot take {envelope.payload.text}")


@pytest.mark.row("S1-017", "S1-020", "S2-015")
async def test_a_message_to_nobody_is_reported_and_kept(pair: tuple[Bus, Runtime], autojump_clock: MockClock) -> None:
    bus, _ = pair
    report = await bus.client("alice").send("nobody", Note("hello"))
    assert (report.status, report.targets_contacted) == ("failed", 0)
    assert report.errors == ("No handler registered for agent 'nobody'",)
    (letter,) = bus.dead_letters.inspect()
    assert (letter.reason, letter.target, letter.original.payload) == ("unknown_recipient", "nobody", Note("hello"))
    assert (len(bus.dead_letters), bus.dead_letters.total) == (1, 1)
    assert bus.delivery_log()[-1] == report


@pytest.mark.row("S1-018", "S2-046")
@pytest.mark.parametrize("wait", [True, False])
async def test_a_handler_that_fails_harms_no_other_and_its_message_is_kept(
    *, wait: bool, pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, _ = pair
    got = Recorder()

    async def fail_slowly(envelope: Envelope[Any]) -> None:
        await trio.sleep(0.1)
        raise KeyError("late")

    await bus.register("bob", fail)
    await bus.register("bob", got)
    await bus.register("bob", fail_slowly)
    report = await bus.client("alice").send("bob", Note("hello"), wait=wait)
    await trio.sleep(1)
    assert got.texts == ["hello"]
    texts = ["Handler 1 on 'bob' raised ValueError: cannot take hello", "Handler 3 on 'bob' raised KeyError: 'late'"]
    assert [letter.detail for letter in bus.dead_letters.inspect(target="bob")] == texts
    if wait:
        assert (report.status, list(report.errors)) == ("partly_delivered", texts)
    await bus.client("alice").send("bob", Note("again"), wait=True)
    assert got.texts == ["hello", "again"]


async def test_a_function_that_runs_too_long_is_cut_off_and_its_message_kept(
    pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, _ = pair
    await bus.register("bob", lambda envelope: None)

    async def hang(envelope: Envelope[Any]) -> None:
        await trio.sleep(100)

    await bus.register("carol", hang, HandlerOptions(timeout=2.0))
    report = await bus.client("alice").send("carol", Note("x"), wait=True)
    assert "TimeoutError: it ran for more than 2.0 s" in report.errors[0]
    assert trio.current_time() == 2.0


async def test_a_time_out_inside_a_function_is_its_own_failure(
    pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, _ = pair

    async def impatient(envelope: Envelope[Any]) -> None:
        with trio.fail_after(1):
            await trio.sleep(5)

    async def not_async_enough(envelope: Envelope[Any]) -> None:
        raise AssertionError("never awaited")

    await bus.register("bob", impatient)
    report = await bus.client("alice").send("bob", Note("x"), wait=True)
    assert report.errors == ("Handler 1 on 'bob' raised TooSlowError: ",)

    def mistaken(envelope: Envelope[Any]) -> Any:
        return not_async_enough(envelope)

    await bus.register("carol", mistaken)
    report = await bus.client("alice").send("carol", Note("x"), wait=True)
    assert "register an async function instead" in report.errors[0]


@pytest.mark.parametrize("waiting", [1, 3])
async def test_who_waits_for_a_worker_that_is_killed_hears_of_it_and_each_message_is_one_dead_letter(
    waiting: int, pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, runtime = pair

    async def hang(envelope: Envelope[Any]) -> None:
        await trio.sleep(1_000)

    await bus.register("bob", hang)
    reports: list[DeliveryReport] = []

    async def ask(number: int) -> None:
        reports.append(await bus.client("alice").send("bob", Number(number), wait=True, timeout=None))

    async with trio.open_nursery() as nursery:
        for number in range(waiting):
            nursery.start_soon(ask, number)
        await trio.testing.wait_all_tasks_blocked()
        (worker,) = [cell.ref for cell in runtime.system.actors if cell.label == "bus/bob/1.1"]
        worker.kill()
    assert [report.status for report in reports] == ["failed"] * waiting
    assert sorted(letter.original.payload.value for letter in bus.dead_letters.inspect()) == list(range(waiting))
    assert bus.metrics().failed == waiting


async def test_a_wait_that_is_over_leaves_the_message_to_its_handler(
    pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, _ = pair
    done: list[str] = []

    async def slowly(envelope: Envelope[Any]) -> None:
        await trio.sleep(3)
        done.append(envelope.payload.text)

    await bus.register("bob", slowly)
    report = await bus.client("alice").send("bob", Note("x"), wait=True, timeout=1)
    assert report.deliveries[0].status == "unanswered"
    assert len(bus.dead_letters) == 0
    await trio.sleep(3)
    assert done == ["x"]


@pytest.mark.parametrize("wait", [True, False])
async def test_a_message_that_expires_before_its_turn_is_not_handled(
    *, wait: bool, pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, _ = pair
    got = Recorder()

    async def slowly(envelope: Envelope[Any]) -> None:
        await trio.sleep(2)
        got(envelope)

    await bus.register("bob", slowly)
    alice = bus.client("alice")
    alice.send_nowait("bob", Note("first"))
    report = await alice.send("bob", Note("second"), ttl=1.0, wait=wait)
    await trio.sleep(5)
    assert got.texts == ["first"]
    (letter,) = bus.dead_letters.inspect()
    assert (letter.reason, letter.original.payload) == ("expired", Note("second"))
    if wait:
        assert report.deliveries[0].reason == "expired"

    old = alice.make(Note("third"), recipient="bob", ttl=1.0)
    await trio.sleep(1)
    assert (await bus.send(old)).deliveries[0].reason == "expired"


class Silent(Actor):
    """Has no handler for envelopes."""


async def test_what_an_actor_does_not_take_is_a_dead_letter_of_the_bus(
    pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, runtime = pair
    await bus.register("silent", await runtime.spawn(Silent))
    await bus.client("alice").send("silent", Note("x"))
    await trio.testing.wait_all_tasks_blocked()
    (letter,) = bus.dead_letters.inspect()
    assert (letter.reason, letter.target) == ("unhandled", "silent")

    member = await runtime.spawn(Member)
    await bus.register("member", member)
    for number in range(3):
        bus.client("alice").send_nowait("member", Number(number))
    member.kill()
    await member.wait_stopped()
    assert [one.reason for one in bus.dead_letters.inspect(target="member")] == ["unread"] * 3
    runtime.telemetry.dead_letters.clear()
    bus.client("alice").send_nowait("member", Number(9))
    assert bus.dead_letters.inspect()[-1].reason in {"recipient_down", "unknown_recipient"}


async def test_a_payload_is_checked_again_before_it_is_handled(
    pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, _ = pair
    got = Recorder()
    await bus.register("bob", got, HandlerOptions(accepts=(Note,)))
    alice = bus.client("alice")
    report = await alice.send("bob", Number(5), wait=True)
    assert report.errors == ("expected Note; got Number",)

    envelope = alice.make(Note("fine"), recipient="bob")
    bus.send_nowait(envelope)
    object.__setattr__(envelope.payload, "text", 5)
    await trio.testing.wait_all_tasks_blocked()
    assert got.envelopes == []
    assert "does not fit its schema any more" in bus.dead_letters.inspect()[-1].detail


# --- the office -----------------------------------------------------------------------------------


@pytest.mark.row("S2-029", "S1-056", "S3-110")
async def test_a_dead_letter_can_be_inspected_sent_again_and_discarded(
    pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, _ = pair
    healthy = False
    got = Recorder()

    def moody(envelope: Envelope[Any]) -> None:
        if not healthy:
            raise ValueError("not today")
        got(envelope)

    await bus.register("bob", moody)
    await bus.register("carol", got)
    alice = bus.client("alice")
    await alice.multicast(["bob", "carol"], Note("hello"), wait=True)
    (letter,) = bus.dead_letters.inspect(reason="handler_failed", target="bob", sender="alice")
    assert letter == bus.dead_letters.get(letter.id)
    assert (letter.retry_count, letter.first_seen) == (0, letter.last_attempt)

    await trio.sleep(10)
    report = await bus.requeue(letter.id)
    assert report.status == "failed"
    again = bus.dead_letters.get(letter.id)
    assert again is not None
    assert (again.retry_count, again.first_seen, again.last_attempt) == (1, letter.first_seen, letter.first_seen + 10)

    healthy = True
    assert (await bus.requeue(letter.id)).status == "delivered"
    assert got.texts == ["hello", "hello"], "only the one that had failed got it again"
    assert len(bus.dead_letters) == 0
    assert bus.pairs()["alice", "bob"].retried == 2
    with pytest.raises(InvalidOption, match="requeue"):
        await bus.requeue(letter.id)

    await alice.send("nobody", Note("x"))
    (lost,) = bus.dead_letters.inspect()
    assert (await bus.requeue(lost.id)).status == "failed"
    assert bus.dead_letters.inspect()[0].retry_count == 1
    assert bus.dead_letters.discard(lost.id)
    assert not bus.dead_letters.discard(lost.id)
    assert bus.dead_letters.inspect() == []


async def test_the_office_keeps_the_newest_letters_and_counts_those_that_leave(autojump_clock: MockClock) -> None:
    async with open_bus(dead_letters=10) as (bus, _):
        for number in range(25):
            await bus.client("alice").send("nobody", Number(number))
        assert [letter.original.payload.value for letter in bus.dead_letters.inspect()] == list(range(15, 25))
        assert [letter.original.payload.value for letter in bus.dead_letters.inspect(limit=2)] == [23, 24]
        assert bus.dead_letters.inspect(limit=0) == []
        assert (bus.dead_letters.total, bus.dead_letters.evicted) == (25, 15)


async def test_a_dead_letter_that_nobody_looks_after_is_an_alert_to_its_sender_after_five_minutes(
    autojump_clock: MockClock,
) -> None:
    seen: list[tuple[str, float]] = []

    async def on_alert(letter: DeadLetter) -> None:
        await trio.lowlevel.checkpoint()
        seen.append((letter.id, trio.current_time()))

    async with open_bus(on_alert=on_alert) as (bus, _):
        got = Recorder()
        alice = await bus.register("alice", got)
        await alice.send("nobody", Note("x"))
        await alice.send("nobody", Note("looked after"))
        letter, other = bus.dead_letters.inspect()
        bus.dead_letters.discard(other.id)
        await trio.sleep(299)
        assert seen == []
        await trio.sleep(1000)
        assert [one[0] for one in seen] == [letter.id], "once, and not for the one that was discarded"
        assert 300 <= seen[0][1] <= 330
        (notice,) = got.envelopes
        assert isinstance(notice.payload, DeadLetterAlert)
        assert (notice.payload.letter_id, notice.payload.target) == (letter.id, "nobody")
        assert notice.correlation_id == letter.original.correlation_id


async def test_an_alert_hook_that_raises_harms_nobody(autojump_clock: MockClock) -> None:
    def on_alert(letter: DeadLetter) -> None:
        raise ValueError("pager is broken")

    async with open_bus(on_alert=on_alert, alert_after=10.0) as (bus, _):
        await bus.client("alice").send("nobody", Note("x"))
        await trio.sleep(30)
        assert bus.state == "running"


@pytest.mark.row("BR-44")
@pytest.mark.parametrize("sender", ["failing", "full", "ended"])
async def test_a_dead_letter_about_a_dead_letter_is_never_made_only_counted(
    sender: str, autojump_clock: MockClock
) -> None:
    async with open_bus(alert_after=10.0) as (bus, _):
        options = HandlerOptions(capacity=1) if sender == "full" else None
        release = trio.Event()

        async def handler(envelope: Envelope[Any]) -> None:
            if sender == "full":
                await release.wait()
            raise ValueError("cannot take alerts")

        me = await bus.register("me", handler, options)
        for number in range(100):
            await me.send("nobody", Number(number))
        if sender == "ended":
            me.unregister()
        await trio.sleep(60)
        release.set()
        await trio.sleep(60)
        assert len(bus.dead_letters) == 100
        assert bus.dead_letters.total == 100
        assert bus.dead_letters.suppressed == (0 if sender == "ended" else 100)


@pytest.mark.row("BR-44")
async def test_a_shutdown_with_many_messages_waiting_ends_and_counts_them_all(autojump_clock: MockClock) -> None:
    async def hang(envelope: Envelope[Any]) -> None:
        await trio.sleep(1000)

    async with open_bus() as (bus, _):
        await bus.register("x", hang)
        dead = await bus.register("d", fail)
        for number in range(100):
            dead.send_nowait("x", Number(number))
        await trio.testing.wait_all_tasks_blocked()
    assert bus.dead_letters.total == 100
    assert {letter.reason for letter in bus.dead_letters.inspect()} == {"interrupted", "unread"}


@pytest.mark.row("S3-110")
async def test_dead_letters_in_a_store_are_there_after_a_restart_and_gone_when_looked_after(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    environment = SimulatedEnvironment()

    async def run(number: int) -> list[DeadLetter]:
        async with (
            open_store(tmp_path / "letters.db", environment) as store,
            open_runtime(
                bus=BusOptions(store=StoredDeadLetters(lambda: store, "bus"), dead_letters=2),
                environment=environment,
                signals=False,
            ) as runtime,
        ):
            bus = runtime.bus
            for index in range(number):
                await bus.client("alice").send("nobody", Number(index))
            if not number:
                bus.dead_letters.discard(bus.dead_letters.inspect()[-1].id)
            await trio.sleep(1)
            return bus.dead_letters.inspect()

    first = await run(2)
    assert len(first) == 2
    second = await run(0)
    assert second == first[:1]
    assert (await run(0)) == []


class Slow(Actor):
    """Takes one message and then no more; its mailbox drops the oldest."""

    mailbox = MailboxOptions(capacity=1, overflow="drop_oldest")

    @handle(Envelope)
    async def take(self, message: Envelope[Any]) -> None:
        await trio.sleep(100)


async def test_what_a_dropping_mailbox_drops_is_one_dead_letter_however_it_was_sent(
    pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, runtime = pair
    await bus.register("slow", await runtime.spawn(Slow))
    alice = bus.client("alice")
    alice.send_nowait("slow", Number(0))
    await trio.testing.wait_all_tasks_blocked()
    reports: list[DeliveryReport] = []

    async def ask(number: int) -> None:
        reports.append(await alice.send("slow", Number(number), wait=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, 1)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask, 2)
        await trio.testing.wait_all_tasks_blocked()
        alice.send_nowait("slow", Number(3))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [letter.original.payload.value for letter in bus.dead_letters.inspect(reason="overflow")] == [1, 2]
    assert [report.status for report in reports] == ["failed", "failed"]


async def test_only_the_newest_letters_of_a_store_are_taken_into_memory_and_only_once(
    autojump_clock: MockClock,
) -> None:
    store = BrokenStore()
    async with open_bus(store=store) as (bus, _):
        for number in range(6):
            await bus.client("alice").send("nobody", Number(number))
    assert len(store.letters) == 6
    async with open_bus(seed=1, store=store, dead_letters=3) as (bus, runtime):
        assert [letter.original.payload.value for letter in bus.dead_letters.inspect()] == [3, 4, 5]
        await bus.client("alice").send("nobody", Number(6))
        (clerk,) = [cell.ref for cell in runtime.system.actors if cell.label == "clerk"]
        clerk.kill()
        await trio.sleep(1)
        assert bus.state == "running"
        assert [letter.original.payload.value for letter in bus.dead_letters.inspect()] == [4, 5, 6]
        assert len(store.letters) == 7


async def test_a_letter_leaves_the_store_only_when_it_has_been_handled(autojump_clock: MockClock) -> None:
    store = BrokenStore()
    async with open_bus(store=store) as (bus, _):
        release = trio.Event()

        async def wait(envelope: Envelope[Any]) -> None:
            await release.wait()

        await bus.client("alice").send("bob", Number(1))
        await bus.register("bob", wait)
        (letter,) = bus.dead_letters.inspect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bus.requeue, letter.id)
            await trio.sleep(1)
            assert len(bus.dead_letters) == 0
            assert list(store.letters) == [letter.id], "should the process end now, it is there again"
            release.set()
        await trio.sleep(1)
        assert store.letters == {}


class BrokenStore:
    """A store that cannot answer for a while."""

    def __init__(self) -> None:
        self.broken = False
        self.letters: dict[str, DeadLetter] = {}

    async def open(self) -> None:
        await trio.lowlevel.checkpoint()

    async def save(self, letter: DeadLetter) -> None:
        await trio.lowlevel.checkpoint()
        if self.broken:
            raise StoreUnavailable("letters.db", "is full")
        self.letters[letter.id] = letter

    async def remove(self, letter_id: str) -> None:
        await trio.lowlevel.checkpoint()
        self.letters.pop(letter_id, None)

    async def load(self) -> list[DeadLetter]:
        await trio.lowlevel.checkpoint()
        return list(self.letters.values())


async def test_a_store_that_cannot_answer_gets_the_letters_once_it_can(autojump_clock: MockClock) -> None:
    store = BrokenStore()
    async with open_bus(store=store, alert_after=10.0) as (bus, _):
        store.broken = True
        for number in range(3):
            await bus.client("alice").send("nobody", Number(number))
        await trio.sleep(5)
        assert store.letters == {}
        assert len(bus.dead_letters) == 3
        store.broken = False
        await trio.sleep(5)
        assert list(store.letters.values()) == bus.dead_letters.inspect()


async def test_a_failed_handler_leaves_no_variable_of_its_own_alive(
    pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, _ = pair
    buffers: list[weakref.finalize[Any, Any]] = []

    class Buffer:
        pass

    async def handler(envelope: Envelope[Any]) -> None:
        buffer = Buffer()
        buffers.append(weakref.finalize(buffer, lambda: None))
        await trio.lowlevel.checkpoint()
        raise ValueError("with a large frame")

    await bus.register("bob", handler)
    kept: list[BaseException] = []
    gc.collect()
    gc.disable()
    try:
        for number in range(50):
            await bus.client("alice").send("bob", Number(number), wait=True)
            try:
                await bus.client("alice").request("bob", Number(number))
            except ValueError as error:
                kept.append(error)
        assert len(kept) == 50
        assert sum(one.alive for one in buffers) <= 2
    finally:
        gc.enable()


def test_every_reason_says_whether_sending_again_may_help() -> None:
    assert len(TRANSIENT) == 13
    assert TRANSIENT["overflow"]
    assert not TRANSIENT["unknown_recipient"]


def test_a_notice_is_only_counted_by_the_office_itself() -> None:
    environment = RealEnvironment()

    class Still(SimulatedEnvironment):
        def wall(self) -> float:
            return 5.0

        def monotonic(self) -> float:
            return 5.0

    office = DeadLetterOffice(Still(), 10)
    plain = make_envelope(environment, Note("x"), sender="a")
    notice = attrs.evolve(plain, headers={NOTICE: True})  # type: ignore[misc]  # attrs knows the class
    assert office.add(notice, "b", "unread", "") is None
    assert office.add(plain, "b", "unread", "") is not None
    assert (len(office), office.total, office.suppressed) == (1, 1, 1)


class Keeps(Actor):
    @handle(Envelope)
    def take(self, message: Envelope[Any]) -> None:
        raise ValueError("on purpose")


async def test_an_actor_that_crashes_over_a_message_is_reported_to_who_waits(
    pair: tuple[Bus, Runtime], autojump_clock: MockClock
) -> None:
    bus, runtime = pair
    await bus.register("crasher", await runtime.spawn(Keeps))
    report = await bus.client("alice").send("crasher", Note("x"), wait=True)
    assert (report.status, report.deliveries[0].reason) == ("failed", "recipient_down")
    assert "on purpose" in report.errors[0]
    assert [letter.reason for letter in bus.dead_letters.inspect()] == ["recipient_down"]
