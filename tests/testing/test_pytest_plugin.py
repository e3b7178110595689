"""The pytest plugin: seeds, fixtures and options, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from sapwood import Actor, Runtime, child
from sapwood.registry import Running
from sapwood.testing import Chaos, Invariants

ROOT = Path(__file__).parents[2]

FILE = """
import pytest, trio
from sapwood import Actor, child
from sapwood.registry import Running

SEEN = []

class Holder(Actor):
    pass

@pytest.mark.sapwood(seeds=4)
async def test_counts_its_seeds(seed, runtime):
    SEEN.append(seed)
    assert trio.current_time() < 1
    await trio.sleep(1000)

def test_all_seeds_were_run():
    assert SEEN == list(range(4))

@pytest.mark.sapwood(seeds=3)
async def test_fails_with_the_last(seed):
    assert seed < 2

@pytest.mark.sapwood(partitions=2, children=[child(Holder, key=("holder", 1))])
async def test_options_go_to_the_runtime(runtime):
    assert len(runtime.registry.statistics().partitions) == 2
    assert isinstance(runtime.registry.lookup_nowait(("holder", 1)), Running)

@pytest.mark.sapwood
async def test_other_fixtures_work_beside(runtime, tmp_path, monkeypatch):
    assert tmp_path.exists()

@pytest.mark.sapwood
async def test_skips(runtime):
    pytest.skip("for a reason")

@pytest.mark.sapwood
class TestClass:
    async def test_asynchronous(self, runtime):
        assert runtime.ready()

    def test_plain(self):
        pass

async def test_without_the_mark(runtime):
    pass
"""

VIOLATION = """
import pytest
from sapwood.testing import Violation

@pytest.mark.sapwood
async def test_of_something_broken(runtime, invariants):
    invariants.violations.append(Violation("no_two_live_per_key", 0.0, "made up"))
"""

PLAIN = """
import pytest

@pytest.mark.sapwood
def test_that_is_not_asynchronous():
    pass
"""


def run(folder: Path, source: str, *options: str, **environment: str) -> str:
    path = folder / "test_it.py"
    path.write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", *options, str(path)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout + done.stderr


def test_a_marked_test_runs_in_a_simulation_once_for_each_seed(tmp_path: Path) -> None:
    output = run(tmp_path, FILE, "-p", "no:randomly")

    for name in (
        "test_counts_its_seeds",
        "test_all_seeds_were_run",
        "test_options_go_to_the_runtime",
        "test_other_fixtures_work_beside",
        "TestClass::test_asynchronous",
        "TestClass::test_plain",
    ):
        assert f"PASSED test_it.py::{name}" in output
    assert "FAILED test_it.py::test_fails_with_the_last" in output
    assert "with seed 2; run it alone with --sapwood-seed=2" in output
    assert "SKIPPED [1] test_it.py" in output
    assert "ERROR test_it.py::test_without_the_mark" in output
    assert "needs a test marked with @pytest.mark.sapwood" in output
    assert "6 passed, 1 skipped, 1 error" in output.replace("1 failed, ", "")


def test_one_seed_is_run_alone_and_another_number_of_seeds_by_option_or_environment(tmp_path: Path) -> None:
    only = ("-p", "no:randomly", "-k", "fails_with_the_last")
    assert "1 passed" in run(tmp_path, FILE, *only, "--sapwood-seed=1")
    assert "1 failed" in run(tmp_path, FILE, *only, "--sapwood-seed=17")
    assert "1 passed" in run(tmp_path, FILE, *only, "--sapwood-seeds=2")
    assert "1 passed" in run(tmp_path, FILE, *only, SAPWOOD_SEEDS="2")


def test_a_violated_invariant_fails_a_test_that_does_not_ask(tmp_path: Path) -> None:
    output = run(tmp_path, VIOLATION)
    assert "1 failed" in output
    assert "no_two_live_per_key at 0.000 s: made up" in output


def test_a_marked_test_that_is_not_asynchronous_is_an_error(tmp_path: Path) -> None:
    assert "a test marked sapwood is an async function" in run(tmp_path, PLAIN)


class Holder(Actor):
    pass


@pytest.mark.sapwood(seeds=20)
async def test_a_chaos_test_reads_like_its_claim(runtime: Runtime, chaos: Chaos, invariants: Invariants) -> None:
    chaos.randomly(kill=("registry", "watcher", "agents"), every=(0.1, 2.0))
    for number in range(100):
        await runtime.get_or_start(("holder", number % 5), child(Holder))
        await trio.sleep(0.3)
    assert len(chaos.kills) > 10
    invariants.assert_hold("no_two_live_per_key", "unavailable_is_never_not_running")

    chaos.stop()
    await trio.sleep(5)
    assert isinstance(await runtime.get_or_start(("holder", 1), child(Holder)), Running)
