"""Durable queues: what a message costs, at least once and with 100 senders at a time.

Every message is on the disk when its append returns. Two baselines are taken in the same round: `engine` writes the
same bytes into one table through the same store, by as many tasks; `sqlite3` inserts them in a loop, 100 to a
transaction, without a task or thread. Times are time on the wall, as the disk is part of what is measured; ratios are
medians of the rounds.

    python benchmarks/queues.py [--messages 5000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import trio

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.report import table  # noqa: E402  # found through the path above
from sapwood.actors import RealEnvironment  # noqa: E402  # as above
from sapwood.messaging.queues import Queue, QueueOptions, open_memory_store, open_queue  # noqa: E402  # as above
from sapwood.persistence import Store, open_store  # noqa: E402  # as above

SENDERS: Final = 100
RECEIVERS: Final = 10
BODY: Final = b"x" * 200
INSERT: Final = "INSERT INTO bare (seq, body) VALUES (?, ?)"
CREATE: Final = "CREATE TABLE bare (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)"

Rounds = dict[str, list[float | None]]


async def _share(count: int, tasks: int, one: Callable[[int], Awaitable[object]]) -> float:
    """Call a function so many times, by so many tasks; return the microseconds for each call."""

    async def run(first: int) -> None:
        for number in range(first, count, tasks):
            await one(number)

    begin = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for first in range(tasks):
            nursery.start_soon(run, first)
    return (time.perf_counter() - begin) / count * 1e6


async def _receive(queue: Queue, count: int, batch: int) -> float:
    left = count

    async def run() -> None:
        nonlocal left
        while left > 0:
            deliveries = await queue.poll(batch)
            left -= len(deliveries)
            async with trio.open_nursery() as nursery:
                for delivery in deliveries:
                    nursery.start_soon(delivery.ack)

    begin = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(RECEIVERS):
            nursery.start_soon(run)
    assert await queue.depth() == 0
    return (time.perf_counter() - begin) / count * 1e6


async def _queue(store: Store, count: int, environment: RealEnvironment) -> dict[str, float]:
    async with open_queue(store, environment, "bench", QueueOptions()) as queue:
        figures = {"append": await _share(count, SENDERS, lambda _: queue.append(BODY))}
        figures["take and ack"] = await _receive(queue, count, 1)
        batches = [BODY] * 100
        figures["append, 100 at once"] = await _share(count // 100, 1, lambda _: queue.append_many(batches)) / 100
        figures["take and ack, 100 at once"] = await _receive(queue, count // 100 * 100, 100)
    return figures


async def _engine(store: Store, count: int) -> float:
    await store.write(lambda connection: connection.execute(CREATE).close())

    def insert(number: int) -> Callable[[sqlite3.Connection], None]:
        return lambda connection: connection.execute(INSERT, (number, BODY)).close()

    return await _share(count, SENDERS, lambda number: store.write(insert(number)))


def _sqlite(path: Path, count: int) -> float:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(CREATE)
        begin = time.perf_counter()
        for first in range(0, count, 100):
            connection.execute("BEGIN IMMEDIATE")
            for number in range(first, first + 100):
                connection.execute(INSERT, (number, BODY))
            connection.execute("COMMIT")
        return (time.perf_counter() - begin) / count * 1e6


async def _round(folder: Path, count: int) -> dict[str, dict[str, float]]:
    environment = RealEnvironment()
    found: dict[str, dict[str, float]] = {"sqlite3": {"append": _sqlite(folder / "sqlite.db", count)}}
    async with open_store(folder / "engine.db", environment) as store:
        found["engine"] = {"append": await _engine(store, count)}
    async with open_store(folder / "queue.db", environment) as store:
        found["queue"] = await _queue(store, count, environment)
    async with open_memory_store(environment) as store:
        found["queue in memory"] = await _queue(store, count, environment)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="What a message of a durable queue costs.")
    parser.add_argument("--messages", type=int, default=5_000, help="messages in each workload; a multiple of 100")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    figures: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
    for _ in range(chosen.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, found in trio.run(_round, Path(folder), chosen.messages // 100 * 100).items():
                for workload, value in found.items():
                    figures[name][workload].append(value)
    rows = {
        f"{name}: {workload}": [
            table.middle(figures, name, workload),
            table.ratio(figures, name, workload, "engine", "append"),
            table.ratio(figures, name, workload, "sqlite3", "append"),
        ]
        for name, workloads in figures.items()
        for workload in workloads
    }
    print(table.lay_out("durable messages", ["us/message", "x engine", "x sqlite3"], rows))
    print(f"{SENDERS} senders, {RECEIVERS} receivers, bodies of {len(BODY)} bytes; medians of {chosen.rounds} rounds")
    results = ROOT / "benchmarks" / "results" / "queues.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
