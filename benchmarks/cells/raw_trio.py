"""Workloads on trio's own primitives, for a hand-written actor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

from benchmarks.cells.raw import Directory
from benchmarks.cells.workloads import Jobs, Subject


class RawTrio(Subject):
    """Actors that are tasks of one nursery; a crashed one goes on in the same task."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory
        self.nursery: trio.Nursery | None = None

    def run(self, main: Callable[[], Awaitable[dict[str, float]]]) -> dict[str, float]:
        async def around() -> dict[str, float]:
            async with trio.open_nursery() as self.nursery:
                figures = await main()
                self.nursery.cancel_scope.cancel()
            return figures

        return trio.run(around)

    async def start(self, count: int) -> list[Any]:
        assert self.nursery is not None
        actors = [self.factory() for _ in range(count)]
        for actor in actors:
            self.nursery.start_soon(actor.run)
        await trio.testing.wait_all_tasks_blocked()
        return actors

    async def stop(self, actors: list[Any]) -> None:
        assert self.nursery is not None
        nursery = self.nursery
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks

    async def pause(self) -> None:
        await trio.lowlevel.checkpoint()

    def event(self) -> Any:
        return trio.Event()

    async def together(self, jobs: Jobs) -> None:
        async with trio.open_nursery() as callers:
            for job in jobs:
                callers.start_soon(job)

    def finder(self, actors: list[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
        directory = Directory(actors)
        return directory.find, directory.names
