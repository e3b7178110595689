"""A real process, killed with SIGKILL while its agent works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "work_until_killed.py"


@pytest.mark.row("AR-22.0", "S4-062", "UP-1", "UP-9", "UP-59", "UP-64")
def test_a_process_killed_at_fifty_moments_of_its_work_loses_doubles_and_tears_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path), "50", "20240817"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("survived 50 kills")
