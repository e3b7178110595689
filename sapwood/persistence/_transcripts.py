"""Rows of transcripts: what is kept of an agent for people, beside its journal. Plain functions of a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import attrs

from sapwood.actors import wire_of
from sapwood.persistence._codec import encode
from sapwood.persistence._rows import Row, checksum

_NEXT = "SELECT coalesce(max(number), 0) FROM transcript WHERE agent_id = ?"
_INSERT = """
    INSERT INTO transcript (agent_id, number, epoch, at, kind, record, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_COLUMNS = "SELECT agent_id, number, epoch, at, kind, record, checksum FROM transcript"
_FIRST = f"{_COLUMNS} WHERE agent_id = ? AND number > ? AND number < ? ORDER BY number LIMIT ?"
_LAST = f"{_COLUMNS} WHERE agent_id = ? AND number > ? AND number < ? ORDER BY number DESC LIMIT ?"
_END = 2**62


@attrs.frozen
class Line:
    """A line of a transcript that is ready to be stored."""

    kind: str
    record: bytes


def lines_of(records: Iterable[object]) -> list[Line]:
    """Make records ready to be stored.

    Raises:
        CodecError: if one cannot be stored.
    """
    lines: list[Line] = []
    for value in records:
        data = encode(value)
        wire = wire_of(type(value))
        assert wire is not None
        lines.append(Line(wire.name, data))
    return lines


def insert_lines(connection: sqlite3.Connection, agent_id: str, epoch: int, at: float, lines: Sequence[Line]) -> None:
    """Add lines at the end of a transcript."""
    if not lines:
        return
    (last,) = connection.execute(_NEXT, (agent_id,)).fetchone()
    connection.executemany(
        _INSERT,
        [
            (agent_id, number, epoch, at, line.kind, line.record, checksum(agent_id, number, epoch, line.record))
            for number, line in enumerate(lines, last + 1)
        ],
    )


def read_lines(
    connection: sqlite3.Connection, agent_id: str, after: int, before: int | None, limit: int, *, last: bool
) -> list[Row]:
    """Return the rows of up to `limit` lines between two numbers, in order; the last ones if asked."""
    bounds = (agent_id, after, _END if before is None else before, limit)
    rows = [Row(*columns) for columns in connection.execute(_LAST if last else _FIRST, bounds)]
    return rows[::-1] if last else rows
