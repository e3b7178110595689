"""Writes one number after the other to shared memory and says so; somebody else kills it."""

from __future__ import annotations

import sys

import trio

from sapwood.actors import RealEnvironment
from sapwood.messaging.shared import DurableSharedMemory
from sapwood.persistence import open_store


async def main(path: str) -> None:
    environment = RealEnvironment()
    async with open_store(path, environment) as store:
        memory = DurableSharedMemory(store, environment)
        await memory.open()
        while True:
            written = await memory.update("count", lambda value: value + 1, agent_id="writer", default=0)
            sys.stdout.write(f"{written.value} {written.version}\n")
            sys.stdout.flush()


trio.run(main, sys.argv[1])
