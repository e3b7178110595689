"""Thespian on its base without processes: the sender runs the handlers."""
# mypy: disable-error-code="import-not-found, misc"
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# The library is installed only where its cell runs.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thespian.actors import Actor, ActorExitRequest, ActorSystem

from benchmarks.cells import workloads
from benchmarks.cells.common import Unsupported
from benchmarks.cells.synchronous import Synchronous

SHARED: dict[Any, Any] = {}
"""Events by address: an event in a message would be copied."""


class Counter(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self.following: Any = None

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802  # the library's name
        if message == "add":
            self.total += 1
        elif type(message) is int:
            if message:
                self.send(self.following, message - 1)
            else:
                SHARED[str(self.myAddress)].set()
        elif type(message) is tuple:
            self.following = message[0]
        elif message == "total":
            self.send(sender, self.total)


class Handle:
    def __init__(self, system: Any, address: Any) -> None:
        self.system = system
        self.address = address

    def tell(self, message: Any) -> None:
        self.system.tell(self.address, message)

    async def ask(self, message: Any) -> Any:
        return self.system.ask(self.address, message)


class Event:
    """Is set, or not, when the sender comes back."""

    def __init__(self) -> None:
        self.set = self._set
        self.done = False

    def _set(self) -> None:
        self.done = True

    async def wait(self) -> None:
        assert self.done, "the ring has not ended"


class Subject(Synchronous):
    scale = 5

    def __init__(self) -> None:
        self.system = ActorSystem("simpleSystemBase")

    def close(self) -> None:
        self.system.shutdown()

    async def start(self, count: int) -> list[Any]:
        return [
            Handle(self.system, self.system.createActor(Counter, globalName=f"bench-{number}"))
            for number in range(count)
        ]

    async def stop(self, actors: list[Any]) -> None:
        for actor in actors:
            actor.tell(ActorExitRequest())

    def event(self) -> Any:
        return Event()

    def aim(self, actor: Any, following: Any, done: Any) -> None:
        SHARED[str(actor.address)] = done
        if following is not None:
            actor.tell((following.address,))

    def finder(self, actors: list[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
        def find(name: str) -> Any:
            return self.system.createActor(Counter, globalName=name)

        return find, [f"bench-{number}" for number in range(len(actors))]

    async def recover(self, actor: Any) -> None:
        raise Unsupported("restarts nothing: the instance goes on")


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return workloads.measure(Subject(), workload)
