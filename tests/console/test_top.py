"""`sapwood top`: the figures of a running runtime, seen from outside."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import trio
import typer
from trio.testing import MockClock
from typer.testing import CliRunner

from sapwood import Runtime, open_runtime
from sapwood.actors import SimulatedEnvironment, record
from sapwood.console._figures import read_published
from sapwood.console._stopping import SHOW_CURSOR
from sapwood.console._top import Screen, run_top, top
from sapwood.errors import InvalidOption, SapwoodError, StoreUnavailable
from sapwood.messaging import Envelope
from sapwood.messaging.monitoring import Monitor, Rule
from sapwood.messaging.queues import open_queue
from tests.console.command import ON_A_TERMINAL, Talk, ended, environment_of


@record("test.top.note")
class Note:
    text: str


@asynccontextmanager
async def busy(store: Path) -> AsyncGenerator[tuple[Runtime, SimulatedEnvironment]]:
    """Open a runtime whose bus has a lagging participant and a dead letter, with a queue and an alert."""
    environment = SimulatedEnvironment()
    monitor = Monitor([Rule("letters", "dead_letters", above=0, severity="critical")], interval=1.0)
    async with (
        open_runtime(
            store=store, children=[monitor.spec()], environment=environment, signals=False, log=False
        ) as runtime,
        open_queue(runtime.store, environment, "orders") as queue,
    ):
        monitor.watch(runtime)
        monitor.watch_queue(queue)

        async def hang(envelope: Envelope[Any]) -> None:
            await trio.sleep_forever()

        await runtime.bus.register("bob\x1b[2J", hang)
        alice = runtime.bus.client("alice")
        for _ in range(4):
            alice.send_nowait("bob\x1b[2J", Note("x"))
        alice.send_nowait("nobody", Note("x"))
        await queue.append_many([b"x"] * 7)
        await trio.sleep(2.5)
        yield runtime, environment


def printed(store: Path, environment: SimulatedEnvironment) -> list[str]:
    out = io.StringIO()
    assert run_top(store, out, environment) == 0
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


@pytest.mark.row("S2-048")
async def test_the_figures_of_a_running_runtime_are_printed_once_for_scripts(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = tmp_path / "a.db"
    async with busy(store) as (runtime, environment):
        lines = printed(store, environment)
        actors = list(runtime.tree().walk())
    assert lines[0].startswith("runtime of process ")
    assert lines[0].endswith("as it was 0.5 s ago")
    assert "critical: letters bus:bus FIRING 1 0 2 s" in lines
    supervisors = sum(node.supervises for node in actors)
    assert f"all {len(actors)} {supervisors} 3 3 0 0" in lines
    assert "bus 3 0.08 0.00 0.000 0.000 0.0% 1 2" in lines
    assert "orders 7 0 7 7 1.40 0.00 0.0% 0 0" in lines
    assert "bus/bob\\x1b[2J 3" in lines, "what others wrote does not drive the terminal"


async def test_a_source_that_cannot_be_read_is_named_and_its_figures_are_question_marks(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store, environment = tmp_path / "a.db", SimulatedEnvironment()
    monitor = Monitor(interval=1.0)
    async with open_runtime(
        store=store, children=[monitor.spec()], environment=environment, signals=False, log=False
    ) as runtime:
        monitor.watch(runtime)
        async with open_queue(runtime.store, environment, "orders") as queue:
            monitor.watch_queue(queue)
        await trio.sleep(2.5)
        lines = printed(store, environment)
    assert any(line.startswith("cannot be read: queue orders: ") for line in lines)
    assert "orders ? ? ? ? ? ? ? ? ?" in lines


@pytest.mark.row("S2-048")
async def test_on_a_terminal_the_figures_are_drawn_again_and_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    store, out = tmp_path / "a.db", Terminal()
    async with busy(store) as (runtime, environment):
        with trio.move_on_after(3.5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Screen(store, out, environment, 1.0).run)
                await trio.sleep(1.5)
                runtime.bus.dead_letters.discard(runtime.bus.dead_letters.inspect()[0].id)
    drawn = out.getvalue()
    assert drawn.count("runtime of process") >= 4
    assert drawn.rindex("FIRING") < drawn.rindex("runtime of process"), "the alert cleared meanwhile"
    assert "\x1b[2J" not in drawn
    assert "busiest actors" in drawn


async def test_a_store_that_cannot_be_read_for_a_moment_does_not_end_the_live_view(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    out = io.StringIO()
    with trio.move_on_after(2.5):
        await Screen(tmp_path / "none.db", out, SimulatedEnvironment(), 1.0).run()
    assert "none.db" in out.getvalue().replace("\n", "")


async def test_figures_of_a_process_that_died_are_shown_with_that_suspicion(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store, kept = tmp_path / "a.db", tmp_path / "kept.db"
    async with busy(store) as (_, environment):
        with closing(sqlite3.connect(store)) as connection:
            connection.execute("VACUUM INTO ?", (str(kept),))
    await trio.sleep(30)
    assert read_published(store) == ()
    assert "silent for 30 s, so it has probably crashed" in printed(kept, environment)[0]


def test_ctrl_c_ends_the_live_view_and_gives_the_terminal_its_cursor_back(tmp_path: Path) -> None:
    store, kept = tmp_path / "a.db", tmp_path / "kept.db"

    async def make() -> None:
        async with busy(store):
            with closing(sqlite3.connect(store)) as connection:
                connection.execute("VACUUM INTO ?", (str(kept),))

    trio.run(make, clock=MockClock(autojump_threshold=0))
    program = (
        "import sys; from pathlib import Path; from sapwood.actors import RealEnvironment;"
        "from sapwood.console._top import run_top;"
        "sys.exit(run_top(Path('kept.db'), sys.stdout, RealEnvironment(), every=0.05))"
    )
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL, "-c", program],
        cwd=tmp_path,
        env=environment_of({}, terminal=True),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    with ended(process):
        talk = Talk(process, master, master)
        for _ in range(3):
            talk.expect("participants")
        talk.type("\x03")
        assert talk.leave() == 130
    os.close(master)
    assert talk.output.rstrip().endswith(SHOW_CURSOR)


def test_a_store_without_a_monitor_is_answered_with_what_to_add(tmp_path: Path) -> None:
    async def make() -> None:
        async with open_runtime(store=tmp_path / "a.db", signals=False):
            pass

    trio.run(make)
    with pytest.raises(SapwoodError, match=r"Monitor\(\)\.spec\(\)"):
        run_top(tmp_path / "a.db", io.StringIO(), SimulatedEnvironment(), once=True)
    with pytest.raises(StoreUnavailable):
        run_top(tmp_path / "none.db", io.StringIO(), SimulatedEnvironment(), once=True)
    with pytest.raises(InvalidOption, match="above 0"):
        run_top(tmp_path / "a.db", io.StringIO(), SimulatedEnvironment(), every=0)


async def test_the_command_takes_a_file_and_prints_its_figures(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = tmp_path / "a.db"
    app = typer.Typer()
    app.command()(top)
    async with busy(store):
        done = CliRunner().invoke(app, [str(store), "--once"])
    assert done.exit_code == 0
    assert "orders" in done.stdout
