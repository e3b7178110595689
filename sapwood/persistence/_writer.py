"""The writer's work: one group of operations in one transaction, in a worker thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import attrs
import trio

from sapwood.errors import InvalidOption, StoreUnavailable
from sapwood.persistence._connections import ConnectionOptions, Location
from sapwood.persistence._failures import failure_for_all, failure_of

Operation = Callable[[sqlite3.Connection], Any]


@attrs.define(eq=False)
class PendingWrite:
    """One operation on its way through the writer."""

    operation: Operation
    done: trio.Event = attrs.field(factory=trio.Event)
    withdrawn: bool = False
    value: Any = None
    error: BaseException | None = None


class GroupWriter:
    """Owns the only connection that writes. Its methods block; one thread at a time calls them."""

    def __init__(self, connection: sqlite3.Connection, location: Location, options: ConnectionOptions) -> None:
        self.connection = connection
        self.location = location
        self.options = options
        self.commits = 0
        self.writes = 0
        self.failed_writes = 0
        self.largest_batch = 0
        self.checkpoints = 0
        self.wal_bytes = 0
        self._wal = location.beside("-wal")
        self._inode = self._inode_now()
        self._checkpoint_at = options.wal_limit

    def commit(self, batch: Sequence[PendingWrite]) -> None:
        """Run every operation under a savepoint of its own, then commit them all; never raises for a failure.

        The outcome is in each `PendingWrite`. Whatever fails, no transaction is open afterwards (BR-32).
        """
        self.largest_batch = max(self.largest_batch, len(batch))
        try:
            self._check_still_there()
            self.connection.execute("BEGIN IMMEDIATE")
            for write in batch:
                self._run(write)
            self.connection.execute("COMMIT")
            self.commits += 1
        except Exception as error:
            for write in batch:
                if write.error is None:
                    write.error = failure_for_all(error, self.location.name)
                    write.error.__cause__ = error
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        failed = sum(write.error is not None for write in batch)
        self.failed_writes += failed
        self.writes += len(batch) - failed
        if self._wal is not None:
            self.wal_bytes = _size(self._wal)

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether the write-ahead log has reached its limit."""
        return self.wal_bytes >= self._checkpoint_at

    def checkpoint(self) -> None:
        """Write the log back and empty it, unless a reader of another process holds it up."""
        assert self._wal is not None
        self._try_checkpoint()
        self.wal_bytes = _size(self._wal)
        # If it was held up, the next try comes when the log has grown as much again.
        self._checkpoint_at = self.wal_bytes + self.options.wal_limit

    def close(self) -> None:
        """Empty the write-ahead log, so that the file stands alone, and close the connection."""
        try:
            if self._wal is not None:
                self._try_checkpoint()
        finally:
            self.connection.close()

    def _run(self, write: PendingWrite) -> None:
        self.connection.execute("SAVEPOINT operation")
        try:
            write.value = write.operation(self.connection)
            refuse_unfinished(write.value)
        except Exception as error:
            write.value = None
            write.error = failure_of(error, self.location.name) or error
            if write.error is not error:
                write.error.__cause__ = error
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK TO operation")
        if not self.connection.in_transaction:
            # SQLite itself does so when the disk is full.
            cause = "" if write.error is None else f": {write.error}"
            raise StoreUnavailable(self.location.name, f"an operation of the same group ended the transaction{cause}")
        self.connection.execute("RELEASE operation")

    def _check_still_there(self) -> None:
        if self._inode_now() != self._inode:
            reason = "the file was removed or replaced while it was open; stop, and put it back"
            raise StoreUnavailable(self.location.name, reason)

    def _inode_now(self) -> int | None:
        if self.location.path is None:
            return None
        try:
            return self.location.path.stat().st_ino
        except OSError:
            return -1

    def _try_checkpoint(self) -> None:
        connection = self.connection
        try:
            connection.execute("PRAGMA busy_timeout = 250")
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.checkpoints += not busy
        except sqlite3.Error:
            # What was committed stays in the log and is read from there; the next commit reports a failing disk.
            return
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(self.options.busy_timeout * 1000)}")


def refuse_unfinished(value: object) -> None:
    """Refuse a result that would go on using the connection after the transaction ended (BR-35).

    Raises:
        InvalidOption: if it is a cursor, another iterator, or something to await.
    """
    if not isinstance(value, Iterator | Awaitable):
        return
    unfinished = cast("Any", value)
    if hasattr(unfinished, "close"):
        unfinished.close()
    raise InvalidOption(
        f"an operation on the store returned a {type(unfinished).__qualname__}: expected finished data; "
        "use a plain function that returns a list, such as cursor.fetchall()"
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
