"""A restart every second for an hour, or for a week in the long form: nothing may grow."""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from sapwood.actors import Actor, ActorSystem, Cell, Down, Ref, handle, open_system
from sapwood.errors import ActorDown, UnhandledRequest
from sapwood.supervision import (
    Backoff,
    ChildSpec,
    DynamicSupervisor,
    Supervisor,
    child,
    start_child,
    supervisor,
    supervisor_statistics,
)
from sapwood.testing import simulate
from tests.supervision.kit import Block, Call, Crash, Name, PlainWorker, Plan, Worker

HOUR = 3_600
WEEK = 7 * 24 * HOUR
TICKS = 8
"""One second for each kind of end; after so many everything is as it was."""


class Watcher(Actor):
    """Monitors every incarnation that it is told of."""

    def __init__(self) -> None:
        self.deaths = 0

    @handle
    def call(self, message: Call) -> None:
        self.monitor(message.function)

    @handle
    def died(self, message: Down) -> None:
        self.deaths += 1


async def failing_function(seconds: float) -> None:
    await trio.sleep(seconds)
    raise ValueError("its time is over")


@attrs.define
class Tree:
    """A tree with a child of every kind, one of which dies at each tick."""

    system: ActorSystem
    plan: Plan
    top: Ref
    home: Ref
    watcher: Ref
    restarts: int = 0

    @classmethod
    async def grow(cls, system: ActorSystem) -> Tree:
        plan = Plan()
        backoff = Backoff(initial=0.1, maximum=0.2, reset_after=1.0)

        def worker(name: str, kind: Any = Worker, **options: Any) -> ChildSpec:
            return child(kind, name, plan, id=name, **options)

        pair = [worker("first"), worker("second", PlainWorker)]
        children = [
            worker("worker"),
            worker("plain", PlainWorker, key=("plain", 1)),
            worker("delayed", backoff=backoff),
            child(failing_function, TICKS - 0.5, id="function"),
            supervisor(pair, strategy="one_for_all", id="pair", restarts=10),
            child(partial(DynamicSupervisor, restarts=10), id="home"),
        ]
        top = await system.spawn(Supervisor, children, strategy="one_for_one", restarts=10)
        [home] = [cell.ref for cell in system.actors if cell.label == "home"]
        tree = cls(system, plan, top, home, await system.spawn(Watcher))
        await start_child(home, worker("dynamic", restart="permanent"))
        # The last dead letters are kept for people to look at; from here on there are as many as there will ever be.
        letters = system.telemetry.dead_letters
        while len(letters) < (letters.maxlen or 0) or tree.restarts % TICKS:
            await tree.tick(tree.restarts)
        tree.restarts = 0
        return tree

    def ref(self, name: str) -> Ref:
        [found] = [cell.ref for cell in self.system.actors if (cell.birth.title or cell.label) == name]
        return found

    async def tick(self, number: int) -> None:
        """Let a second pass, in which one child ends in its own way."""
        match number % TICKS:
            case 0:
                await self.end("worker", Crash())
            case 1:
                await self.end("plain", None)
            case 2:
                await self.end("delayed", Crash())
            case 3:
                await self.end("first", Crash())
            case 4:
                self.plan.script("worker", "fail", "fail")
                await self.end("worker", None)
            case 5:
                await self.end("dynamic", Crash())
            case 6:
                await self.end("dynamic", None)
            case _:
                await self.end("pair", None)
        self.plan.attempts.clear()
        await trio.sleep(1)

    async def end(self, name: str, crash: Crash | None) -> None:
        """End a child that is watched, asked and told something at that moment."""
        ref = self.ref(name)
        self.watcher.tell(Call(ref))
        await trio.lowlevel.checkpoint()
        if name != "pair":
            ref.tell(Block(trio.Event()))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.ask_in_vain, ref)
            await trio.testing.wait_all_tasks_blocked()
            if crash is not None:
                ref.tell(crash)
            ref.kill()
        self.restarts += 1

    async def ask_in_vain(self, ref: Ref) -> None:
        with pytest.raises((ActorDown, UnhandledRequest)):
            await ref.ask(Name(), timeout=100)

    async def sizes(self) -> dict[str, Any]:
        """Return the size of everything that could grow, by what it belongs to."""
        statistics = self.system.statistics()
        tables: dict[str, Any] = {
            "actors": statistics.actors,
            "deadlines": statistics.deadlines,
            "tasks": len(self.system.nursery.child_tasks),
            "busy": self.system.busy,
        }
        for cell in self.system.actors:
            tables[cell.label.split("#")[0]] = sizes_of(cell)
        for ref in (self.top, self.home):
            counters = await supervisor_statistics(ref)
            tables[f"children of {ref.label}"] = (counters.children, counters.active, counters.restarting)
        return tables


def sizes_of(cell: Cell) -> tuple[int, ...]:
    s = cell.ref.statistics()
    counted = (s.waiting, s.tasks, s.timers, s.monitors, s.monitoring, s.links, s.pending_replies)
    nursery = cell.nursery
    return (*counted, len(cell.asking or ()), len(nursery.child_tasks) if nursery is not None else 0)


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> int:
    return WEEK if request.config.getoption("--soak") else HOUR


@pytest.mark.soak
@pytest.mark.row("BR-80")
def test_a_restart_every_second_leaves_every_table_at_its_size(seconds: int) -> None:
    async def program() -> None:
        async with open_system() as system:
            tree = await Tree.grow(system)
            before = await tree.sizes()
            begun = trio.current_time()
            objects, blocks = counts()
            for number in range(seconds):
                await tree.tick(number)
            assert trio.current_time() - begun >= seconds
            assert tree.restarts == seconds
            assert await tree.sizes() == before
            more_objects, more_blocks = counts()
            assert more_objects - objects < 100, (objects, more_objects)
            assert more_blocks - blocks < 1_000, (blocks, more_blocks)
            figures = f"{more_objects - objects} objects, {more_blocks - blocks} blocks of memory"
            print(f"after {tree.restarts} restarts in {seconds} s of virtual time: {figures} more")  # noqa: T201  # shown by `-s`
            await tree.top.stop()

    simulate(1, program)


def counts() -> tuple[int, int]:
    """Return how many objects the collector knows, and how many blocks of memory are in use."""
    gc.collect()
    return len(gc.get_objects()), sys.getallocatedblocks()
