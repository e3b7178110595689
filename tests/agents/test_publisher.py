"""The publisher: numbered events, readers at any pace, and what they are told of what they missed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sapwood.actors import SimulatedEnvironment
from sapwood.agents import Publisher, Subscription
from sapwood.agents._publisher import KEPT, MOST_WAITING, WAITING
from sapwood.conversation import (
    AgentShutdown,
    AssistantMessage,
    Gap,
    MessageCompleted,
    State,
    StatusChanged,
    StreamEvent,
    TextDiscarded,
    TextStreamed,
    UserMessage,
)
from sapwood.errors import SubscriptionLagged
from tests.agents.kit import names, waiting_events


class Wall(SimulatedEnvironment):
    def wall(self) -> float:
        return 0.0


def publisher(epoch: int = 1, on_idle: Callable[[Publisher], None] = lambda _: None) -> Publisher:
    made = Publisher("c1", Wall(), on_idle)
    made.up = True
    made.attach(State(), epoch, 0)
    made.begin()
    return made


def say(source: Publisher, count: int = 1) -> None:
    for _ in range(count):
        source.publish(TextStreamed, "r", text="x")


def finish(source: Publisher, text: str = "x") -> None:
    source.publish(MessageCompleted, "r", message=AssistantMessage(text))


def held(subscription: Subscription) -> list[StreamEvent]:
    found: list[StreamEvent] = []

    async def read() -> None:
        found.extend(await waiting_events(subscription))

    trio.run(read, clock=trio.testing.MockClock(autojump_threshold=0))
    return found


@pytest.mark.row("S4-067", "AR-24.36")
def test_every_reader_gets_every_event_in_order_and_two_places_of_one_reader_are_independent() -> None:
    source = publisher()
    readers = [source.subscribe() for _ in range(3)]
    say(source, 3)
    readers[1].close()
    say(source, 2)
    assert [[event.seq for event in held(reader)] for reader in readers] == [[2, 3, 4, 5, 6], [], [2, 3, 4, 5, 6]]


@pytest.mark.row("S4-068", "UP-73", "UP-74")
def test_a_slow_reader_loses_deltas_only_and_is_told_which() -> None:
    source = publisher()
    slow = source.subscribe()
    for _ in range(WAITING):
        finish(source)
    say(source, 5)
    finish(source)
    say(source, 3)
    finish(source)
    got = held(slow)
    gaps = [(event.from_seq, event.to_seq) for event in got if isinstance(event, Gap)]
    first = WAITING + 2
    assert gaps == [(first, first + 4), (first + 6, first + 8)]
    assert names(got).count("MessageCompleted") == WAITING + 2
    assert "TextStreamed" not in names(got)
    say(source)
    assert names(held(slow)) == ["TextStreamed"]


@pytest.mark.row("S4-068", "UP-73")
def test_a_reader_that_reads_nothing_at_all_is_cut_off_and_told_so() -> None:
    source = publisher()
    slow, quick = source.subscribe(), source.subscribe()
    for _ in range(MOST_WAITING + 5):
        finish(source)
        quick._waiting.clear()
    assert source.readers == 1

    async def read() -> None:
        for _ in range(MOST_WAITING):
            await anext(slow)
        with pytest.raises(SubscriptionLagged) as caught:
            await anext(slow)
        assert (caught.value.agent_id, caught.value.seq) == ("c1", source.seq)

    trio.run(read)


@pytest.mark.row("UP-72")
def test_a_reader_that_comes_back_goes_on_after_the_number_it_had() -> None:
    source = publisher()
    say(source, 10)
    assert [event.seq for event in held(source.subscribe(after=7))] == [8, 9, 10, 11]
    assert held(source.subscribe(after=11)) == []
    assert held(source.subscribe()) == []


@pytest.mark.row("UP-72")
def test_what_is_no_longer_kept_is_a_gap() -> None:
    source = publisher()
    for _ in range(KEPT + 50):
        finish(source)
    got = held(source.subscribe(after=3))
    assert isinstance(got[0], Gap)
    assert (got[0].from_seq, got[0].to_seq, got[1].seq) == (4, 51, 52)
    assert [event.seq for event in got[1:]] == list(range(52, KEPT + 52))


@pytest.mark.row("UP-72")
def test_numbers_of_a_later_process_are_above_those_of_earlier_ones_and_the_jump_is_a_gap() -> None:
    first = publisher(epoch=1)
    say(first, 1000)
    later = Publisher("c1", Wall())
    back = later.subscribe(after=first.seq)
    new = later.subscribe()
    later.attach(State(), 2, 0)
    later.begin()
    assert later.seq > first.seq
    got = held(back)
    assert isinstance(got[0], Gap)
    assert (got[0].from_seq, got[0].to_seq) == (first.seq + 1, later.seq - 1)
    assert names(got[1:]) == names(held(new)) == ["StatusChanged"]
    assert names(held(later.subscribe(after=first.seq))) == ["Gap", "StatusChanged"]


@given(
    operations=st.lists(st.sampled_from(["delta", "message", "join", "resume", "read"]), max_size=60),
    waiting=st.integers(1, 4),
)
def test_no_reader_ever_misses_a_number_without_a_gap_or_sees_one_twice(operations: list[str], waiting: int) -> None:
    import sapwood.agents._publisher as module

    before = module.WAITING
    module.WAITING = waiting  # type: ignore[misc]  # a small queue, so that it overflows
    try:
        source = publisher()
        readers: list[tuple[int, Subscription, list[StreamEvent]]] = []
        for operation in operations:
            match operation:
                case "delta":
                    say(source)
                case "message":
                    finish(source)
                case "join":
                    readers.append((source.seq, source.subscribe(), []))
                case "resume":
                    start = source.seq // 2
                    readers.append((start, source.subscribe(after=start), []))
                case _:
                    for _, subscription, got in readers[:1]:
                        while subscription._waiting:
                            got.append(subscription._waiting.popleft())
        for start, subscription, got in readers:
            subscription._flush_gap()
            at = start
            for event in (*got, *subscription._waiting):
                first = event.from_seq if isinstance(event, Gap) else event.seq
                last = event.to_seq if isinstance(event, Gap) else event.seq
                assert first == at + 1
                at = last
            assert at == source.seq
    finally:
        module.WAITING = before  # type: ignore[misc]  # as above


# --- half-said text ---------------------------------------------------------------------------------


def test_text_of_which_the_whole_came_is_not_discarded_and_other_text_is() -> None:
    source = publisher()
    reader = source.subscribe()
    source.discard("r", "why")
    say(source)
    finish(source)
    source.discard("r", "why")
    say(source)
    source.publish(MessageCompleted, "r", message=UserMessage("meanwhile"))
    source.discard("r", "why")
    source.discard("r", "why")
    assert names(held(reader)) == [
        "TextStreamed",
        "MessageCompleted",
        "TextStreamed",
        "MessageCompleted",
        "TextDiscarded",
    ]


# --- the end ----------------------------------------------------------------------------------------


@pytest.mark.row("AR-22.27")
def test_the_end_of_a_server_is_told_once_for_each_start() -> None:
    source = publisher()
    reader = source.subscribe()
    say(source)
    source.shut_down("crash")
    source.shut_down("crash")
    source.begin()
    source.shut_down("killed")
    source.shut_down("shutdown")
    got = held(reader)
    assert names(got) == ["TextStreamed", "TextDiscarded", "AgentShutdown", "StatusChanged", "AgentShutdown"]
    assert [event.reason for event in got if isinstance(event, AgentShutdown)] == ["crash", "killed"]
    assert [event.reason for event in got if isinstance(event, TextDiscarded)] == ["crash"]


async def test_iteration_ends_with_the_tree_after_everything_was_read_and_can_be_taken_up_again() -> None:
    source = publisher()
    reader = source.subscribe()
    say(source)
    source.up = True
    with trio.move_on_after(0.01) as scope:
        async for _ in reader:
            pass
    assert scope.cancelled_caught
    say(source)
    source.ended()
    assert [event async for event in reader] != []
    assert [event async for event in reader] == []
    source.up = True
    source.begin()
    assert isinstance(await anext(reader), StatusChanged)


async def test_a_waiting_reader_is_woken_by_an_event_and_by_the_end() -> None:
    source = publisher()
    reader = source.subscribe()
    got: list[str] = []

    async def read() -> None:
        got.extend([type(event).__name__ async for event in reader])

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            say(source)
            await trio.testing.wait_all_tasks_blocked()
            source.ended()
    assert got == ["TextStreamed"]


@pytest.mark.row("AR-24.37", "AR-24.56")
def test_a_publisher_that_nobody_needs_any_more_says_so_and_not_before() -> None:
    idle: list[Publisher] = []
    source = publisher(on_idle=idle.append)
    reader = source.subscribe()
    reader.close()
    assert idle == []
    reader = source.subscribe()
    source.ended()
    assert idle == []
    reader.close()
    assert idle == [source]
