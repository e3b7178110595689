"""Fairness: how long one actor's answer takes while others are busy, and how long garbage collection holds the loop.

A prober asks an idle actor over and over, by a handler that costs two task switches, while one actor works through a
flood of messages, or fifty do. Then 100,000 supervised actors stand idle while asks make garbage, and the longest pause
of the collector is taken: with Python's defaults, and with the collector off while they start and frozen after that.

Times are processor time: the loop never waits here, so what other programs on the machine take is left out.

    python benchmarks/fairness.py [--seconds 2] [--actors 100000]
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from pathlib import Path
from statistics import quantiles
from typing import Final

import trio

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cells.common import clock  # noqa: E402  # found through the path above
from benchmarks.report import table  # noqa: E402  # found through the path above
from sapwood import Actor, Ref, Request, Runtime, child, handle, message, open_runtime  # noqa: E402  # as above
from sapwood.supervision import DynamicSupervisor, start_child  # noqa: E402  # as above

CASES: Final = {"nobody busy": 0, "one flooded": 1, "fifty busy": 50}
TARGETS: Final = {"p50": 2.0, "p99": 10.0, "pause": 20.0}
"""Milliseconds."""
QUEUED: Final = 2_000
"""Messages that wait for each busy actor; they are sent a few at a time, since a sender holds the loop, too."""


@message("bench.work")
class Work:
    pass


@message("bench.probe")
class Probe(Request[int]):
    pass


class Worker(Actor):
    def __init__(self) -> None:
        self.done = 0

    @handle
    def work(self, message: Work) -> None:
        self.done += 1

    @handle
    async def probe(self, message: Probe) -> int:
        return self.done


async def _flood(ref: Ref, each: int) -> None:
    work = Work()
    for _ in range(QUEUED):
        ref.tell(work)
    while True:
        await trio.lowlevel.checkpoint()
        for _ in range(min(each, QUEUED - len_of(ref))):
            ref.tell(work)


def len_of(ref: Ref) -> int:
    return len(ref._cell.box or ())


async def busy(count: int, seconds: float) -> dict[str, float]:
    """Measure the probe's latency in milliseconds beside so many busy actors."""
    times: list[float] = []
    async with open_runtime() as runtime, trio.open_nursery() as nursery:
        probed = await runtime.spawn(Worker)
        workers = [await runtime.spawn(Worker) for _ in range(count)]
        for worker in workers:
            nursery.start_soon(_flood, worker, 10 + 500 // count)
        await trio.sleep(seconds / 10)
        end = clock() + seconds
        while clock() < end:
            begin = clock()
            await probed.ask(Probe(), timeout=60)
            times.append((clock() - begin) * 1e3)
        handled = sum(worker._cell.handled for worker in workers)
        nursery.cancel_scope.cancel()
    cuts = quantiles(times, n=100)
    return {"p50": cuts[49], "p99": cuts[98], "longest": max(times), "messages/s": handled / seconds / 1e3}


class Pauses:
    """Times the garbage collector."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._begin = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begin = clock()
        else:
            self.longest = max(self.longest, (clock() - self._begin) * 1e3)


async def _populate(runtime: Runtime, count: int) -> list[Ref]:
    home = await runtime.spawn(DynamicSupervisor)
    refs: list[Ref] = []
    for number in range(count):
        ref = await start_child(home, child(Worker, key=("bench", number)))
        assert ref is not None
        refs.append(ref)
    return refs


async def pauses(count: int, *, freeze: bool) -> dict[str, float]:
    """Measure the longest pause of the collector, in milliseconds, with so many idle actors."""
    starting, running, full = Pauses(), Pauses(), Pauses()
    async with open_runtime() as runtime:
        gc.callbacks.append(starting)
        if freeze:
            gc.disable()
        refs = await _populate(runtime, count)
        if freeze:
            gc.freeze()
            gc.enable()
        gc.callbacks.remove(starting)
        gc.callbacks.append(running)
        kept: list[list[int]] = []
        for number in range(40_000):
            await refs[number % 100].ask(Probe())
            kept.append([number])
        gc.callbacks.remove(running)
        gc.callbacks.append(full)
        gc.collect()  # comes by itself some time, in whatever handler happens to run
        gc.callbacks.remove(full)
        runtime.root.kill()
    return {"starting": starting.longest, "running": running.longest, "full": full.longest}


def measure(case: str, seconds: float, actors: int) -> dict[str, float]:
    if case in CASES:
        return trio.run(busy, CASES[case], seconds)

    async def main() -> dict[str, float]:
        return await pauses(actors, freeze=case == "frozen")

    return trio.run(main)


def apart(case: str, *options: str) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--case", case, *options]
    figures: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Latency beside busy actors, and pauses of the garbage collector.")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--actors", type=int, default=100_000)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.case is not None:
        print(json.dumps(measure(chosen.case, chosen.seconds, chosen.actors)))
        return
    options = ("--seconds", str(chosen.seconds), "--actors", str(chosen.actors))
    latencies = {case: apart(case, *options) for case in CASES}
    head = ("p50 ms", "p99 ms", "longest ms", "1,000 messages/s")
    print(
        table.lay_out("ask of another actor", head, {case: list(found.values()) for case, found in latencies.items()})
    )
    print(f"targets: p50 {TARGETS['p50']:g} ms, p99 {TARGETS['p99']:g} ms\n")
    collector = {case: apart(case, *options) for case in ("default", "frozen")}
    rows = {case: list(found.values()) for case, found in collector.items()}
    print(
        table.lay_out(
            f"gc pause, {chosen.actors:,} actors", ("while starting ms", "while asking ms", "full collection ms"), rows
        )
    )
    print(f"target: {TARGETS['pause']:g} ms")
    results = ROOT / "benchmarks" / "results" / "fairness.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps({"latency": latencies, "collector": collector}, indent=1) + "\n")


if __name__ == "__main__":
    main()
