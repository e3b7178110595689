"""Agents at work: turns of many agents at once, with a scripted model and a store in a real SQLite file.

The model answers at once, so what is measured is everything around it: mailbox, journal, events, middleware. A turn is
one message, one model call and its answer. The overhead of a turn is taken with one agent at work at a time, once with
short histories and once with histories ten times as long; both should cost the same.

    python benchmarks/agents.py [--agents 100] [--turns 20] [--full]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import trio

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cells import common  # noqa: E402  # found through the path above
from benchmarks.report import table  # noqa: E402  # as above
from sapwood import Agent, Runtime, ScriptedModel, Session, open_runtime  # noqa: E402  # as above

FULL: Final = (1_000, 20)
PROBED: Final = 200
"""Turns of which the overhead is taken."""


def new_agent() -> Agent:
    return Agent(name="bench", model=ScriptedModel(then="It is done."), prompt="You are brief.")


async def turns(session: Session, count: int) -> None:
    for number in range(count):
        await session.say(f"message {number}")


async def overhead(sessions: list[Session], count: int) -> dict[str, float]:
    """Take the times of turns, one agent at a time, in milliseconds."""
    times: list[float] = []
    for number in range(count):
        begin = time.perf_counter()
        await sessions[number % len(sessions)].say(f"probe {number}")
        times.append((time.perf_counter() - begin) * 1e3)
    cuts = quantiles(times, n=100)
    return {"median": median(times), "p99": cuts[98]}


async def all_at_once(runtime: Runtime, agents: int, count: int) -> tuple[list[Session], dict[str, float]]:
    """Start the agents and let them all take their turns."""
    agent = new_agent()
    before = common.resident_kb()
    begin = time.perf_counter()
    sessions = [await runtime.sessions.ensure_running(agent, f"agent-{number}") for number in range(agents)]
    started = time.perf_counter() - begin
    used = common.resident_kb() - before
    begin = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(turns, session, count)
    seconds = time.perf_counter() - begin
    figures = {
        "start": started / agents * 1e3,
        "memory": used / agents,
        "turns": agents * count / seconds,
        "after": (common.resident_kb() - before) / agents,
    }
    return sessions, figures


async def measure(agents: int, count: int) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="sapwood-bench-") as folder:
        async with open_runtime(store=Path(folder) / "store.db") as runtime:
            sessions, together = await all_at_once(runtime, agents, count)
            chosen = sessions[: max(1, PROBED // 10)]
            short = await overhead(chosen, PROBED)
            held = count + PROBED // len(chosen)
            for session in chosen:
                await turns(session, held * 10 - held)
            long = await overhead(chosen, PROBED)
    return {"together": together, "short": short, "long": long, "turns before": {"short": count, "long": held * 10}}


def main() -> None:
    parser = argparse.ArgumentParser(description="Agents doing turns with a scripted model and a SQLite file.")
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--full", action="store_true", help="{} agents, {} turns".format(*FULL))
    chosen = parser.parse_args()
    agents, count = FULL if chosen.full else (chosen.agents, chosen.turns)
    found = trio.run(measure, agents, count)
    together, before = found["together"], found["turns before"]
    print(f"{agents:,} agents, {count} turns each, all at once: {together['turns']:,.0f} turns/s")
    print(f"start: {together['start']:.2f} ms an agent; memory of an idle agent: {together['memory']:.1f} KB,")
    print(f"after its turns {together['after']:.1f} KB\n")
    rows = {f"{before[name]:g} turns before": list(found[name].values()) for name in ("short", "long")}
    rows["ratio"] = [long / short for short, long in zip(found["short"].values(), found["long"].values(), strict=True)]
    print(table.lay_out("one turn without the model", ("median ms", "p99 ms"), rows))
    results = ROOT / "benchmarks" / "results" / "agents.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps({"agents": agents, "turns": count, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
