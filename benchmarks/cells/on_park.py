"""Raw trio by hand: a deque, parking and rescheduling, batches of 64, no supervision. The baseline of all ratios."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

import outcome
import trio
import trio.testing

from benchmarks.cells import common

clock = time.perf_counter
BATCH = 64


class Park:
    """The smallest actor that can do the workloads."""

    __slots__ = ("done", "next", "parked", "queue", "task", "total")

    def __init__(self) -> None:
        self.queue: deque[Any] = deque()
        self.parked = False
        self.task: Any = None
        self.total = 0
        self.next: Park | None = None
        self.done: trio.Event | None = None

    def tell(self, message: Any) -> None:
        self.queue.append(message)
        if self.parked:
            self.parked = False
            trio.lowlevel.reschedule(self.task)

    async def ask(self, message: Any) -> Any:
        slot = Slot(message, trio.lowlevel.current_task())
        self.tell(slot)
        return await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)

    async def handle(self, message: Any) -> Any:
        if message == "crash":
            raise ValueError("crash")
        if type(message) is int:
            if message:
                assert self.next is not None
                self.next.tell(message - 1)
            else:
                assert self.done is not None
                self.done.set()
            return None
        if message == "add":
            self.total += 1
        return self.total

    async def run(self) -> None:
        self.task = trio.lowlevel.current_task()
        queue = self.queue
        while True:
            count = 0
            while queue:
                entry = queue.popleft()
                if type(entry) is Slot:
                    try:
                        value = await self.handle(entry.message)
                    except ValueError as error:
                        trio.lowlevel.reschedule(entry.task, outcome.Error(error))
                        self.total = 0  # the next incarnation, in the same task
                    else:
                        trio.lowlevel.reschedule(entry.task, outcome.Value(value))
                else:
                    await self.handle(entry)
                count += 1
                if count == BATCH:
                    break
            if queue:
                await trio.lowlevel.checkpoint()
            else:
                self.parked = True
                await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)


class Slot:
    """A request with the task that waits for its answer."""

    __slots__ = ("message", "task")

    def __init__(self, message: Any, task: Any) -> None:
        self.message = message
        self.task = task


def _start(nursery: trio.Nursery) -> Park:
    actor = Park()
    nursery.start_soon(actor.run)
    return actor


async def w1(nursery: trio.Nursery) -> dict[str, float]:
    actor = _start(nursery)
    begin = clock()
    for number in range(common.TELLS):
        actor.tell("add")
        if not number % 1_000:
            await trio.lowlevel.checkpoint()
    assert await actor.ask("total") == common.TELLS
    return {"W1 tell": (clock() - begin) / common.TELLS * 1e6}


async def _ask(actor: Park, count: int) -> None:
    for _ in range(count):
        await actor.ask("total")


async def w2a(nursery: trio.Nursery) -> dict[str, float]:
    actor = _start(nursery)
    await actor.ask("total")
    begin = clock()
    await _ask(actor, common.ASKS)
    each = (clock() - begin) / common.ASKS * 1e6
    return {"W2a ask": each, "W2a ask inline": each}


async def w2b(nursery: trio.Nursery) -> dict[str, float]:
    actor = _start(nursery)
    begin = clock()
    async with trio.open_nursery() as callers:
        for _ in range(common.CALLERS):
            callers.start_soon(_ask, actor, common.ASKS // common.CALLERS)
    return {"W2b ask, 100 callers": (clock() - begin) / common.ASKS * 1e6}


async def w3(nursery: trio.Nursery) -> dict[str, float]:
    actors = [_start(nursery) for _ in range(common.FAN)]
    await trio.testing.wait_all_tasks_blocked()
    begin = clock()
    for _ in range(common.FAN_ROUNDS):
        for actor in actors:
            actor.tell("add")
        await trio.lowlevel.checkpoint()
    assert await actors[-1].ask("total") == common.FAN_ROUNDS
    return {"W3 fan to 1,000": (clock() - begin) / (common.FAN * common.FAN_ROUNDS) * 1e6}


async def w4(nursery: trio.Nursery) -> dict[str, float]:
    begin = clock()
    async with trio.open_nursery() as population:
        for _ in range(common.POPULATION):
            _start(population)
        await trio.testing.wait_all_tasks_blocked()
        started = clock() - begin
        begin = clock()
        population.cancel_scope.cancel()
    return {"W4 start": started / common.POPULATION * 1e6, "W4 stop": (clock() - begin) / common.POPULATION * 1e6}


async def w5(nursery: trio.Nursery) -> dict[str, float]:
    before = common.resident_kb()
    actors = [_start(nursery) for _ in range(common.POPULATION)]
    await trio.testing.wait_all_tasks_blocked()
    used = common.resident_kb() - before
    del actors
    return {"W5 memory": used / common.POPULATION}


async def w6(nursery: trio.Nursery) -> dict[str, float]:
    names = {("bench", number): _start(nursery) for number in range(common.NAMES)}
    keys = list(names)
    rounds = common.LOOKUPS // common.NAMES

    def lookup(key: tuple[str, int]) -> Park | None:
        return names.get(key)

    begin = clock()
    for _ in range(rounds):
        for key in keys:
            lookup(key)
    return {"W6 lookup": (clock() - begin) / (rounds * common.NAMES) * 1e9}


async def w7(nursery: trio.Nursery) -> dict[str, float]:
    actor = _start(nursery)
    times: list[float] = []
    for _ in range(common.CRASHES):
        begin = clock()
        try:
            await actor.ask("crash")
        except ValueError:
            await actor.ask("total")
        times.append(clock() - begin)
    return {"W7 crash to answer": median(times) * 1e6}


async def w8(nursery: trio.Nursery) -> dict[str, float]:
    actors = [_start(nursery) for _ in range(common.RING)]
    done = trio.Event()
    for number, actor in enumerate(actors):
        actor.next = actors[(number + 1) % len(actors)]
        actor.done = done
    await trio.testing.wait_all_tasks_blocked()
    begin = clock()
    actors[0].tell(common.HOPS)
    await done.wait()
    return {"W8 ring of 1,000": (clock() - begin) / common.HOPS * 1e6}


WORKLOADS: dict[str, Callable[[trio.Nursery], Any]] = {
    "w1": w1,
    "w2a": w2a,
    "w2b": w2b,
    "w3": w3,
    "w4": w4,
    "w5": w5,
    "w6": w6,
    "w7": w7,
    "w8": w8,
}


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""

    async def main() -> dict[str, float]:
        async with trio.open_nursery() as nursery:
            result: dict[str, float] = await WORKLOADS[workload](nursery)
            nursery.cancel_scope.cancel()
        return result

    return trio.run(main)
