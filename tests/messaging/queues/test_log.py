"""The log, replays, retention, archives and backups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import SimulatedEnvironment
from sapwood.errors import ArchiveInvalid, InvalidOption, QueueFull, SequenceConflict
from sapwood.messaging.queues import Message, MessageLog, QueueOptions, back_up, open_memory_store, open_queue
from sapwood.persistence import StoreEngine, open_store
from tests.messaging.queues.kit import Job, drain, payloads, quick


@pytest.mark.row("BR-52")
async def test_appends_in_one_tick_or_with_a_clock_set_back_are_in_order_and_none_is_refused(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    log = MessageLog(store, environment, "history")
    await log.open()
    assert await log.append(Job(1), Job(2), expected_seq=0) == 2
    environment.epoch -= 5
    assert await log.append(Job(3), expected_seq=2) == 3
    stored = await log.read()
    assert [one.message.payload for one in stored] == [Job(1), Job(2), Job(3)]
    assert stored[2].at == stored[0].at - 5


@pytest.mark.row("BR-52")
async def test_of_two_writers_at_one_place_the_later_gets_a_conflict_and_pairs_stay_next_to_each_other(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    log = MessageLog(store, environment, "history")
    await log.open()
    outcomes: list[str] = []

    async def write(name: str) -> None:
        seq = await log.last_seq()
        try:
            await log.append(f"{name} call".encode(), f"{name} result".encode(), expected_seq=seq)
        except SequenceConflict as error:
            outcomes.append(f"conflict at {error.found}")
        else:
            outcomes.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, "one")
        nursery.start_soon(write, "two")
    assert sorted(outcomes, key=len)[1] == "conflict at 2"
    first, second = [one.message.payload.split() for one in await log.read()]
    assert first[0] == second[0]


async def test_a_log_is_read_from_a_place_or_a_time_and_trimmed(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    log = MessageLog(store, environment, "history")
    await log.open()
    assert await log.last_seq() == 0
    for number in range(1, 6):
        await log.append(Job(number))
        await trio.sleep(10)
    start = environment.wall() - 50
    assert [one.seq for one in await log.read(after=3)] == [4, 5]
    assert [one.seq for one in await log.read(limit=2)] == [1, 2]
    assert [one.seq for one in await log.read(since=start + 15, until=start + 35)] == [3, 4]
    assert await log.trim(before=4) == 3
    assert [one.seq for one in await log.read()] == [4, 5]
    assert await log.append(Job(6)) == 6
    with pytest.raises(InvalidOption, match="limit"):
        await log.read(limit=0)


async def test_the_log_of_a_queue_is_read_by_anyone_and_appended_to_by_the_queue_alone(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    log = MessageLog(store, environment, "q")
    async with open_queue(store, environment, "q") as queue:
        await queue.append(Job(1))
        with pytest.raises(InvalidOption, match="'q' is a queue"):
            await log.append(Job(2))
        assert [one.message.payload for one in await log.read()] == [Job(1)]
    with pytest.raises(InvalidOption, match="was not opened"):
        await MessageLog(store, environment, "nowhere").append(Job(2))


@pytest.mark.row("S2-044", "S2-030")
async def test_settled_messages_are_replayed_from_a_place_in_their_old_order(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q") as queue:
        await queue.append_many([Job(number) for number in range(1, 6)])
        assert len(await drain(queue)) == 5
        await queue.append(Job(6))
        assert await queue.replay(after=2) == 3
        deliveries = await queue.poll(10)
        assert payloads(deliveries) == [Job(3), Job(4), Job(5), Job(6)]
        assert [delivery.redelivered for delivery in deliveries] == [True, True, True, False]


@pytest.mark.row("S2-044")
async def test_a_replay_leaves_what_is_live_or_dead_and_respects_the_capacity(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(capacity=3)) as queue:
        await queue.append_many([b"done", b"bad", b"live"])
        done, bad = await queue.poll(2)
        await done.ack()
        await bad.reject()
        assert await queue.replay() == 1
        assert await drain(queue) == [b"done", b"live"]
        await queue.append_many([b"1", b"2"])
        with pytest.raises(QueueFull):
            await queue.replay()
        assert await queue.depth() == 2


async def test_retention_removes_settled_messages_and_no_others(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(retention=600)) as queue:
        await queue.append_many([b"done", b"bad", Message(b"waits", delay=10_000)])
        done, bad = await queue.poll(2)
        await done.ack()
        await bad.reject()
        await trio.sleep(500)
        assert [one.seq for one in await queue.log.read()] == [1, 2, 3]
        await trio.sleep(300)
        assert [one.seq for one in await queue.log.read()] == [2, 3]
    async with open_queue(store, environment, "q", QueueOptions(retention=0)) as queue:
        await queue.append(b"gone")
        assert await drain(queue) == [b"gone"]
        assert [one.seq for one in await queue.log.read()] == [2, 3]


@pytest.mark.row("S2-045")
@pytest.mark.parametrize("ordering", ["fifo", "priority", "partitioned"])
async def test_an_archive_brings_a_queue_back_with_its_live_and_dead_messages(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, tmp_path: Path, ordering: str
) -> None:
    path = tmp_path / "queue.jsonl"
    options = quick(ordering=ordering, dead_retries=0)
    async with open_queue(store, environment, "old", options) as queue:
        await queue.append_many([Message(Job(1), id="one"), b"bad", Message(b"k1", key="k"), Message(b"k2", key="k")])
        await queue.append_many([Message(b"later", delay=100), Message(b"short", ttl=50)])
        done, bad = await queue.poll(2)
        await done.ack()
        await bad.reject("no")
        (held,) = await queue.poll()
        assert held.payload == b"k1"
        assert await queue.export_to(path) == 6
    async with open_memory_store(environment) as other, open_queue(other, environment, "new", options) as queue:
        await trio.sleep(1000)
        assert await queue.import_from(path) == 6
        (letter,) = await queue.dead_letters.list()
        assert (letter.seq, letter.detail) == (2, "no")
        (again, *more) = await queue.poll(10)
        assert (again.payload, again.attempt) == (b"k1", 2)
        assert [one.payload for one in more] == ([b"short"] if ordering == "partitioned" else [b"k2", b"short"])
        await again.ack()
        for one in more:
            await one.ack()
        await trio.sleep(101)
        assert (await drain(queue))[-1] == b"later"
        assert await queue.replay(after=0) == 5
        assert (await queue.append(b"new")).seq == 7


@pytest.mark.row("S2-045")
@pytest.mark.parametrize("damage", ["cut", "changed", "no head", "empty", "field", "no json"])
async def test_a_damaged_archive_is_refused_with_its_line_and_changes_nothing(
    environment: SimulatedEnvironment, autojump_clock: MockClock, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "queue.jsonl"
    async with open_memory_store(environment) as store, open_queue(store, environment, "q") as queue:
        await queue.append_many([b"one", b"two"])
        await queue.export_to(path)
        lines = path.read_text().splitlines()
        changed = json.loads(lines[1])
        match damage:
            case "cut":
                lines.pop()
            case "changed":
                lines[1] = json.dumps({**changed, "body": "AAAA"})
            case "no head":
                lines.pop(0)
            case "empty":
                lines = []
            case "field":
                del changed["id"]
                lines[1] = json.dumps(changed)
            case _:
                lines[1] = "{"
        path.write_text("".join(f"{line}\n" for line in lines))
        async with open_queue(store, environment, "new") as new:
            with pytest.raises(ArchiveInvalid) as caught:
                await new.import_from(path)
            assert caught.value.line == {"changed": 2, "field": 2, "no json": 2, "cut": 3}.get(damage, 1)
            assert await new.log.last_seq() == 0
        with pytest.raises((InvalidOption, ArchiveInvalid)):
            await queue.import_from(path)
        assert await queue.depth() == 2


@pytest.mark.row("S2-045")
async def test_a_backup_of_a_store_in_use_can_be_opened_and_goes_on(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, tmp_path: Path
) -> None:
    path = tmp_path / "backup.db"
    async with open_queue(store, environment, "q") as queue:
        await queue.append_many([b"1", b"2"])
        await (await queue.receive()).ack()
        await back_up(store, environment, path)
        with pytest.raises(InvalidOption, match="expected a path without a file"):
            await back_up(store, environment, path)
        assert await drain(queue) == [b"2"]
    async with open_store(path, environment) as copy, open_queue(copy, environment, "q") as queue:
        assert await drain(queue) == [b"2"]
        assert (await queue.append(b"3")).seq == 3
