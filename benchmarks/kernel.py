"""W1 to W8: Sapwood beside raw trio, in one run.

Every cell is a fresh process; the cells of a round run in a shuffled order, one after another, and every figure is
given as the median over the rounds and as the median of its ratios to raw trio within the same round. Machines have
slow and fast phases, so read the ratios.

    python benchmarks/kernel.py [ROUNDS]
"""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cells import common  # noqa: E402  # found through the path above

LIBRARIES = ("park", "sapwood")
BASELINE = "park"
WORKLOADS = ("w1", "w2a", "w2b", "w3", "w4", "w5", "w6", "w7", "w8")
RESULTS = ROOT / "benchmarks" / "results" / "kernel.json"

Figures = dict[str, dict[str, list[float]]]


def cell(library: str, workload: str) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--cell", library, workload]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise SystemExit(f"{library} {workload} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def run(rounds: int) -> Figures:
    """Measure everything, round by round."""
    figures: Figures = {library: {} for library in LIBRARIES}
    for number in range(rounds):
        cells = [(library, workload) for library in LIBRARIES for workload in WORKLOADS]
        random.shuffle(cells)
        for library, workload in cells:
            for name, value in cell(library, workload).items():
                figures[library].setdefault(name, []).append(value)
        print(f"round {number + 1} of {rounds} done", file=sys.stderr)
    return figures


def table(figures: Figures) -> str:
    """Lay the medians and ratios out."""
    columns = "".join(f"{library:>12}" for library in LIBRARIES)
    lines = [f"{'workload':24}{'unit':>14}{columns}{'x ' + BASELINE:>10}"]
    for name, unit in common.UNITS.items():
        base = figures[BASELINE].get(name)
        values = [figures[library].get(name) for library in LIBRARIES]
        if base is None or any(value is None for value in values):
            continue
        own = figures["sapwood"][name]
        ratio = median(mine / theirs for mine, theirs in zip(own, base, strict=True))
        shown = "".join(f"{median(value or [0.0]):12.2f}" for value in values)
        lines.append(f"{name:24}{unit:>14}{shown}{ratio:10.2f}")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["--cell"]:
        module = importlib.import_module(f"benchmarks.cells.on_{sys.argv[2]}")
        print(json.dumps(module.measure(sys.argv[3])))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    figures = run(rounds)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"units": common.UNITS, "rounds": rounds, "figures": figures}, indent=1))
    print(table(figures))
    print(f"\nfigures of every round: {RESULTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
