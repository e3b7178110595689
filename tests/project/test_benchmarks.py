"""Benchmarks run, and report against what they promise; how fast anything is, no test says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from source_rules import ROOT


@pytest.mark.row("S0-034", "S0-035", "S0-036", "S0-037")
def test_the_costs_of_values_references_and_decisions_are_measured_against_raw_calls_and_a_target(
    tmp_path: Path,
) -> None:
    results = tmp_path / "references.json"
    command = [sys.executable, "benchmarks/references.py", "--rounds", "1", "--stream", "1", "--results", str(results)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(results.read_text(encoding="utf-8"))
    for line in ("value", "value, async", "memory", "sqlite", "sqlite x100", "decision", "stream"):
        assert line in done.stdout
        figures = found[line]
        assert figures["us"] > 0
        assert figures["raw_us"] > 0
        assert figures["ratio"] == pytest.approx(figures["us"] / figures["raw_us"])
        assert figures["target"] > 0
