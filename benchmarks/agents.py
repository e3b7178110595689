"""Agents at work: turns of many agents at once, with a scripted model and a store in a real SQLite file.

A turn is one message, one model call and its answer. The model answers at once, and the time it takes all the same is
taken off, so what is measured is everything around it: mailbox, journal, disk, events, middleware. The overhead of a
turn is taken with one agent at work at a time, in turns of agents with short histories and of others with histories
ten times as long; both should cost the same.

    python benchmarks/agents.py [--agents 100] [--turns 20] [--full] [--profile]

Memory is that of the process, divided by the agents: idle, with nothing said yet; active, which is in the middle of the
first run, waiting for the model; and idle after their turns.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import attrs
import trio

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cells import common  # noqa: E402  # found through the path above
from benchmarks.report import table  # noqa: E402  # as above
from sapwood import Agent, Runtime, ScriptedModel, Session, open_runtime  # noqa: E402  # as above
from sapwood.conversation import Usage  # noqa: E402  # as above
from sapwood.models import ModelEvent, ModelRequest, Step  # noqa: E402  # as above

FULL: Final = (1_000, 20)
LONGER: Final = 10
"""How many times as long the long histories are."""

PROBED: Final = 20
"""Agents of each kind of which the overhead is taken, or all of fewer."""

PROBES: Final = 400
"""Turns of each kind of which the overhead is taken."""

COSTS: Final = 25
"""Lines of the profile that are printed."""


class TimedModel:
    """A scripted model that adds up the seconds it takes itself, and keeps no requests."""

    def __init__(self, script: ScriptedModel) -> None:
        self.name = script.name
        self.wall = self.processor = 0.0
        self._script = script

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        async with self._script.stream(request) as events:
            self._script.requests.clear()
            yield self._timed(events)

    async def _timed(self, events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
        while True:
            with Spell(self):
                event = await anext(events, None)
            if event is None:
                return
            yield event


class Spell:
    """A time within the model."""

    def __init__(self, model: TimedModel) -> None:
        self._model = model

    def __enter__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self._model.wall += time.perf_counter() - self._wall
        self._model.processor += time.process_time() - self._processor


@attrs.define
class Turns:
    """Milliseconds of turns, without the model."""

    wall: list[float] = attrs.Factory(list[float])
    processor: list[float] = attrs.Factory(list[float])

    def figures(self) -> dict[str, float]:
        return {
            "median ms": median(self.wall),
            "p99 ms": quantiles(self.wall, n=100)[98],
            "processor, median ms": median(self.processor),
            "processor, p99 ms": quantiles(self.processor, n=100)[98],
        }


class Bench:
    """Agents that share one configuration, and the gate that their model waits at while it is shut."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.gate = trio.Event()
        self.gate.set()
        self.awaited = 0
        self.all_here = trio.Event()
        self.model = TimedModel(ScriptedModel(then=self._answer))
        self.agent = Agent(name="bench", model=self.model, prompt="You are brief.")

    async def _answer(self, _: ModelRequest) -> Step:
        self.awaited -= 1
        if not self.awaited:
            self.all_here.set()
        await self.gate.wait()
        return ["It is done.", Usage(10, 3)]

    async def start(self, count: int) -> list[Session]:
        return [await self.runtime.sessions.ensure_running(self.agent, f"agent-{number}") for number in range(count)]

    async def turns(self, session: Session, count: int) -> None:
        for number in range(count):
            await session.say(f"message {number}")

    async def together(self, sessions: list[Session], count: int) -> tuple[float, float]:
        """Let all of them take turns at once; return the seconds, and those of the processor."""
        wall, processor = time.perf_counter(), time.process_time()
        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(self.turns, session, count)
        return time.perf_counter() - wall, time.process_time() - processor

    async def probe(self, session: Session, into: Turns) -> None:
        """Take the time of one turn."""
        wall, processor = time.perf_counter() - self.model.wall, time.process_time() - self.model.processor
        await session.say("probe")
        into.wall.append((time.perf_counter() - self.model.wall - wall) * 1e3)
        into.processor.append((time.process_time() - self.model.processor - processor) * 1e3)

    async def active_kb(self, sessions: list[Session]) -> float:
        """Hold the first run of every session open at the model; return the resident KB of the process then."""
        self.gate, self.awaited = trio.Event(), len(sessions)
        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(self.turns, session, 1)
            await self.all_here.wait()
            resident = common.resident_kb()
            self.gate.set()
        return resident


