"""Reading: connections beside the writer's, each used for one short transaction at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

import trio

from sapwood.actors import Environment
from sapwood.errors import InvalidOption
from sapwood.persistence._connections import ConnectionOptions, Location, open_reader
from sapwood.persistence._failures import failure_of
from sapwood.persistence._status import StoreStatus
from sapwood.persistence._writer import refuse_unfinished

T = TypeVar("T")


class ReaderPool:
    """Runs read operations in worker threads, a bounded number at once, on connections that it keeps."""

    def __init__(
        self,
        location: Location,
        options: ConnectionOptions,
        status: StoreStatus,
        environment: Environment,
        limit: int,
    ) -> None:
        self.begun = 0
        self._location = location
        self._options = options
        self._status = status
        self._environment = environment
        self._limit = limit
        self._slots = trio.Semaphore(limit)
        self._idle: list[sqlite3.Connection] = []

    async def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """See `Store.read`."""
        await self._status.check()
        async with self._slots:
            await self._status.check()
            self.begun += 1
            return await self._environment.in_thread(self._run, operation)

    async def wait_idle(self) -> None:
        """Wait until no read is under way; of a store that refuses calls, none comes after."""
        for _ in range(self._limit):
            await self._slots.acquire()

    def close(self) -> None:
        """Close the connections. Blocks."""
        while self._idle:
            self._idle.pop().close()

    def _run(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._take()
            try:
                return read_once(connection, operation)
            finally:
                self._idle.append(connection)
        except sqlite3.Error as error:
            raise failure_of(error, self._location.name) or error from error

    def _take(self) -> sqlite3.Connection:
        # Several threads come here: looking first and popping then would let two take one connection.
        try:
            return self._idle.pop()
        except IndexError:
            return open_reader(self._location, self._options)


class SharedReader:
    """Reads a store in memory, whose single connection readers and the writer use in turns."""

    def __init__(
        self, connection: sqlite3.Connection, turn: trio.Lock, status: StoreStatus, environment: Environment
    ) -> None:
        self.begun = 0
        self._connection = connection
        self._turn = turn
        self._status = status
        self._environment = environment

    async def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """See `Store.read`."""
        await self._status.check()
        async with self._turn:
            await self._status.check()
            self.begun += 1
            return await self._environment.in_thread(self._run, operation)

    async def wait_idle(self) -> None:
        """Wait until no read is under way; of a store that refuses calls, none comes after."""
        await self._turn.acquire()

    def close(self) -> None:
        """Do nothing: the connection is the writer's."""

    def _run(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        self._connection.execute("PRAGMA query_only = ON")
        try:
            return read_once(self._connection, operation)
        except sqlite3.Error as error:
            raise failure_of(error, self._status.name) or error from error
        finally:
            self._connection.execute("PRAGMA query_only = OFF")


def read_once(connection: sqlite3.Connection, operation: Callable[[sqlite3.Connection], T]) -> T:
    """Run an operation on one consistent snapshot, which is given up before this returns (BR-35).

    Raises:
        InvalidOption: if the operation writes, or returns something unfinished.
    """
    connection.execute("BEGIN")
    try:
        value = operation(connection)
        refuse_unfinished(value)
        return value
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_READONLY:
            raise InvalidOption("a read operation tried to write; use `write` for it") from error
        raise
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
