"""Instructions per operation, counted by valgrind: the same on a busy machine, so a change in the code shows.

The same operation is run a small and a large number of times; the difference, divided by the difference of the
numbers, leaves the start of the program out. The figures are compared with those in instructions.json.

    python benchmarks/instructions.py [--only w1,w6] [--update]

Ends with 1 if a figure is more than 5 % above the stored one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import trio
import trio.testing

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cells.on_sapwood import Add, Counter, Hop, SlowTotal, Total  # noqa: E402  # found through the path above
from benchmarks.report import table  # noqa: E402  # as above
from sapwood import Runtime, open_runtime  # noqa: E402  # as above

STORED: Final = Path(__file__).parent / "instructions.json"
ALLOWED: Final = 1.05
RING: Final = 50


async def tell(runtime: Runtime, count: int) -> None:
    ref = await runtime.spawn(Counter, key=("bench", 0))
    add = Add()
    for number in range(count):
        ref.tell(add)
        if not number % 1_000:
            await trio.lowlevel.checkpoint()
    await ref.ask(SlowTotal(), timeout=600)


async def ask(runtime: Runtime, count: int) -> None:
    ref = await runtime.spawn(Counter, key=("bench", 0))
    for _ in range(count):
        await ref.ask(SlowTotal())


async def ask_inline(runtime: Runtime, count: int) -> None:
    ref = await runtime.spawn(Counter, key=("bench", 0))
    await ref.ask(SlowTotal())
    for _ in range(count):
        await ref.ask(Total())


async def look_up(runtime: Runtime, count: int) -> None:
    await runtime.spawn(Counter, key=("bench", 0))
    lookup = runtime.registry.lookup_nowait
    key = ("bench", 0)
    for _ in range(count):
        lookup(key)


async def hop(runtime: Runtime, count: int) -> None:
    refs = [await runtime.spawn(Counter, key=("bench", number)) for number in range(RING)]
    done = trio.Event()
    for number, ref in enumerate(refs):
        actor: Any = ref._cell.actor
        actor.next, actor.done = refs[(number + 1) % RING], done
    await trio.testing.wait_all_tasks_blocked()
    refs[0].tell(Hop(count))
    await done.wait()


OPERATIONS: Final = {
    "w1": ("W1 tell", tell, 2_000, 22_000),
    "w2a": ("W2a ask, switched", ask, 100, 1_100),
    "inline": ("W2a ask, inline", ask_inline, 500, 5_500),
    "w6": ("W6 lookup", look_up, 2_000, 22_000),
    "w8": ("W8 hop", hop, 200, 2_200),
}


async def perform(name: str, count: int) -> None:
    async with open_runtime() as runtime:
        await OPERATIONS[name][1](runtime, count)


def count_instructions(name: str, count: int) -> int:
    """Run an operation so many times under valgrind; return the instructions of the whole program."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, __file__, "--perform", name, str(count)]
    # Sets and dicts would lie differently in each run; so would the addresses that they hash, but for `setarch -R`.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    still = ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []
    done = subprocess.run([*still, *command], env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode or found is None:
        raise SystemExit(f"valgrind failed:\n{done.stderr[-2_000:]}")
    return int(found[1].replace(",", ""))


def per_operation(name: str) -> float:
    _, _, few, many = OPERATIONS[name]
    return round((count_instructions(name, many) - count_instructions(name, few)) / (many - few), 1)


def main() -> int:
    parser = argparse.ArgumentParser(description="Instructions per operation, compared with the stored figures.")
    parser.add_argument("--only", default=",".join(OPERATIONS))
    parser.add_argument("--update", action="store_true", help="store the figures")
    parser.add_argument("--perform", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.perform is not None:
        trio.run(perform, chosen.perform[0], int(chosen.perform[1]))
        return 0
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not on the PATH (on Debian: apt-get install valgrind)")
        return 0
    names = chosen.only.split(",")
    with ThreadPoolExecutor(2) as pool:
        figures = dict(zip(names, pool.map(per_operation, names), strict=True))
    version = (
        f"{platform.python_implementation()} {platform.python_version()} {platform.machine()}, trio {trio.__version__}"
    )
    stored: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {"figures": {}}
    rows: dict[str, list[float | None]] = {}
    for name, figure in figures.items():
        before = stored["figures"].get(name)
        rows[OPERATIONS[name][0]] = [figure, before, figure / before if before else None]
    print(table.lay_out("instructions per operation", ("now", "stored", "ratio"), rows))
    if chosen.update:
        STORED.write_text(json.dumps({"measured on": version, "figures": stored["figures"] | figures}, indent=1) + "\n")
        print(f"stored in {STORED.relative_to(ROOT)}")
        return 0
    if stored.get("measured on") != version:
        print(f"not compared: stored on {stored.get('measured on', 'nothing')}, this is {version}")
        return 0
    worse = [name for name, (_, _, ratio) in rows.items() if ratio is not None and ratio > ALLOWED]
    for name in worse:
        print(f"FAILED: {name} needs more than {ALLOWED - 1:.0%} more instructions than stored")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
