"""Processes that die: what the table of guarantees says is what happens."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest
import trio

from sapwood.actors import RealEnvironment
from sapwood.messaging.queues import GUARANTEES, CrashPoint, DeliveryMode, Message, QueueOptions, open_queue
from sapwood.persistence import open_store

PROGRAMS = Path(__file__).parent / "programs"
ENVIRONMENT = RealEnvironment()


def first_life(folder: Path, mode: str, point: str) -> None:
    program = [sys.executable, str(PROGRAMS / "die_at.py"), str(folder), mode, point]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr


async def second_life(folder: Path, mode: DeliveryMode) -> tuple[int, list[str]]:
    """Handle what is left as the first life would have; return the deliveries and what the dead letters say."""
    deliveries = 0

    def effect(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO effects DEFAULT VALUES")

    async with (
        open_store(folder / "queue.db", ENVIRONMENT) as store,
        open_queue(store, ENVIRONMENT, "q", QueueOptions(mode=mode)) as queue,
    ):
        if mode == "effectively_once":
            await queue.append(Message(b"work", id="one"))
        while found := await queue.poll():
            deliveries += 1
            if mode == "effectively_once":
                await found[0].ack_with(effect)
            else:
                await store.write(effect)
                await found[0].ack()
        assert await queue.depth() == 0
        return deliveries, [letter.detail for letter in await queue.dead_letters.list()]


@pytest.mark.row("S2-026", "S2-027", "S2-030", "S1-055")
@pytest.mark.parametrize(("mode", "point"), list(GUARANTEES))
def test_a_process_killed_at_a_point_leaves_what_the_table_of_guarantees_says(
    tmp_path: Path, mode: DeliveryMode, point: CrashPoint
) -> None:
    first_life(tmp_path, mode, point)
    deliveries, dead = trio.run(second_life, tmp_path, mode)

    seen = GUARANTEES[mode, point]
    notes = tmp_path / "deliveries"
    assert deliveries + (len(notes.read_text()) if notes.exists() else 0) in seen.deliveries
    with closing(sqlite3.connect(tmp_path / "queue.db")) as connection:
        assert connection.execute("SELECT count(*) FROM effects").fetchone()[0] in seen.effects
    assert len(dead) == ("dead letter" in seen.afterwards)
    assert all("the outcome is unknown" in detail for detail in dead)


def test_the_table_of_guarantees_has_every_mode_and_crash_point() -> None:
    assert list(GUARANTEES) == [(mode, point) for mode in get_args(DeliveryMode) for point in get_args(CrashPoint)]


@pytest.mark.row("S2-027", "S2-030", "S2-039")
def test_a_process_killed_again_and_again_loses_no_message_and_repeats_none_that_it_acknowledged(
    tmp_path: Path,
) -> None:
    source = random.Random(11)
    lives = 5
    for life in range(lives):
        program = [sys.executable, str(PROGRAMS / "work_until_killed.py"), str(tmp_path), str(life)]
        with subprocess.Popen(program) as process:
            wait_for(tmp_path / "notes", f"opened {life}")
            time.sleep(source.uniform(0.02, 0.4))  # the process is real, and dies at a moment of no choice
            process.kill()

    notes = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    left = trio.run(rest_of, tmp_path / "queue.db")
    by_name: dict[str, list[str]] = defaultdict(list)
    for what, name in notes:
        by_name[name].append(what)
    accepted = {name for name, history in by_name.items() if "accepted" in history}
    acknowledging = {name for name, history in by_name.items() if "acking" in history}
    assert len(accepted) > 50
    assert accepted - acknowledging <= set(left), "none is lost"
    for name, history in by_name.items():
        if "acked" in history:
            assert history[-1] in ("acked", "accepted"), f"{name} came again after it was acknowledged: {history}"
            assert name not in left
        assert history.count("begun") <= lives


async def rest_of(path: Path) -> list[str]:
    """Take what is left, all of which is there at once, whatever the time-out of the dead process was."""
    left: list[str] = []
    async with open_store(path, ENVIRONMENT) as store, open_queue(store, ENVIRONMENT, "q") as queue:
        assert (await queue.statistics()).in_flight == 0
        while deliveries := await queue.poll(500):
            left += [delivery.payload.decode() for delivery in deliveries]
            for delivery in deliveries:
                await delivery.ack()
        left += [
            letter.message.message.payload.decode() for letter in await queue.dead_letters.list() if letter.message
        ]
    return left


def wait_for(notes: Path, line: str) -> None:
    deadline = time.monotonic() + 30
    while not (notes.exists() and line in notes.read_text().splitlines()):
        assert time.monotonic() < deadline
        time.sleep(0.01)  # another process writes the file; nothing here could be waited for instead
