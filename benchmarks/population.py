"""Populations: what supervised, registered, idle actors cost, and whether a message costs the same among many.

python benchmarks/population.py [--sizes 10,100,1000,10000,100000] [--collector off|python|freeze]
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
import trio.testing

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cells import common  # noqa: E402  # found through the path above
from benchmarks.report import table  # noqa: E402  # as above
from sapwood import Actor, Ref, Request, child, handle, message, open_runtime  # noqa: E402  # as above
from sapwood.supervision import DynamicSupervisor, start_child  # noqa: E402  # as above

SIZES: Final = (10, 100, 1_000, 10_000, 100_000)
MESSAGES: Final = 100_000
ASKS: Final = 20_000
SPOKEN_TO: Final = 10
COLLECTORS: Final = ("off", "python", "freeze")
AT_ONCE: Final = 1_000
"""Messages that are sent before the actors get their turn."""


@message("bench.add")
class Add:
    pass


@message("bench.total")
class Total(Request[int]):
    pass


class Counter(Actor):
    def __init__(self) -> None:
        self.total = 0

    @handle
    def add(self, message: Add) -> None:
        self.total += 1

    @handle
    async def get_total(self, message: Total) -> int:
        return self.total


async def _tell(refs: list[Ref]) -> float:
    add = Add()
    begin = common.clock()
    for _ in range(MESSAGES // AT_ONCE):
        for _ in range(AT_ONCE // len(refs)):
            for ref in refs:
                ref.tell(add)
        await trio.testing.wait_all_tasks_blocked()
    return (common.clock() - begin) / MESSAGES * 1e6


async def _ask(refs: list[Ref]) -> float:
    total = Total()
    begin = common.clock()
    for index in range(ASKS):
        await refs[index % len(refs)].ask(total)
    return (common.clock() - begin) / ASKS * 1e6


@contextmanager
def _pauses() -> Generator[list[float]]:
    """Collect how long each garbage collection in the block takes, in milliseconds."""
    found: list[float] = []
    begun = 0.0

    def note(wanted: str, phase: str, info: dict[str, Any]) -> None:
        nonlocal begun
        if phase != wanted:
            return
        if phase == "start":
            begun = common.clock()
        else:
            found.append((common.clock() - begun) * 1e3)

    # Before the runtime's own callback at the start of a collection, and after it at the end.
    first, last = partial(note, "start"), partial(note, "stop")
    gc.callbacks.insert(0, first)
    gc.callbacks.append(last)
    try:
        yield found
    finally:
        gc.callbacks.remove(first)
        gc.callbacks.remove(last)


async def populate(size: int, collector: str) -> dict[str, float]:
    """Measure one population.

    Args:
        size: Number of actors.
        collector: `off` switches the garbage collector off while they start and freezes them afterwards, so that it
            has no part in the figures; otherwise it is the runtime's `gc_policy`.
    """
    async with open_runtime(gc_policy="freeze" if collector == "freeze" else "python") as runtime:
        home = await runtime.spawn(DynamicSupervisor)
        before = common.resident_kb()
        if collector == "off":
            gc.disable()
        begin = common.clock()
        refs: list[Ref] = []
        with _pauses() as starting:
            for number in range(size):
                ref = await start_child(home, child(Counter, key=("bench", number)))
                assert ref is not None
                refs.append(ref)
            await trio.testing.wait_all_tasks_blocked()
        seconds = common.clock() - begin
        used = common.resident_kb() - before
        if collector == "off":
            gc.freeze()
            gc.enable()
        with _pauses() as idle:
            gc.collect()
        # As many actors are spoken to in each population, but spread over all of it.
        chosen = refs[:: size // SPOKEN_TO][:SPOKEN_TO]
        figures = {"start s": seconds, "start us/actor": seconds / size * 1e6, "memory MB": used / 1024}
        figures |= {"KB/actor": used / size, "tell us": await _tell(chosen), "ask us": await _ask(chosen)}
        figures |= {"gc start ms": max(starting, default=0.0), "gc idle ms": max(idle, default=0.0)}
        begin = common.clock()
        await home.stop()
        return {**figures, "stop us/actor": (common.clock() - begin) / size * 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description="What idle actors cost, and what a message costs among many.")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument(
        "--collector",
        choices=COLLECTORS,
        default="off",
        help="off while the actors start and frozen afterwards; or the runtime's gc_policy",
    )
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.size is not None:
        print(json.dumps(trio.run(populate, chosen.size, chosen.collector)))
        return
    found: dict[str, dict[str, float]] = {}
    for size in map(int, chosen.sizes.split(",")):
        if size < SPOKEN_TO:
            parser.error(f"expected sizes of at least {SPOKEN_TO}; got {size}")
        command = [sys.executable, __file__, "--size", str(size), "--collector", chosen.collector]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        found[f"{size:,}"] = json.loads(done.stdout)
    rows = {size: list(figures.values()) for size, figures in found.items()}
    print(table.lay_out("idle actors", list(next(iter(found.values()))), rows))
    print(f"tell and ask go to {SPOKEN_TO} actors in each population, spread evenly over it")
    print("gc start: longest garbage collection while the actors start; gc idle: a full one when all are idle")
    name = "population.json" if chosen.collector == "off" else f"population-{chosen.collector}.json"
    results = ROOT / "benchmarks" / "results" / name
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
