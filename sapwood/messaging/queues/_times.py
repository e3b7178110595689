"""What happens to messages because time passes, and because a queue is opened. Plain functions of a transaction."""

from __future__ import annotations

import attrs

from sapwood.messaging.queues._dead_rows import DeadLetter, due_alerts, due_notices
from sapwood.messaging.queues._ledger import Death, Head, Lease, Transaction, check_epoch
from sapwood.messaging.queues._settling import bury, fail, give_back, revive
from sapwood.messaging.queues._taking import Taken, take

CHUNK = 500
"""Most rows of each kind that one step deals with, so that no step holds the writer for long."""

EXPIRED = "its time to live passed before it was delivered"


@attrs.frozen
class Step:
    """What a step shall do.

    Attributes:
        wanted: Most messages to take.
        first_lease: Number of the first lease.
        released: Leases of messages that no handler has seen.
        lapsed: Leases that are over, with the reason.
        announces: Whether to look for alerts and notices.
    """

    wanted: int
    first_lease: int
    released: tuple[Lease, ...] = ()
    lapsed: tuple[tuple[Lease, str], ...] = ()
    announces: bool = True


@attrs.frozen
class Stepped:
    """What a step did.

    Attributes:
        taken: The messages that were taken.
        more: Whether more messages may be ready.
        buried: Messages that became dead letters.
        revived: Dead letters that came back by themselves.
        lapsed: Leases that were still held and are over now.
        alerts: Dead letters whose alert is due.
        notices: Dead letters of whose end the sender must be told.
        due: When on the queue's clock the next step is needed, or None.
        scheduled: When on the wall clock the next message is due, or None.
    """

    taken: list[Taken]
    more: bool
    buried: list[Death]
    revived: int
    lapsed: int
    alerts: list[DeadLetter]
    notices: list[DeadLetter]
    due: float | None
    scheduled: float | None


def advance(tx: Transaction, step: Step) -> Stepped:
    """Do all that is due, then take messages.

    Raises:
        QueueFenced: if the queue was opened elsewhere since.
    """
    check_epoch(tx)
    for lease in step.released:
        give_back(tx, lease)
    buried: list[Death] = []
    lapsed = 0
    for lease, detail in step.lapsed:
        if _is_held(tx, lease):
            lapsed += 1
            reason = fail(tx, lease, detail, 0.0)
            if reason is not None:
                buried.append((lease.seq, reason, detail))
    buried += [(seq, "expired", EXPIRED) for seq in _expire(tx)]
    revived = _retry(tx)
    _promote(tx)
    _forget(tx, max(CHUNK, 2 * step.wanted))
    taken, more, unreadable = take(tx, step.wanted, step.first_lease) if step.wanted else ([], True, [])
    buried += unreadable
    due, scheduled = _next(tx, alerts=step.announces)
    alerts = due_alerts(tx, CHUNK) if step.announces else []
    notices = due_notices(tx, CHUNK) if step.announces else []
    return Stepped(taken, more, buried, revived, lapsed, alerts, notices, due, scheduled)


def _is_held(tx: Transaction, lease: Lease) -> bool:
    return (
        tx.execute(
            "SELECT 1 FROM queue_entries WHERE queue_id = ? AND seq = ? AND epoch = ? AND lease = ?",
            lease.seq,
            tx.head.epoch,
            lease.number,
        ).fetchone()
        is not None
    )


def _expire(tx: Transaction) -> list[int]:
    expired = tx.execute(
        "SELECT seq FROM queue_entries WHERE queue_id = ? AND expires IS NOT NULL AND expires <= ? AND state <> 3"
        " ORDER BY expires LIMIT ?",
        tx.now,
        CHUNK,
    ).fetchall()
    for (seq,) in expired:
        bury(tx, seq, "expired", EXPIRED)
    return [seq for (seq,) in expired]


def _retry(tx: Transaction) -> int:
    due = tx.execute(
        "SELECT seq FROM queue_dead WHERE queue_id = ? AND retry_at IS NOT NULL AND retry_at <= ?"
        " ORDER BY retry_at LIMIT ?",
        tx.now,
        CHUNK,
    ).fetchall()
    capacity = tx.options.capacity
    room = len(due) if capacity is None else max(0, capacity - check_epoch(tx)[1])
    for (seq,) in due[:room]:
        revive(tx, seq, by_itself=True)
    for (seq,) in due[room:]:
        later = tx.now + tx.options.dead_retry_delay
        tx.execute("UPDATE queue_dead SET retry_at = ?3 WHERE queue_id = ?1 AND seq = ?2", seq, later)
    return len(due[:room])


def _promote(tx: Transaction) -> None:
    tx.execute("UPDATE queue_entries SET state = 0 WHERE queue_id = ? AND state = 1 AND due <= ?", tx.now)
    tx.execute("UPDATE queue_entries SET state = 0 WHERE queue_id = ? AND state = 2 AND due <= ?", tx.wall)


def _forget(tx: Transaction, limit: int) -> None:
    # More than the step takes, so that what is settled in large batches does not pile up.
    tx.execute(
        "DELETE FROM queue_log WHERE queue_id = ?1 AND seq IN (SELECT seq FROM queue_log"
        " WHERE queue_id = ?1 AND settled_at IS NOT NULL AND settled_at <= ?2 ORDER BY settled_at LIMIT ?3)",
        tx.now - tx.options.retention,
        limit,
    )
    tx.execute("DELETE FROM queue_ids WHERE queue_id = ? AND until <= ?", tx.now)
    tx.execute("DELETE FROM queue_effects WHERE queue_id = ? AND until <= ?", tx.now)


