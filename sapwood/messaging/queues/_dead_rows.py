"""Dead letters: the record, and the rows it is made of. Plain functions of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from sapwood.errors import PersistenceError
from sapwood.messaging.queues._ledger import Transaction
from sapwood.messaging.queues._messages import StoredMessage, restore
from sapwood.messaging.queues._reasons import REASONS, DeadReason


@attrs.frozen
class DeadLetter:
    """A message that could not be delivered (S3-110).

    Attributes:
        queue: Name of the queue.
        seq: Sequence number of the message.
        message: The original message; None if it cannot be read.
        reason: Why it is dead, see `REASONS`.
        detail: What its last receiver said.
        attempts: Deliveries since it was appended or last came back.
        requeues: Times that the queue tried it again by itself.
        first_attempt_at: Wall clock of the first delivery, in seconds since 1970 UTC; None if there was none.
        last_attempt_at: Wall clock of the last delivery; None if there was none.
        dead_at: Wall clock when it died.
        retries_by_itself: Whether the queue will try it again.
    """

    queue: str
    seq: int
    message: StoredMessage | None
    reason: DeadReason
    detail: str
    attempts: int
    requeues: int
    first_attempt_at: float | None
    last_attempt_at: float | None
    dead_at: float
    retries_by_itself: bool

    @property
    def transient(self) -> bool:
        """Whether trying again may help."""
        return REASONS[self.reason].transient


_SELECT = (
    "SELECT d.reason, d.detail, d.attempts, d.requeues, d.first_at, d.last_at, d.dead_at, d.retry_at IS NOT NULL,"
    " l.seq, l.at, l.id, l.sender, l.priority, l.key, l.ttl, l.headers, l.kind, l.body, l.checksum"
    " FROM queue_dead AS d JOIN queue_log AS l ON l.queue_id = d.queue_id AND l.seq = d.seq WHERE d.queue_id = ?"
)


def dead_letters(tx: Transaction, after: int, limit: int) -> list[DeadLetter]:
    """Return dead letters with sequence numbers above `after`, in order."""
    return _letters(tx, " AND d.seq > ? ORDER BY d.seq LIMIT ?", (after, limit))


def dead_letter(tx: Transaction, seq: int) -> DeadLetter | None:
    """Return one dead letter, or None."""
    found = _letters(tx, " AND d.seq = ?", (seq,))
    return found[0] if found else None


def due_alerts(tx: Transaction, limit: int) -> list[DeadLetter]:
    """Return the dead letters whose alert is due."""
    clause = " AND d.alert_at IS NOT NULL AND d.alert_at <= ? ORDER BY d.alert_at LIMIT ?"
    return _letters(tx, clause, (tx.now, limit))


def due_notices(tx: Transaction, limit: int) -> list[DeadLetter]:
    """Return the dead letters of whose end the sender has not been told."""
    return _letters(tx, " AND d.notify = 1 LIMIT ?", (limit,))


def announced(tx: Transaction, alerts: Sequence[int], notices: Sequence[int]) -> None:
    """Note that alerts and notices reached their listener."""
    for column, seqs in (("alert_at = NULL", alerts), ("notify = 0", notices)):
        tx.connection.executemany(
            f"UPDATE queue_dead SET {column} WHERE queue_id = ? AND seq = ?",  # noqa: S608  # constants
            [(tx.head.queue_id, seq) for seq in seqs],
        )


def _letters(tx: Transaction, clause: str, parameters: tuple[Any, ...]) -> list[DeadLetter]:
    return [_letter(tx.head.name, row) for row in tx.execute(_SELECT + clause, *parameters).fetchall()]


def _letter(queue: str, row: tuple[Any, ...]) -> DeadLetter:
    reason, detail, attempts, requeues, first_at, last_at, dead_at, again, *columns = row
    try:
        message = restore(tuple(columns))
    except (PersistenceError, ValueError):
        message = None
    return DeadLetter(
        queue, columns[0], message, reason, detail, attempts, requeues, first_at, last_at, dead_at, bool(again)
    )
