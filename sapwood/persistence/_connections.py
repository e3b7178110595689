"""Connections to a store file: what is checked before one is opened, and how each kind is set up."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from sapwood.errors import InvalidOption, StoreCorrupt, StoreUnavailable
from sapwood.persistence._failures import failure_of, primary_code
from sapwood.persistence._migrations import MigrationSet, apply_steps, pending_steps

T = TypeVar("T")

APPLICATION_ID = 0x53415057
"""`SAPW`: marks an SQLite file as a Sapwood store."""


SMALLEST_DATABASE = 512
"""Bytes of the smallest SQLite page."""


@attrs.frozen
class Location:
    """Where a store is.

    Attributes:
        path: The absolute path of the file, or None for a store in memory.
        name: How errors call the store.
    """

    path: Path | None
    name: str

    @classmethod
    def of(cls, path: str | Path) -> Location:
        """Make a location of a path or of `":memory:"`.

        Raises:
            InvalidOption: if it can be neither.
        """
        if path == ":memory:":
            return cls(None, ":memory:")
        if not isinstance(path, str | Path) or not str(path) or "\x00" in str(path):
            raise InvalidOption(f'store path: expected a str or pathlib.Path, or ":memory:"; got {path!r}')
        return cls(Path(path).absolute(), str(path))

    def beside(self, suffix: str) -> Path | None:
        """Return the path of SQLite's file beside the store: `-wal` or `-shm`."""
        return None if self.path is None else self.path.with_name(self.path.name + suffix)


@attrs.frozen
class ConnectionOptions:
    """How connections are set up.

    Attributes:
        synchronous: `FULL`: a commit is on the disk when it returns. `NORMAL`: a power loss, not a crash of the
            process, may take the last commits.
        busy_timeout: Seconds to wait for a lock that another process holds.
        wal_limit: Bytes above which the write-ahead log is written back and emptied.
    """

    synchronous: str
    busy_timeout: float
    wal_limit: int

    def __attrs_post_init__(self) -> None:
        if self.synchronous not in ("FULL", "NORMAL", "EXTRA"):
            raise InvalidOption(f"synchronous: expected 'FULL', 'NORMAL' or 'EXTRA'; got {self.synchronous!r}")
        if not 0 <= self.busy_timeout <= 600:
            raise InvalidOption(f"busy_timeout: expected 0 to 600 seconds; got {self.busy_timeout!r}")
        if self.wal_limit < 65536:
            raise InvalidOption(f"wal_limit: expected at least 65536 bytes; got {self.wal_limit!r}")


