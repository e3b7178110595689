"""Looking at a store file from outside, without opening it as a store and without changing a byte."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import attrs

from sapwood.errors import CodecError, InvalidOption, StoreCorrupt, StoreUnavailable
from sapwood.persistence._codec import describe
from sapwood.persistence._connections import Location, check_file, check_identity, read_untouched
from sapwood.persistence._journal import agent_rows
from sapwood.persistence._migrations import applied_steps, pending_steps
from sapwood.persistence._protocols import AgentRow
from sapwood.persistence._rows import Row
from sapwood.persistence._schema import JOURNAL_SCHEMA


@attrs.frozen
class RecordSummary:
    """A stored record as it can be shown without its class.

    Attributes:
        seq: Sequence number.
        epoch: Epoch of its writer.
        at: Wall clock of its writer, in seconds since 1970 UTC.
        kind: Wire name.
        size: Bytes.
        content: What it holds, records as dicts; None if it cannot be read.
        problem: Why it cannot be read, or None.
    """

    seq: int
    epoch: int
    at: float
    kind: str
    size: int
    content: Any
    problem: str | None


@attrs.frozen
class QuarantineRow:
    """Bytes that could not be read.

    Attributes:
        source: Table they came from.
        agent_id: Agent they belong to.
        seq: Sequence number of the row.
        at: When they were found, in seconds since 1970 UTC.
        reason: What is wrong with them.
        kind: Wire name in the row.
        record: The bytes.
    """

    source: str
    agent_id: str
    seq: int
    at: float
    reason: str
    kind: str
    record: bytes


@attrs.frozen
class StoreSummary:
    """What a store file holds.

    Attributes:
        name: The path as it was given.
        agents: All agents, by id.
        tails: Agent id: its last events, in order.
        quarantine: What could not be read, oldest first.
        migrations: Migration set: steps that the file has seen.
        rows: Table: how many rows it has, of those that have any, by name; tables that the host made, too.
    """

    name: str
    agents: tuple[AgentRow, ...]
    tails: dict[str, tuple[RecordSummary, ...]]
    quarantine: tuple[QuarantineRow, ...]
    migrations: dict[str, tuple[str, ...]]
    rows: dict[str, int]


def read_summary(path: str | Path, *, tail: int = 10) -> StoreSummary:
    """Read what a store file holds; the file may be in use. Blocks.

    Args:
        path: Path of the file.
        tail: Last events to read of each agent.

    Raises:
        StoreUnavailable: if there is no file, or it cannot be read.
        StoreCorrupt: if it is no store, or damaged.
        FutureVersion: if a newer Sapwood wrote it.
    """
    location = Location.of(path)
    if location.path is None:
        raise InvalidOption('read_summary reads files; ":memory:" is not one')
    if tail < 0:
        raise InvalidOption(f"tail: expected 0 or more events; got {tail!r}")
    if not check_file(location):
        if not location.path.exists():
            raise StoreUnavailable(location.name, "there is no such file")
        raise StoreCorrupt(location.name, "the file is empty")

    def operation(connection: sqlite3.Connection) -> StoreSummary:
        check_identity(connection, location)
        if pending_steps(connection, JOURNAL_SCHEMA):
            raise StoreCorrupt(location.name, "it has no journal of this version; open it as a store once")
        return _summary(connection, location.name, tail)

    return read_untouched(location, operation)


def _summary(connection: sqlite3.Connection, name: str, tail: int) -> StoreSummary:
    agents = tuple(agent_rows(connection))
    found = connection.execute("SELECT source, agent_id, seq, at, reason, kind, record FROM quarantine ORDER BY id")
    return StoreSummary(
        name=name,
        agents=agents,
        tails={agent.agent_id: _tail(connection, agent.agent_id, tail) for agent in agents},
        quarantine=tuple(QuarantineRow(*columns) for columns in found),
        migrations=applied_steps(connection),
        rows=_rows(connection),
    )


def _rows(connection: sqlite3.Connection) -> dict[str, int]:
    names = (
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%sqlite\\_%' ESCAPE '\\' ORDER BY name"
    )
    tables = [str(name) for (name,) in connection.execute(names)]
    quoted = {table: table.replace('"', '""') for table in tables}
    counts = {table: connection.execute(f'SELECT count(*) FROM "{quoted[table]}"').fetchone()[0] for table in tables}  # noqa: S608  # names of the file's own tables
    return {table: found for table, found in counts.items() if found}


def _tail(connection: sqlite3.Connection, agent_id: str, tail: int) -> tuple[RecordSummary, ...]:
    found = connection.execute(
        "SELECT agent_id, seq, epoch, at, kind, record, checksum FROM journal"
        " WHERE agent_id = ? ORDER BY seq DESC LIMIT ?",
        (agent_id, tail),
    )
    return tuple(reversed([_record_summary(Row(*columns)) for columns in found]))


def _record_summary(row: Row) -> RecordSummary:
    problem, content = row.problem(), None
    try:
        content = describe(row.record)
    except CodecError as error:
        problem = problem or str(error)
    return RecordSummary(row.seq, row.epoch, row.at, row.kind, len(row.record), content, problem)
