"""Metrics: what a monitor reads, as one table, and the form of one reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs

from sapwood.actors import record

MetricKind: TypeAlias = Literal["gauge", "counter"]


@attrs.frozen
class Metric:
    """What a metric says.

    Attributes:
        kind: `gauge` goes up and down; `counter` only grows, until its source begins anew.
        subjects: Of what there is a reading: `actors`, `bus`, `participant`, `queue`.
        meaning: What is counted or measured, with its unit.
    """

    kind: MetricKind
    subjects: tuple[str, ...]
    meaning: str


METRICS: Final[Mapping[str, Metric]] = {
    # --- gauges
    "depth": Metric("gauge", ("bus", "queue"), "Messages waiting at handlers of the bus, or not settled in the queue"),
    "consumer_lag": Metric(
        "gauge", ("participant", "queue"), "Messages waiting at a participant, or from the oldest unsettled to the last"
    ),
    "in_flight": Metric("gauge", ("queue",), "Messages that receivers work on"),
    "unserved": Metric("gauge", ("queue",), "Messages that are ready while nobody receives or works"),
    "oldest_message_seconds": Metric("gauge", ("queue",), "Seconds since the oldest ready message was appended"),
    "dead_letters": Metric("gauge", ("bus", "queue"), "Dead letters that nobody has looked after"),
    "oldest_dead_letter_seconds": Metric("gauge", ("bus", "queue"), "Seconds since the oldest of them first failed"),
    "error_rate": Metric("gauge", ("bus", "queue"), "Part of the deliveries that failed, 0 to 1, within the window"),
    "sent_per_second": Metric("gauge", ("bus", "queue"), "Messages accepted per second, over the last minute"),
    "received_per_second": Metric("gauge", ("bus", "queue"), "Messages handled per second, over the last minute"),
    "processing_p95_seconds": Metric("gauge", ("bus",), "Seconds that handlers run, at most, for 95 of 100 messages"),
    "delivery_p95_seconds": Metric("gauge", ("bus",), "Seconds from making to handling, at most, for 95 of 100"),
    "mailbox": Metric("gauge", ("actors",), "Messages in the fullest mailbox"),
    "mailboxes": Metric("gauge", ("actors",), "Messages in all mailboxes"),
    "actors": Metric("gauge", ("actors",), "Live actors, supervisors included"),
    "supervisors": Metric("gauge", ("actors",), "Live supervisors"),
    "unreadable": Metric("gauge", ("bus", "queue"), "1 if the figures could not be read, else 0"),
    # --- counters
    "restarts_total": Metric("counter", ("actors",), "Restarts since the monitor first ran"),
    "unhandled_total": Metric("counter", ("actors",), "Messages between actors that nobody handled"),
    "sent_total": Metric("counter", ("bus", "queue"), "Messages accepted"),
    "received_total": Metric("counter", ("bus", "queue"), "Deliveries that were handled or acknowledged"),
    "failed_total": Metric("counter", ("bus", "queue"), "Deliveries that failed"),
    "refused_total": Metric("counter", ("bus",), "Messages and operations refused"),
    "messages_by_size_total": Metric("counter", ("bus",), "Messages by the upper end of their size class, in bytes"),
}
"""Everything that there is to read, and to make rules about (S2-047)."""

ACTORS: Final = "actors"


@record("monitoring.reading")
class Reading:
    """One value of one metric.

    Attributes:
        metric: Its name, see `METRICS`.
        kind: What it is about: `actors`, `bus` or `queue`.
        name: Name of the bus or queue; empty for `actors`.
        part: The participant, or the size class; empty for the whole.
        value: The value.
        detail: What a person wants to know beside it, such as whose mailbox it is.
    """

    metric: str
    kind: str
    name: str
    value: float
    part: str = ""
    detail: str = ""

    @property
    def subject(self) -> str:
        """What it is about as text: `actors`, `bus:NAME`, `bus:NAME/PARTICIPANT` or `queue:NAME`."""
        return subject_of(self.kind, self.name, self.part)


def subject_of(kind: str, name: str = "", part: str = "") -> str:
    """Return a subject as text, see `Reading.subject`."""
    if not name:
        return kind
    return f"{kind}:{name}/{part}" if part else f"{kind}:{name}"
