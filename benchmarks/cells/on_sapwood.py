"""Sapwood with everything on: supervised, registered, monitored, typed dispatch, asks with a deadline."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import trio
import trio.testing

from benchmarks.cells import common
from benchmarks.cells.common import Latch, clock
from sapwood import Actor, Ref, Request, Running, Runtime, child, handle, message, open_runtime
from sapwood.actors import Down
from sapwood.errors import SapwoodError
from sapwood.supervision import DynamicSupervisor, start_child


@message("bench.add")
class Add:
    pass


@message("bench.total")
class Total(Request[int]):
    pass


@message("bench.slow_total")
class SlowTotal(Request[int]):
    pass


@message("bench.fail")
class Fail(Request[int]):
    pass


@message("bench.hop")
class Hop:
    left: int


class Counter(Actor):
    def __init__(self) -> None:
        self.total = 0
        self.next: Ref | None = None
        self.done: Any = None

    @handle
    def add(self, message: Add) -> None:
        self.total += 1

    @handle
    def get_total(self, message: Total) -> int:
        return self.total

    @handle
    async def get_slowly(self, message: SlowTotal) -> int:
        return self.total

    @handle
    def fail(self, message: Fail) -> int:
        raise ValueError("crash")

    @handle
    def hop(self, message: Hop) -> None:
        if message.left:
            assert self.next is not None
            self.next.tell(Hop(message.left - 1))
        else:
            self.done.set()


class Watcher(Actor):
    """Monitors every actor it is told of."""

    def __init__(self) -> None:
        self.downs = 0

    @handle
    def down(self, message: Down) -> None:
        self.downs += 1


async def w1(runtime: Runtime) -> dict[str, float]:
    ref = await runtime.spawn(Counter, key=("bench", 0))
    add = Add()
    begin = clock()
    for number in range(common.TELLS):
        ref.tell(add)
        if not number % 1_000:
            await trio.lowlevel.checkpoint()
    assert await ref.ask(SlowTotal(), timeout=60) == common.TELLS
    return {"W1 tell": (clock() - begin) / common.TELLS * 1e6}


async def _ask(ref: Ref, request: Request[int], count: int) -> None:
    for _ in range(count):
        await ref.ask(request)


async def w2a(runtime: Runtime) -> dict[str, float]:
    ref = await runtime.spawn(Counter, key=("bench", 0))
    await ref.ask(SlowTotal())
    begin = clock()
    await _ask(ref, SlowTotal(), common.ASKS)
    switched = clock() - begin
    begin = clock()
    await _ask(ref, Total(), common.ASKS)
    return {"W2a ask": switched / common.ASKS * 1e6, "W2a ask inline": (clock() - begin) / common.ASKS * 1e6}


async def w2b(runtime: Runtime) -> dict[str, float]:
    ref = await runtime.spawn(Counter, key=("bench", 0))
    await ref.ask(SlowTotal())
    begin = clock()
    async with trio.open_nursery() as nursery:
        for _ in range(common.CALLERS):
            nursery.start_soon(_ask, ref, SlowTotal(), common.ASKS // common.CALLERS)
    return {"W2b ask, 100 callers": (clock() - begin) / common.ASKS * 1e6}


async def w3(runtime: Runtime) -> dict[str, float]:
    refs = [await runtime.spawn(Counter, key=("bench", number)) for number in range(common.FAN)]
    done = trio.Event()
    latch = Latch(done, len(refs))
    for ref in refs:
        actor: Any = ref._cell.actor
        actor.done = latch
    await trio.testing.wait_all_tasks_blocked()
    begin = clock()
    for note in [Add()] * (common.FAN_ROUNDS - 1) + [Hop(0)]:
        for ref in refs:
            ref.tell(note)
    await done.wait()
    return {"W3 fan to 1,000": (clock() - begin) / (common.FAN * common.FAN_ROUNDS) * 1e6}


async def _population(runtime: Runtime) -> tuple[Ref, Ref, list[Ref]]:
    home = await runtime.spawn(DynamicSupervisor)
    watcher = await runtime.spawn(Watcher)
    actor: Any = watcher._cell.actor
    refs: list[Ref] = []
    for number in range(common.POPULATION):
        ref = await start_child(home, child(Counter, key=("bench", number)))
        assert ref is not None
        actor.monitor(ref)
        refs.append(ref)
    await trio.testing.wait_all_tasks_blocked()
    return home, watcher, refs


async def w4(runtime: Runtime) -> dict[str, float]:
    begin = clock()
    home, watcher, refs = await _population(runtime)
    started = clock() - begin
    begin = clock()
    await home.stop()
    assert watcher._cell.actor.downs in range(len(refs) + 1)  # type: ignore[union-attr]
    return {"W4 start": started / common.POPULATION * 1e6, "W4 stop": (clock() - begin) / common.POPULATION * 1e6}


async def w5(runtime: Runtime) -> dict[str, float]:
    before = common.resident_kb()
    population = await _population(runtime)
    used = common.resident_kb() - before
    del population
    return {"W5 memory": used / common.POPULATION}


async def w6(runtime: Runtime) -> dict[str, float]:
    keys = [("bench", f"actor-{number}") for number in range(common.NAMES)]
    for key in keys:
        await runtime.spawn(Counter, key=key)
    lookup = runtime.registry.lookup_nowait
    rounds = common.LOOKUPS // common.NAMES
    begin = clock()
    for _ in range(rounds):
        for key in keys:
            lookup(key)
    return {"W6 lookup": (clock() - begin) / (rounds * common.NAMES) * 1e9}


def _find(runtime: Runtime, key: tuple[str, int]) -> Ref | None:
    match runtime.registry.lookup_nowait(key):
        case Running(ref):
            return ref
        case _:
            return None


async def w7(runtime: Runtime) -> dict[str, float]:
    key = ("bench", 0)
    home = await runtime.spawn(DynamicSupervisorForCrashes)
    await start_child(home, child(Counter, key=key))
    times: list[float] = []
    for _ in range(common.CRASHES):
        begin = clock()
        ref = _find(runtime, key)
        assert ref is not None
        try:
            await ref.ask(Fail())
        except SapwoodError:
            ref = None
        while ref is None:
            await trio.lowlevel.checkpoint()
            ref = _find(runtime, key)
        await ref.ask(Total())
        times.append(clock() - begin)
    return {"W7 crash to answer": median(times) * 1e6}


class DynamicSupervisorForCrashes(DynamicSupervisor):
    def __init__(self) -> None:
        super().__init__(restarts=1_000_000)


async def w8(runtime: Runtime) -> dict[str, float]:
    refs = [await runtime.spawn(Counter, key=("bench", number)) for number in range(common.RING)]
    done = trio.Event()
    for number, ref in enumerate(refs):
        actor: Any = ref._cell.actor
        actor.next = refs[(number + 1) % len(refs)]
        actor.done = done
    await trio.testing.wait_all_tasks_blocked()
    begin = clock()
    refs[0].tell(Hop(common.HOPS))
    await done.wait()
    return {"W8 ring of 1,000": (clock() - begin) / common.HOPS * 1e6}


WORKLOADS: dict[str, Callable[[Runtime], Any]] = {
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
        async with open_runtime(log=False) as runtime:
            result: dict[str, float] = await WORKLOADS[workload](runtime)
            return result

    return trio.run(main)
