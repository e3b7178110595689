"""Payloads in messages and in reference stores, against the raw calls that do the least of the same.

Each line is measured with its raw call in turns, in the same rounds; the ratio is the median over the rounds.

    value         send and receive a small control message        json.dumps and json.loads of its data
    value, async  the same, letting other tasks run in between     the same
    memory        send and receive 15 KB through a memory store    the same, with two SHA-256 and a dict
    sqlite        store 15 KB in a file, one after the other       SHA-256 and a committed INSERT, synchronous=FULL
    sqlite x100   store 15 KB in a file, 100 at once               the same, one after the other
    decision      should a payload be stored?                      comparing a length with a number
    stream        store and read a stream in a file, per MiB       write it to a file, fsync, read and hash it

The last column is the target: the ratio that a line should not exceed. It is never asserted.

    python benchmarks/references.py [--rounds 7] [--stream 64] [--full] [--results FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import trio

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cells import common  # noqa: E402  # found through the path above
from benchmarks.report import table  # noqa: E402  # as above
from sapwood.actors import RealEnvironment  # noqa: E402  # as above
from sapwood.references import (  # noqa: E402  # as above
    Courier,
    MemoryReferenceStore,
    PolicyManager,
    ReferenceConfig,
    ReferenceStore,
    SQLiteConfig,
    open_reference_store,
)

MIB: Final = 1024 * 1024
FULL: Final = 1024
"""MiB of the stream with --full."""

TARGETS: Final = {
    "value": 5.0,
    "value, async": 12.0,
    "memory": 4.0,
    "sqlite": 4.0,
    "sqlite x100": 1.0,
    "decision": 15.0,
    "stream": 2.5,
}
"""Ratios to the raw calls that a port of the documents' figures (S0-034 to S0-037) is to stay below."""

SMALL: Final = {"command": "start_processing", "priority": "high"}
LARGE: Final = {"data": "x" * (15 * 1024 - 11)}

Seconds = dict[str, list[float]]


def add(seconds: Seconds, name: str, begin: float, count: int) -> None:
    seconds.setdefault(name, []).append((time.perf_counter() - begin) / count)


def raw_json(data: Any, count: int) -> None:
    for _ in range(count):
        json.loads(json.dumps(data, separators=(",", ":")))


def raw_reference(data: Any, count: int) -> None:
    kept: dict[str, bytes] = {}
    for _ in range(count):
        value = json.dumps(data, separators=(",", ":")).encode()
        key = sha256(value).hexdigest()
        kept[key] = value
        found = kept[key]
        if sha256(found).hexdigest() != key:
            raise AssertionError("damaged")
        json.loads(found)


async def send_and_receive(sender: Courier, receiver: Courier, kind: str, data: Any, count: int) -> None:
    for _ in range(count):
        await receiver.receive(await sender.send("receiver", kind, data))


def payload(number: int) -> bytes:
    """Return 15 KB that no other number has, so that nothing is deduplicated."""
    return number.to_bytes(8) * (15 * 128)


async def measure_messages(seconds: Seconds) -> None:
    environment = RealEnvironment()
    store = MemoryReferenceStore(environment)
    sender, receiver = (Courier(name, store, environment) for name in ("sender", "receiver"))
    begin = time.perf_counter()
    for _ in range(2000):
        receiver.receive_nowait(sender.send_nowait("receiver", "control", SMALL))
    add(seconds, "value", begin, 2000)
    lines: tuple[tuple[str, str, Any, Callable[[Any, int], None], int], ...] = (
        ("value, async", "control", SMALL, raw_json, 2000),
        ("memory", "tool_result", LARGE, raw_reference, 500),
    )
    for name, kind, data, raw, count in lines:
        begin = time.perf_counter()
        raw(data, count)
        add(seconds, f"{name} raw", begin, count)
        begin = time.perf_counter()
        await send_and_receive(sender, receiver, kind, data, count)
        add(seconds, name, begin, count)
    seconds.setdefault("value raw", []).append(seconds["value, async raw"][-1])


def measure_decision(seconds: Seconds, count: int = 100_000) -> None:
    decide, size = PolicyManager().should_use_reference, 15 * 1024
    begin = time.perf_counter()
    for _ in range(count):
        _ = size > 10_240
    add(seconds, "decision raw", begin, count)
    begin = time.perf_counter()
    for _ in range(count):
        decide("tool_result", size)
    add(seconds, "decision", begin, count)


