"""W1 to W8: Sapwood beside raw trio, raw asyncio and, on request, other actor libraries, in one run.

Every cell is a fresh process; the cells of a round run in a shuffled order, one after another. A figure is given as
the median over the rounds, in processor time, and as the median of its ratios to `park`, hand-written actors on raw
trio, within the same round; a third table compares the best rounds. Machines have slow and fast phases, so read the
ratios.

    python benchmarks/kernel.py [ROUNDS] [--only w1,w2a] [--libraries park,sapwood] [--peers] [--chart FILE.svg]

`--peers` installs the other libraries into a virtual environment that is thrown away afterwards.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cells import common  # noqa: E402  # found through the path above
from benchmarks.report import chart, peers, table  # noqa: E402  # as above

BASELINE: Final = "park"
LIBRARIES: Final = ("sapwood", BASELINE, "chan", "aio_park", "aio_queue")
BASES: Final = {"W2a ask inline": "W2a ask"}
"""Figures whose ratio is to another figure of the baseline."""
RESULTS: Final = ROOT / "benchmarks" / "results"

Figures = dict[str, dict[str, table.Rounds]]


class CellFailed(Exception):
    """A cell gave no figures; the text is the reason."""


def cell(command: Sequence[str], limit: float) -> dict[str, float]:
    """Measure in a process of its own."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        raise CellFailed(f"took longer than {limit:.0f} s") from None
    if done.returncode:
        raise CellFailed(peers.last_line(done.stderr))
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def run(rounds: int, workloads: Sequence[str], libraries: Sequence[str], others: peers.Peers) -> Figures:
    """Measure everything, round by round."""
    commands = {library: [sys.executable, __file__, "--cell", library] for library in libraries} | others.commands
    figures: Figures = {library: {} for library in commands}
    for number in range(rounds):
        cells = [(library, workload) for library in commands for workload in workloads]
        random.shuffle(cells)
        for library, workload in cells:
            name = f"{library} {workload}"
            if name in others.reasons:
                continue
            try:
                found = cell([*commands[library], workload], 60 if library in others.commands else 300)
            except CellFailed as failure:
                if library not in others.commands:
                    raise SystemExit(f"{name} failed: {failure}") from failure
                others.reasons[name] = str(failure)
                continue
            for figure, value in found.items():
                seen = figures[library].setdefault(figure, [])
                seen += [None] * (number - len(seen))
                seen.append(value)
        print(f"round {number + 1} of {rounds} done", file=sys.stderr)
    return figures


def quotient(figures: Figures, library: str, name: str) -> float | None:
    """Compare the best rounds, which were disturbed least, if not at the same time."""
    mine = table.best(figures, library, name)
    base = table.best(figures, BASELINE, BASES.get(name, name))
    return mine / base if mine is not None and base is not None else None


def report(figures: Figures) -> str:
    """Lay the medians and the ratios out."""
    names = [name for name in common.UNITS if any(name in found for found in figures.values())]
    head = [f"{name.split()[0]}{' inl.' if 'inline' in name else ''}" for name in names]
    head = [f"{short} {name.split()[1]}" if short == "W4" else short for short, name in zip(head, names, strict=True)]
    medians = {library: [table.middle(figures, library, name) for name in names] for library in figures}
    blocks = [table.lay_out("median", head, medians)]
    if BASELINE in figures:
        ratios = {
            library: [table.ratio(figures, library, name, BASELINE, BASES.get(name, name)) for name in names]
            for library in figures
        }
        blocks.append(table.lay_out(f"x {BASELINE}", head, ratios))
        bests = {library: [quotient(figures, library, name) for name in names] for library in figures}
        blocks.append(table.lay_out("best x best", head, bests))
    units = ", ".join(
        f"{short} {name.partition(' ')[2]} {common.UNITS[name]}" for short, name in zip(head, names, strict=True)
    )
    return "\n\n".join([*blocks, units])


def draw(path: Path, figures: Figures, rounds: int) -> None:
    """Draw the ratios to the baseline."""
    groups: dict[str, dict[str, float]] = {}
    for name in common.UNITS:
        for library in figures:
            value = table.ratio(figures, library, name, BASELINE, BASES.get(name, name))
            if value is not None and library != BASELINE:
                groups.setdefault(name, {})[library] = value
    note = f"Times raw trio ({BASELINE}) in the same round, median of {rounds} rounds; less is better; logarithmic."
    chart.draw(path, "Sapwood's kernel beside others", note, groups)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="W1 to W8: Sapwood beside raw trio, raw asyncio and other libraries.")
    parser.add_argument("rounds", nargs="?", type=int, default=3)
    parser.add_argument("--only", default=",".join(common.WORKLOADS), help="workloads, as in w1,w2a")
    parser.add_argument("--libraries", default=",".join(LIBRARIES), help="libraries of the project's environment")
    parser.add_argument("--peers", nargs="?", const=",".join(peers.NAMES), default="", help="all, or as in pykka,beam")
    parser.add_argument("--chart", type=Path, help="an SVG file to write")
    chosen = parser.parse_args()
    for given, known in ((chosen.only, common.WORKLOADS), (chosen.libraries, LIBRARIES), (chosen.peers, peers.NAMES)):
        unknown = {name for name in given.split(",") if name} - set(known)
        if unknown:
            parser.error(f"expected some of {', '.join(known)}; got {', '.join(sorted(unknown))}")
    return chosen


def main() -> None:
    if sys.argv[1:2] == ["--cell"]:
        module = importlib.import_module(f"benchmarks.cells.on_{sys.argv[2]}")
        try:
            print(json.dumps(module.measure(sys.argv[3])))
        except common.Unsupported as missing:
            raise SystemExit(str(missing)) from None
        return
    chosen = arguments()
    with peers.installed([name for name in chosen.peers.split(",") if name]) as others:
        figures = run(chosen.rounds, chosen.only.split(","), chosen.libraries.split(","), others)
    print(report(figures))
    if others.reasons:
        print("\nwithout a figure:\n" + "\n".join(f"  {what}: {why}" for what, why in sorted(others.reasons.items())))
    results = RESULTS / "kernel.json"
    results.parent.mkdir(exist_ok=True)
    stored = {"units": common.UNITS, "rounds": chosen.rounds, "figures": figures, "without": others.reasons}
    results.write_text(json.dumps(stored, indent=1) + "\n")
    print(f"\nfigures of every round: {results.relative_to(ROOT)}")
    if chosen.chart is not None:
        draw(chosen.chart, figures, chosen.rounds)


if __name__ == "__main__":
    main()
