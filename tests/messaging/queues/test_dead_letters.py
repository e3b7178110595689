"""Dead letters: when there is one, what it says, and what becomes of it."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import SimulatedEnvironment
from sapwood.errors import DeadLetterMissing, InvalidOption, LeaseLost, QueueFull, StoreUnavailable
from sapwood.messaging.queues import (
    REASONS,
    Buried,
    DeadLetterAlert,
    Message,
    Queue,
    QueueEvent,
    QueueOptions,
    SenderNotice,
    open_queue,
)
from sapwood.persistence import StoreEngine, open_store
from tests.messaging.queues.kit import Events, Job, drain, quick


async def fail_all(queue: Queue, attempts: int = 3) -> None:
    for _ in range(attempts):
        delivery = await queue.receive()
        await delivery.nack("broken")


@pytest.mark.row("S3-109", "S1-056", "S2-029")
async def test_each_condition_makes_a_dead_letter_with_its_reason(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", quick(dead_retries=0)) as queue:
        await queue.dead_letters.add(Message(b"who", sender="me"), "recipient_unknown", "no agent 'x'")
        await queue.dead_letters.add(Message(b"busy"), "no_instance")
        await queue.append(Message(b"late", ttl=5))
        await trio.sleep(6)
        await queue.append(b"broken")
        await fail_all(queue)
        await queue.append(b"bad")
        await (await queue.receive()).reject("not for me")
        letters = await queue.dead_letters.list()
        assert [(letter.reason, letter.transient) for letter in letters] == [
            ("recipient_unknown", False),
            ("no_instance", True),
            ("expired", False),
            ("delivery_failed", True),
            ("rejected", False),
        ]
        assert {letter.reason for letter in letters} <= set(REASONS)
        with pytest.raises(InvalidOption, match="dead letter reason: expected one of recipient_unknown"):
            await queue.dead_letters.add(b"x", "bored")  # type: ignore[arg-type]


@pytest.mark.row("S3-110", "S2-046")
async def test_a_dead_letter_holds_the_original_message_the_reason_the_attempts_and_their_times(
    store: StoreEngine,
    environment: SimulatedEnvironment,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    message = Message(Job(7, "secret"), id="m7", sender="boss", key="k", headers={"trace": "t1"})
    async with open_queue(store, environment, "q") as queue:
        await queue.append(message)
        begin = environment.wall()
        with caplog.at_level(logging.WARNING, "sapwood.queues"):
            for error in ("one", "two", "three"):
                await (await queue.receive()).nack(ValueError(error), delay=10)
        letter = await queue.dead_letters.get(1)
        assert letter.message is not None
        assert letter.message.message == message
        assert (letter.reason, letter.detail, letter.attempts) == ("delivery_failed", "ValueError: three", 3)
        assert letter.first_attempt_at == pytest.approx(begin)
        assert letter.last_attempt_at == letter.dead_at == pytest.approx(begin + 20)
        assert "queue 'q': message 1 is a dead letter (delivery_failed): ValueError: three" in caplog.text
        assert "secret" not in caplog.text


@pytest.mark.row("S3-111")
async def test_a_transient_one_is_tried_again_three_times_and_then_its_sender_is_told_once(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    events = Events()
    options = quick(max_attempts=1, dead_retry_delay=60)
    async with open_queue(store, environment, "q", options, on_event=events) as queue:
        await queue.append(Message(b"x", sender="boss"))
        begin = trio.current_time()
        times: list[int] = []
        for requeues in range(4):
            delivery = await queue.receive()
            assert delivery.requeues == requeues
            assert delivery.redelivered == (requeues > 0)
            times.append(round(trio.current_time() - begin))
            assert events.of(SenderNotice) == []
            await delivery.nack("down")
        assert times == [0, 60, 180, 420]
        await trio.sleep(10_000)
        (notice,) = events.of(SenderNotice)
        assert (notice.letter.message.message.sender, notice.letter.requeues) == ("boss", 3)
        assert not notice.letter.retries_by_itself
        assert await queue.poll() == []


async def test_a_transient_one_that_succeeds_on_its_way_is_no_dead_letter_any_more_and_nobody_is_told(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    events = Events()
    async with open_queue(store, environment, "q", quick(max_attempts=1), on_event=events) as queue:
        await queue.append(b"x")
        await (await queue.receive()).nack("down")
        await (await queue.receive()).ack()
        await trio.sleep(10_000)
        assert events.of(SenderNotice) == events.of(DeadLetterAlert) == []
        assert await queue.dead_letters.list() == []


@pytest.mark.row("S3-111")
async def test_an_alert_comes_when_a_message_has_been_dead_for_five_minutes_and_only_once(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    events = Events()
    async with open_queue(store, environment, "q", on_event=events) as queue:
        await queue.append(b"x")
        await (await queue.receive()).reject("bad")
        await trio.sleep(299)
        assert events.of(DeadLetterAlert) == []
        await trio.sleep(2)
        assert [alert.letter.seq for alert in events.of(DeadLetterAlert)] == [1]
        await trio.sleep(10_000)
        assert len(events.of(DeadLetterAlert)) == 1


@pytest.mark.row("S3-111")
async def test_the_alert_of_a_message_that_dies_again_and_again_counts_from_its_first_death(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    events = Events()
    options = quick(max_attempts=1, dead_retry_delay=100)
    async with open_queue(store, environment, "q", options, on_event=events) as queue:
        await queue.append(b"x")
        begin = trio.current_time()
        for _ in range(3):
            await (await queue.receive()).nack("down")
        assert trio.current_time() - begin == pytest.approx(300, abs=1)
        await trio.sleep(2)
        assert len(events.of(DeadLetterAlert)) == 1


async def test_alerts_and_notices_that_were_not_given_before_a_restart_are_given_after_it(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", on_event=fail) as queue:
        await queue.append(b"x")
        await (await queue.receive()).reject("bad")
        await trio.sleep(301)
    events = Events()
    async with open_queue(store, environment, "q", on_event=events):
        await trio.sleep(1)
    assert len(events.of(DeadLetterAlert)) == len(events.of(SenderNotice)) == 1


def fail(event: QueueEvent) -> None:
    raise RuntimeError("listener is down")


@pytest.mark.row("BR-44")
async def test_a_listener_that_fails_is_counted_and_makes_no_dead_letters_and_no_loop(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", quick(dead_retries=0), on_event=fail) as queue:
        await queue.append_many([Job(number) for number in range(100)])
        while deliveries := await queue.poll(10):
            for delivery in deliveries:
                await delivery.reject("bad")
        writes = store.statistics().writes
        await trio.sleep(600)
        figures = await queue.statistics()
        assert (figures.dead, figures.depth, figures.last_seq) == (100, 0, 100)
        assert figures.counts["dead"] == 100
        assert 200 <= figures.counts["listener_failures"] <= 100 + 200 * 12, "told again once a minute, at most"
        assert store.statistics().writes - writes < 60


async def test_a_message_that_dies_again_after_each_requeue_is_one_dead_letter_and_never_two(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    events = Events()
    async with open_queue(store, environment, "q", quick(max_attempts=1, dead_retries=0), on_event=events) as queue:
        await queue.append(b"x")
        for _ in range(5):
            await (await queue.receive()).nack("bad")
            assert len(await queue.dead_letters.list()) == 1
            await queue.dead_letters.requeue(1)
        assert len(events.of(Buried)) == 5
        assert await drain(queue) == [b"x"]


@pytest.mark.row("S2-029")
async def test_a_person_may_requeue_a_dead_letter_which_then_has_all_its_attempts_and_its_old_place(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", quick(dead_retries=0)) as queue:
        await queue.append(b"1")
        await fail_all(queue)
        await queue.append(b"2")
        await queue.dead_letters.requeue(1)
        (first,) = await queue.poll()
        assert (first.payload, first.attempt, first.requeues, first.redelivered) == (b"1", 1, 0, True)
        await first.ack()
        with pytest.raises(DeadLetterMissing):
            await queue.dead_letters.get(1)


@pytest.mark.row("S2-029")
async def test_a_dead_letter_that_is_not_there_is_refused_and_nothing_of_the_call_is_done(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as queue:
        await queue.append_many([b"1", b"2"])
        for delivery in await queue.poll(2):
            await delivery.reject("bad")
        for call in (queue.dead_letters.requeue, queue.dead_letters.discard):
            with pytest.raises(DeadLetterMissing) as caught:
                await call(1, 3)
            assert caught.value.seq == 3
        assert [letter.seq for letter in await queue.dead_letters.list()] == [1, 2]
        assert [letter.seq for letter in await queue.dead_letters.list(after=1)] == [2]
        await queue.dead_letters.discard(1, 2)
        assert await queue.dead_letters.list() == []
        assert [stored.seq for stored in await queue.log.read()] == [1, 2]


async def test_dead_letters_take_no_room_and_a_full_queue_can_still_bury(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(capacity=1, overflow="reject")) as queue:
        await queue.append(b"1")
        await queue.dead_letters.add(b"2", "recipient_unknown")
        with pytest.raises(QueueFull):
            await queue.append(b"3")
        await (await queue.receive()).reject("bad")
        await queue.append(b"4")
        assert [letter.seq for letter in await queue.dead_letters.list()] == [1, 2]


async def test_what_was_shed_comes_back_only_where_there_is_room(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    options = QueueOptions(capacity=1, overflow="drop_newest", dead_retry_delay=60)
    async with open_queue(store, environment, "q", options) as queue:
        await queue.append_many([b"1", b"2", b"3"])
        await trio.sleep(61)
        assert await queue.depth() == 1
        for expected in (b"1", b"2", b"3"):
            delivery = await queue.receive()
            assert (delivery.payload, delivery.redelivered) == (expected, False)
            await delivery.ack()
        assert await queue.dead_letters.list() == []


async def test_a_message_whose_bytes_were_changed_is_a_dead_letter_that_keeps_them(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    def damage(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE queue_log SET body = X'00' WHERE seq = 2")

    events = Events()
    async with open_queue(store, environment, "q", on_event=events) as queue:
        await queue.append_many([Job(1), Job(2), Job(3)])
        await store.write(damage)
        assert await drain(queue, 3) == [Job(1), Job(3)]
        (letter,) = await queue.dead_letters.list()
        assert (letter.seq, letter.reason, letter.message) == (2, "unreadable", None)
        assert "checksum" in letter.detail
        assert [event.reason for event in events.of(Buried)] == ["unreadable"]


async def test_a_store_that_cannot_answer_for_a_while_fails_those_who_wait_and_nothing_is_lost(
    environment: SimulatedEnvironment, autojump_clock: MockClock, tmp_path: Path
) -> None:
    path = tmp_path / "q.db"
    async with (
        open_store(path, environment, busy_timeout=0) as store,
        open_queue(store, environment, "q", QueueOptions(visibility=10)) as queue,
    ):
        await queue.append_many([b"1", Message(b"2", delay=20)])
        held = await queue.receive()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable):
                await held.ack()
            with pytest.raises(StoreUnavailable):
                await queue.receive()
            await trio.sleep(30)
        with trio.fail_after(5):
            again, delayed = await queue.receive(), await queue.receive()
        assert (again.payload, again.attempt, delayed.payload) == (b"1", 2, b"2")
        with pytest.raises(LeaseLost):
            await held.ack()
