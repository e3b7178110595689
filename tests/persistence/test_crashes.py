"""Processes that die or compete, on real files."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from sapwood.actors import RealEnvironment, record
from sapwood.errors import StaleEpoch
from sapwood.persistence import Claim, Journal, open_store

ENVIRONMENT = RealEnvironment()
PROGRAMS = Path(__file__).parent / "programs"


@record("crash.turn")
class Turn:
    seq: int
    owner: str


class Lines:
    """Lines of a process's output, one at a time, and an empty one at the end."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self.stream = stream
        self.buffer = b""

    async def next(self) -> str:
        while b"\n" not in self.buffer:
            more = await self.stream.receive_some()
            if not more:
                return ""
            self.buffer += more
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()


def test_a_process_killed_at_fifty_random_moments_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    program = [sys.executable, str(PROGRAMS / "serve_until_killed.py"), str(tmp_path / "store.db")]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("held ")


@pytest.mark.row("UP-8")
async def test_when_a_second_process_claims_an_agent_the_first_is_refused_and_history_stays_linear(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    command = [sys.executable, str(PROGRAMS / "compete.py"), str(path)]
    acknowledged: list[int] = []
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            compete = partial(trio.run_process, command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            first: trio.Process = await nursery.start(compete)
            assert first.stdout is not None
            lines = Lines(first.stdout)
            while len(acknowledged) < 20:
                acknowledged.append(int(await lines.next()))

            claim, last = await take_over(path)

            while (line := await lines.next()).isdigit():
                acknowledged.append(int(line))
            assert line == f"fenced 1 {claim.epoch}"
            assert await lines.next() == ""

    assert acknowledged == list(range(1, len(acknowledged) + 1))
    async with open_store(path, ENVIRONMENT) as store:
        entries = await Journal(store, ENVIRONMENT).read("a", limit=100_000)
    assert [entry.seq for entry in entries] == list(range(1, last + 1))
    assert [entry.event.seq for entry in entries] == [entry.seq for entry in entries]
    assert [entry.epoch for entry in entries] == [1] * claim.seq + [2] * 10
    assert [entry.event.owner for entry in entries] == ["first"] * claim.seq + ["second"] * 10
    assert claim.seq == len(acknowledged)


async def take_over(path: Path) -> tuple[Claim, int]:
    async with open_store(path, ENVIRONMENT) as store:
        journal = Journal(store, ENVIRONMENT)
        claim = await journal.claim("a", owner="second")
        seq = claim.seq
        for _ in range(10):
            seq = await journal.append("a", epoch=claim.epoch, expected_seq=seq, events=[Turn(seq + 1, "second")])
        with pytest.raises(StaleEpoch):
            await journal.append("a", epoch=1, expected_seq=seq, events=[Turn(seq + 1, "late")])
        return claim, seq
