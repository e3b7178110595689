"""Failures of SQLite as typed errors."""

from __future__ import annotations

import sqlite3

from sapwood.errors import StoreCorrupt, StoreUnavailable

_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "is locked by another connection; end its transaction, or raise busy_timeout",
    sqlite3.SQLITE_LOCKED: "is locked by another statement",
    sqlite3.SQLITE_READONLY: "is read-only; make the file and its directory writable",
    sqlite3.SQLITE_FULL: "is full; free space on the disk",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its directory exists and is writable",
    sqlite3.SQLITE_IOERR: "has an input or output error",
    sqlite3.SQLITE_PERM: "may not be opened by this user",
    sqlite3.SQLITE_AUTH: "may not be opened by this user",
    sqlite3.SQLITE_PROTOCOL: "cannot be locked",
    sqlite3.SQLITE_NOLFS: "has grown beyond what its filesystem can hold",
    sqlite3.SQLITE_NOMEM: "found no memory",
    sqlite3.SQLITE_INTERRUPT: "was interrupted",
}
"""SQLite's primary result code: what it means for the store. The store cannot answer now."""

_CORRUPT = {
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a backup, or try the .recover command of sqlite3",
    sqlite3.SQLITE_NOTADB: "it is not an SQLite database; choose another path",
    sqlite3.SQLITE_FORMAT: "it is not an SQLite database; choose another path",
}

Failure = StoreUnavailable | StoreCorrupt


def primary_code(error: BaseException) -> int:
    """Return SQLite's primary result code of an error, or 0 if it has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def failure_of(error: BaseException, store: str) -> Failure | None:
    """Return the typed error for a failure of the store, or None if the statement itself was at fault."""
    code = primary_code(error)
    if code in _CORRUPT:
        return StoreCorrupt(store, f"{_CORRUPT[code]} ({error})")
    if code in _UNAVAILABLE:
        return StoreUnavailable(store, f"{_UNAVAILABLE[code]} ({error})")
    return None


def failure_for_all(error: BaseException, store: str) -> Failure:
    """Return the typed error for everybody whose work was lost with a transaction."""
    if isinstance(error, StoreUnavailable):
        return StoreUnavailable(store, error.reason)
    return failure_of(error, store) or StoreUnavailable(store, f"the transaction was rolled back: {error}")
