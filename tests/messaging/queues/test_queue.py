"""What every queue does, on every kind of store."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from sapwood.actors import Priority, SimulatedEnvironment
from sapwood.errors import (
    CodecError,
    InvalidMessage,
    InvalidOption,
    LeaseLost,
    MessageIdConflict,
    QueueClosed,
    QueueFenced,
    QueueFull,
)
from sapwood.messaging.queues import AppendFailed, Delivery, Message, QueueOptions, open_queue
from sapwood.persistence import StoreEngine
from tests.messaging.queues.kit import Events, Job, ack_all, drain, payloads, quick

# --- order ----------------------------------------------------------------------------------------------


@pytest.mark.row("S2-025", "S2-030", "S2-039")
async def test_messages_come_in_the_order_in_which_they_were_appended(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as queue:
        for number in range(5):
            appended = await queue.append(Job(number))
            assert appended.seq == number + 1
        assert await drain(queue) == [Job(number) for number in range(5)]
        assert await queue.poll() == []


@pytest.mark.row("S2-024", "S2-025")
async def test_a_queue_by_priority_gives_the_most_urgent_first_and_keeps_order_within_a_priority(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", quick(ordering="priority")) as queue:
        for name, priority in (
            ("low", Priority.LOW),
            ("normal 1", Priority.NORMAL),
            ("urgent 1", Priority.URGENT),
            ("normal 2", Priority.NORMAL),
            ("high", Priority.HIGH),
            ("urgent 2", Priority.URGENT),
        ):
            await queue.append(Message(name.encode(), priority=priority))
        assert await drain(queue, 1) == [b"urgent 1", b"urgent 2", b"high", b"normal 1", b"normal 2", b"low"]


@pytest.mark.row("S2-025")
@pytest.mark.parametrize(("ordering", "expected"), [("fifo", [b"1", b"2", b"3"]), ("none", [b"2", b"3", b"1"])])
async def test_a_message_that_failed_keeps_its_place_in_fifo_order_and_goes_to_the_back_where_no_order_is_promised(
    store: StoreEngine,
    environment: SimulatedEnvironment,
    autojump_clock: MockClock,
    ordering: Any,
    expected: list[bytes],
) -> None:
    async with open_queue(store, environment, "q", quick(ordering=ordering)) as queue:
        await queue.append_many([b"1", b"2", b"3"])
        (first,) = await queue.poll()
        await first.nack("once", delay=0)
        assert await drain(queue, 1) == expected


@pytest.mark.row("S2-025", "S2-041")
async def test_a_partitioned_queue_has_one_message_of_a_key_in_flight_and_keeps_the_order_of_each_key_through_retries(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(ordering="partitioned")) as queue:
        for text, key in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("free", None), ("a3", "a")):
            await queue.append(Message(text.encode(), key=key))

        first, other, free = await queue.poll(10)
        assert payloads([first, other, free]) == [b"a1", b"b1", b"free"]
        assert await queue.poll(10) == []
        await first.nack("not yet", delay=60)
        assert await queue.poll(10) == [], "the retry of a1 holds a2 back"
        await ack_all([other, free])
        await trio.sleep(61)

        assert await drain(queue, 10) == [b"a1", b"a2", b"a3"]


async def test_a_message_that_dies_lets_the_next_one_of_its_key_come(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(ordering="partitioned")) as queue:
        await queue.append_many([Message(b"1", key="k"), Message(b"2", key="k", ttl=5), Message(b"3", key="k")])
        (first,) = await queue.poll(5)
        await first.reject("bad")
        (second,) = await queue.poll(5)
        await second.nack(delay=10)
        await trio.sleep(20)
        assert await drain(queue) == [b"3"], "2 expired while it waited for its retry"


async def test_a_key_stays_held_while_one_is_in_flight_though_others_of_it_are_replayed_and_expire(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(ordering="partitioned")) as queue:
        await queue.append(Message(b"1", key="k"))
        assert await drain(queue) == [b"1"]
        await queue.append_many([Message(b"2", key="k"), Message(b"3", key="k", ttl=5)])
        (held,) = await queue.poll()
        assert await queue.replay() == 1
        await trio.sleep(6)
        assert await queue.poll() == []
        assert [letter.seq for letter in await queue.dead_letters.list()] == [3]
        await held.ack()
        assert await drain(queue) == [b"1"]


# --- acknowledgement, redelivery ------------------------------------------------------------------------


@pytest.mark.row("S1-055", "S2-026", "S2-027")
async def test_a_delivery_that_is_not_acknowledged_comes_again_when_its_time_is_over(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(visibility=30)) as queue:
        await queue.append(b"x")
        first = await queue.receive()
        began = trio.current_time()
        second = await queue.receive()
        assert (second.seq, second.attempt, second.redelivered) == (first.seq, 2, True)
        assert trio.current_time() - began == pytest.approx(30, abs=0.1)


@pytest.mark.row("S2-027")
@pytest.mark.parametrize("settle", ["ack", "nack", "reject"])
async def test_a_receiver_that_lost_its_delivery_is_refused_whatever_it_asks_for_and_changes_nothing(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, settle: str
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(visibility=1)) as queue:
        await queue.append(b"x")
        slow = await queue.receive()
        await trio.sleep(2)
        quick_one = await queue.receive(visibility=60)
        with pytest.raises(LeaseLost) as caught:
            await getattr(slow, settle)()
        assert (caught.value.seq, caught.value.attempt) == (1, 1)
        with pytest.raises(LeaseLost):
            slow.extend()
        await quick_one.ack()
        assert (await queue.statistics()).counts["refused"] == 2
        assert await queue.depth() == 0
        assert await queue.dead_letters.list() == []


async def test_a_delivery_that_is_extended_stays_with_its_receiver(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(visibility=10)) as queue:
        await queue.append(b"x")
        delivery = await queue.receive()
        for _ in range(5):
            await trio.sleep(8)
            delivery.extend()
        assert await queue.poll() == []
        await delivery.check()
        await delivery.ack()


@pytest.mark.row("S2-028", "S1-054")
async def test_a_failed_delivery_comes_again_after_growing_delays_and_is_dead_after_three(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as queue:
        await queue.append(b"x")
        times: list[float] = []
        for attempt in (1, 2, 3):
            delivery = await queue.receive()
            times.append(trio.current_time())
            assert delivery.attempt == attempt
            await delivery.nack(ValueError("no"))
        assert 0.8 <= times[1] - times[0] <= 1.01
        assert 1.6 <= times[2] - times[1] <= 2.01
        (letter,) = await queue.dead_letters.list()
        assert (letter.reason, letter.attempts, letter.detail) == ("delivery_failed", 3, "ValueError: no")


@pytest.mark.parametrize("second", ["ack", "nack", "reject"])
async def test_a_delivery_is_settled_once(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, second: str
) -> None:
    async with open_queue(store, environment, "q") as queue:
        await queue.append(b"x")
        delivery = await queue.receive()
        await delivery.ack()
        with pytest.raises(LeaseLost):
            await getattr(delivery, second)()


async def test_a_message_that_a_cancelled_receiver_was_about_to_get_goes_to_another_and_counts_no_attempt(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(visibility=3600)) as queue:
        outcomes: list[bool] = []

        async def receive(scope: trio.CancelScope, got: list[Delivery]) -> None:
            with scope:
                got.append(await queue.receive())

        for checkpoints in range(40):
            scope = trio.CancelScope()
            got: list[Delivery] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive, scope, got)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(queue.append, b"%d" % checkpoints)
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
            with trio.fail_after(1):
                delivery = got[0] if got else await queue.receive()
            assert (delivery.payload, delivery.attempt) == (b"%d" % checkpoints, 1)
            await delivery.ack()
            outcomes.append(bool(got))
        assert set(outcomes) == {True, False}, "the receiver was cancelled before it had the message and after"
        assert (await queue.statistics()).counts["released"] > 0, "and once at the very moment"


# --- time -----------------------------------------------------------------------------------------------


async def test_a_delayed_message_comes_when_its_time_has_come_and_a_scheduled_one_by_the_wall_clock(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as queue:
        await queue.append(Message(b"delayed", delay=20))
        await queue.append(Message(b"scheduled", deliver_at=environment.wall() + 40))
        await queue.append(b"now")
        begin = trio.current_time()
        seen: list[tuple[bytes, int]] = []
        for _ in range(3):
            delivery = await queue.receive()
            seen.append((delivery.payload, round(trio.current_time() - begin)))
            await delivery.ack()
        assert seen == [(b"now", 0), (b"delayed", 20), (b"scheduled", 40)]


@pytest.mark.row("S2-033", "S3-109")
async def test_a_message_that_nobody_takes_in_time_is_dead_and_one_that_was_taken_is_not(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    events = Events()
    async with open_queue(store, environment, "q", QueueOptions(ttl=100), on_event=events) as queue:
        await queue.append(Message(b"short", ttl=5))
        await queue.append(b"queue's own")
        taken = await queue.receive()
        assert taken.payload == b"short"
        await trio.sleep(10)
        await taken.ack()
        await trio.sleep(100)
        (letter,) = await queue.dead_letters.list()
        assert letter.message is not None
        assert (letter.message.message.payload, letter.reason) == (b"queue's own", "expired")
        assert (letter.attempts, letter.last_attempt_at, letter.retries_by_itself) == (0, None, False)
        assert await queue.poll() == []


@pytest.mark.row("BR-77")
@pytest.mark.parametrize("jump", [-120.0, 315_360_000.0, -1_700_000_000.0])
async def test_a_wall_clock_that_jumps_moves_no_time_out_delay_or_expiry(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, jump: float
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(visibility=30)) as queue:
        await queue.append_many([b"leased", Message(b"delayed", delay=60), Message(b"expiring", ttl=90)])
        leased = await queue.receive()
        begin = trio.current_time()
        environment.epoch += jump
        other = await queue.receive(visibility=500)
        assert other.payload == b"expiring"
        await other.nack(delay=1000)
        again = await queue.receive()
        assert (again.seq, round(trio.current_time() - begin)) == (leased.seq, 30)
        await again.ack()
        delayed = await queue.receive()
        assert (delayed.payload, round(trio.current_time() - begin)) == (b"delayed", 60)
        await delayed.ack()
        await trio.sleep(31)
        (letter,) = await queue.dead_letters.list()
        assert letter.reason == "expired"
        assert (await queue.statistics()).oldest_age >= 0


@pytest.mark.row("BR-77")
async def test_a_scheduled_message_follows_a_wall_clock_that_is_set_forward_and_comes_once(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as queue:
        await queue.append(Message(b"next year", deliver_at=environment.wall() + 31_536_000))
        begin = trio.current_time()
        await trio.sleep(10)
        environment.epoch += 315_360_000
        delivery = await queue.receive()
        assert trio.current_time() - begin < 12
        await delivery.ack()
        await trio.sleep(1000)
        assert await queue.poll() == []


@pytest.mark.row("BR-77")
async def test_a_wall_clock_set_back_between_two_runs_postpones_nothing_beyond_its_own_time(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as queue:
        await queue.append(Message(b"x", delay=60))
        await queue.append(Message(b"y", ttl=90))
        held = await queue.receive()
        await held.nack(delay=500)
    environment.epoch -= 10_000
    async with open_queue(store, environment, "q") as queue:
        with trio.fail_after(61):
            delivery = await queue.receive()
        assert delivery.payload == b"x"
        await trio.sleep(91)
        assert [letter.reason for letter in await queue.dead_letters.list()] == ["expired"]


@pytest.mark.row("BR-77")
async def test_what_was_being_delivered_is_there_at_once_though_the_clock_was_set_back_between_two_runs(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as queue:
        await queue.append(Message(b"x", delay=60))
        await queue.receive()
    environment.epoch -= 10_000
    async with open_queue(store, environment, "q") as queue:
        (delivery,) = await queue.poll()
        assert delivery.attempt == 2


# --- ids ------------------------------------------------------------------------------------------------


@pytest.mark.row("S2-031", "S2-026")
async def test_a_message_id_is_accepted_once_within_its_window(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(mode="effectively_once", dedup_window=60)) as queue:
        first = await queue.append(Message(b"x", id="one"))
        assert await drain(queue) == [b"x"]
        for _ in range(3):
            repeat = await queue.append(Message(b"x", id="one"))
            assert (repeat.seq, repeat.duplicate) == (first.seq, True)
        both = await queue.append_many([Message(b"y", id="two"), Message(b"y", id="two")])
        assert [one.duplicate for one in both] == [False, True]
        assert await drain(queue) == [b"y"]
        await trio.sleep(61)
        assert not (await queue.append(Message(b"x", id="one"))).duplicate
        assert (await queue.statistics()).counts["duplicates"] == 4


@pytest.mark.row("S2-031")
async def test_a_message_id_used_for_another_content_is_refused_and_nothing_of_the_batch_is_stored(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(mode="effectively_once")) as queue:
        await queue.append(Message(b"x", id="one"))
        with pytest.raises(MessageIdConflict, match="says something else"):
            await queue.append_many([b"before", Message(b"other", id="one")])
        assert await drain(queue) == [b"x"]


async def test_ids_are_not_looked_at_where_no_window_is_asked_for(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as queue:
        await queue.append_many([Message(b"x", id="one"), Message(b"x", id="one")])
        assert await drain(queue) == [b"x", b"x"]


# --- limits ---------------------------------------------------------------------------------------------


@pytest.mark.row("S2-036")
async def test_senders_wait_for_room_in_turn_and_go_on_as_messages_leave(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(capacity=3)) as queue:
        done: list[int] = []

        async def send(number: int) -> None:
            await queue.append(Job(number))
            done.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(send, number)
                await trio.sleep(1)
            assert done == [0, 1, 2]
            assert await queue.depth() == 3
            seen = [await queue.receive()]
            await trio.sleep(1)
            assert done == [0, 1, 2], "a message that is worked on takes up room"
            for _ in range(9):
                await seen[-1].ack()
                seen.append(await queue.receive())
                assert await queue.depth() <= 3
        assert payloads(seen) == [Job(number) for number in range(10)]
        assert done == list(range(10))


@pytest.mark.row("S2-036")
async def test_a_cancelled_sender_leaves_the_line_and_the_next_one_moves_up(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(capacity=1)) as queue:
        await queue.append(b"1")
        with trio.move_on_after(5) as scope:
            await queue.append(b"2")
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(queue.append, b"3")
            for expected in (b"1", b"3"):
                delivery = await queue.receive()
                assert delivery.payload == expected
                await delivery.ack()
        assert await queue.depth() == 0


async def test_a_full_queue_that_rejects_says_so_and_stores_nothing_of_a_batch(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(capacity=3, overflow="reject")) as queue:
        await queue.append_many([b"1", b"2"])
        with pytest.raises(QueueFull) as caught:
            await queue.append_many([b"3", b"4"])
        assert (caught.value.capacity, caught.value.depth) == (3, 2)
        with pytest.raises(InvalidOption, match="at most the queue's capacity of 3"):
            await queue.append_many([b"x"] * 4)
        assert await drain(queue) == [b"1", b"2"]


@pytest.mark.row("S2-037")
@pytest.mark.parametrize("overflow", ["drop_newest", "drop_oldest", "drop_lowest"])
async def test_a_queue_that_sheds_load_makes_each_message_that_it_drops_one_dead_letter(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, overflow: Any
) -> None:
    left, shed = {
        "drop_newest": ([b"low", b"high"], [b"normal", b"late"]),
        "drop_oldest": ([b"normal", b"late"], [b"low", b"high"]),
        "drop_lowest": ([b"high", b"late"], [b"low", b"normal"]),
    }[overflow]
    async with open_queue(store, environment, "q", QueueOptions(capacity=2, overflow=overflow)) as queue:
        given = [("low", Priority.LOW), ("high", Priority.HIGH), ("normal", Priority.NORMAL), ("late", Priority.URGENT)]
        appended = [
            await queue.append(Message(text.encode(), priority=priority, sender="me")) for text, priority in given
        ]
        letters = await queue.dead_letters.list()
        assert [letter.message.message.payload for letter in letters if letter.message] == shed
        assert {letter.reason for letter in letters} == {"overflow"}
        assert {letter.message.message.sender for letter in letters if letter.message} == {"me"}
        assert await drain(queue) == left
        assert [one.shed for one in appended].count(True) == (2 if overflow == "drop_newest" else 0)


# --- batches, fire and forget ---------------------------------------------------------------------------


@pytest.mark.row("S2-038")
async def test_a_batch_is_stored_in_full_and_taken_in_one_go(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as queue:
        writes = store.statistics().writes
        appended = await queue.append_many([Job(number) for number in range(100)])
        assert store.statistics().writes == writes + 1
        assert [one.seq for one in appended] == list(range(1, 101))
        batch = await queue.receive_batch(60)
        assert payloads(batch) == [Job(number) for number in range(60)]
        assert len(await queue.receive_batch(60)) == 40


@pytest.mark.row("S2-038", "S2-040")
async def test_receivers_of_batches_that_wait_share_what_comes_evenly(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    shares: list[list[Any]] = []

    async with open_queue(store, environment, "q") as queue:

        async def receive() -> None:
            shares.append(payloads(await queue.receive_batch(5)))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            await queue.append_many([Job(number) for number in range(7)])
        assert sorted(map(len, shares)) == [2, 2, 3]
        assert sorted(job.number for share in shares for job in share) == list(range(7))


@pytest.mark.row("S2-035")
async def test_fire_and_forget_keeps_order_and_is_durable_after_flush(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as queue:
        for number in range(50):
            queue.append_nowait(Job(number))
        await queue.flush()
        assert await queue.depth() == 50
        assert await drain(queue) == [Job(number) for number in range(50)]


async def test_what_was_given_without_waiting_is_stored_before_the_queue_closes(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    with trio.CancelScope() as scope:
        async with open_queue(store, environment, "q") as queue:
            for number in range(50):
                queue.append_nowait(Job(number))
            scope.cancel()
    async with open_queue(store, environment, "q") as queue:
        assert await drain(queue) == [Job(number) for number in range(50)]


async def test_a_message_that_cannot_be_stored_later_is_reported_and_those_behind_it_are_stored(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    events = Events()
    options = QueueOptions(mode="effectively_once")
    async with open_queue(store, environment, "q", options, on_event=events) as queue:
        for payload in (b"1", b"2", b"3"):
            queue.append_nowait(Message(payload, id="same" if payload != b"3" else ""))
        await queue.flush()
        assert await drain(queue) == [b"1", b"3"]
        (failed,) = events.of(AppendFailed)
        assert failed.message.payload == b"2"
        assert isinstance(failed.error, MessageIdConflict)


# --- bad input ------------------------------------------------------------------------------------------


@pytest.mark.row("BR-11")
@pytest.mark.parametrize(
    "bad",
    [
        {"priority": None},
        {"priority": math.nan},
        {"priority": "high"},
        {"priority": 0},
        {"priority": True},
        {"key": ""},
        {"key": 5},
        {"ttl": 0},
        {"ttl": math.inf},
        {"delay": -1},
        {"deliver_at": math.nan},
        {"delay": 1, "deliver_at": 5.0},
        {"headers": {"a": 1}},
        {"headers": None},
        {"sender": ""},
        {"id": "x" * 513},
    ],
    ids=repr,
)
async def test_a_message_with_a_wrong_part_is_refused_before_it_is_queued(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, bad: dict[str, Any]
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(ordering="priority")) as queue:
        with pytest.raises(InvalidMessage, match=list(bad)[-1]):
            await queue.append(Message(b"x", **bad))
        assert await queue.depth() == 0


@pytest.mark.parametrize(
    ("payload", "error"),
    [("text", InvalidMessage), ({"a": 1}, InvalidMessage), (None, InvalidMessage), (Job("one"), CodecError)],  # type: ignore[arg-type]
    ids=["text", "dict", "none", "wrong field"],
)
async def test_a_payload_that_cannot_be_stored_is_refused_and_nothing_of_its_batch_is_stored(
    store: StoreEngine,
    environment: SimulatedEnvironment,
    autojump_clock: MockClock,
    payload: Any,
    error: type[Exception],
) -> None:
    async with open_queue(store, environment, "q") as queue:
        with pytest.raises(error):
            await queue.append_many([b"good", payload])
        with pytest.raises(error):
            queue.append_nowait(payload)
        assert await queue.depth() == 0


async def test_what_is_appended_does_not_change_with_what_it_was_made_of(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    headers = {"a": "1"}
    message = Message(b"x", headers=headers)
    async with open_queue(store, environment, "q") as queue:
        queue.append_nowait(message)
        headers["a"] = "2"
        headers["b"] = "3"
        delivery = await queue.receive()
        assert dict(delivery.message.headers) == {"a": "1"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("mode", "exactly_once"),
        ("ordering", "lifo"),
        ("capacity", 0),
        ("overflow", "explode"),
        ("visibility", 0),
        ("max_attempts", 0),
        ("retry", 3),
        ("ttl", -1),
        ("dedup_window", -1),
        ("retention", -1),
        ("dead_retries", -1),
        ("dead_retry_delay", 0),
        ("alert_after", 0),
    ],
)
def test_an_option_out_of_its_range_is_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(InvalidOption, match=f"queue option {option}: expected .*; got"):
        QueueOptions(**{option: value})  # type: ignore[arg-type]


def test_a_queue_that_is_effectively_once_must_have_a_window() -> None:
    with pytest.raises(InvalidOption, match="dedup_window"):
        QueueOptions(mode="effectively_once", dedup_window=0)


# --- ownership ------------------------------------------------------------------------------------------


@pytest.mark.row("S2-027")
async def test_a_queue_that_is_opened_again_fences_its_former_owner_and_brings_its_deliveries_back_at_once(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as first:
        await first.append_many([b"1", b"2"])
        held = await first.receive()
        async with open_queue(store, environment, "q", owner="second") as second:
            again = await second.receive()
            assert (again.seq, again.attempt) == (held.seq, 2)
            for call in (
                held.ack,
                held.nack,
                lambda: first.append(b"3"),
                first.receive,
                first.dead_letters.list,
            ):
                with pytest.raises(QueueFenced) as caught:
                    await call()
                assert (caught.value.held, caught.value.current) == (1, 2)
            with pytest.raises(QueueFenced):
                first.append_nowait(b"4")
            await again.ack()
            assert await drain(second) == [b"2"]


async def test_a_receiver_that_waits_is_told_when_the_queue_is_fenced(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as first, trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(QueueFenced):
                await first.receive()

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        async with open_queue(store, environment, "q"):
            with pytest.raises(QueueFenced):
                await first.append(b"x")


async def test_receivers_and_senders_of_a_closed_queue_are_refused_and_none_hangs(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    refused: list[str] = []

    async def refuse(name: str, call: Any) -> None:
        with pytest.raises(QueueClosed):
            await call()
        refused.append(name)

    async with (
        trio.open_nursery() as nursery,
        open_queue(store, environment, "q", QueueOptions(capacity=1)) as queue,
    ):
        await queue.append(b"1")
        held = await queue.receive()
        nursery.start_soon(refuse, "receiver", queue.receive)
        nursery.start_soon(refuse, "sender", lambda: queue.append(b"2"))
        await trio.testing.wait_all_tasks_blocked()
    for call in (held.ack, queue.receive, lambda: queue.append(b"3"), queue.statistics, queue.flush):
        await refuse("later", call)
    assert sorted(refused[:2]) == ["receiver", "sender"]


async def test_an_exception_of_the_block_leaves_it_as_it_is(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_queue(store, environment, "q"):
            raise KeyError("mine")


async def test_queues_of_one_store_do_not_touch_each_other(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "a") as one, open_queue(store, environment, "b") as two:
        await one.append(b"a")
        await two.append(b"b")
        assert await drain(two) == [b"b"]
        assert await one.depth() == 1
        assert await drain(one) == [b"a"]


# --- figures --------------------------------------------------------------------------------------------


async def test_statistics_say_what_stands_in_the_queue_and_what_it_did(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(ordering="partitioned")) as queue:
        await queue.append_many([Message(b"1", key="k"), Message(b"2", key="k"), b"3", Message(b"4", delay=60), b"5"])
        held, bad = await queue.poll(2)
        await bad.reject()
        await trio.sleep(7)
        figures = await queue.statistics()
        assert (figures.depth, figures.ready, figures.delayed, figures.blocked) == (4, 1, 1, 1)
        assert (figures.in_flight, figures.dead, figures.last_seq, figures.lag) == (1, 1, 5, 5)
        assert figures.oldest_age == pytest.approx(7, abs=0.1)
        assert figures.counts["appended"] == 5
        assert figures.rates["appended"] == pytest.approx(5 / 7, rel=0.01)
        await held.ack()
        await trio.sleep(70)
        figures = await queue.statistics()
        assert figures.rates["appended"] == 0
        assert (figures.ready, figures.delayed, figures.blocked, figures.lag) == (3, 0, 0, 4)
