"""A store file as the command line reads it: without opening it as a store, and without changing a byte."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import attrs

from sapwood.conversation import State, journal
from sapwood.errors import PersistenceError, StoreCorrupt, StoreUnavailable
from sapwood.persistence import AgentRow, RecordSummary, decode, read_summary


@attrs.frozen
class RunningTree:
    """The tree that a runtime has published in its store; see `TreeReporter`.

    Attributes:
        runtime: Id of the runtime.
        pid: Its process.
        at: When it said so, in seconds since 1970 UTC.
        every: Seconds between two reports.
        tree: The tree as text.
    """

    runtime: str
    pid: int
    at: float
    every: float
    tree: str


@attrs.frozen
class StoredAgent:
    """A stored conversation.

    Attributes:
        row: Epoch, owner, last event.
        state: The fold of its journal; None if that cannot be read.
        problem: Why not.
    """

    row: AgentRow
    state: State | None
    problem: str = ""


@attrs.frozen
class Stored:
    """What a store file says of runtimes and conversations.

    Attributes:
        trees: Published trees, newest first.
        agents: All conversations, by id.
    """

    trees: tuple[RunningTree, ...]
    agents: tuple[StoredAgent, ...]


def read_stored(path: Path) -> Stored:
    """Read the published trees and fold the journal of every conversation; the file may be in use. Blocks.

    Raises:
        StoreUnavailable: if there is no file, or it cannot be read.
        StoreCorrupt: if it is no store, or damaged.
        FutureVersion: if a newer Sapwood wrote it.
    """
    rows = read_summary(path, tail=0).agents
    # Checksums are the business of `read_summary`, which has to see every event that is folded here.
    longest = max((row.seq - (row.snapshot_seq or 0) for row in rows), default=0)
    tails = read_summary(path, tail=longest).tails
    damage = {agent_id: _damage(tail) for agent_id, tail in tails.items()}
    # As `read_summary` does: without a write-ahead log nobody has the file open, and SQLite needs no files beside it.
    wal = path.with_name(path.name + "-wal")
    mode = "mode=ro" if wal.exists() else "mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)
        try:
            connection.execute("BEGIN")
            agents = tuple(_agent(connection, row, damage.get(row.agent_id, "")) for row in rows)
            return Stored(_trees(connection), agents)
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(str(path), f"cannot be read now ({error}); try again in a moment") from error
    except sqlite3.DatabaseError as error:
        raise StoreCorrupt(str(path), str(error)) from error


def _trees(connection: sqlite3.Connection) -> tuple[RunningTree, ...]:
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'running_trees'")
    if known.fetchone() is None:
        return ()
    found = connection.execute("SELECT runtime, pid, at, every, tree FROM running_trees ORDER BY at DESC")
    return tuple(RunningTree(*columns) for columns in found)


def _damage(tail: tuple[RecordSummary, ...]) -> str:
    return next((f"event {record.seq}: {record.problem}" for record in tail if record.problem is not None), "")


def _agent(connection: sqlite3.Connection, row: AgentRow, damage: str) -> StoredAgent:
    if damage:
        return StoredAgent(row, None, damage)
    try:
        return StoredAgent(row, _fold(connection, row.agent_id))
    except (PersistenceError, _UnreadableError) as error:
        return StoredAgent(row, None, str(error))


class _UnreadableError(Exception):
    """A journal cannot be folded."""


def _fold(connection: sqlite3.Connection, agent_id: str) -> State:
    base, last = connection.execute("SELECT base_seq, last_seq FROM agents WHERE agent_id = ?", (agent_id,)).fetchone()
    snapshot = connection.execute(
        "SELECT seq, record FROM snapshots WHERE agent_id = ? ORDER BY seq DESC LIMIT 1", (agent_id,)
    ).fetchone()
    seq, state = (base, State()) if snapshot is None else (snapshot[0], decode(snapshot[1]))
    if not isinstance(state, State):
        raise _UnreadableError(f"its snapshot holds a {type(state).__name__}, not a conversation")
    events = connection.execute(
        "SELECT seq, record FROM journal WHERE agent_id = ? AND seq > ? ORDER BY seq", (agent_id, seq)
    )
    for found, record in events:
        if found != seq + 1:
            break
        try:
            state = journal.apply(state, decode(record))
        except TypeError as error:
            raise _UnreadableError(f"event {found} is none of a conversation: {error}") from error
        seq = found
    if seq != last:
        raise _UnreadableError(f"event {min(seq, last) + 1} is missing, or does not belong there")
    return state
