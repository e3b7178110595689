"""Appending: messages get their place in the log and in the queue. Plain functions of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from sapwood.errors import MessageIdConflict, QueueFull
from sapwood.messaging.queues._ledger import Transaction, check_epoch, in_line, rank_of
from sapwood.messaging.queues._messages import Outgoing, checksum
from sapwood.messaging.queues._schema import State
from sapwood.messaging.queues._settling import bury

_SHED: Final = {
    "drop_newest": "seq DESC",
    "drop_oldest": "seq",
    "drop_lowest": "priority DESC, seq DESC",
}
"""Overflow option: which messages go first. One that is being worked on never goes."""

SHED: Final = "the queue was full"


@attrs.frozen
class Appended:
    """What became of an appended message.

    Attributes:
        id: Its id.
        seq: Its sequence number; of a duplicate, that of the first.
        duplicate: Whether a message with this id was accepted before; nothing was stored then.
        shed: Whether the queue was full and this message became a dead letter at once.
    """

    id: str
    seq: int
    duplicate: bool = False
    shed: bool = False


def append(tx: Transaction, messages: Sequence[Outgoing]) -> tuple[list[Appended], list[int]]:
    """Append all messages or none.

    Returns:
        What became of each, and the sequence numbers of the messages that were shed for them.

    Raises:
        QueueFenced: if the queue was opened elsewhere since.
        QueueFull: if there is no room, and no load is shed.
        MessageIdConflict: if an id was used for another message within its window.
    """
    last, depth = check_epoch(tx)
    appended: list[Appended] = []
    fresh: list[tuple[int, Outgoing]] = []
    known: dict[str, tuple[int, int]] = {}
    for message in messages:
        first = (known.get(message.id) or _known(tx, message.id)) if tx.options.window else None
        if first is not None:
            if first[1] != message.content:
                raise MessageIdConflict(tx.head.name, message.id, first[0])
            appended.append(Appended(message.id, first[0], duplicate=True))
            continue
        last += 1
        known[message.id] = last, message.content
        fresh.append((last, message))
        appended.append(Appended(message.id, last))
    capacity = tx.options.capacity
    excess = 0 if capacity is None else depth + len(fresh) - capacity
    if excess > 0 and tx.options.overflow not in _SHED:
        assert capacity is not None
        raise QueueFull(tx.head.name, capacity, depth)
    write_log(tx, fresh)
    _enter(tx, fresh)
    if excess <= 0:
        return appended, []
    shed = _shed(tx, excess)
    return [attrs.evolve(one, shed=one.seq in shed and not one.duplicate) for one in appended], shed


def write_log(tx: Transaction, fresh: Sequence[tuple[int, Outgoing]]) -> None:
    """Write messages to the log under the sequence numbers given, the last one last."""
    if not fresh:
        return
    queue_id = tx.head.queue_id
    tx.connection.executemany(
        "INSERT INTO queue_log (queue_id, seq, at, id, sender, priority, key, ttl, headers, kind, checksum, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                queue_id,
                seq,
                tx.wall,
                out.id,
                out.message.sender,
                int(out.message.priority),
                out.message.key,
                out.message.ttl,
                out.headers,
                out.kind,
                checksum(seq, out.id, out.message.key, out.headers, out.body),
                out.body,
            )
            for seq, out in fresh
        ],
    )
    tx.connection.execute("UPDATE queues SET last_seq = ? WHERE queue_id = ?", (fresh[-1][0], queue_id))


def _known(tx: Transaction, message_id: str) -> tuple[int, int] | None:
    found: tuple[int, int] | None = tx.execute(
        "SELECT seq, content FROM queue_ids WHERE queue_id = ? AND id = ? AND until > ?", message_id, tx.now
    ).fetchone()
    return found


def _enter(tx: Transaction, fresh: Sequence[tuple[int, Outgoing]]) -> None:
    options, queue_id = tx.options, tx.head.queue_id
    rows: list[tuple[Any, ...]] = []
    lines: set[str] = set()
    for seq, out in fresh:
        message = out.message
        calendar = message.deliver_at is not None
        due = tx.now + message.delay if message.deliver_at is None else message.deliver_at
        if options.ordering == "partitioned" and message.key is not None:
            blocked = message.key in lines or in_line(tx, message.key)
            lines.add(message.key)
        else:
            blocked = False
        if blocked:
            state = State.BLOCKED
        elif due <= (tx.wall if calendar else tx.now):
            state = State.READY
        else:
            state = State.SCHEDULED if calendar else State.DELAYED
        ttl = message.ttl if message.ttl is not None else options.ttl
        expires = None if ttl is None else tx.now + ttl
        rank, priority = rank_of(options, message.priority), int(message.priority)
        rows.append(
            (queue_id, seq, state, rank, priority, message.key, tx.now, due, message.delay, calendar, expires, ttl)
        )
    tx.connection.executemany(
        "INSERT INTO queue_entries (queue_id, seq, state, rank, priority, key, since, due, delay, calendar,"
        " expires, ttl) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    if options.window:
        tx.connection.executemany(
            "INSERT OR REPLACE INTO queue_ids (queue_id, id, seq, content, until) VALUES (?, ?, ?, ?, ?)",
            [(queue_id, out.id, seq, out.content, tx.now + options.window) for seq, out in fresh],
        )


def _shed(tx: Transaction, excess: int) -> list[int]:
    order = _SHED[tx.options.overflow]
    victims = tx.execute(
        f"SELECT seq FROM queue_entries WHERE queue_id = ? AND state <> 3 ORDER BY {order} LIMIT ?",  # noqa: S608  # constants
        excess,
    ).fetchall()
    for (seq,) in victims:
        bury(tx, seq, "overflow", SHED)
    return [seq for (seq,) in victims]
