"""A backend in the runtime's store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import trio

from sapwood.actors import Environment
from sapwood.errors import BackendFailed, FileExists, InvalidOption, PersistenceError
from sapwood.files._backend import (
    FileData,
    FileEntry,
    Listing,
    check_apart,
    check_deletable,
    check_expected,
    digest,
    is_at_or_below,
    missing,
    moved_path,
)
from sapwood.files._paths import FilePath, caseless_key
from sapwood.persistence import MigrationSet

if TYPE_CHECKING:
    from sqlite_utils import Database

    from sapwood.persistence import StoreEngine

T = TypeVar("T")

Scope: TypeAlias = tuple[str | int, ...]
"""What a filesystem belongs to: `("user", 1)`, `("project", 42)`, `("agent", "conversation-1")`."""

FILES_SCHEMA = MigrationSet("files")
"""Tables of `SQLiteBackend`; its `open` applies it."""


@FILES_SCHEMA.step
def create_files(db: Database) -> None:
    """Create the files and, for each scope, the floor: every version given from now on is above it."""
    # `data` is last, so listing the other columns of a large file does not read it.
    db.conn.execute(
        "CREATE TABLE files (scope TEXT NOT NULL, path TEXT NOT NULL, caseless TEXT NOT NULL, version INTEGER NOT NULL,"
        " size INTEGER NOT NULL, modified REAL NOT NULL, sha256 TEXT NOT NULL, data BLOB NOT NULL,"
        " PRIMARY KEY (scope, path), UNIQUE (scope, caseless)) STRICT"
    )
    db.conn.execute("CREATE TABLE file_floors (scope TEXT PRIMARY KEY, floor INTEGER NOT NULL) STRICT")


class SQLiteBackend:
    """Keeps the files of one scope in a store, each change in one transaction.

    Several processes may work on one scope: `expected_version` is checked inside the transaction, and names that
    differ only by case are refused by the database itself. Closing leaves the store open.

    Args:
        store: An open store.
        scope: Whose files these are; a tuple of texts and whole numbers. `1` and `"1"` are different.
        environment: Source of the time of changes.

    Raises:
        InvalidOption: if the scope is not such a tuple, or empty.
    """

    def __init__(self, store: StoreEngine, scope: Scope, environment: Environment) -> None:
        self.scope = scope
        self._store = store
        self._scope = scope_key(scope)
        self._environment = environment
        self._unsettled = False

    async def open(self) -> None:
        """Create or upgrade the tables."""
        with self._translated(None):
            await self._store.migrate(FILES_SCHEMA)

    async def close(self) -> None:
        """Do nothing; the store belongs to somebody else."""
        await trio.lowlevel.checkpoint()

    async def list(self) -> Listing:
        """Return all files of the scope."""

        def select(connection: sqlite3.Connection) -> tuple[FileEntry, ...]:
            rows = connection.execute(
                "SELECT path, version, size, modified, sha256 FROM files WHERE scope = ? ORDER BY path", (self._scope,)
            )
            return tuple(FileEntry(*row) for row in rows)

        with self._translated(None):
            return Listing(await self._read(select))

    async def stat(self, path: FilePath) -> FileEntry:
        """Return what is known of a file."""

        def select(connection: sqlite3.Connection) -> FileEntry | None:
            row = connection.execute(
                "SELECT path, version, size, modified, sha256 FROM files WHERE scope = ? AND path = ?",
                (self._scope, path),
            ).fetchone()
            return None if row is None else FileEntry(*row)

        with self._translated(path):
            entry = await self._read(select)
        if entry is None:
            raise missing(path)
        return entry

    async def read(self, path: FilePath) -> FileData:
        """Return a file with its content.

        Raises:
            BackendFailed: also if the content does not have its hash any more.
        """

        def select(connection: sqlite3.Connection) -> FileData | None:
            row = connection.execute(
                "SELECT path, version, size, modified, sha256, data FROM files WHERE scope = ? AND path = ?",
                (self._scope, path),
            ).fetchone()
            return None if row is None else FileData(FileEntry(*row[:-1]), bytes(row[-1]))

        with self._translated(path):
            file = await self._read(select)
        if file is None:
            raise missing(path)
        if digest(file.data) != file.entry.sha256:
            raise BackendFailed(path, "the content in the store does not have its hash; restore it from a backup")
        return file

    async def write(
        self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
    ) -> FileEntry:
        """Create or replace a file."""
        modified = self._environment.wall()
        sha256 = digest(data)

        def upsert(connection: sqlite3.Connection) -> FileEntry:
            found = self._version(connection, path)
            check_expected(path, found, expected_version)
            given = max(self._floor(connection), found or 0) + 1 if version is None else version
            try:
                connection.execute(
                    "INSERT INTO files (scope, path, caseless, version, size, modified, sha256, data)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, path) DO UPDATE SET"
                    " version = excluded.version, size = excluded.size, modified = excluded.modified,"
                    " sha256 = excluded.sha256, data = excluded.data",
                    (self._scope, path, caseless_key(path), given, len(data), modified, sha256, data),
                )
            except sqlite3.IntegrityError:
                problem = "differs only by case from another file; use that spelling or another name"
                raise FileExists(path, problem) from None
            return FileEntry(path, given, len(data), modified, sha256)

        with self._translated(path):
            return await self._write(upsert)

    async def delete(self, path: FilePath, *, expected_version: int | None = None) -> None:
        """Remove a file."""

        def remove(connection: sqlite3.Connection) -> None:
            found = check_deletable(path, self._version(connection, path), expected_version)
            self._raise_floor(connection, found)
            connection.execute("DELETE FROM files WHERE scope = ? AND path = ?", (self._scope, path))

        with self._translated(path):
            await self._write(remove)

    async def move(
        self, source: FilePath, target: FilePath, *, expected_version: int | None = None
    ) -> tuple[FileEntry, ...]:
        """Rename a file, or all files below a directory, in one transaction."""
        check_apart(source, target)

        def rename(connection: sqlite3.Connection) -> tuple[FileEntry, ...]:
            # "0" is the character after "/", so the range holds exactly what begins with the name and a slash.
            rows = connection.execute(
                "SELECT path, version FROM files WHERE scope = ? AND (path = ? OR (path > ? AND path < ?))",
                (self._scope, source, f"{source}/", f"{source}0"),
            ).fetchall()
            if expected_version is not None or not rows:
                check_deletable(source, self._version(connection, source), expected_version)
            taken = None if caseless_key(source) == caseless_key(target) else self._taken(connection, target)
            if taken is not None and is_at_or_below(taken, target):
                raise FileExists(target, "exists already; delete it first, or choose another name")
            if taken is not None:
                raise FileExists(target, f"differs only by case from {taken!r}; use that spelling or another name")
            version = max(self._floor(connection), *(int(row[1]) for row in rows)) + 1
            self._raise_floor(connection, version - 1)
            paths = [(path, moved_path(path, source, target)) for path, _ in rows]
            try:
                connection.executemany(
                    "UPDATE files SET path = ?, caseless = ?, version = ? WHERE scope = ? AND path = ?",
                    [(new, caseless_key(new), version, self._scope, old) for old, new in paths],
                )
            except sqlite3.IntegrityError:
                problem = "differs only by case from another file; use that spelling or another name"
                raise FileExists(target, problem) from None
            return tuple(self._entry(connection, new) for new in sorted(new for _, new in paths))

        with self._translated(source):
            return await self._write(rename)

    async def reserve(self, count: int) -> int:
        """Set versions aside; see `ReservingBackend`."""

        def raise_floor(connection: sqlite3.Connection) -> int:
            sql = "SELECT coalesce(max(version), 0) FROM files WHERE scope = ?"
            (highest,) = connection.execute(sql, (self._scope,)).fetchone()
            first = max(int(highest), self._floor(connection)) + 1
            self._raise_floor(connection, first + count - 1)
            return first

        with self._translated(None):
            return await self._write(raise_floor)

    async def _read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        if self._unsettled:
            # Writes keep their order, so once this one is through, the cancelled one has happened or never will.
            self._unsettled = False
            await self._write(_do_nothing)
        return await self._store.read(operation)

    async def _write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._store.write(operation)
        except (trio.Cancelled, PersistenceError):
            self._unsettled = True
            raise

    def _version(self, connection: sqlite3.Connection, path: FilePath) -> int | None:
        row = connection.execute(
            "SELECT version FROM files WHERE scope = ? AND path = ?", (self._scope, path)
        ).fetchone()
        return None if row is None else int(row[0])

    def _floor(self, connection: sqlite3.Connection) -> int:
        row = connection.execute("SELECT floor FROM file_floors WHERE scope = ?", (self._scope,)).fetchone()
        return 0 if row is None else int(row[0])

    def _raise_floor(self, connection: sqlite3.Connection, floor: int) -> None:
        connection.execute(
            "INSERT INTO file_floors (scope, floor) VALUES (?, ?)"
            " ON CONFLICT (scope) DO UPDATE SET floor = max(floor, excluded.floor)",
            (self._scope, floor),
        )

    def _taken(self, connection: sqlite3.Connection, path: FilePath) -> str | None:
        key = caseless_key(path)
        sql = "SELECT path FROM files WHERE scope = ? AND (caseless = ? OR (caseless > ? AND caseless < ?)) LIMIT 1"
        row = connection.execute(sql, (self._scope, key, f"{key}/", f"{key}0")).fetchone()
        return None if row is None else str(row[0])

    def _entry(self, connection: sqlite3.Connection, path: FilePath) -> FileEntry:
        sql = "SELECT path, version, size, modified, sha256 FROM files WHERE scope = ? AND path = ?"
        return FileEntry(*connection.execute(sql, (self._scope, path)).fetchone())

    @contextmanager
    def _translated(self, path: FilePath | None) -> Generator[None]:
        try:
            yield
        except PersistenceError as error:
            raise BackendFailed(path or self._scope, f"the store cannot answer: {error}") from error


def _do_nothing(_connection: sqlite3.Connection) -> None:
    return


def scope_key(scope: Scope) -> str:
    """Return the text under which a scope is stored; different scopes have different texts.

    Raises:
        InvalidOption: if the scope is not a tuple of texts and whole numbers that begins with a text.
    """
    parts: tuple[object, ...] = scope if isinstance(scope, tuple) else ()  # pyright: ignore[reportUnnecessaryIsInstance]
    plain = all(isinstance(part, str | int) and not isinstance(part, bool) for part in parts)
    if not parts or not isinstance(parts[0], str) or not plain:
        raise InvalidOption(
            f'filesystem scope: expected a tuple such as ("user", 1), of texts and whole numbers; got {scope!r}'
        )
    return json.dumps(parts)
