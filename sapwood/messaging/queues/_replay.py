"""Replaying: settled messages of the log become live again."""

from __future__ import annotations

from sapwood.errors import QueueFull
from sapwood.messaging.queues._ledger import Transaction, check_epoch
from sapwood.messaging.queues._settling import History, enter_again


def replay(tx: Transaction, after: int, since: float | None, until: float | None) -> int:
    """Make settled messages live again, in order; return how many.

    Raises:
        QueueFull: if the queue's capacity does not allow it.
        QueueFenced: if the queue was opened elsewhere since.
    """
    _, depth = check_epoch(tx)
    seqs = [
        seq
        for (seq,) in tx.execute(
            "SELECT seq FROM queue_log WHERE queue_id = ?1 AND seq > ?2 AND settled_at IS NOT NULL"
            " AND (?3 IS NULL OR at >= ?3) AND (?4 IS NULL OR at < ?4) ORDER BY seq",
            after,
            since,
            until,
        ).fetchall()
    ]
    capacity = tx.options.capacity
    if capacity is not None and depth + len(seqs) > capacity:
        raise QueueFull(tx.head.name, capacity, depth)
    for seq in seqs:
        enter_again(tx, seq, History(seen=True))
    return len(seqs)
