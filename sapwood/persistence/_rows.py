"""Rows of the journal: how a record is stored, verified and loaded. Plain functions of a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Literal
from zlib import crc32

import attrs

from sapwood.actors import wire_of
from sapwood.errors import CodecError, RecordCorrupt
from sapwood.persistence._codec import decode, encode
from sapwood.persistence._protocols import Entry

Source = Literal["journal", "snapshots", "transcript"]

_EVENTS = """
    SELECT agent_id, seq, epoch, at, kind, record, checksum FROM journal
    WHERE agent_id = ? AND seq > ? ORDER BY seq LIMIT ?
"""
_SNAPSHOTS = """
    SELECT agent_id, seq, epoch, at, kind, record, checksum FROM snapshots
    WHERE agent_id = ? ORDER BY seq DESC LIMIT ?
"""
_INSERT: dict[Literal["journal", "snapshots"], str] = {
    "journal": """
        INSERT INTO journal (agent_id, seq, epoch, at, kind, record, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)
    """,
    "snapshots": """
        INSERT OR REPLACE INTO snapshots (agent_id, seq, epoch, at, kind, record, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)
    """,
}
_QUARANTINE = """
    INSERT OR IGNORE INTO quarantine (source, agent_id, seq, at, reason, kind, record, found)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""


@attrs.frozen
class Row:
    """A row of `journal` or `snapshots`; attributes are its columns."""

    agent_id: str
    seq: int
    epoch: int
    at: float
    kind: str
    record: bytes
    checksum: int

    @classmethod
    def of(cls, agent_id: str, seq: int, epoch: int, at: float, value: object) -> Row:
        """Make the row that stores a record.

        Raises:
            CodecError: if the value cannot be stored.
        """
        record = encode(value)
        wire = wire_of(type(value))
        assert wire is not None
        return cls(agent_id, seq, epoch, at, wire.name, record, checksum(agent_id, seq, epoch, record))

    def problem(self) -> str | None:
        """Return what is wrong with the stored bytes, or None."""
        if checksum(self.agent_id, self.seq, self.epoch, self.record) != self.checksum:
            return "the checksum does not match: the bytes were changed"
        return None

    def values(self) -> tuple[Any, ...]:
        """Return the columns in order."""
        return (self.agent_id, self.seq, self.epoch, self.at, self.kind, self.record, self.checksum)


@attrs.frozen
class Unreadable:
    """A row that cannot be read, and why."""

    source: Source
    row: Row
    reason: str

    def error(self) -> RecordCorrupt:
        """Return the error that says so."""
        return RecordCorrupt(self.row.agent_id, self.row.seq, self.source, self.reason)


@attrs.frozen
class Head:
    """What table `agents` says of an agent."""

    epoch: int
    base_seq: int
    last_seq: int
    released: bool
    deleted: bool


