"""The message log: an append-only, durable sequence of messages under a name."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, final

from sapwood.actors import Environment
from sapwood.errors import InvalidOption, SequenceConflict
from sapwood.messaging.queues._appending import write_log
from sapwood.messaging.queues._ledger import Head, Transaction
from sapwood.messaging.queues._messages import MAX_NAME, Message, StoredMessage, prepare, restore
from sapwood.messaging.queues._options import QueueOptions, is_count
from sapwood.messaging.queues._schema import QUEUES_SCHEMA
from sapwood.persistence import StoreEngine


class LogReader:
    """Reads the log of a queue, or a message log; needs no ownership, and may be used in several processes.

    Args:
        store: An open store.
        environment: Source of time and ids.
        name: Name of the log; 1 to 512 characters.

    Raises:
        InvalidOption: if the name is none.
    """

    def __init__(self, store: StoreEngine, environment: Environment, name: str) -> None:
        self.name = check_name(name)
        self._store = store
        self._environment = environment

    async def read(
        self, *, after: int = 0, limit: int = 1000, since: float | None = None, until: float | None = None
    ) -> list[StoredMessage]:
        """Return up to `limit` messages with sequence numbers above `after`, in order (S2-044).

        What retention removed is not there any more: the first one returned may be above `after` + 1. A log that
        does not exist has no messages.

        Args:
            after: Sequence number after which to begin.
            limit: Most messages.
            since: Only messages appended at this wall-clock time or later, in seconds since 1970 UTC.
            until: Only messages appended before this wall-clock time.

        Raises:
            CodecError: if one of them cannot be read.
            StoreUnavailable: if the store cannot answer.
        """
        if not is_count(limit, 1):
            raise InvalidOption(f"limit: expected at least 1 message; got {limit!r}")

        def select(connection: sqlite3.Connection) -> list[Any]:
            return connection.execute(
                "SELECT seq, at, id, sender, priority, key, ttl, headers, kind, body, checksum FROM queue_log"
                " WHERE queue_id = (SELECT queue_id FROM queues WHERE name = ?) AND seq > ?"
                " AND at >= coalesce(?, at) AND (? IS NULL OR at < ?) ORDER BY seq LIMIT ?",
                (self.name, after, since, until, until, limit),
            ).fetchall()

        return [restore(row) for row in await self._store.read(select)]

    async def last_seq(self) -> int:
        """Return the sequence number of the last message ever appended; 0 if there was none."""

        def select(connection: sqlite3.Connection) -> int:
            row = connection.execute("SELECT last_seq FROM queues WHERE name = ?", (self.name,)).fetchone()
            return 0 if row is None else int(row[0])

        return await self._store.read(select)


@final
class MessageLog(LogReader):
    """An append-only log of messages. Anyone may append; order is that of the commits, by sequence number alone.

    `open` must have been called once for the store. The log of a queue is read here, but appended to by the queue.
    """

    async def open(self) -> None:
        """Create the tables and the log if they are not there."""
        await self._store.migrate(QUEUES_SCHEMA)
        await self._store.write(self._create)

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT OR IGNORE INTO queues (name) VALUES (?)", (self.name,))

    async def append(self, *messages: Message | object, expected_seq: int | None = None) -> int:
        """Append all messages next to one another, or none; return the last sequence number once they are durable.

        Args:
            *messages: Messages, or bare payloads.
            expected_seq: Sequence number of the last message that the caller knows; None appends in any case.

        Raises:
            InvalidMessage, CodecError: if a message cannot be stored; raised before anything is queued.
            InvalidOption: if the name is that of a queue, or the log was not opened.
            SequenceConflict: if the log does not end at `expected_seq`; nothing was appended.
            StoreUnavailable: if the store cannot write; nothing was.
        """
        outgoing = [prepare(message, self._environment) for message in messages]
        wall = self._environment.wall()

        def write(connection: sqlite3.Connection) -> int:
            queue_id, last, epoch = _row(connection, self.name)
            if epoch:
                raise InvalidOption(f"{self.name!r} is a queue; append to it with `open_queue`, so that it delivers")
            if expected_seq is not None and expected_seq != last:
                raise SequenceConflict(self.name, expected_seq, last)
            tx = Transaction(connection, Head(queue_id, self.name, 0), QueueOptions(), wall, wall)
            write_log(tx, list(enumerate(outgoing, last + 1)))
            return last + len(outgoing)

        return await self._store.write(write)

    async def trim(self, *, before: int) -> int:
        """Remove the messages with sequence numbers below `before`; return how many.

        In the log of a queue, those that are not settled stay.
        """

        def remove(connection: sqlite3.Connection) -> int:
            queue_id, _, _ = _row(connection, self.name)
            return connection.execute(
                "DELETE FROM queue_log WHERE queue_id = ?1 AND seq < ?2"
                " AND seq NOT IN (SELECT seq FROM queue_entries WHERE queue_id = ?1)"
                " AND seq NOT IN (SELECT seq FROM queue_dead WHERE queue_id = ?1)",
                (queue_id, before),
            ).rowcount

        return await self._store.write(remove)


def check_name(name: object) -> str:
    """Return a name of a queue or log.

    Raises:
        InvalidOption: if it is none.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME:
        raise InvalidOption(f"queue name: expected 1 to {MAX_NAME} characters; got {name!r}")
    return name


def _row(connection: sqlite3.Connection, name: str) -> Sequence[int]:
    row: Sequence[int] | None = connection.execute(
        "SELECT queue_id, last_seq, epoch FROM queues WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        raise InvalidOption(f"message log {name!r} was not opened; call `await log.open()` first")
    return row
