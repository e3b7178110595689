"""Other actor libraries: how they are installed, apart from the project, and how their cells are started."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

CELLS: Final = Path(__file__).parent.parent / "cells"
KERNEL: Final = CELLS.parent / "kernel.py"

REQUIREMENTS: Final = {
    "pykka": ("pykka>=4",),
    "thespian": ("thespian>=4",),
    "xoscar": ("xoscar>=0.12",),
    "autogen": ("autogen-core>=0.7",),
    "tapio": ("tapio-py>=0.18",),
    "papyra": ("papyra>=0.3", "trio"),
    "triotp": ("triotp>=0.3",),
}

NEWER_PYTHON: Final[dict[str, tuple[int, ...]]] = {"triotp": (3, 13)}
"""Peers that need a later Python than Sapwood does."""

BEAM: Final = "beam"
NAMES: Final = (*REQUIREMENTS, BEAM)


class Peers:
    """Peers that can be run, with the beginning of the command of a cell, and the reasons why others cannot."""

    def __init__(self) -> None:
        self.commands: dict[str, list[str]] = {}
        self.reasons: dict[str, str] = {}


@contextmanager
def installed(names: Sequence[str]) -> Generator[Peers]:
    """Install peers into virtual environments that are thrown away afterwards."""
    peers = Peers()
    with TemporaryDirectory(prefix="sapwood-peers-") as folder:
        for name in names:
            print(f"preparing {name}", file=sys.stderr)
            if name == BEAM:
                _find_beam(peers)
            else:
                _install(peers, name, Path(folder))
        yield peers


def _find_beam(peers: Peers) -> None:
    elixir = shutil.which("elixir")
    if elixir is None:
        peers.reasons[BEAM] = "no `elixir` on the PATH"
    else:
        peers.commands[BEAM] = [elixir, str(CELLS / "beam.exs")]


def _install(peers: Peers, name: str, folder: Path) -> None:
    python = sys.executable
    needed = NEWER_PYTHON.get(name, ())
    if sys.version_info < needed:
        version = "python" + ".".join(map(str, needed))
        newer = shutil.which(version)
        if newer is None:
            peers.reasons[name] = f"needs {version}, which is not on the PATH"
            return
        python = newer
    home = folder / Path(python).name
    program = home / "bin" / "python"
    if not program.exists():
        done = subprocess.run([python, "-m", "venv", home], capture_output=True, text=True, check=False)
        if done.returncode:
            peers.reasons[name] = f"no virtual environment: {last_line(done.stderr or done.stdout)}"
            return
    pip = [str(program), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *REQUIREMENTS[name]]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        peers.reasons[name] = f"does not install: {last_line(done.stderr)}"
    else:
        peers.commands[name] = [str(program), str(KERNEL), "--cell", name]


def last_line(text: str) -> str:
    """Return the last line that says something, which is where tools put the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "no output"