@attrs.frozen
class Loaded:
    """What is stored of an agent, or why it cannot be read.

    Attributes:
        head: None if the agent was never seen.
        snapshot: The newest snapshot that can be read and from which no event is missing; None if there is none.
        snapshot_seq: Where it ends, or where the journal begins.
        tail: The events after it.
        unreadable: Rows on the way that cannot be read.
        failure: Why the agent cannot be restored; then `snapshot` and `tail` mean nothing.
    """

    head: Head | None
    snapshot: Any = None
    snapshot_seq: int = 0
    tail: tuple[Entry, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    failure: RecordCorrupt | None = None


def read_head(connection: sqlite3.Connection, agent_id: str) -> Head | None:
    """Return what table `agents` says of an agent, or None if it was never seen."""
    found = connection.execute(
        "SELECT epoch, base_seq, last_seq, released, deleted FROM agents WHERE agent_id = ?", (agent_id,)
    ).fetchone()
    return None if found is None else Head(found[0], found[1], found[2], bool(found[3]), bool(found[4]))


def read_events(connection: sqlite3.Connection, agent_id: str, after: int, limit: int = -1) -> list[Row]:
    """Return the rows of events after a sequence number, in order."""
    return [Row(*columns) for columns in connection.execute(_EVENTS, (agent_id, after, limit))]


def read_snapshots(connection: sqlite3.Connection, agent_id: str, limit: int = -1) -> list[Row]:
    """Return the rows of snapshots, newest first."""
    return [Row(*columns) for columns in connection.execute(_SNAPSHOTS, (agent_id, limit))]


def insert(connection: sqlite3.Connection, source: Literal["journal", "snapshots"], rows: Iterable[Row]) -> None:
    """Insert rows; a snapshot replaces one of the same sequence number."""
    connection.executemany(_INSERT[source], [row.values() for row in rows])


def quarantine(connection: sqlite3.Connection, unreadable: Sequence[Unreadable], at: float) -> None:
    """Copy unreadable rows to table `quarantine`, the same bytes once."""
    connection.executemany(
        _QUARANTINE,
        [
            (bad.source, row.agent_id, row.seq, at, bad.reason, row.kind, row.record, crc32(row.record))
            for bad in unreadable
            for row in [bad.row]
        ],
    )


def decode_row(source: Source, row: Row) -> Any:
    """Return the record of a row, or `Unreadable`.

    Raises:
        FutureVersion: if newer code wrote it, which is no damage.
    """
    problem = row.problem()
    if problem is not None:
        return Unreadable(source, row, problem)
    try:
        return decode(row.record)
    except CodecError as error:
        return Unreadable(source, row, str(error))


def entries_of(rows: Iterable[Row], after: int) -> tuple[list[Entry], Unreadable | RecordCorrupt | None]:
    """Decode events that must follow one another from `after` + 1.

    Returns:
        The entries up to the first that is unreadable or missing, and that problem.
    """
    entries: list[Entry] = []
    for expected, row in enumerate(rows, after + 1):
        if row.seq != expected:
            return entries, _missing(row.agent_id, expected)
        event = decode_row("journal", row)
        if isinstance(event, Unreadable):
            return entries, event
        entries.append(Entry(row.seq, row.epoch, row.at, event))
    return entries, None


def load(connection: sqlite3.Connection, agent_id: str) -> Loaded:
    """Load what is stored of an agent: a snapshot and every event after it.

    A newer snapshot that cannot be read is passed over if an older one and the events after it are all there.

    Raises:
        FutureVersion: if newer code wrote a record.
    """
    head = read_head(connection, agent_id)
    if head is None:
        return Loaded(None)
    unreadable: list[Unreadable] = []
    failure: RecordCorrupt | None = None
    for row in [*read_snapshots(connection, agent_id), None]:
        state = None if row is None else decode_row("snapshots", row)
        if isinstance(state, Unreadable):
            unreadable.append(state)
            failure = failure or state.error()
            continue
        start = head.base_seq if row is None else row.seq
        entries, problem = entries_of(read_events(connection, agent_id, start), start)
        if problem is None and start + len(entries) == head.last_seq:
            return Loaded(head, state, start, tuple(entries), tuple(unreadable))
        if isinstance(problem, Unreadable):
            unreadable.append(problem)
            problem = problem.error()
        failure = failure or problem or _missing(agent_id, min(start + len(entries), head.last_seq) + 1)
        if row is not None:
            # An older snapshot needs the same events and more.
            break
    return Loaded(head, unreadable=tuple(unreadable), failure=failure)


def _missing(agent_id: str, seq: int) -> RecordCorrupt:
    return RecordCorrupt(agent_id, seq, "journal", "the event is missing, or does not belong here")


def checksum(agent_id: str, seq: int, epoch: int, record: bytes) -> int:
    """Return the CRC-32 of what belongs together in a row."""
    return crc32(record, crc32(f"{agent_id}\x00{seq}\x00{epoch}".encode()))