async def measure_files(seconds: Seconds, store: ReferenceStore, raw: sqlite3.Connection, turn: int) -> None:
    count = 50
    numbers = range(turn * 1000, turn * 1000 + count)
    begin = time.perf_counter()
    for number in numbers:
        data = payload(number)
        raw.execute("INSERT INTO kept VALUES (?, ?)", (sha256(data).hexdigest(), data))
    add(seconds, "sqlite raw", begin, count)
    seconds.setdefault("sqlite x100 raw", []).append(seconds["sqlite raw"][-1])
    begin = time.perf_counter()
    for number in numbers:
        await store.store(payload(number))
    add(seconds, "sqlite", begin, count)
    begin = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for number in range(turn * 1000 + 500, turn * 1000 + 600):
            nursery.start_soon(store.store, payload(number))
    add(seconds, "sqlite x100", begin, 100)


def stream_piece(number: int) -> bytes:
    return sha256(number.to_bytes(8)).digest() * (MIB // 32)


def raw_stream(path: Path, size: int) -> None:
    digest = sha256()
    with path.open("wb") as file:
        for number in range(size):
            data = stream_piece(number)
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    again = sha256()
    with path.open("rb") as file:
        while data := file.read(MIB):
            again.update(data)
    if again.digest() != digest.digest():
        raise AssertionError("damaged")


async def through_store(store: ReferenceStore, size: int) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(size):
            await trio.lowlevel.checkpoint()
            yield stream_piece(number)

    reference = await store.store_stream(chunks())
    async with store.resolve_stream(reference) as reader:
        async for _ in reader:
            pass
    await store.delete(reference)


async def measure(rounds: int, size: int) -> tuple[Seconds, float]:
    """Return the seconds of each line in each round, and by how many KB the process grew over the stream."""
    seconds: Seconds = {}
    with tempfile.TemporaryDirectory(prefix="sapwood-bench-") as folder:
        raw = sqlite3.connect(Path(folder) / "raw.db", isolation_level=None)
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute("CREATE TABLE kept (id TEXT PRIMARY KEY, data BLOB NOT NULL)")
        config = ReferenceConfig(sqlite=SQLiteConfig(path=str(Path(folder) / "store.db")))
        async with open_reference_store(config, environment=RealEnvironment()) as store:
            for turn in range(rounds):
                await measure_messages(seconds)
                measure_decision(seconds)
                await measure_files(seconds, store, raw, turn)
            raw.close()
            begin = time.perf_counter()
            raw_stream(Path(folder) / "raw.bin", size)
            add(seconds, "stream raw", begin, size)
            before = common.resident_kb()
            begin = time.perf_counter()
            await through_store(store, size)
            add(seconds, "stream", begin, size)
            return seconds, common.resident_kb() - before


def main() -> None:
    parser = argparse.ArgumentParser(description="Payloads by value and by reference, against raw calls.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--stream", type=int, default=64, help="MiB of the stream")
    parser.add_argument("--full", action="store_true", help=f"a stream of {FULL} MiB")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "references.json")
    chosen = parser.parse_args()
    size = FULL if chosen.full else chosen.stream
    run: Callable[..., Awaitable[tuple[Seconds, float]]] = measure
    seconds, grown = trio.run(run, chosen.rounds, size)
    figures: table.Figures = {"sapwood": {name: [float(value) for value in values] for name, values in seconds.items()}}
    rows = {
        name: [
            (table.middle(figures, "sapwood", name) or 0) * 1e6,
            (table.middle(figures, "sapwood", f"{name} raw") or 0) * 1e6,
            table.ratio(figures, "sapwood", name, "sapwood", f"{name} raw"),
            target,
        ]
        for name, target in TARGETS.items()
    }
    print(table.lay_out("microseconds each", ("median", "raw call", "ratio", "target"), rows))
    print(f"\nstream of {size} MiB: {1 / seconds['stream'][0]:,.0f} MiB/s in and out, memory grew by {grown:,.0f} KB")
    results: Path = chosen.results
    results.parent.mkdir(exist_ok=True)
    found = {name: dict(zip(("us", "raw_us", "ratio", "target"), row, strict=True)) for name, row in rows.items()}
    run_as = {"rounds": chosen.rounds, "stream_mib": size, "grown_kb": grown}
    results.write_text(json.dumps({**run_as, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
