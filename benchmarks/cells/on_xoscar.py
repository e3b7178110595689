"""Xoscar: one pool, by the reference that `create_actor` returns."""
# mypy: disable-error-code="import-not-found, misc"
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# The library is installed only where its cell runs.

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import xoscar

from benchmarks.cells import workloads
from benchmarks.cells.common import Unsupported
from benchmarks.cells.raw_asyncio import Asyncio

DONE: dict[bytes, Any] = {}
"""Events by actor: an event in a message would be serialised."""


class Counter(xoscar.Actor):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self.following: Any = None

    async def receive(self, message: Any) -> Any:
        if message == "add":
            self.total += 1
        elif type(message) is int:
            if message:
                await self.following.receive.tell(message - 1)
            else:
                DONE[self.uid].set()
        else:
            return self.total
        return None

    async def aim(self, following: Any) -> None:
        self.following = following


class Handle:
    def __init__(self, ref: Any) -> None:
        self.ref = ref
        self.tell = ref.receive.tell
        self.ask = ref.receive
        self.following: Any = None


class Subject(Asyncio):
    scale = 20
    async_tell = True
    async_find = True

    def __init__(self) -> None:
        self.pool: Any = None
        self.address = ""

    async def close(self) -> None:
        if self.pool is not None:
            await self.pool.stop()

    async def start(self, count: int) -> list[Any]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.pool = await xoscar.create_actor_pool(self.address, n_process=0)
        make = xoscar.create_actor
        return [Handle(await make(Counter, address=self.address, uid=f"bench-{number}")) for number in range(count)]

    async def stop(self, actors: list[Any]) -> None:
        for actor in actors:
            await xoscar.destroy_actor(actor.ref)

    def aim(self, actor: Any, following: Any, done: Any) -> None:
        DONE[actor.ref.uid] = done
        actor.following = following

    async def ready(self, actors: list[Any]) -> None:
        for actor in actors:
            if actor.following is not None:
                await actor.ref.aim(actor.following.ref)

    def finder(self, actors: list[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
        address = self.address

        def find(name: str) -> Awaitable[Any]:
            found: Awaitable[Any] = xoscar.actor_ref(address, name)
            return found

        return find, [f"bench-{number}" for number in range(len(actors))]

    async def recover(self, actor: Any) -> None:
        raise Unsupported("restarts no actor in one pool")


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return workloads.measure(Subject(), workload)
