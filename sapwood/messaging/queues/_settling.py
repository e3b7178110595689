"""Settling: how deliveries end, and how messages die and come back. Plain functions of a transaction."""

from __future__ import annotations

import attrs

from sapwood.errors import LeaseLost
from sapwood.messaging.queues._ledger import Lease, Transaction, check_epoch, close_log, in_line, rank_of, unblock
from sapwood.messaging.queues._reasons import REASONS, DeadReason
from sapwood.messaging.queues._schema import State


def acknowledge(tx: Transaction, lease: Lease) -> None:
    """Settle a delivery: the message is done.

    Raises:
        LeaseLost: if the delivery is over already.
        QueueFenced: if the queue was opened elsewhere since.
    """
    key = _held(tx, lease)
    _settle(tx, lease.seq, key)


def give_back(tx: Transaction, lease: Lease) -> bool:
    """Make a message ready again that no handler has seen; its attempt does not count. False if the lease is gone."""
    return (
        tx.execute(
            "UPDATE queue_entries SET state = 0, attempts = attempts - 1, lease = NULL,"
            " first_at = iif(attempts = 1 AND NOT seen, NULL, first_at)"
            " WHERE queue_id = ? AND seq = ? AND epoch = ? AND lease = ?",
            lease.seq,
            tx.head.epoch,
            lease.number,
        ).rowcount
        == 1
    )


def fail(tx: Transaction, lease: Lease, detail: str, delay: float) -> DeadReason | None:
    """End a delivery that failed; the message is delivered again after `delay` seconds, or is dead.

    Returns:
        Why it is dead, or None.

    Raises:
        LeaseLost, QueueFenced: as `acknowledge`.
    """
    _held(tx, lease)
    if lease.attempt >= tx.options.attempts:
        bury(tx, lease.seq, "delivery_failed", detail)
        return "delivery_failed"
    tx.execute(
        "UPDATE queue_entries SET state = ?2, due = ?3, delay = ?4, calendar = 0, lease = NULL, rank = rank + ?5"
        " WHERE queue_id = ?1 AND seq = ?6",
        State.DELAYED if delay else State.READY,
        tx.now + delay,
        delay,
        tx.options.ordering == "none",
        lease.seq,
    )
    return None


def reject(tx: Transaction, lease: Lease, detail: str) -> None:
    """End a delivery whose message can never be handled: it is dead, without a retry.

    Raises:
        LeaseLost, QueueFenced: as `acknowledge`.
    """
    _held(tx, lease)
    bury(tx, lease.seq, "rejected", detail)


def bury(tx: Transaction, seq: int, reason: DeadReason, detail: str) -> None:
    """Turn a live message into a dead letter, and let the next one of its key come."""
    key, attempts, requeues, first_at, last_at, alert_at = tx.execute(
        "DELETE FROM queue_entries WHERE queue_id = ? AND seq = ?"
        " RETURNING key, attempts, requeues, first_at, last_at, alert_at",
        seq,
    ).fetchone()
    options = tx.options
    again = REASONS[reason].transient and options.mode != "at_most_once" and requeues < options.dead_retries
    tx.execute(
        "INSERT OR REPLACE INTO queue_dead (queue_id, seq, reason, detail, attempts, requeues, first_at, last_at,"
        " dead_at, retry_at, alert_at, notify) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        seq,
        reason,
        detail[:2_000],
        attempts,
        requeues,
        first_at,
        last_at,
        tx.wall,
        tx.now + options.dead_retry_delay * 2 ** min(requeues, 64) if again else None,
        tx.now + options.alert_after if alert_at is None else alert_at,
        not again,
    )
    unblock(tx, key)


def revive(tx: Transaction, seq: int, *, by_itself: bool) -> bool:
    """Make a dead letter a live message again, at its old place; False if there is none.

    What the queue does by itself keeps the count of such returns and the time of the alert; a person's wish
    starts both anew.
    """
    row = tx.execute(
        "DELETE FROM queue_dead WHERE queue_id = ? AND seq = ? RETURNING requeues, first_at, alert_at", seq
    ).fetchone()
    if row is None:
        return False
    requeues, first_at, alert_at = row
    seen = first_at is not None
    enter_again(tx, seq, History(seen, requeues + 1, first_at, alert_at) if by_itself else History(seen, 0, first_at))
    return True


@attrs.frozen
class History:
    """What a message keeps of its earlier life.

    Attributes:
        seen: Whether a handler may have had it.
        requeues: Times that it came back from the dead letters by itself.
        first_at: Wall clock of its first delivery, or None.
        alert_at: When on the queue's clock its alert is due, or None.
    """

    seen: bool
    requeues: int = 0
    first_at: float | None = None
    alert_at: float | None = None


def enter_again(tx: Transaction, seq: int, history: History) -> None:
    """Make a message of the log live, with no attempts; it has all of its time to live before it."""
    (priority, key, own_ttl) = tx.execute(
        "UPDATE queue_log SET settled_at = NULL WHERE queue_id = ? AND seq = ? RETURNING priority, key, ttl", seq
    ).fetchone()
    ttl = own_ttl if own_ttl is not None else tx.options.ttl
    blocked = in_line(tx, key)
    tx.execute(
        "INSERT INTO queue_entries (queue_id, seq, state, rank, priority, key, since, due, delay, calendar,"
        " expires, ttl, seen, requeues, first_at, alert_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?, ?)",
        seq,
        State.BLOCKED if blocked else State.READY,
        rank_of(tx.options, priority),
        priority,
        key,
        tx.now,
        tx.now,
        None if ttl is None else tx.now + ttl,
        ttl,
        history.seen,
        history.requeues,
        history.first_at,
        history.alert_at,
    )


def _held(tx: Transaction, lease: Lease) -> str | None:
    row = tx.execute(
        "SELECT key FROM queue_entries WHERE queue_id = ? AND seq = ? AND state = 3 AND epoch = ? AND lease = ?",
        lease.seq,
        tx.head.epoch,
        lease.number,
    ).fetchone()
    if row is None:
        check_epoch(tx)
        raise LeaseLost(tx.head.name, lease.seq, lease.attempt, "it was settled, or its visibility time-out passed")
    key: str | None = row[0]
    return key


def _settle(tx: Transaction, seq: int, key: str | None) -> None:
    tx.execute("DELETE FROM queue_entries WHERE queue_id = ? AND seq = ?", seq)
    close_log(tx, seq)
    unblock(tx, key)