async def measure(agents: int, count: int) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="sapwood-bench-") as folder:
        path = Path(folder) / "store.db"
        async with open_runtime(store=path) as runtime:
            bench = Bench(runtime)
            before = common.resident_kb()
            begin = time.perf_counter()
            sessions = await bench.start(agents)
            started = time.perf_counter() - begin
            idle = common.resident_kb() - before
            # Now, for memory that turns have used once stays with the process.
            active = await bench.active_kb(sessions) - before
            wall, processor = await bench.together(sessions, count)
            resting = common.resident_kb() - before
            half = max(1, min(PROBED, agents // 2))
            short, long = sessions[:half], sessions[half : 2 * half]
            await bench.together(long, (LONGER - 1) * count)
            found = {"short": Turns(), "long": Turns()}
            for number in range(PROBES):
                # In turns, so that a machine that gets busier makes both of them slower.
                await bench.probe(short[number % half], found["short"])
                await bench.probe(long[number % half], found["long"])
    return {
        "together": {
            "turns/s": agents * count / wall,
            "processor, ms": processor / (agents * count) * 1e3,
            "start, ms": started / agents * 1e3,
        },
        "memory, KB": {"idle": idle / agents, "active": active / agents, "idle, after its turns": resting / agents},
        "short": found["short"].figures(),
        "long": found["long"].figures(),
    }


async def work(agents: int, count: int, profile: cProfile.Profile) -> None:
    """Profile what the loop does while agents take turns one after another; the disk's thread is no part of it."""
    with tempfile.TemporaryDirectory(prefix="sapwood-bench-") as folder:
        async with open_runtime(store=Path(folder) / "store.db") as runtime:
            bench = Bench(runtime)
            sessions = await bench.start(agents)
            await bench.together(sessions, 1)
            profile.enable()
            for session in sessions:
                await bench.turns(session, count)
            profile.disable()


def show(agents: int, count: int, found: dict[str, dict[str, float]]) -> None:
    together, memory = found["together"], found["memory, KB"]
    load = " ".join(f"{number:.1f}" for number in os.getloadavg())
    print(f"{agents:,} agents, {count} turns each, all at once: {together['turns/s']:,.0f} turns/s, ", end="")
    print(f"{together['processor, ms']:.2f} ms of the processor each; load of the machine: {load}")
    print(f"start: {together['start, ms']:.2f} ms an agent; memory: {memory['idle']:.1f} KB idle, ", end="")
    print(f"{memory['active']:.1f} KB active, {memory['idle, after its turns']:.1f} KB idle after its turns\n")
    short, long = found["short"], found["long"]
    rows = {f"{count} turns before": list(short.values()), f"{LONGER * count} turns before": list(long.values())}
    rows["ratio"] = [long[name] / short[name] for name in short]
    print(table.lay_out("one turn without the model", tuple(short), rows))


def run_profiled(agents: int, count: int) -> None:
    profile = cProfile.Profile()
    trio.run(work, agents, count, profile)
    for order in ("tottime", "cumtime"):
        pstats.Stats(profile).sort_stats(order).print_stats(COSTS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Agents doing turns with a scripted model and a SQLite file.")
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--full", action="store_true", help="{} agents, {} turns".format(*FULL))
    parser.add_argument("--profile", action="store_true", help="print what the turns cost, function by function")
    chosen = parser.parse_args()
    agents, count = FULL if chosen.full else (chosen.agents, chosen.turns)
    if agents < 2 or count < 1:
        parser.error("expected at least 2 agents and 1 turn")
    if chosen.profile:
        run_profiled(agents, count)
        return
    found = trio.run(measure, agents, count)
    show(agents, count, found)
    results = ROOT / "benchmarks" / "results" / "agents.json"
    results.parent.mkdir(exist_ok=True)
    figures = {"agents": agents, "turns": count, "load": os.getloadavg(), **found}
    results.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
