"""Papyra on trio, with its policy to restart."""
# mypy: disable-error-code="import-not-found, misc"
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# The library is installed only where its cell runs.

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing
from papyra import Actor, ActorSystem
from papyra.supervision import Strategy, SupervisionPolicy

from benchmarks.cells import workloads
from benchmarks.cells.raw import Handler
from benchmarks.cells.workloads import Jobs


class Counter(Actor):
    def __init__(self, handler: Next) -> None:
        self.handler = handler

    async def receive(self, message: Any) -> Any:
        if message == "crash":
            self.handler.total = 0
        value = await self.handler.handle(message)
        if self.handler.onward is not None:
            onward, self.handler.onward = self.handler.onward, None
            await self.handler.following.tell(onward)
        return value


class Next(Handler):
    """The state; a hop is sent by the actor, which must wait for that."""

    def __init__(self) -> None:
        super().__init__()
        self.following: Any = None
        self.onward: Any = None
        self.next = self

    def tell(self, message: Any) -> None:
        self.onward = message


class Handle:
    def __init__(self, ref: Any, handler: Next) -> None:
        self.ref = ref
        self.handler = handler
        self.tell = ref.tell
        self.ask = ref.ask


class Subject(workloads.Subject):
    scale = 10
    async_tell = True
    policy = SupervisionPolicy(strategy=Strategy.RESTART, max_restarts=1_000_000)

    def __init__(self) -> None:
        self.system: Any = None

    def run(self, main: Callable[[], Awaitable[dict[str, float]]]) -> dict[str, float]:
        async def around() -> dict[str, float]:
            async with ActorSystem() as self.system:
                return await main()

        return trio.run(around)

    async def start(self, count: int) -> list[Any]:
        actors: list[Any] = []
        for number in range(count):
            handler = Next()

            def make(handler: Next = handler) -> Counter:
                return Counter(handler)

            ref = self.system.spawn(make, mailbox_capacity=None, name=f"bench-{number}", policy=self.policy)
            actors.append(Handle(ref, handler))
        await trio.testing.wait_all_tasks_blocked()
        return actors

    async def stop(self, actors: list[Any]) -> None:
        for actor in actors:
            await self.system.stop(actor.ref)
        await trio.testing.wait_all_tasks_blocked()

    def event(self) -> Any:
        return trio.Event()

    async def together(self, jobs: Jobs) -> None:
        async with trio.open_nursery() as callers:
            for job in jobs:
                callers.start_soon(job)

    def aim(self, actor: Any, following: Any, done: Any) -> None:
        actor.handler.following, actor.handler.done = following, done

    def finder(self, actors: list[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
        return self.system.ref_for_name, [f"bench-{number}" for number in range(len(actors))]


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return workloads.measure(Subject(), workload)
