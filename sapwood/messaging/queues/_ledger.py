"""One transaction on one queue, and what every step of a message in it shares."""

from __future__ import annotations

import sqlite3
from typing import Any, TypeAlias

import attrs

from sapwood.errors import QueueFenced
from sapwood.messaging.queues._options import QueueOptions

Death: TypeAlias = tuple[int, str, str]
"""A message that became a dead letter: its sequence number, the reason and the detail."""


@attrs.frozen
class Head:
    """Which queue, and the epoch in which it was opened."""

    queue_id: int
    name: str
    epoch: int


@attrs.frozen
class Transaction:
    """One transaction on one queue.

    Attributes:
        connection: The writer's connection.
        head: The queue.
        options: Its options.
        now: The queue's clock: seconds since 1970 at the opening, and since then what the monotonic clock adds.
        wall: The wall clock, for display and calendars.
    """

    connection: sqlite3.Connection
    head: Head
    options: QueueOptions
    now: float
    wall: float

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        """Run a statement whose first parameter is the queue."""
        return self.connection.execute(statement, (self.head.queue_id, *parameters))


@attrs.frozen
class Lease:
    """The right to settle one delivery.

    Attributes:
        seq: Sequence number of the message.
        number: Unique within the epoch.
        attempt: Number of the delivery.
    """

    seq: int
    number: int
    attempt: int


def check_epoch(tx: Transaction) -> tuple[int, int]:
    """Return the last sequence number and the depth.

    Raises:
        QueueFenced: if the queue was opened elsewhere since.
    """
    last, depth, epoch = tx.execute("SELECT last_seq, depth, epoch FROM queues WHERE queue_id = ?").fetchone()
    if epoch != tx.head.epoch:
        raise QueueFenced(tx.head.name, tx.head.epoch, epoch)
    return last, depth


def rank_of(options: QueueOptions, priority: int) -> int:
    """Return what comes before the sequence number in the queue's order."""
    return priority if options.ordering == "priority" else 0


def in_line(tx: Transaction, key: str | None) -> bool:
    """Whether another message of a key stands before one that comes now."""
    if key is None or tx.options.ordering != "partitioned":
        return False
    return tx.execute("SELECT 1 FROM queue_entries WHERE queue_id = ? AND key = ? LIMIT 1", key).fetchone() is not None


def unblock(tx: Transaction, key: str | None) -> None:
    """Let the first message of a key come if no other one of the key is on its way."""
    if key is None or tx.options.ordering != "partitioned":
        return
    tx.execute(
        "UPDATE queue_entries SET state = CASE WHEN due <= iif(calendar, ?3, ?4) THEN 0"
        " WHEN calendar THEN 2 ELSE 1 END"
        " WHERE queue_id = ?1 AND seq = (SELECT min(seq) FROM queue_entries WHERE queue_id = ?1 AND key = ?2)"
        " AND NOT EXISTS (SELECT 1 FROM queue_entries WHERE queue_id = ?1 AND key = ?2 AND state <> 4)",
        key,
        tx.wall,
        tx.now,
    )


def close_log(tx: Transaction, seq: int) -> None:
    """Begin the retention of a message that is neither live nor dead any more."""
    if tx.options.retention:
        tx.execute("UPDATE queue_log SET settled_at = ?3 WHERE queue_id = ?1 AND seq = ?2", seq, tx.now)
    else:
        tx.execute("DELETE FROM queue_log WHERE queue_id = ? AND seq = ?", seq)
