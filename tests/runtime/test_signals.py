"""Signals against a process of its own: orderly stop, hard stop, end at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import attrs
import pytest
import trio

from sapwood import Actor, child, open_runtime
from sapwood.actors import Continue, SimulatedEnvironment
from sapwood.testing import simulate

ROOT = Path(__file__).parents[2]
LIMIT = 30.0

PROGRAM = '''
import signal
import time
import trio
from sapwood import Actor, child, open_runtime
from sapwood.actors import Continue

BEFORE

def say(text):
    print(text, flush=True)

class Note(Actor):
    def __init__(self, name, seconds=0.0, shielded=False):
        self.name, self.seconds, self.shielded = name, seconds, shielded

    async def on_stop(self, reason):
        say(f"stopping {self.name}")
        with trio.CancelScope(shield=self.shielded):
            await trio.sleep(self.seconds)
        say(f"stopped {self.name}")

class Guarded(Actor):
    """Has a broad guard around everything, as user code does."""

    async def on_continue(self, token):
        while True:
            try:
                await trio.sleep(0.001)
                sum(range(2000))
            except Exception as error:
                say(f"SAW {error!r}")

    def on_start(self):
        return Continue()

class Slow(Actor):
    async def on_start(self):
        say("starting slowly")
        await trio.sleep_forever()

class Busy(Actor):
    def on_start(self):
        return Continue()

    async def on_continue(self, token):
        await trio.sleep(0.05)
        try:
            say("busy")
            time.sleep(0.3)  # blocks the loop: that is the point
            say("free")
        except BaseException as error:
            say(f"SAW {error!r}")
            raise
        await trio.sleep_forever()

async def main():
    async with open_runtime(children=CHILDREN, shutdown_timeout=TIMEOUT) as runtime:
        say("open")
        try:
            await BODY
        except Exception as error:
            say(f"SAW {error!r}")
        finally:
            say("left")
    say("closed")

try:
    trio.run(main)
except SystemExit as ended:
    say(f"exit {ended.code}")
    raise
'''


@attrs.define
class Program:
    """A running program and what it has said."""

    process: subprocess.Popen[str]
    said: list[str] = attrs.field(factory=list[str])
    error: str = ""

    def wait_for(self, line: str) -> None:
        assert self.process.stdout is not None
        for said in self.process.stdout:
            self.said.append(said.rstrip())
            if self.said[-1] == line:
                return
        pytest.fail(f"it ended without saying {line!r}; it said {self.said}; {self.process.communicate()[1]}")

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for its end; return its exit code."""
        out, err = self.process.communicate(timeout=LIMIT)
        self.said += out.splitlines()
        self.error = err
        return self.process.returncode


Start = Callable[..., Program]


@pytest.fixture
def start() -> Iterator[Start]:
    programs: list[Program] = []

    def run(
        children: str = "[]", *, body: str = "trio.sleep_forever()", timeout: float = 20.0, before: str = ""
    ) -> Program:
        source = PROGRAM.replace("CHILDREN", children).replace("BODY", body).replace("TIMEOUT", repr(timeout))
        source = source.replace("BEFORE", before)
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", source],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        programs.append(Program(process))
        return programs[-1]

    yield run
    for program in programs:
        program.process.kill()
        program.process.communicate()


NUMBERS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])


@NUMBERS
@pytest.mark.row("N05", "BR-73")
def test_the_first_one_cancels_the_block_and_stops_children_in_reverse_order(start: Start, number: int) -> None:
    program = start('[child(Note, "a"), child(Note, "b", 0.1, id="b"), child(Note, "c", id="c")]')
    program.wait_for("open")
    program.send(number)

    assert program.end() == 128 + number
    assert program.said == [
        "open",
        "left",
        *(f"{step} {name}" for name in "cba" for step in ("stopping", "stopped")),
        f"exit {128 + number}",
    ]
    assert program.error == ""


NESTED = """
async def inner():
    async with open_runtime(children=[child(Note, "inner")]):
        say("inner open")
        await trio.sleep_forever()
"""


@pytest.mark.row("N05")
def test_one_signal_stops_a_runtime_and_the_one_around_it(start: Start) -> None:
    program = start('[child(Note, "outer")]', body="inner()", before=NESTED)
    program.wait_for("inner open")
    program.send(signal.SIGTERM)

    assert program.end() == 128 + signal.SIGTERM
    assert program.said == [
        "open",
        "inner open",
        "stopping inner",
        "stopped inner",
        "left",
        "stopping outer",
        "stopped outer",
        "exit 143",
    ]


@NUMBERS
@pytest.mark.row("BR-74")
def test_the_second_one_cancels_what_is_left_at_once(start: Start, number: int) -> None:
    program = start('[child(Note, "a"), child(Note, "b", 1000.0, id="b", shutdown=None)]')
    program.wait_for("open")
    program.send(number)
    program.wait_for("stopping b")
    program.send(number)

    assert program.end() == 128 + number
    assert program.said == ["open", "left", "stopping b", f"exit {128 + number}"]
    assert program.error == ""


