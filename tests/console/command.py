"""Runs the command line as users do: as a process, behind a pipe or a terminal."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import attrs
import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 60.0

# Gives the program a terminal of its own, so that a typed Ctrl-C reaches it as a signal.
ON_A_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@attrs.frozen
class Done:
    """A program that has ended."""

    code: int
    out: str
    err: str


def environment_of(changes: Mapping[str, str], *, terminal: bool = False) -> dict[str, str]:
    hidden = ("PYTEST_", "SAPWOOD_", "ANTHROPIC_", "OPENAI_", "NO_COLOR", "CI")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    kept |= {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "COLUMNS": "120"}
    if terminal:
        kept["TERM"] = "xterm-256color"
    return {**kept, **changes}


def run_python(*arguments: str, folder: Path, typed: str = "", **changes: str) -> Done:
    """Run Python with these arguments in a folder; fail the test if it takes too long."""
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment_of(changes),
            input=typed.encode(),
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"{arguments} still ran after {LIMIT:g} s: {error.stdout!r} {error.stderr!r}")
    return Done(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def run_sapwood(*arguments: str, folder: Path, typed: str = "", **changes: str) -> Done:
    """Run `python -m sapwood` with these arguments in a folder."""
    return run_python("-m", "sapwood", *arguments, folder=folder, typed=typed, **changes)


class Talk:
    """A running program whose output is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes], output: int, typing: int) -> None:
        self.process = process
        self.output = ""
        self._output = output
        self._typing = typing
        self._read_to = 0

    def expect(self, text: str, within: float = LIMIT) -> None:
        """Read until a text comes that was not expected before."""
        deadline = monotonic() + within
        while text not in self.output[self._read_to :]:
            if not self._read(deadline):
                pytest.fail(f"{text!r} did not come; what came: {self.output[-2000:]!r}")
        self._read_to = self.output.index(text, self._read_to) + len(text)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._output], [], [], max(0.0, deadline - monotonic()))
        if not ready:
            return False
        try:
            chunk = os.read(self._output, 65536)
        except OSError:  # the other side of a terminal has gone
            return False
        self.output += chunk.decode("utf-8", "replace")
        return bool(chunk)

    def type(self, text: str) -> None:
        """Type something; a line needs its end."""
        os.write(self._typing, text.encode())

    def leave(self, within: float = LIMIT) -> int:
        """Read to the end and return the exit code."""
        deadline = monotonic() + within
        while self._read(deadline):
            pass
        return self.process.wait(timeout=max(1.0, deadline - monotonic()))


@contextmanager
def on_a_terminal(*arguments: str, folder: Path) -> Generator[Talk]:
    """Run `python -m sapwood` on a terminal of its own."""
    master, slave = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", ON_A_TERMINAL, "-m", "sapwood", *arguments],
            cwd=folder,
            env=environment_of({}, terminal=True),
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        with ended(process):
            yield Talk(process, master, master)
    finally:
        os.close(master)


@contextmanager
def behind_a_pipe(*arguments: str, folder: Path) -> Generator[Talk]:
    """Run `python -m sapwood` with pipes, so that lines can be given one by one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sapwood", *arguments],
        cwd=folder,
        env=environment_of({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with ended(process), process.stdin, process.stdout:
        yield Talk(process, process.stdout.fileno(), process.stdin.fileno())


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Generator[None]:
    """Make sure that no program outlives its test."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=LIMIT)
