"""Sources: how the figures of one bus, one queue and all actors are read."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Final

import attrs
import trio

from sapwood.actors import ActorSystem, Environment, Telemetry
from sapwood.errors import MessagingError, PersistenceError, QueueError
from sapwood.messaging.bus import Bus
from sapwood.messaging.monitoring._metrics import ACTORS, Reading
from sapwood.messaging.monitoring._snapshot import BusyActor, Unreadable
from sapwood.messaging.queues import Queue

LEAST_DELIVERIES: Final = 10
"""Deliveries that an error rate is taken of at least, so that one failure of a quiet hour is not a rate of 1."""

LETTERS_READ: Final = 200
"""Dead letters of a queue that are looked at for the oldest one, by sequence number."""

BATCH: Final = 500
"""Actors that are looked at between two checkpoints."""

BUSIEST: Final = 10


class ErrorWindow:
    """The error rate within the last seconds, of counters that only grow.

    Args:
        seconds: Length of the window.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._looks: deque[tuple[float, int, int]] = deque()

    def rate(self, now: float, ended: int, failed: int) -> float:
        """Take in the counters as they are now, and return the rate since the window began, or the first look."""
        looks = self._looks
        looks.append((now, ended, failed))
        while len(looks) > 1 and looks[1][0] <= now - self._seconds:
            looks.popleft()
        _, ended_before, failed_before = looks[0]
        return (failed - failed_before) / max(ended - ended_before, LEAST_DELIVERIES)


class BusSource:
    """Reads a bus.

    Args:
        bus: The bus.
        window: Seconds over which its error rate is taken.
    """

    kind: Final = "bus"

    def __init__(self, bus: Bus, window: float) -> None:
        self.watched: object = bus
        self.name = bus.name
        self._bus = bus
        self._errors = ErrorWindow(window)

    async def read(self, environment: Environment) -> list[Reading] | Unreadable:
        """Return all values, or why there are none."""
        await trio.lowlevel.checkpoint()
        try:
            return list(self._read(environment))
        except MessagingError as error:
            return Unreadable(self.kind, self.name, str(error))

    def _read(self, environment: Environment) -> Iterator[Reading]:
        figures, name = self._bus.metrics(), self.name
        letters = self._bus.dead_letters.inspect(limit=None)
        wall = environment.wall()
        ended = figures.received + figures.failed
        values: dict[str, float] = {
            "depth": figures.queue_depth,
            "dead_letters": figures.dead_letters,
            "oldest_dead_letter_seconds": max((wall - letter.first_seen for letter in letters), default=0.0),
            "error_rate": self._errors.rate(environment.monotonic(), ended, figures.failed),
            "sent_per_second": figures.sent_per_second,
            "received_per_second": figures.received_per_second,
            "processing_p95_seconds": figures.processing.p95 / 1_000,
            "delivery_p95_seconds": figures.delivery.p95 / 1_000,
            "sent_total": figures.sent,
            "received_total": figures.received,
            "failed_total": figures.failed,
            "refused_total": figures.refused,
        }
        for metric, value in values.items():
            yield Reading(metric, self.kind, name, float(max(0.0, value)))
        for participant, lag in figures.consumer_lag.items():
            yield Reading("consumer_lag", self.kind, name, float(lag), participant)
        for end, number in figures.sizes.items():
            yield Reading("messages_by_size_total", self.kind, name, float(number), "more" if end is None else str(end))


class QueueSource:
    """Reads a queue.

    Args:
        queue: The queue.
        window: Seconds over which its error rate is taken.
    """

    kind: Final = "queue"

    def __init__(self, queue: Queue, window: float) -> None:
        self.watched: object = queue
        self.name = queue.name
        self._queue = queue
        self._errors = ErrorWindow(window)

    async def read(self, environment: Environment) -> list[Reading] | Unreadable:
        """Return all values, or why there are none."""
        try:
            figures = await self._queue.statistics()
            letters = await self._queue.dead_letters.list(limit=LETTERS_READ) if figures.dead else []
        except (QueueError, PersistenceError) as error:
            return Unreadable(self.kind, self.name, str(error))
        counts, wall = figures.counts, environment.wall()
        failed = counts["failed"] + counts["rejected"] + counts["lapsed"]
        ended = counts["acknowledged"] + failed
        is_served = figures.receivers > 0 or figures.in_flight > 0
        values: dict[str, float] = {
            "depth": figures.depth,
            "consumer_lag": figures.lag,
            "in_flight": figures.in_flight,
            "unserved": 0 if is_served else figures.ready,
            "oldest_message_seconds": figures.oldest_age,
            "dead_letters": figures.dead,
            "oldest_dead_letter_seconds": max((wall - letter.dead_at for letter in letters), default=0.0),
            "error_rate": self._errors.rate(environment.monotonic(), ended, failed),
            "sent_per_second": figures.rates["appended"],
            "received_per_second": figures.rates["acknowledged"],
            "sent_total": counts["appended"],
            "received_total": counts["acknowledged"],
            "failed_total": failed,
        }
        return [Reading(metric, self.kind, self.name, float(max(0.0, value))) for metric, value in values.items()]


@attrs.define
class _Totals:
    actors: int = 0
    supervisors: int = 0
    waiting: int = 0


async def read_actors(
    system: ActorSystem, telemetry: Telemetry, restarts: int
) -> tuple[list[Reading], tuple[BusyActor, ...]]:
    """Read all live actors, straight from memory, and return their figures and the busiest of them.

    Args:
        system: The actors.
        telemetry: Counts what nobody handled.
        restarts: Restarts so far.
    """
    totals, busy = _Totals(), list[BusyActor]()
    for number, cell in enumerate(tuple(system.actors), start=1):
        if number % BATCH == 0:
            await trio.lowlevel.checkpoint()
        figures = cell.ref.statistics()
        if not figures.alive:
            continue
        totals.actors += 1
        totals.supervisors += cell.nursery is not None
        totals.waiting += figures.waiting
        if figures.waiting or figures.incarnation > 1:
            busy.append(BusyActor(figures.label, figures.waiting, figures.incarnation))
    busiest = heapq.nlargest(BUSIEST, busy, key=lambda one: (one.waiting, one.incarnation))
    fullest = busiest[0] if busiest and busiest[0].waiting else None
    values: dict[str, float] = {
        "mailboxes": totals.waiting,
        "actors": totals.actors,
        "supervisors": totals.supervisors,
        "restarts_total": restarts,
        "unhandled_total": telemetry.dead_letter_count,
    }
    readings = [Reading(metric, ACTORS, "", float(value)) for metric, value in values.items()]
    longest = float(fullest.waiting if fullest else 0)
    readings.append(Reading("mailbox", ACTORS, "", longest, detail=fullest.label if fullest else ""))
    await trio.lowlevel.checkpoint()
    return readings, tuple(busiest)
