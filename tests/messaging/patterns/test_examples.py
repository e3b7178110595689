"""The demonstrations of the patterns hold what they claim."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import ROOT, run_example


@pytest.mark.row("S2-055", "S2-056", "S2-057", "S2-058")
def test_the_demonstration_of_a_trip_over_three_systems_holds(tmp_path: Path) -> None:
    run_example(ROOT / "examples" / "trip_saga.py", tmp_path)


@pytest.mark.row("S1-061")
@pytest.mark.parametrize("name", ["trading_messages.py", "agent_events.py", "shared_positions.py", "risk_calls.py"])
def test_the_demonstration_of_each_way_to_communicate_holds(name: str, tmp_path: Path) -> None:
    run_example(ROOT / "examples" / name, tmp_path)
