"""The mailbox: order, priorities, bounds, and what becomes of messages that nobody handles."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood.actors import (
    ActorSystem,
    DeadLetter,
    Down,
    Exited,
    Killed,
    MailboxHighWater,
    MailboxOptions,
    Normal,
    Priority,
    Ref,
    Shutdown,
    SimulatedEnvironment,
    handle,
    message,
    open_system,
)
from sapwood.actors._mailbox import Mailbox, extract
from sapwood.errors import ActorDown, AskCycle, InvalidMessage, InvalidOption, MailboxFull, SelfAsk
from sapwood.testing import simulate
from tests.actors.kit import (
    Call,
    Do,
    Note,
    Probe,
    SlowCall,
    SlowDo,
    Stranger,
    adding,
    end_of,
    log_of,
    of_kind,
    pause,
    record,
    settle,
    sleeping,
)


@message("tests.actors.urgent_note", priority=Priority.URGENT)
class UrgentNote:
    """Goes before others unless it is told otherwise."""


def _append(log: list[Any], value: object, _actor: Any) -> None:
    log.append(value)


@types.coroutine
def no_checkpoint() -> Generator[None, None, None]:
    """Be awaited without letting anybody run."""
    yield from ()


async def block(ref: Ref, seconds: float = 1.0) -> None:
    """Keep an actor busy for a while."""
    ref.tell(SlowDo(sleeping(seconds)))
    await settle()


class TestOrder:
    @pytest.mark.row("I27")
    @pytest.mark.parametrize("seed", range(20))
    def test_messages_of_one_sender_are_handled_in_the_order_sent(self, seed: int) -> None:
        async def main() -> None:
            async with open_system(SimulatedEnvironment(seed)) as system:
                target = await system.spawn(Probe)

                async def send(sender: int) -> None:
                    for number in range(50):
                        match system.environment.random.randrange(4):
                            case 0:
                                target.tell(Note((sender, number)))
                            case 1:
                                await target.send(Note((sender, number)))
                            case 2:
                                await target.ask(Call(adding((sender, number))))
                            case _:

                                async def slowly(actor: Any, number: int = number) -> None:
                                    await trio.lowlevel.checkpoint()
                                    actor.log.append((sender, number))

                                await target.ask(SlowCall(slowly))

                async with trio.open_nursery() as nursery:
                    for sender in range(4):
                        nursery.start_soon(send, sender)
                log = await log_of(target)
                for sender in range(4):
                    assert [number for who, number in log if who == sender] == list(range(50))

        simulate(seed, main)

    @pytest.mark.row("I28", "J13")
    @pytest.mark.parametrize("priority", [None, *Priority])
    @pytest.mark.parametrize("seed", range(5))
    def test_what_an_actor_sent_before_it_died_comes_before_the_news_of_its_death(
        self, seed: int, priority: Priority | None
    ) -> None:
        async def main() -> None:
            async with open_system() as system:
                watcher, dying = await system.spawn(Probe), await system.spawn(Probe)
                await watcher.ask(Call(lambda actor: actor.monitor(dying)))

                def last_words(actor: Any) -> None:
                    for number in range(3):
                        watcher.tell(Note(number), priority=priority)
                    actor.stop()

                dying.tell(Do(last_words))
                await end_of(dying)
                log = await log_of(watcher)
                assert log[:3] == [0, 1, 2]
                assert isinstance(log[3], Down)

        simulate(seed, main)

    @pytest.mark.row("I29", "I21")
    async def test_introspection_and_stops_do_not_overtake_messages(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        log: list[Any] = []
        await block(ref)
        for number in range(3):
            ref.tell(Do(partial(_append, log, number)))
        async with trio.open_nursery() as nursery:

            async def look() -> None:
                await ref.get_state()
                log.append("looked")

            nursery.start_soon(look)
            await settle()
            ref.tell(Do(lambda actor: log.append(3)))
            nursery.start_soon(ref.stop)
        assert log in ([0, 1, 2, 3, "looked"], [0, 1, 2, "looked", 3])

    @pytest.mark.row("I21")
    @pytest.mark.parametrize("priority", [None, *Priority])
    @pytest.mark.parametrize("bounded", [False, True])
    async def test_what_waits_when_a_stop_comes_is_handled_and_what_comes_later_is_a_dead_letter(
        self, autojump_clock: MockClock, system: ActorSystem, priority: Priority | None, bounded: Any
    ) -> None:
        handled: list[int] = []
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=10) if bounded else None)
        await block(ref)
        for number in range(3):
            ref.tell(Do(partial(_append, handled, number)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.stop)
            await settle()
            for number in range(3, 6):
                ref.tell(Do(partial(_append, handled, number)), priority=priority)
        assert handled == [0, 1, 2]
        assert [letter.reason for letter in system.telemetry.dead_letters] == ["unread"] * 3

    @pytest.mark.row("BR-11")
    async def test_priorities_are_handled_most_urgent_first_and_in_order_within(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await block(ref)
        for number in range(3):
            for priority in reversed(Priority):
                ref.tell(Note((priority.name, number)), priority=priority)
        assert await log_of(ref) == [(priority.name, number) for priority in Priority for number in range(3)]

    async def test_the_priority_of_a_message_class_is_the_default_of_its_messages(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Hurried(Probe):
            @handle
            def urgent(self, message: UrgentNote) -> None:
                self.log.append("urgent")

        ref = await system.spawn(Hurried)
        await block(ref)
        ref.tell(Note("normal"))
        ref.tell(UrgentNote())
        ref.tell(UrgentNote(), priority=Priority.LOW)
        assert await log_of(ref) == ["urgent", "normal", "urgent"]

    @pytest.mark.row("BR-11")
    @pytest.mark.parametrize("bad", [0, 5, float("nan"), "high", True, -1, object()])
    @pytest.mark.parametrize("bounded", [False, True])
    async def test_a_priority_that_is_none_is_refused_and_nothing_is_queued(
        self, autojump_clock: MockClock, system: ActorSystem, bad: Any, bounded: Any
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=2) if bounded else None)
        await block(ref)
        with pytest.raises(InvalidMessage, match=r"Priority\.URGENT, HIGH, NORMAL or LOW"):
            ref.tell(Note(1), priority=bad)
        with pytest.raises(InvalidMessage):
            await ref.send(Note(1), priority=bad)
        with pytest.raises(InvalidMessage):
            await ref.ask(Call(lambda actor: 1), priority=bad)
        assert ref.statistics().waiting == 0

    @pytest.mark.row("BR-11")
    def test_taking_notices_out_compares_no_payloads(self) -> None:
        class Incomparable:
            def __eq__(self, other: object) -> bool:
                raise AssertionError("payloads must not be compared")

            __hash__ = None  # type: ignore[assignment]  # it is not meant to be hashed either

        first, second = Incomparable(), Incomparable()
        lane: deque[Any] = deque([first, 1, second])
        assert extract(lane, lambda entry: entry is second)[0] is second
        assert lane[0] is first
        assert len(lane) == 2

    @given(
        st.lists(
            st.one_of(
                st.tuples(st.just("put"), st.sampled_from(Priority)),
                st.tuples(st.just("notice"), st.none()),
                st.tuples(st.just("take"), st.none()),
                st.tuples(st.just("seal"), st.none()),
            ),
            max_size=40,
        ),
        st.one_of(st.none(), st.integers(1, 5)),
        st.sampled_from(["reject", "drop_oldest", "drop_newest"]),
    )
    def test_the_full_mailbox_loses_nothing_and_keeps_its_bound(
        self, steps: list[tuple[str, Any]], capacity: int | None, overflow: Any
    ) -> None:
        class Notice:
            __system__ = True

            def __init__(self, before: set[int]) -> None:
                self.before = before

        box = Mailbox(MailboxOptions(capacity, overflow))
        put: set[int] = set()
        taken: list[tuple[Priority, int]] = []
        waiting: set[int] = set()
        gone: set[int] = set()
        sealed = False
        after: set[int] = set()
        for number, (step, priority) in enumerate(steps):
            if step == "put":
                put.add(number)
                try:
                    dropped = box.put((priority, number), priority, "target")
                except MailboxFull:
                    assert overflow == "reject"
                    assert len(waiting) + len(after) == capacity
                    gone.add(number)
                    continue
                (after if sealed else waiting).add(number)
                if dropped is not None:
                    lost, drop = dropped
                    assert lost >= priority
                    assert drop == number or overflow == "drop_oldest"
                    gone.add(drop)
                    waiting.discard(drop)
                    after.discard(drop)
                assert capacity is None or len(waiting) + len(after) <= capacity
            elif step == "notice":
                box.put_notice(Notice(set(waiting)))
            elif step == "seal":
                box.seal()
                sealed = True
            elif len(box):
                entry = box.popleft()
                if isinstance(entry, Notice):
                    assert not entry.before & waiting, "a notice overtook a message that was there before it"
                else:
                    assert entry[1] in waiting
                    waiting.discard(entry[1])
                    taken.append(entry)
        left = {entry[1] for entry in box.close() if not isinstance(entry, Notice)}
        assert left == waiting | after
        assert {number for _, number in taken} | left | gone == put


class TestDeadLetters:
    @pytest.mark.row("I11")
    async def test_telling_a_dead_actor_never_blocks_or_raises_and_is_one_dead_letter(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe, key=("probe", 1))
        await ref.stop()
        ref.tell(Note(1))
        await ref.send(Note(2))
        letters = list(system.telemetry.dead_letters)
        assert [(letter.message, letter.reason, letter.key) for letter in letters] == [
            (Note(1), "dead", ("probe", 1)),
            (Note(2), "dead", ("probe", 1)),
        ]
        assert system.statistics().dead_letters == 2

    async def test_a_dead_letter_names_the_actor_that_sent_it(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        dead, sender = await system.spawn(Probe), await system.spawn(Probe)
        dead.kill()
        await end_of(dead)
        sender.tell(Do(lambda actor: dead.tell(Note(1))))
        await settle()
        [letter] = system.telemetry.dead_letters
        assert (letter.target, letter.sender) == ("Probe#1", "Probe#2")

    @pytest.mark.row("I25", "UP-76")
    async def test_a_message_without_a_handler_is_a_dead_letter_and_the_actor_goes_on(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(Stranger())
        ref.tell(Note("next"))
        assert await log_of(ref) == ["next"]
        [letter] = system.telemetry.dead_letters
        assert (letter.message, letter.reason, letter.target) == (Stranger(), "unhandled", "Probe#1")

    @pytest.mark.row("I25")
    async def test_an_actor_may_take_unhandled_messages_itself(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Curious(Probe):
            def on_unhandled(self, message: Any) -> None:
                self.log.append(message)

        ref = await system.spawn(Curious)
        ref.tell(Stranger())
        assert await log_of(ref) == [Stranger()]
        assert not system.telemetry.dead_letters

    async def test_an_async_on_unhandled_is_refused_with_a_lesson(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Wrong(Probe):
            async def on_unhandled(self, message: Any) -> None:  # type: ignore[override]  # the mistake under test
                """Never runs."""

        ref = await system.spawn(Wrong)
        ref.tell(Stranger())
        assert "on_unhandled of Wrong#1: expected a plain method" in str(await end_of(ref))

    @pytest.mark.parametrize("bad", [{"cents": 1}, "deposit", 5, None, Note, [Note(1)]])
    async def test_what_is_no_message_is_refused_with_what_to_write(
        self, autojump_clock: MockClock, system: ActorSystem, bad: Any
    ) -> None:
        ref = await system.spawn(Probe)
        with pytest.raises(InvalidMessage, match="@message"):
            ref.tell(bad)
        with pytest.raises(InvalidMessage, match="@message"):
            await ref.send(bad)
        assert ref.statistics().waiting == 0


class TestBounds:
    @pytest.mark.row("BR-10")
    async def test_reject_raises_in_the_sender_and_queues_nothing(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=2))
        await block(ref)
        ref.tell(Note(1))
        ref.tell(Note(2))
        with pytest.raises(MailboxFull, match="capacity of 2") as caught:
            ref.tell(Note(3))
        assert (caught.value.target, caught.value.capacity) == ("Probe#1", 2)
        assert await log_of(ref) == [1, 2]
        assert not system.telemetry.dead_letters

    @pytest.mark.row("BR-10")
    @pytest.mark.parametrize(
        ("overflow", "handled", "dropped"), [("drop_newest", [1, 2], [3, 4]), ("drop_oldest", [3, 4], [1, 2])]
    )
    async def test_every_dropped_message_is_one_dead_letter_with_its_sender(
        self, autojump_clock: MockClock, system: ActorSystem, overflow: Any, handled: list[int], dropped: list[int]
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=2, overflow=overflow))
        sender = await system.spawn(Probe)
        await block(ref)

        def send(actor: Any) -> None:
            for number in range(1, 5):
                ref.tell(Note(number))

        sender.tell(Do(send))
        await settle()
        letters = list(system.telemetry.dead_letters)
        assert [(letter.message.value, letter.reason, letter.sender, letter.target) for letter in letters] == [
            (number, "overflow", "Probe#2", "Probe#1") for number in dropped
        ]
        assert await log_of(ref) == handled

    async def test_drop_oldest_takes_from_the_least_urgent_lane_and_never_from_a_more_urgent_one(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=3, overflow="drop_oldest"))
        await block(ref)
        for value, priority in (("n1", "NORMAL"), ("l1", "LOW"), ("h1", "HIGH"), ("u1", "URGENT"), ("n2", "NORMAL")):
            ref.tell(Note(value), priority=Priority[priority])
        ref.tell(Note("l2"), priority=Priority.LOW)
        assert await log_of(ref) == ["u1", "h1", "n2"]
        dropped = [letter.message.value for letter in system.telemetry.dead_letters]
        assert dropped == ["l1", "n1", "l2"]

    @pytest.mark.row("BR-10")
    @pytest.mark.parametrize("overflow", ["reject", "drop_oldest", "drop_newest"])
    async def test_notices_are_neither_counted_nor_dropped(
        self, autojump_clock: MockClock, system: ActorSystem, overflow: Any
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=4, overflow=overflow))
        watched = [await system.spawn(Probe) for _ in range(8)]
        await ref.ask(Call(lambda actor: [actor.monitor(other) for other in watched] and None))
        await block(ref)
        for other in watched:
            other.kill()
        await settle()
        for number in range(50):
            if overflow == "reject" and number >= 4:
                with pytest.raises(MailboxFull):
                    ref.tell(Note(number))
            else:
                ref.tell(Note(number))
        log = await log_of(ref)
        assert {down.ref for down in log if isinstance(down, Down)} == set(watched)
        assert len(log) == 12
        assert len(system.telemetry.dead_letters) == (0 if overflow == "reject" else 46)

    @pytest.mark.parametrize(
        "options",
        [
            {"capacity": 0},
            {"capacity": -1},
            {"capacity": 2.5},
            {"capacity": True},
            {"overflow": "block"},
            {"high_water": 0},
        ],
    )
    def test_options_out_of_range_are_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidOption, match="expected"):
            MailboxOptions(**options)

    async def test_the_bounds_of_a_class_hold_unless_the_start_says_otherwise(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Small(Probe):
            mailbox = MailboxOptions(capacity=1)

        small = await system.spawn(Small)
        large = await system.spawn(Small, mailbox=MailboxOptions(capacity=3))
        for ref, capacity in ((small, 1), (large, 3)):
            await block(ref)
            for number in range(capacity):
                ref.tell(Note(number))
            with pytest.raises(MailboxFull):
                ref.tell(Note("one too many"))

    @pytest.mark.row("K02")
    async def test_messages_that_come_while_the_actor_is_made_wait_in_order_also_with_bounds(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Early(Probe):
            mailbox = MailboxOptions(capacity=4)

            def __init__(self) -> None:
                super().__init__()
                self.ref.tell(Note("normal"))
                self.ref.tell(Note("urgent"), priority=Priority.URGENT)

            async def on_start(self) -> None:
                self.ref.tell(Note("starting"))
                await trio.sleep(1)
                assert self.log == []

        ref = await system.spawn(Early)
        assert await log_of(ref) == ["urgent", "normal", "starting"]
        await block(ref)
        for number in range(4):
            ref.tell(Note(number))
        with pytest.raises(MailboxFull):
            ref.tell(Note("one too many"))


class TestSend:
    async def test_send_waits_for_room_first_come_first_served(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=1))
        await block(ref, 10)
        ref.tell(Note(0))
        sent: list[int] = []

        async def send(number: int) -> None:
            await ref.send(Note(number), priority=Priority.URGENT if number % 2 else None)
            sent.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(1, 6):
                nursery.start_soon(send, number)
                await settle()
            assert sent == []
        assert sorted(sent) == [1, 2, 3, 4, 5]
        assert await log_of(ref) == [0, 1, 2, 3, 4, 5]

    async def test_a_tell_does_not_take_the_room_of_a_waiting_sender(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=1))
        await block(ref)
        ref.tell(SlowDo(sleeping(10)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.send, Note("waited"))
            await trio.sleep(2)
            with pytest.raises(MailboxFull):
                ref.tell(Note("pushed in"))
        assert await log_of(ref) == ["waited"]

    @pytest.mark.row("BR-17")
    @pytest.mark.parametrize("seed", range(60))
    def test_a_send_that_is_cancelled_at_any_moment_has_either_sent_or_not(self, seed: int) -> None:
        async def main() -> None:
            async with open_system(SimulatedEnvironment(seed)) as system:
                random = system.environment.random
                ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=1))
                returned: list[int] = []
                cancelled: list[int] = []

                async def send(number: int) -> None:
                    with trio.move_on_after(random.choice([0, 0.5, 1, 1, 1.5, 2, 3])):
                        await ref.send(SlowDo(lambda actor: note_later(actor, number)))
                        returned.append(number)
                        return
                    cancelled.append(number)

                async def note_later(actor: Any, number: int) -> None:
                    await trio.sleep(0.5)
                    actor.log.append(number)

                async with trio.open_nursery() as nursery:
                    for number in range(10):
                        nursery.start_soon(send, number)
                await trio.sleep(20)
                log = await log_of(ref)
                assert sorted(log) == sorted(returned)
                assert sorted(returned + cancelled) == list(range(10))
                assert ref.statistics().waiting == 0
                await ref.send(Note("there is room"))

        simulate(seed, main)

    @pytest.mark.parametrize("end", ["kill", "stop"])
    async def test_senders_that_wait_when_the_target_ends_go_on_and_their_messages_are_dead_letters(
        self, autojump_clock: MockClock, system: ActorSystem, end: str
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=1))
        await block(ref)
        ref.tell(Note(0))
        async with trio.open_nursery() as nursery:
            for number in (1, 2):
                nursery.start_soon(ref.send, Note(number))
                await settle()
            if end == "kill":
                ref.kill()
            else:
                nursery.start_soon(ref.stop)
                await settle()
                await ref.send(Note(3))
        expected = [0, 1, 2] if end == "kill" else [1, 2, 3]
        assert sorted(letter.message.value for letter in system.telemetry.dead_letters) == expected

    async def test_an_actor_cannot_wait_for_room_in_its_own_mailbox(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=1))

        async def handler(actor: Any) -> None:
            await actor.ref.send(Note("there is room for this one"))
            with pytest.raises(SelfAsk, match="own full mailbox"):
                await actor.ref.send(Note("and none for this"))

        await ref.ask(SlowCall(handler))
        assert await log_of(ref) == ["there is room for this one"]

    @pytest.mark.row("BR-14")
    async def test_two_actors_that_wait_for_each_other_one_of_them_for_room_are_told(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        full = await system.spawn(Probe, mailbox=MailboxOptions(capacity=1))
        other = await system.spawn(Probe)

        async def ask_back(actor: Any) -> None:
            full.tell(Note("fills it"))
            await other.ask(SlowCall(send_more), timeout=None)

        async def send_more(actor: Any) -> None:
            with pytest.raises(AskCycle):
                await full.send(Note("no room"))

        await full.ask(SlowCall(ask_back))

    async def test_send_needs_no_room_in_an_unbounded_mailbox(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await block(ref)
        for number in range(3):
            await ref.send(Note(number))
        assert await log_of(ref) == [0, 1, 2]


class TestHighWater:
    async def test_a_growing_mailbox_is_told_once_until_it_has_halved_also_while_the_actor_waits(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        events = record(system)
        ref = await system.spawn(Probe, mailbox=MailboxOptions(high_water=10))
        await block(ref, 1)
        for number in range(30):
            ref.tell(Note(number))
        assert of_kind(events, MailboxHighWater) == [MailboxHighWater("Probe#1", 10)]
        await trio.sleep(2)
        ref.tell(Note("drained"))
        await block(ref, 1)
        for number in range(10):
            ref.tell(Note(number))
        assert len(of_kind(events, MailboxHighWater)) == 2

    async def test_an_unbounded_mailbox_has_a_mark_as_well(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        events = record(system)
        ref = await system.spawn(Probe)
        await block(ref)
        for number in range(10_001):
            ref.tell(Note(number))
        assert of_kind(events, MailboxHighWater) == [MailboxHighWater("Probe#1", 10_000)]


class TestFairness:
    @pytest.mark.parametrize("slow", [False, True])
    async def test_an_actor_that_never_runs_out_of_messages_lets_others_run(
        self, autojump_clock: MockClock, system: ActorSystem, slow: Any
    ) -> None:
        busy, other = await system.spawn(Probe), await system.spawn(Probe)

        def again(actor: Any) -> None:
            actor.ref.tell(Do(again))

        async def again_slowly(actor: Any) -> None:
            # An async handler that never waits for anything.
            await no_checkpoint()
            actor.ref.tell(SlowDo(again_slowly))

        busy.tell(SlowDo(again_slowly) if slow else Do(again))
        assert await other.ask(Call(lambda actor: "served")) == "served"
        assert await busy.ask(Call(lambda actor: "served as well")) == "served as well"
        busy.kill()
        assert await end_of(busy) == Killed()

    async def test_an_actor_that_always_goes_on_lets_others_run_and_can_be_killed(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Restless(Probe):
            def on_continue(self, token: Any) -> None:
                self.continue_with(token)

        busy, other = await system.spawn(Restless), await system.spawn(Probe)
        busy.tell(Do(lambda actor: actor.continue_with()))
        assert await other.ask(SlowCall(pause)) is None
        busy.kill()
        assert await end_of(busy) == Killed()

    async def test_messages_that_each_ask_to_go_on_let_others_run(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Restless(Probe):
            def on_continue(self, token: Any) -> None:
                self.ref.tell(Do(lambda actor: actor.continue_with()))

        busy, other = await system.spawn(Restless), await system.spawn(Probe)
        busy.tell(Do(lambda actor: actor.continue_with()))
        assert await other.ask(SlowCall(pause)) is None
        busy.kill()
        assert await end_of(busy) == Killed()


class TestStopping:
    async def test_messages_that_wait_when_an_actor_ends_are_dead_letters_in_order(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        events = record(system)
        ref = await system.spawn(Probe)
        ref.tell(Do(lambda actor: actor.stop(Shutdown("at once"))))
        for number in range(3):
            ref.tell(Note(number))
        assert await end_of(ref) == Shutdown("at once")
        letters = of_kind(events, DeadLetter)
        assert [(letter.message.value, letter.reason) for letter in letters] == [(n, "unread") for n in range(3)]
        assert of_kind(events, Exited)[0].reason == Shutdown("at once")

    async def test_a_second_stop_changes_nothing(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref = await system.spawn(Probe)
        await block(ref)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.stop)

            async def stop_again() -> None:
                with pytest.raises(ActorDown) as caught:
                    await ref.stop(Shutdown("again"))
                assert caught.value.reason == Normal()

            await settle()
            nursery.start_soon(stop_again)
