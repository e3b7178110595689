"""Taking: ready messages are leased, in the order of the queue. Plain functions of a transaction."""

from __future__ import annotations

import attrs

from sapwood.errors import PersistenceError
from sapwood.messaging.queues._ledger import Death, Lease, Transaction
from sapwood.messaging.queues._messages import StoredMessage, restore
from sapwood.messaging.queues._settling import bury


@attrs.frozen
class Taken:
    """A message that was taken, under its lease.

    Attributes:
        requeues: Times that it came back from the dead letters by itself.
        redelivered: Whether a handler may have had it before.
    """

    lease: Lease
    stored: StoredMessage
    requeues: int
    redelivered: bool


def take(tx: Transaction, limit: int, first_lease: int) -> tuple[list[Taken], bool, list[Death]]:
    """Lease up to `limit` ready messages, in the queue's order, and count the attempt.

    Returns:
        The messages, whether more may be ready, and the messages that became dead letters as they cannot be read.
    """
    # The index is named so that the order never costs a sort of the whole queue.
    rows = tx.execute(
        "SELECT e.attempts, e.requeues, e.seen, l.seq, l.at, l.id, l.sender, l.priority, l.key, l.ttl,"
        " l.headers, l.kind, l.body, l.checksum FROM queue_entries AS e INDEXED BY queue_ready"
        " JOIN queue_log AS l ON l.queue_id = e.queue_id AND l.seq = e.seq"
        " WHERE e.queue_id = ? AND e.state = 0 ORDER BY e.rank, e.seq LIMIT ?",
        limit,
    ).fetchall()
    taken: list[Taken] = []
    unreadable: list[Death] = []
    for number, (attempts, requeues, seen, *columns) in enumerate(rows, first_lease):
        lease = Lease(columns[0], number, attempts + 1)
        try:
            taken.append(Taken(lease, restore(tuple(columns)), requeues, bool(seen or attempts)))
        except (PersistenceError, ValueError) as error:
            bury(tx, lease.seq, "unreadable", str(error))
            unreadable.append((lease.seq, "unreadable", str(error)))
    tx.connection.executemany(
        "UPDATE queue_entries SET state = 3, attempts = attempts + 1, lease = ?, epoch = ?,"
        " first_at = coalesce(first_at, ?), last_at = ? WHERE queue_id = ? AND seq = ?",
        [(one.lease.number, tx.head.epoch, tx.wall, tx.wall, tx.head.queue_id, one.lease.seq) for one in taken],
    )
    return taken, len(rows) == limit, unreadable
