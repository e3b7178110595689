"""Tables of durable shared memory, and what is done with them inside one transaction."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, cast

import attrs

from sapwood.messaging.shared._changes import Change, Deleted, Missed, WriteRecord, Written
from sapwood.messaging.shared._strategies import MISSING, ConflictStrategy, check_version, resolve
from sapwood.messaging.shared._values import VersionedValue, Write
from sapwood.persistence import MigrationSet, decode, encode

if TYPE_CHECKING:
    from sqlite_utils import Database

SHARED_SCHEMA: Final = MigrationSet("shared_memory")
"""Tables of durable shared memory."""

TRIM_EVERY: Final = 16
"""The log of changes is cut to its length at every so many changes."""


@SHARED_SCHEMA.step
def create_shared_memory(db: Database) -> None:
    """Create the current values, in which a deleted key keeps its version, and the log of changes."""
    db.conn.execute(
        "CREATE TABLE shared_values (space TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, record BLOB,"
        " PRIMARY KEY (space, key)) STRICT, WITHOUT ROWID"
    )
    db.conn.execute(
        "CREATE TABLE shared_changes (seq INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, key TEXT NOT NULL,"
        " version INTEGER NOT NULL, agent_id TEXT NOT NULL, at INTEGER NOT NULL, batch INTEGER NOT NULL,"
        " outcome TEXT NOT NULL, record BLOB) STRICT"
    )
    db.conn.execute("CREATE TABLE shared_trimmed (space TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT")
    db.conn.execute("CREATE INDEX shared_changes_by_space ON shared_changes (space, seq)")
    db.conn.execute("CREATE INDEX shared_changes_by_version ON shared_changes (space, key, version)")


@attrs.frozen
class Outcome:
    """What a write came to: the current version, and whether it is the one just written."""

    value: VersionedValue
    new: bool


@attrs.frozen
class Rows:
    """One space of the tables; every method runs inside a transaction.

    Attributes:
        space: Its name.
        keep: Changes kept, the newest ones.
    """

    space: str
    keep: int
    _logged: Iterator[int] = attrs.field(factory=itertools.count, init=False, eq=False, repr=False)

    def values(self, connection: sqlite3.Connection, prefix: str) -> dict[str, VersionedValue]:
        """Return the current values under a prefix, sorted by key."""
        rows = connection.execute(
            "SELECT key, record FROM shared_values WHERE space = ? AND record IS NOT NULL"
            " AND substr(key, 1, length(?)) = ? ORDER BY key",
            (self.space, prefix, prefix),
        )
        return {key: cast("VersionedValue", decode(record)) for key, record in sorted(rows)}

    def keys(self, connection: sqlite3.Connection, prefix: str) -> list[str]:
        """Return the keys under a prefix that have a value, sorted."""
        rows = connection.execute(
            "SELECT key FROM shared_values WHERE space = ? AND record IS NOT NULL AND substr(key, 1, length(?)) = ?",
            (self.space, prefix, prefix),
        )
        return sorted(key for (key,) in rows)

    def read(self, connection: sqlite3.Connection, keys: Sequence[str]) -> dict[str, VersionedValue | None]:
        """Return several values, None for absent ones."""
        return {key: self._current(connection, key)[1] for key in keys}

    def write(
        self,
        connection: sqlite3.Connection,
        entries: Sequence[Write],
        strategy: ConflictStrategy,
        agent_id: str,
        at: int,
        *,
        batch: bool,
    ) -> list[Outcome]:
        """Write all entries.

        Raises:
            ConflictError: and the transaction is to be undone.
            CodecError: if a value cannot be stored.
        """
        outcomes: list[Outcome] = []
        for entry in entries:
            last, current = self._current(connection, entry.key)

            def base_of(version: int, key: str = entry.key) -> VersionedValue | None:
                return self._older(connection, key, version)

            value = resolve(strategy, entry, current, base_of, agent_id)
            if value is MISSING:
                assert current is not None
                log = WriteRecord(entry.key, agent_id, current.version, at, "superseded", batch)
                self._log(connection, log, None)
                outcomes.append(Outcome(current, new=False))
                continue
            made = VersionedValue.make(entry.key, value, last + 1, agent_id, at)
            record = encode(made)
            connection.execute(
                "INSERT INTO shared_values (space, key, version, record) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (space, key) DO UPDATE SET version = excluded.version, record = excluded.record",
                (self.space, entry.key, made.version, record),
            )
            self._log(connection, WriteRecord(entry.key, agent_id, made.version, at, "written", batch), record)
            outcomes.append(Outcome(made, new=True))
        return outcomes

    def delete(self, connection: sqlite3.Connection, key: str, agent_id: str, expected: int, at: int) -> bool:
        """Delete a key; its version stays.

        Raises:
            ConflictError: if another version is there.
        """
        last, current = self._current(connection, key)
        check_version(key, expected, current, agent_id)
        if current is None:
            return False
        connection.execute("UPDATE shared_values SET record = NULL WHERE space = ? AND key = ?", (self.space, key))
        self._log(connection, WriteRecord(key, agent_id, last, at, "deleted"), None)
        return True

    def last_seq(self, connection: sqlite3.Connection) -> int:
        """Return the number of the last change in any space."""
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'shared_changes'").fetchone()
        return int(row[0]) if row is not None else 0

    def changes(self, connection: sqlite3.Connection, prefix: str, after: int, limit: int) -> list[Change]:
        """Return the next changes under a prefix after a number, or a `Missed` if some are not kept any more."""
        trimmed = connection.execute("SELECT seq FROM shared_trimmed WHERE space = ?", (self.space,)).fetchone()
        if trimmed is not None and trimmed[0] > after:
            return [Missed(self.last_seq(connection), None, self.values(connection, prefix))]
        rows = connection.execute(
            "SELECT seq, key, version, agent_id, outcome, record FROM shared_changes WHERE space = ? AND seq > ?"
            " AND outcome <> 'superseded' AND substr(key, 1, length(?)) = ? ORDER BY seq LIMIT ?",
            (self.space, after, prefix, prefix, limit),
        )
        return [
            Written(seq, cast("VersionedValue", decode(record)))
            if outcome == "written"
            else Deleted(seq, key, version, agent_id)
            for seq, key, version, agent_id, outcome, record in rows
        ]

    def log(self, connection: sqlite3.Connection, limit: int) -> list[WriteRecord]:
        """Return the newest entries of the write log, oldest first."""
        rows = connection.execute(
            "SELECT key, agent_id, version, at, outcome, batch FROM shared_changes WHERE space = ?"
            " ORDER BY seq DESC LIMIT ?",
            (self.space, limit),
        ).fetchall()
        return [
            WriteRecord(key, agent_id, version, at, cast("Literal['written']", outcome), bool(batch))
            for key, agent_id, version, at, outcome, batch in reversed(rows)
        ]

    def count(self, connection: sqlite3.Connection) -> int:
        """Return how many keys have a value."""
        row = connection.execute(
            "SELECT count(*) FROM shared_values WHERE space = ? AND record IS NOT NULL", (self.space,)
        ).fetchone()
        return int(row[0])

    def _current(self, connection: sqlite3.Connection, key: str) -> tuple[int, VersionedValue | None]:
        row = connection.execute(
            "SELECT version, record FROM shared_values WHERE space = ? AND key = ?", (self.space, key)
        ).fetchone()
        if row is None:
            return -1, None
        return int(row[0]), cast("VersionedValue", decode(row[1])) if row[1] is not None else None

    def _older(self, connection: sqlite3.Connection, key: str, version: int) -> VersionedValue | None:
        row = connection.execute(
            "SELECT record FROM shared_changes WHERE space = ?1 AND key = ?2 AND version = ?3 AND outcome = 'written'"
            " AND NOT EXISTS (SELECT 1 FROM shared_changes WHERE space = ?1 AND key = ?2 AND version >= ?3"
            " AND outcome = 'deleted')",
            (self.space, key, version),
        ).fetchone()
        return cast("VersionedValue", decode(row[0])) if row is not None else None

    def _log(self, connection: sqlite3.Connection, entry: WriteRecord, record: bytes | None) -> None:
        connection.execute(
            "INSERT INTO shared_changes (space, key, agent_id, version, at, outcome, batch, record)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self.space, *attrs.astuple(entry), record),
        )
        # Own changes are counted, not numbers: those of another space may take every number that would be asked for.
        if next(self._logged) % TRIM_EVERY == 0:
            self._trim(connection)

    def _trim(self, connection: sqlite3.Connection) -> None:
        row = connection.execute(
            "SELECT seq FROM shared_changes WHERE space = ? ORDER BY seq DESC LIMIT 1 OFFSET ?", (self.space, self.keep)
        ).fetchone()
        if row is None:
            return
        connection.execute("DELETE FROM shared_changes WHERE space = ? AND seq <= ?", (self.space, row[0]))
        connection.execute(
            "INSERT INTO shared_trimmed (space, seq) VALUES (?, ?)"
            " ON CONFLICT (space) DO UPDATE SET seq = excluded.seq",
            (self.space, row[0]),
        )