def open_writer(location: Location, options: ConnectionOptions, sets: Sequence[MigrationSet]) -> sqlite3.Connection:
    """Open the connection that writes, creating the file or bringing its schema up to date.

    Raises:
        StoreUnavailable: if the file cannot be opened or written.
        StoreCorrupt: if it is not a Sapwood store.
        FutureVersion: if its schema is newer than the sets.

    In each case the file is as it was before.
    """
    if location.path is not None:
        _examine(location, sets)
    try:
        connection = _connect(location, "rwc", options.busy_timeout)
        try:
            if location.path is not None:
                _set_wal_mode(connection, location)
                connection.execute(f"PRAGMA journal_size_limit = {options.wal_limit}")
            connection.execute(f"PRAGMA synchronous = {options.synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
            _prepare(connection, location, sets)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise failure_of(error, location.name) or error from error
    return connection


def open_reader(location: Location, options: ConnectionOptions) -> sqlite3.Connection:
    """Open a connection that only reads. It never checkpoints: only the writer may, so two never do so at once."""
    connection = _connect(location, "rw", options.busy_timeout)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def read_untouched(location: Location, operation: Callable[[sqlite3.Connection], T]) -> T:
    """Read a file so that it is not changed and no file appears beside it.

    Raises:
        StoreUnavailable: if it cannot be read.
        StoreCorrupt: if it is not an SQLite database, or damaged.
    """
    wal = location.beside("-wal")
    assert wal is not None
    # Without a write-ahead log nobody has the store open; SQLite is then told to take no locks, as they would need
    # such a file.
    in_use = wal.exists()
    try:
        connection = _connect(location, "ro" if in_use else "ro&immutable=1", 5.0)
        try:
            connection.execute("BEGIN")
            return operation(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        if not in_use and wal.exists():
            # Somebody has opened it since, so it may have changed while it was read without locks.
            return read_untouched(location, operation)
        raise failure_of(error, location.name) or error from error


def check_identity(connection: sqlite3.Connection, location: Location) -> None:
    """Check that a database is a Sapwood store, or empty.

    Raises:
        StoreCorrupt: if another application made it.
    """
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id == APPLICATION_ID:
        return
    tables = [
        name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    ]
    if application_id or tables:
        listed = ", ".join(tables[:5]) or "none"
        raise StoreCorrupt(
            location.name,
            f"another application made it (application_id {application_id:#x}, tables: {listed}); "
            "give Sapwood a file of its own",
        )


def check_file(location: Location) -> bool:
    """Look at the path from outside; return whether there is a file with something in it.

    The file is never opened here other than by SQLite: closing a descriptor of one's own would drop the locks that
    SQLite holds on it in this process.

    Raises:
        StoreUnavailable: if there cannot be a store at this path, or it may not be read.
        StoreCorrupt: if the file is too small for a database.
    """
    path = location.path
    assert path is not None
    try:
        status = path.stat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise StoreUnavailable(location.name, f"directory {path.parent} does not exist; create it first") from None
        return False
    except OSError as error:
        raise StoreUnavailable(location.name, f"cannot be read: {error.strerror or error}") from error
    if stat.S_ISDIR(status.st_mode):
        raise StoreUnavailable(location.name, "is a directory; name a file inside it")
    if not stat.S_ISREG(status.st_mode):
        raise StoreUnavailable(location.name, "is not a regular file")
    if not os.access(path, os.R_OK):
        raise StoreUnavailable(location.name, "may not be read by this user; change the owner or mode of the file")
    if 0 < status.st_size < SMALLEST_DATABASE:
        # SQLite would take a file of one byte for an empty one.
        raise StoreCorrupt(location.name, "it is not an SQLite database; choose another path")
    return status.st_size > 0


def _examine(location: Location, sets: Sequence[MigrationSet]) -> None:
    path = location.path
    if path is None or not check_file(location):
        return
    if not os.access(path, os.W_OK):
        raise StoreUnavailable(location.name, "is read-only; make the file writable")

    def check(connection: sqlite3.Connection) -> None:
        check_identity(connection, location)
        for migrations in sets:
            pending_steps(connection, migrations)

    read_untouched(location, check)


def _connect(location: Location, mode: str, busy_timeout: float) -> sqlite3.Connection:
    target = ":memory:" if location.path is None else f"{location.path.as_uri()}?mode={mode}"
    # Connections move between worker threads, but only one thread uses a connection at a time.
    return sqlite3.connect(
        target, uri=True, timeout=busy_timeout, isolation_level=None, check_same_thread=False, cached_statements=256
    )


def _set_wal_mode(connection: sqlite3.Connection, location: Location) -> None:
    # SQLite does not wait for a lock when it changes the journal mode; an empty transaction does.
    for _ in range(20):
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    else:
        raise StoreUnavailable(location.name, "is locked by another process that keeps it from using a write-ahead log")
    if mode != "wal":
        raise StoreUnavailable(location.name, f"its filesystem allows no write-ahead log (journal mode stays {mode!r})")


def _prepare(connection: sqlite3.Connection, location: Location, sets: Sequence[MigrationSet]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        check_identity(connection, location)
        changed = apply_steps(connection, sets)
        if changed:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT" if changed else "ROLLBACK")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
