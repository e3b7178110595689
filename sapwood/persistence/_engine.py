"""The store: one SQLite file, one writer that groups commits, reads beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, final

import attrs
import trio

from sapwood.actors import Environment, single_exceptions_bare
from sapwood.errors import InvalidOption
from sapwood.persistence._connections import ConnectionOptions, Location, open_writer
from sapwood.persistence._migrations import MigrationSet, apply_steps
from sapwood.persistence._protocols import StoreStatistics
from sapwood.persistence._queue import WriteQueue
from sapwood.persistence._readers import ReaderPool, SharedReader
from sapwood.persistence._schema import JOURNAL_SCHEMA
from sapwood.persistence._status import StoreStatus
from sapwood.persistence._writer import GroupWriter

T = TypeVar("T")

CLOSE_BUDGET = 30.0
"""Seconds that closing may take, a cancelled run included, before what still waits is refused."""


@attrs.frozen
class _Parts:
    status: StoreStatus
    writer: GroupWriter
    queue: WriteQueue
    readers: ReaderPool | SharedReader
    environment: Environment

    async def close(self) -> None:
        """Refuse new calls, finish the accepted ones, close the file; bounded, although shielded from cancellation."""
        if self.status.state == "open":
            self.status.state = "closing"
        deadline = self.environment.monotonic() + CLOSE_BUDGET
        with trio.CancelScope(shield=True, deadline=deadline):
            await self.queue.close(deadline)
        with trio.CancelScope(shield=True, deadline=deadline + CLOSE_BUDGET):
            await self.readers.wait_idle()
            await self.environment.in_thread(self._close_connections)
        if self.status.state == "closing":
            self.status.state = "closed"

    def _close_connections(self) -> None:
        self.readers.close()
        self.writer.close()


@final
class Store:
    """An open store. `open_store` makes it; its `async with` block is its life.

    All operations are plain functions of a `sqlite3.Connection`; they run in a worker thread and may neither commit,
    roll back, nor keep a cursor. Writes are carried out in the order of the calls and are durable when they return.

    After the block, or when the writer has failed, every call raises `StoreUnavailable`; none hangs.
    """

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts

    @property
    def name(self) -> str:
        """The path as it was given; errors call the store so."""
        return self._parts.status.name

    async def write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in a transaction and return its result once the commit is durable.

        Operations that wait at the same time share one transaction and one thread hop. Each has its own savepoint: one
        that raises is undone alone, and its caller alone gets the exception.

        A caller cancelled before the writer took its operation leaves nothing behind. One cancelled later cannot
        know: the operation may still be committed.

        Raises:
            StoreUnavailable: if the store is closed, locked, read-only or full; if the commit failed, for everybody in
                the group. Nothing of the operation is stored.
            StoreCorrupt: if SQLite finds the file damaged.
            InvalidOption: if the function returns something unfinished; it is undone.
            Exception: whatever the function raises; it is undone.
        """
        return await self._parts.queue.write(operation)

    async def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function on one consistent snapshot and return its result.

        It sees everything that was committed before the call. The snapshot is given up before this returns, so
        no reader can hold back the write-ahead log (BR-35); a result that is a cursor or an iterator is refused.

        Raises:
            StoreUnavailable: if the store is closed, or cannot be read now.
            StoreCorrupt: if SQLite finds the file damaged.
            InvalidOption: if the function writes, or returns something unfinished.
            Exception: whatever the function raises.
        """
        return await self._parts.readers.read(operation)

    async def migrate(self, migrations: MigrationSet) -> None:
        """Bring the schema of one part of the store up to date, in one transaction.

        Raises:
            FutureVersion: if the file has seen steps that the set does not have; nothing is changed.
            StoreUnavailable: as `write`.
        """
        await self.write(lambda connection: apply_steps(connection, [migrations]))

    def statistics(self) -> StoreStatistics:
        """Return what the store has done and has to do."""
        parts = self._parts
        writer = parts.writer
        return StoreStatistics(
            name=self.name,
            state=parts.status.state,
            pending=parts.queue.pending,
            writes=writer.writes,
            failed_writes=writer.failed_writes,
            commits=writer.commits,
            largest_batch=writer.largest_batch,
            reads=parts.readers.begun,
            checkpoints=writer.checkpoints,
            wal_bytes=writer.wal_bytes,
        )


@asynccontextmanager
async def open_store(
    path: str | Path,
    environment: Environment,
    *,
    synchronous: str = "FULL",
    busy_timeout: float = 5.0,
    readers: int = 4,
    wal_limit: int = 16 * 1024 * 1024,
    migrations: Sequence[MigrationSet] = (),
) -> AsyncGenerator[Store]:
    """Open a store for the length of an `async with` block, creating the file if there is none.

    Leaving the block, however that happens, carries out the writes that were accepted, empties the write-ahead log and
    closes the file.

    Args:
        path: Path of the file, or `":memory:"` for a store that ends with the block.
        environment: Door to threads and time.
        synchronous: `FULL`: a commit is on the disk when it returns. `NORMAL`: faster; a power loss, not a crash of
            the process, may take the last commits.
        busy_timeout: Seconds to wait for a lock that another process holds.
        readers: Read operations that may run at once.
        wal_limit: Bytes above which the write-ahead log is emptied.
        migrations: Schemas of the packages that use the store, beside the journal's own.

    Raises:
        InvalidOption: if an option is out of its range.
        StoreUnavailable: if the file cannot be opened or written.
        StoreCorrupt: if it is damaged or belongs to another application.
        FutureVersion: if a newer Sapwood wrote it.

    The file is as it was before in each of these cases.
    """
    if readers < 1:
        raise InvalidOption(f"readers: expected at least 1; got {readers!r}")
    location = Location.of(path)
    options = ConnectionOptions(synchronous, busy_timeout, wal_limit)
    connection = await environment.in_thread(open_writer, location, options, [JOURNAL_SCHEMA, *migrations])
    parts = _assemble(connection, location, options, environment, readers)
    with single_exceptions_bare():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parts.queue.run)
            try:
                yield Store(parts)
            finally:
                await parts.close()  # noqa: ASYNC102  # shields itself, for as long as the last commit takes


def _assemble(
    connection: sqlite3.Connection,
    location: Location,
    options: ConnectionOptions,
    environment: Environment,
    readers: int,
) -> _Parts:
    status = StoreStatus(location.name)
    writer = GroupWriter(connection, location, options)
    if location.path is None:
        turn = trio.Lock()
        queue = WriteQueue(writer, status, environment, turn)
        return _Parts(status, writer, queue, SharedReader(connection, turn, status, environment), environment)
    pool = ReaderPool(location, options, status, environment, readers)
    return _Parts(status, writer, WriteQueue(writer, status, environment, None), pool, environment)