def _next(tx: Transaction, *, alerts: bool) -> tuple[float | None, float | None]:
    statements = [
        "SELECT min(due) FROM queue_entries WHERE queue_id = ? AND state = 1",
        "SELECT min(expires) FROM queue_entries WHERE queue_id = ? AND expires IS NOT NULL AND state <> 3",
        "SELECT min(retry_at) FROM queue_dead WHERE queue_id = ? AND retry_at IS NOT NULL",
    ]
    if alerts:
        statements.append("SELECT min(alert_at) FROM queue_dead WHERE queue_id = ? AND alert_at IS NOT NULL")
    times = [tx.execute(statement).fetchone()[0] for statement in statements]
    settled = tx.execute(
        "SELECT min(settled_at) FROM queue_log WHERE queue_id = ? AND settled_at IS NOT NULL"
    ).fetchone()[0]
    if settled is not None:
        # Retention is not exact to the second: what ends within the next minute goes together.
        # What is over already was too much for one step.
        over = settled + tx.options.retention <= tx.now
        times.append(tx.now + 1.0 if over else max(settled + tx.options.retention, tx.now + 60.0))
    (scheduled,) = tx.execute("SELECT min(due) FROM queue_entries WHERE queue_id = ? AND state = 2").fetchone()
    return min((time for time in times if time is not None), default=None), scheduled


# --- opening ------------------------------------------------------------------------------------------


def claim(tx: Transaction, owner: str) -> tuple[Head, list[Death]]:
    """Open a queue: raise its epoch, and bring back what its former owner left behind.

    Deliveries that were under way failed; their messages are ready at once, or dead if they have had all attempts.

    Returns:
        The head, and the messages that became dead letters.
    """
    name = tx.head.name
    tx.connection.execute("INSERT OR IGNORE INTO queues (name) VALUES (?)", (name,))
    queue_id, epoch = tx.connection.execute(
        "UPDATE queues SET epoch = epoch + 1, owner = ? WHERE name = ? RETURNING queue_id, epoch", (owner, name)
    ).fetchone()
    tx = attrs.evolve(tx, head=Head(queue_id, name, epoch))
    _limit_times(tx)
    _put_in_order(tx)
    lost = tx.execute(
        "SELECT seq FROM queue_entries WHERE queue_id = ? AND lease IS NOT NULL AND attempts >= ?",
        tx.options.attempts,
    ).fetchall()
    detail = "the process ended while it was delivered; the outcome is unknown"
    for (seq,) in lost:
        bury(tx, seq, "delivery_failed", detail)
    tx.execute("UPDATE queue_entries SET lease = NULL WHERE queue_id = ? AND lease IS NOT NULL")
    return tx.head, [(seq, "delivery_failed", detail) for (seq,) in lost]


def _limit_times(tx: Transaction) -> None:
    """See to it that a wall clock that was set back between two runs postpones nothing (BR-77)."""
    now, options = tx.now, tx.options
    longest = options.dead_retry_delay * 2 ** min(options.dead_retries, 64)
    for statement, parameters in (
        ("UPDATE queue_entries SET due = ?2 + delay WHERE queue_id = ?1 AND NOT calendar AND due > ?2 + delay", (now,)),
        (
            "UPDATE queue_entries SET expires = ?2 + ttl WHERE queue_id = ?1 AND expires > ?2 + ttl",
            (now,),
        ),
        ("UPDATE queue_entries SET since = ?2 WHERE queue_id = ?1 AND since > ?2", (now,)),
        ("UPDATE queue_dead SET retry_at = ?2 WHERE queue_id = ?1 AND retry_at > ?2", (now + longest,)),
        ("UPDATE queue_dead SET alert_at = ?2 WHERE queue_id = ?1 AND alert_at > ?2", (now + options.alert_after,)),
        ("UPDATE queue_log SET settled_at = ?2 WHERE queue_id = ?1 AND settled_at > ?2", (now,)),
        ("UPDATE queue_ids SET until = ?2 WHERE queue_id = ?1 AND until > ?2", (now + options.window,)),
    ):
        tx.execute(statement, *parameters)


def _put_in_order(tx: Transaction) -> None:
    """Give every live message its state and rank by the options of this opening."""
    ordering = tx.options.ordering
    rank = {"priority": "priority", "none": "attempts"}.get(ordering, "0")
    tx.execute(
        f"UPDATE queue_entries SET rank = {rank}, state = CASE"  # noqa: S608  # constants
        " WHEN lease IS NOT NULL OR due <= iif(calendar, ?3, ?2) THEN 0"
        " WHEN calendar THEN 2 ELSE 1 END WHERE queue_id = ?1",
        tx.now,
        tx.wall,
    )
    if ordering == "partitioned":
        tx.execute(
            "UPDATE queue_entries SET state = 4 WHERE queue_id = ?1 AND key IS NOT NULL AND seq >"
            " (SELECT min(seq) FROM queue_entries AS first WHERE first.queue_id = ?1"
            " AND first.key = queue_entries.key)"
        )
