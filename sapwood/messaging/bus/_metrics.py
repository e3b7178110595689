"""Metrics: counters of pairs of participants, and what the whole bus does."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from sapwood.messaging.bus._reports import DeliveryStatus

PAIRS: Final = 1_000
"""Pairs that are counted apart; the longest unused are summed up under `("*", "*")`."""

SAMPLES: Final = 1_000
"""Latencies that are kept for the quantiles."""

WINDOW: Final = 60
"""Seconds over which the rates are taken."""

SIZES: Final = (1024, 10 * 1024, 100 * 1024, 1024 * 1024)
"""Upper ends of the size classes, in bytes."""


@attrs.define
class PairCounters:
    """What went from one participant to another (S1-058)."""

    sent: int = 0
    received: int = 0
    failed: int = 0
    retried: int = 0
    dead_lettered: int = 0

    def add(self, other: PairCounters) -> None:
        """Add the counts of another pair."""
        for field in attrs.fields(PairCounters):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@attrs.frozen
class Latency:
    """A distribution of milliseconds over the last 1,000 messages.

    Attributes:
        count: How many there have been in all.
        mean: Of the last 1,000, like the rest.
        median: Half are below.
        p95: 95 of 100 are below.
        maximum: The longest.
    """

    count: int = 0
    mean: float = 0.0
    median: float = 0.0
    p95: float = 0.0
    maximum: float = 0.0


@attrs.frozen
class BusMetrics:
    """A snapshot of the bus (S2-047).

    Attributes:
        sent: Messages accepted.
        received: Deliveries that were handled.
        failed: Deliveries that failed.
        refused: Messages and operations refused.
        sent_per_second: Over the last 60 s.
        received_per_second: Over the last 60 s.
        queue_depth: Messages waiting at the handlers of the bus.
        consumer_lag: Messages waiting, by participant.
        processing: How long handlers ran.
        delivery: How long messages waited from their making to their handler.
        error_rate: Failed deliveries as a part of all that ended; 0.0 if none did.
        dead_letters: Dead letters now in the office.
        sizes: `{upper end in bytes, or None: messages}`.
    """

    sent: int
    received: int
    failed: int
    refused: int
    sent_per_second: float
    received_per_second: float
    queue_depth: int
    consumer_lag: Mapping[str, int]
    processing: Latency
    delivery: Latency
    error_rate: float
    dead_letters: int
    sizes: Mapping[int | None, int]


class _Samples:
    def __init__(self) -> None:
        self.count = 0
        self._kept: deque[float] = deque(maxlen=SAMPLES)

    def add(self, value: float) -> None:
        self.count += 1
        self._kept.append(value)

    def summary(self) -> Latency:
        kept = sorted(self._kept)
        if not kept:
            return Latency()
        last = len(kept) - 1
        return Latency(self.count, sum(kept) / len(kept), kept[last // 2], kept[round(last * 0.95)], kept[last])


class _Rate:
    """Counts by the second, for the last minute."""

    def __init__(self) -> None:
        self._slots: deque[tuple[int, int]] = deque(maxlen=WINDOW)

    def add(self, now: float) -> None:
        second = int(now)
        if self._slots and self._slots[-1][0] == second:
            self._slots[-1] = (second, self._slots[-1][1] + 1)
        else:
            self._slots.append((second, 1))

    def per_second(self, now: float) -> float:
        return sum(number for second, number in self._slots if second > now - WINDOW) / WINDOW


class Metrics:
    """Counts; kept by the desk of a bus."""

    def __init__(self) -> None:
        self.sent = self.received = self.failed = self.refused = 0
        self._pairs: OrderedDict[tuple[str, str], PairCounters] = OrderedDict()
        self._others = PairCounters()
        self._sizes: dict[int | None, int] = dict.fromkeys((*SIZES, None), 0)
        self._sent_rate, self._received_rate = _Rate(), _Rate()
        self._processing, self._delivery = _Samples(), _Samples()

    def pair(self, sender: str, recipient: str) -> PairCounters:
        """Return the counters of a pair, to be raised."""
        key = (sender, recipient)
        found = self._pairs.get(key)
        if found is None:
            found = self._pairs[key] = PairCounters()
            if len(self._pairs) > PAIRS:
                self._others.add(self._pairs.popitem(last=False)[1])
        else:
            self._pairs.move_to_end(key)
        return found

    def pairs(self) -> dict[tuple[str, str], PairCounters]:
        """Return a copy of all pairs; `("*", "*")` sums up those that are not counted apart any more."""
        copy = {key: attrs.evolve(counters) for key, counters in self._pairs.items()}
        if self._others != PairCounters():
            copy["*", "*"] = attrs.evolve(self._others)
        return copy

    def count_sent(self, sender: str, recipients: Iterable[str], size: int, now: float) -> None:
        """Count a message that was accepted."""
        self.sent += 1
        self._sent_rate.add(now)
        self._sizes[next((end for end in SIZES if size <= end), None)] += 1
        for recipient in recipients:
            self.pair(sender, recipient).sent += 1

    def count_end(
        self, sender: str, recipient: str, status: DeliveryStatus, now: float, *, took: float = 0.0, waited: float = 0.0
    ) -> None:
        """Count a delivery that was handled or failed; times in milliseconds."""
        if status == "handled":
            self.received += 1
            self._received_rate.add(now)
            self.pair(sender, recipient).received += 1
            self._processing.add(took)
            self._delivery.add(waited)
        else:
            self.failed += 1
            self.pair(sender, recipient).failed += 1

    def snapshot(self, now: float, lag: Mapping[str, int], dead_letters: int) -> BusMetrics:
        """Return what there is to tell."""
        ended = self.received + self.failed
        return BusMetrics(
            sent=self.sent,
            received=self.received,
            failed=self.failed,
            refused=self.refused,
            sent_per_second=self._sent_rate.per_second(now),
            received_per_second=self._received_rate.per_second(now),
            queue_depth=sum(lag.values()),
            consumer_lag=dict(lag),
            processing=self._processing.summary(),
            delivery=self._delivery.summary(),
            error_rate=self.failed / ended if ended else 0.0,
            dead_letters=dead_letters,
            sizes=dict(self._sizes),
        )
