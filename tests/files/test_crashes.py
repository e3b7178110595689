"""Real processes, killed with SIGKILL while they edit files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "edit_until_killed.py"


@pytest.mark.row("S4-061")
@pytest.mark.parametrize("kind", ["sqlite", "directory", "buffered", "mounted"])
def test_a_process_killed_while_it_edits_tears_no_file_and_no_version_comes_back(tmp_path: Path, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), kind, str(tmp_path), "12"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("held after 12 kills")
