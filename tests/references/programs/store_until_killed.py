"""A process that stores payloads is killed again and again; after each kill, checks that none is half there."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import trio

from sapwood.actors import RealEnvironment
from sapwood.errors import ReferenceNotFound
from sapwood.references import ReferenceConfig, SQLiteConfig, open_reference_store

PATH = Path(sys.argv[1])
ENVIRONMENT = RealEnvironment()
CONFIG = ReferenceConfig(sqlite=SQLiteConfig(path=str(PATH), wal_limit=1_000_000, gc_interval=None))
PIECE = 1024 * 1024
WRITERS = 3
KILLS = 6


def payload(seed: int) -> bytes:
    source = random.Random(seed)
    return source.randbytes(source.choice([100, 20_000, PIECE + 1, 3 * PIECE]))


async def chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 300_000):
        yield data[start : start + 300_000]


async def store_for_ever(first: int, pipe: int) -> None:
    async with open_reference_store(CONFIG, environment=ENVIRONMENT) as store, trio.open_nursery() as nursery:

        async def write(seed: int) -> None:
            while True:
                data = payload(seed)
                reference = await (store.store_stream(chunks(data)) if seed % 2 else store.store(data))
                assert reference.id == sha256(data).hexdigest()
                os.write(pipe, f"{seed}\n".encode())
                seed += WRITERS

        for number in range(WRITERS):
            nursery.start_soon(write, first + number)


async def check(acknowledged: set[int], begun: int) -> int:
    """Resolve what was acknowledged and whatever else is there; return how many bytes that is."""
    async with open_reference_store(CONFIG, environment=ENVIRONMENT) as store:
        for seed in acknowledged:
            assert await store.resolve(sha256(payload(seed)).hexdigest()) == payload(seed)
        for reference in await store.list():
            assert sha256(await store.resolve(reference)).hexdigest() == reference.id
            async with store.resolve_stream(reference) as reader:
                assert sum([len(chunk) async for chunk in reader]) == reference.size
        for seed in range(begun, begun + 50):
            try:
                assert await store.resolve(sha256(payload(seed)).hexdigest()) == payload(seed)
            except ReferenceNotFound:
                continue
        statistics = await store.stats()
        assert statistics.quarantined == 0
        for reference in await store.list():
            assert await store.delete(reference)
        return statistics.bytes


def kill_once(first: int, rng: random.Random, acknowledged: set[int]) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        trio.run(store_for_ever, first, writing)
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        for _ in range(rng.choice([0, 1, 2, 4, 7])):
            line = pipe.readline()
            assert line, "the writers ended by themselves"
            acknowledged.add(int(line))
        for _ in range(rng.randint(0, 400_000)):
            pass  # up to some milliseconds more
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        acknowledged.update(int(line) for line in pipe if line.endswith(b"\n"))


def main() -> None:
    rng = random.Random(47)
    acknowledged: set[int] = set()
    held = 0
    for number in range(KILLS):
        kill_once(number * 1000, rng, acknowledged)
        if PATH.exists():
            held += trio.run(check, {seed for seed in acknowledged if seed >= number * 1000}, number * 1000)
    assert len(acknowledged) >= KILLS
    assert held
    sys.stdout.write(f"held {len(acknowledged)} payloads, {held} bytes\n")


main()
