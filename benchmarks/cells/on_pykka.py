"""Pykka: a thread for each actor."""
# mypy: disable-error-code="import-not-found, misc"
# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# The library is installed only where its cell runs.

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pykka

from benchmarks.cells import workloads
from benchmarks.cells.common import Unsupported
from benchmarks.cells.synchronous import Synchronous
from benchmarks.cells.workloads import Jobs


class Counter(pykka.ThreadingActor):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self.following: Any = None
        self.done: Any = None

    def on_receive(self, message: Any) -> Any:
        if message == "add":
            self.total += 1
        elif type(message) is int:
            if message:
                self.following.tell(message - 1)
            else:
                self.done.set()
        elif type(message) is tuple:
            self.following, self.done = message
        else:
            return self.total
        return None


class Handle:
    def __init__(self, ref: Any) -> None:
        self.ref = ref
        self.tell = ref.tell

    async def ask(self, message: Any) -> Any:
        return self.ref.ask(message)


class Event(threading.Event):
    async def wait(self) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # driven
        super().wait()


class Subject(Synchronous):
    scale = 5
    population = 1_000

    def close(self) -> None:
        pykka.ActorRegistry.stop_all()

    async def start(self, count: int) -> list[Any]:
        return [Handle(Counter.start()) for _ in range(count)]

    async def stop(self, actors: list[Any]) -> None:
        for actor in actors:
            actor.ref.stop()

    def event(self) -> Any:
        return Event()

    def aim(self, actor: Any, following: Any, done: Any) -> None:
        actor.tell((following, done))

    async def together(self, jobs: Jobs) -> None:
        threads = [threading.Thread(target=self.drive, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def finder(self, actors: list[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
        return pykka.ActorRegistry.get_by_urn, [actor.ref.actor_urn for actor in actors[:50]]

    async def recover(self, actor: Any) -> None:
        raise Unsupported("restarts nothing")


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return workloads.measure(Subject(), workload)
