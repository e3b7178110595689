"""Workloads on asyncio's own primitives, for a hand-written actor or for a library that runs on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.cells.raw import Directory
from benchmarks.cells.workloads import Jobs, Subject


class Asyncio(Subject):
    """The steps that are the same for everything on asyncio."""

    def run(self, main: Callable[[], Awaitable[dict[str, float]]]) -> dict[str, float]:
        async def around() -> dict[str, float]:
            try:
                return await main()
            finally:
                await self.close()

        return asyncio.run(around())

    async def close(self) -> None:
        """Clean up."""

    async def pause(self) -> None:
        await asyncio.sleep(0)

    def event(self) -> Any:
        return asyncio.Event()

    async def together(self, jobs: Jobs) -> None:
        await asyncio.gather(*(job() for job in jobs))


class RawAsyncio(Asyncio):
    """Actors that are tasks; a crashed one goes on in the same task."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, count: int) -> list[Any]:
        actors = [self.factory() for _ in range(count)]
        self.tasks += [asyncio.create_task(actor.run()) for actor in actors]
        await asyncio.sleep(0)
        return actors

    async def stop(self, actors: list[Any]) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def close(self) -> None:
        await self.stop([])

    def finder(self, actors: list[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
        directory = Directory(actors)
        return directory.find, directory.names
