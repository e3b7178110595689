"""Figures of a queue: what stands in it, and what it did."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

import attrs

from sapwood.messaging.queues._ledger import Transaction
from sapwood.messaging.queues._schema import State

WINDOW: Final = 60.0
"""Seconds over which rates are taken."""

BUCKET: Final = 5.0
"""Seconds that are counted together."""

COUNTED: Final = (
    "appended",
    "duplicates",
    "shed",
    "delivered",
    "redelivered",
    "acknowledged",
    "failed",
    "rejected",
    "released",
    "lapsed",
    "expired",
    "dead",
    "revived",
    "refused",
    "listener_failures",
    "unsaved",
)
"""What is counted since the queue was opened. `refused`: settlements that came too late; `lapsed`: deliveries whose
time-out passed or whose receiver ended; `unsaved`: messages of `append_nowait` that could not be stored."""


@attrs.frozen
class QueueStatistics:
    """Figures of a queue at one moment.

    Attributes:
        name: The queue.
        depth: Messages that are not settled, those in flight included, dead letters not.
        ready: Messages that could be delivered now.
        delayed: Messages that wait for a time.
        blocked: Messages that wait for another one of their key.
        in_flight: Messages that receivers work on.
        dead: Dead letters.
        last_seq: Sequence number of the last message.
        lag: How far behind the last message the oldest unsettled one is, in messages; 0 if all are settled.
        oldest_age: Seconds since the oldest ready message was appended; 0.0 if none is ready.
        receivers: Receivers that wait for a message.
        counts: What happened since the queue was opened, by the names of `COUNTED`.
        rates: The same per second, over the last minute.
    """

    name: str
    depth: int
    ready: int
    delayed: int
    blocked: int
    in_flight: int
    dead: int
    last_seq: int
    lag: int
    oldest_age: float
    receivers: int
    counts: dict[str, int]
    rates: dict[str, float]


class Counts:
    """Counts what happens, in all and over the last minute."""

    def __init__(self, now: float) -> None:
        self.totals = Counter[str]()
        self._began = now
        self._buckets: deque[tuple[float, Counter[str]]] = deque()

    def add(self, name: str, number: int, now: float) -> None:
        """Count something that happened `number` times at monotonic time `now`."""
        if not number:
            return
        self.totals[name] += number
        if not self._buckets or now - self._buckets[-1][0] >= BUCKET:
            self._buckets.append((now, Counter()))
            self._drop_old(now)
        self._buckets[-1][1][name] += number

    def rates(self, now: float) -> dict[str, float]:
        """Return what happened per second over the last minute, or since the beginning if that is less."""
        self._drop_old(now)
        seconds = max(min(WINDOW, now - self._began), BUCKET)
        total = Counter[str]()
        for _, bucket in self._buckets:
            total.update(bucket)
        return {name: total[name] / seconds for name in COUNTED}

    def _drop_old(self, now: float) -> None:
        while self._buckets and now - self._buckets[0][0] >= WINDOW:
            self._buckets.popleft()


def measure(tx: Transaction, receivers: int, counts: Counts, now: float) -> QueueStatistics:
    """Take the figures of a queue."""
    states = dict(tx.execute("SELECT state, count(*) FROM queue_entries WHERE queue_id = ? GROUP BY state").fetchall())
    (last_seq,) = tx.execute("SELECT last_seq FROM queues WHERE queue_id = ?").fetchone()
    (first,) = tx.execute("SELECT min(seq) FROM queue_entries WHERE queue_id = ?").fetchone()
    (since,) = tx.execute("SELECT min(since) FROM queue_entries WHERE queue_id = ? AND state = 0").fetchone()
    (dead,) = tx.execute("SELECT count(*) FROM queue_dead WHERE queue_id = ?").fetchone()
    return QueueStatistics(
        name=tx.head.name,
        depth=sum(states.values()),
        ready=states.get(State.READY, 0),
        delayed=states.get(State.DELAYED, 0) + states.get(State.SCHEDULED, 0),
        blocked=states.get(State.BLOCKED, 0),
        in_flight=states.get(State.LEASED, 0),
        dead=dead,
        last_seq=last_seq,
        lag=0 if first is None else last_seq - first + 1,
        oldest_age=0.0 if since is None else max(0.0, tx.now - since),
        receivers=receivers,
        counts={name: counts.totals[name] for name in COUNTED},
        rates=counts.rates(now),
    )
