"""Stores that cannot answer for a while, and closings with messages that could not be stored."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import ActorSystem, SimulatedEnvironment, open_system
from sapwood.errors import ArchiveInvalid, StoreUnavailable
from sapwood.messaging.queues import (
    AppendFailed,
    Delivery,
    Message,
    PoolOptions,
    Queue,
    QueueOptions,
    WorkerPool,
    open_memory_store,
    open_queue,
)
from sapwood.persistence import MigrationSet, StoreEngine, StoreStatistics
from sapwood.supervision import Supervisor
from tests.messaging.queues.kit import Events, quick

T = TypeVar("T")


class Flaky:
    """A store that cannot answer while `broken` is set."""

    def __init__(self, store: StoreEngine) -> None:
        self.store = store
        self.broken = False

    @property
    def name(self) -> str:
        return self.store.name

    async def write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        await self._check()
        return await self.store.write(operation)

    async def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        await self._check()
        return await self.store.read(operation)

    async def migrate(self, migrations: MigrationSet) -> None:
        await self._check()
        await self.store.migrate(migrations)

    def statistics(self) -> StoreStatistics:
        return self.store.statistics()

    async def _check(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.broken:
            raise StoreUnavailable("queues.db", "is full")


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with open_system() as made:
        yield made


async def test_messages_that_wait_for_room_survive_a_store_that_cannot_answer_when_there_is_some(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    flaky = Flaky(store)
    async with open_queue(flaky, environment, "q", QueueOptions(capacity=1)) as queue:
        await queue.append(b"1")
        queue.append_nowait(b"2")
        queue.append_nowait(b"3")
        first = await queue.receive()
        await trio.sleep(0.1)
        await first.ack()
        flaky.broken = True
        await trio.sleep(5)
        flaky.broken = False
        for payload in (b"2", b"3"):
            delivery = await queue.receive()
            assert delivery.payload == payload
            await delivery.ack()


@pytest.mark.parametrize("waiting", [1, 2, 5])
async def test_each_message_that_a_closing_queue_has_no_room_for_is_told_once_as_unsaved(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, waiting: int
) -> None:
    events = Events()
    for number in range(8):
        events.heard.clear()
        async with open_queue(store, environment, f"q{number}", QueueOptions(capacity=1), on_event=events) as queue:
            await queue.append(b"in the way")
            for _ in range(waiting):
                queue.append_nowait(b"no room")
            await trio.sleep(0.1)
            # Something prefetched is given back at the end, which takes the closing a moment.
            async with trio.open_nursery() as nursery:
                nursery.start_soon(queue.receive)
                await trio.sleep(0.1)
        assert len(events.of(AppendFailed)) == waiting


async def test_a_pool_rides_out_a_store_that_cannot_answer_for_a_minute(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, system: ActorSystem
) -> None:
    flaky = Flaky(store)
    done: list[bytes] = []

    async def work(delivery: Delivery) -> None:
        await trio.sleep(2)
        done.append(delivery.payload)

    async with open_queue(flaky, environment, "q", quick(max_attempts=100)) as queue:
        pool = WorkerPool(queue, work, PoolOptions(minimum=12, maximum=12))
        home = await system.spawn(Supervisor, [pool.spec()], strategy="one_for_one")
        await trio.sleep(1)
        before = pool.consumers()
        # Twelve are being handled when the store breaks, and one comes up for delivery while it is broken.
        await queue.append_many([b"1"] * 12)
        await queue.append(Message(b"2", delay=10))
        await trio.sleep(1)
        flaky.broken = True
        await trio.sleep(60)
        flaky.broken = False
        await trio.sleep(10)
        assert home.alive
        assert len(done) >= 25, "what could not be acknowledged was delivered again"
        assert await queue.depth() == 0
        assert pool.consumers() == before, "waiting for a store is no fault of theirs"
        await home.stop()


@pytest.mark.parametrize(
    "head", [{}, {"last_seq": "two"}, {"last_seq": 1}, {"now": None}], ids=["none", "text", "low", "time"]
)
async def test_an_archive_whose_head_does_not_fit_its_messages_is_refused_as_damaged(
    store: StoreEngine,
    environment: SimulatedEnvironment,
    autojump_clock: MockClock,
    tmp_path: Path,
    head: dict[str, object],
) -> None:
    path = tmp_path / "queue.jsonl"
    async with open_queue(store, environment, "q") as queue:
        await queue.append_many([b"1", b"2"])
        await queue.export_to(path)
    lines = path.read_text().splitlines()
    good = json.loads(lines[0])
    changed = {**good, **head} if head else {"format": good["format"], "version": good["version"]}
    path.write_text("\n".join([json.dumps(changed), *lines[1:]]))
    async with open_queue(store, environment, "new") as new:
        with pytest.raises(ArchiveInvalid) as caught:
            await new.import_from(path)
        assert caught.value.line == 1
        assert await _last(new) == 0


async def test_an_archive_that_has_a_message_twice_is_refused_as_damaged(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, tmp_path: Path
) -> None:
    path = tmp_path / "queue.jsonl"
    async with open_queue(store, environment, "q") as queue:
        await queue.append_many([b"1", b"2"])
        await queue.export_to(path)
    head, first, second, _ = path.read_text().splitlines()
    path.write_text("\n".join([head, first, first, second, json.dumps({"end": 3})]))
    async with open_queue(store, environment, "new") as new:
        with pytest.raises(ArchiveInvalid) as caught:
            await new.import_from(path)
        assert caught.value.line == 3
        assert await _last(new) == 0


async def test_settled_messages_are_forgotten_as_fast_as_large_batches_settle_them(
    environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with (
        open_memory_store(environment) as store,
        open_queue(store, environment, "q", quick(retention=1)) as queue,
    ):
        for _ in range(10):
            await queue.append_many([b"x"] * 1_500)
            for delivery in await queue.poll(1_500):
                await delivery.ack()
            await trio.sleep(10)
        kept = await store.read(lambda db: int(db.execute("SELECT count(*) FROM queue_log").fetchone()[0]))
        assert kept <= 3 * 1_500
        await trio.sleep(120)
        kept = await store.read(lambda db: int(db.execute("SELECT count(*) FROM queue_log").fetchone()[0]))
        assert kept == 0


async def _last(queue: Queue) -> int:
    return await queue.log.last_seq()