@NUMBERS
@pytest.mark.row("BR-74")
def test_the_third_one_ends_the_process_though_a_shielded_cleanup_hangs(start: Start, number: int) -> None:
    program = start('[child(Note, "a"), child(Note, "b", 1000.0, True, id="b")]')
    program.wait_for("open")
    program.send(number)
    program.wait_for("stopping b")
    began = time.monotonic()
    for _ in range(2):
        program.send(number)
        time.sleep(0.2)  # a signal that is still pending takes in the next one of its kind

    assert program.end() == 128 + number
    assert program.said == ["open", "left", "stopping b"]
    assert time.monotonic() - began < 4  # before anything else would have ended it


@pytest.mark.row("BR-74")
def test_a_shielded_cleanup_that_hangs_beyond_the_total_time_is_named_and_abandoned(start: Start) -> None:
    program = start('[child(Note, "b", 1000.0, True, id="b")]', timeout=0.2)
    program.wait_for("open")
    program.send(signal.SIGTERM)

    assert program.end() == 128 + signal.SIGTERM
    assert program.said == ["open", "left", "stopping b"]
    assert program.error == "b hangs in its cleanup and cannot be ended\n"


@pytest.mark.row("BR-73")
def test_code_that_blocks_the_loop_delays_the_stop_and_sees_nothing_of_the_signal(start: Start) -> None:
    program = start('[child(Busy), child(Note, "a")]')
    program.wait_for("busy")
    program.send(signal.SIGTERM)

    assert program.end() == 128 + signal.SIGTERM
    assert program.said[program.said.index("free") :] == ["free", "left", "stopping a", "stopped a", "exit 143"]


@pytest.mark.row("BR-73")
@pytest.mark.parametrize("delay", [0.0, 0.013, 0.031, 0.057])
def test_code_with_a_broad_guard_cannot_swallow_the_signal(start: Start, delay: float) -> None:
    program = start("[child(Guarded)]", body="trio.sleep(60)")
    program.wait_for("open")
    time.sleep(delay)  # different moments of the guarded loop
    program.send(signal.SIGINT)

    assert program.end() == 128 + signal.SIGINT
    assert program.said == ["open", "left", "exit 130"]


def test_a_signal_during_the_start_undoes_what_has_started(start: Start) -> None:
    program = start('[child(Note, "a"), child(Slow)]')
    program.wait_for("starting slowly")
    program.send(signal.SIGTERM)

    assert program.end() == 128 + signal.SIGTERM
    assert program.said == ["starting slowly", "stopping a", "stopped a", "exit 143"]


def test_an_ignored_signal_stays_ignored(start: Start) -> None:
    program = start(body="trio.sleep(0.5)", before="signal.signal(signal.SIGINT, signal.SIG_IGN)")
    program.wait_for("open")
    program.send(signal.SIGINT)

    assert program.end() == 0
    assert program.said == ["open", "left", "closed"]


async def serve_until_signalled(seed: int, events: list[str]) -> None:
    random = Random(seed)

    class Guarded(Actor):
        """Has a broad guard around what it does, as user code may."""

        async def on_continue(self, token: object) -> None:
            while True:
                try:
                    await trio.sleep(0.2 * random.random())
                except Exception as error:
                    events.append(f"saw {error!r}")

        def on_start(self) -> Continue:
            return Continue()

        def on_stop(self, reason: object) -> None:
            events.append("stopped")

    class Signaller(Actor):
        async def on_continue(self, token: object) -> None:
            for _ in range(random.randrange(200)):
                await trio.sleep(0.001 * random.random())
            signal.raise_signal(random.choice((signal.SIGTERM, signal.SIGINT)))

        def on_start(self) -> Continue:
            return Continue()

    children = [child(Note, events), child(Guarded), child(Signaller)]
    async with open_runtime(environment=SimulatedEnvironment(seed), children=children, shutdown_timeout=9.0):
        while True:
            try:
                await trio.sleep(random.random())
            except Exception as error:
                events.append(f"saw {error!r}")


class Note(Actor):
    def __init__(self, events: list[str]) -> None:
        self.events = events

    def on_stop(self, reason: object) -> None:
        self.events.append("first child stopped")


@pytest.mark.row("BR-73")
def test_two_hundred_of_two_hundred_signals_at_random_moments_end_in_an_orderly_stop() -> None:
    for seed in range(200):
        events: list[str] = []
        with pytest.raises(SystemExit) as ended:
            simulate(seed, serve_until_signalled, seed, events)
        assert ended.value.code in {130, 143}
        assert events == ["first child stopped"]  # the guarded one never came back from its loop, and was killed
