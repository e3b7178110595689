"""Servers of four agents in a child process that is killed fifty times; checks the file after each kill."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import trio

from sapwood.actors import RealEnvironment, record
from sapwood.persistence import Claim, Journal, JournalStore, SnapshotPolicy, open_store

PATH = Path(sys.argv[1])
ENVIRONMENT = RealEnvironment()
AGENTS = [f"agent-{number}" for number in range(4)]
POLICY = SnapshotPolicy(every=20)
LARGEST_APPEND = 3


@record("crash.step")
class Step:
    agent: str
    seq: int
    filling: str


@record("crash.state")
class State:
    agent: str
    seq: int


def restored(claim: Claim) -> int:
    """Fold what a claim returns, where every event must be the next one; return the last sequence number."""
    seq = 0 if claim.snapshot is None else claim.snapshot.seq
    assert seq == claim.snapshot_seq
    for entry in claim.tail:
        seq += 1
        assert entry.seq == seq == entry.event.seq
        assert entry.event.agent == claim.agent_id
    assert seq == claim.seq
    return int(seq)


@attrs.frozen
class Server:
    journal: JournalStore
    acknowledge: Callable[[str, int], None]

    async def serve(self, agent: str, rng: random.Random) -> None:
        claim = await self.journal.claim(agent, owner=str(os.getpid()))
        epoch, seq, snapshot_seq = claim.epoch, restored(claim), claim.snapshot_seq
        self.acknowledge(agent, seq)
        while True:
            count = rng.randint(1, LARGEST_APPEND)
            events = [Step(agent, seq + number, "x" * rng.randint(0, 3000)) for number in range(1, count + 1)]
            seq = await self.journal.append(agent, epoch=epoch, expected_seq=seq, events=events)
            self.acknowledge(agent, seq)
            if POLICY.is_due(seq=seq, snapshot_seq=snapshot_seq):
                await self.journal.save_snapshot(agent, epoch=epoch, seq=seq, state=State(agent, seq))
                snapshot_seq = seq
                await self.journal.compact(agent, epoch=epoch)


async def serve_all(seed: int, pipe: int) -> None:
    def acknowledge(agent: str, seq: int) -> None:
        os.write(pipe, f"{agent} {seq}\n".encode())

    async with open_store(PATH, ENVIRONMENT, wal_limit=200_000) as store, trio.open_nursery() as nursery:
        server = Server(Journal(store, ENVIRONMENT), acknowledge)
        for number, agent in enumerate(AGENTS):
            nursery.start_soon(server.serve, agent, random.Random(seed + number))


async def check(acknowledged: dict[str, int]) -> None:
    """Claim every agent and compare; note where each journal ends now."""
    async with open_store(PATH, ENVIRONMENT) as store:
        journal = Journal(store, ENVIRONMENT)
        for row in await journal.agents():
            last = restored(await journal.claim(row.agent_id, owner="check"))
            heard = acknowledged.get(row.agent_id, 0)
            assert heard <= last <= heard + LARGEST_APPEND, (row, heard)
            entries = await journal.read(row.agent_id)
            assert [entry.seq for entry in entries] == list(range(last - len(entries) + 1, last + 1))
            acknowledged[row.agent_id] = last
        found = await store.read(lambda connection: connection.execute("SELECT count(*) FROM quarantine").fetchone())
        assert found == (0,)


def note(line: bytes, acknowledged: dict[str, int]) -> None:
    agent, seq = line.decode().split()
    acknowledged[agent] = max(acknowledged.get(agent, 0), int(seq))


def kill_once(seed: int, rng: random.Random, acknowledged: dict[str, int]) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        trio.run(serve_all, seed, writing)
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        for _ in range(rng.choice([0, 1, 5, 20, 60, 120])):
            line = pipe.readline()
            assert line, "the servers ended by themselves"
            note(line, acknowledged)
        for _ in range(rng.randint(0, 60_000)):
            pass  # up to some milliseconds more
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        for line in pipe:
            if line.endswith(b"\n"):
                note(line, acknowledged)


def main() -> None:
    rng = random.Random(20261)
    acknowledged: dict[str, int] = {}
    for number in range(50):
        kill_once(number * 10, rng, acknowledged)
        if PATH.exists():
            trio.run(check, acknowledged)
    assert sorted(acknowledged) == AGENTS
    assert min(acknowledged.values()) > 100
    sys.stdout.write(f"held {sum(acknowledged.values())}\n")


main()
