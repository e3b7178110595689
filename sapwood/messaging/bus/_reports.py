"""Reports: what became of a message that was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import attrs

from sapwood.actors import record

Operation: TypeAlias = Literal[
    "send",
    "publish",
    "broadcast",
    "multicast",
    "route",
    "request",
    "register",
    "unregister",
    "subscribe",
    "unsubscribe",
]

DeliveryStatus: TypeAlias = Literal["handled", "queued", "unanswered", "failed"]

ReportStatus: TypeAlias = Literal["delivered", "partly_delivered", "failed", "no_recipients"]


@record("messaging.delivery")
class Delivery:
    """What became of a message at one handler.

    Attributes:
        recipient: Name of the participant.
        handler: Number of the handler within it, from 1.
        status: `handled` it ran; `queued` it will; `unanswered` it may still run, but the wait is over; `failed`.
        error: What went wrong, or None.
        reason: Reason of the dead letter that was made, or None.
    """

    recipient: str
    handler: int
    status: DeliveryStatus
    error: str | None = None
    reason: str | None = None


@attrs.frozen(eq=False)
class Answered:
    """What came back from one handler.

    Attributes:
        delivery: For the report.
        value: What it returned.
        error: What kept it from returning, or None.
    """

    delivery: Delivery
    value: Any = None
    error: Exception | None = None


@record("messaging.delivery_report")
class DeliveryReport:
    """What became of a message (S1-014).

    Attributes:
        message_id: The message.
        correlation_id: Its chain.
        status: `delivered` to all, `partly_delivered`, `failed`, or `no_recipients` where nobody had subscribed.
        targets_contacted: Participants that were found.
        errors: One text for each failure.
        latency_ms: Milliseconds that it took, to three decimals.
        deliveries: The outcome for each handler.
    """

    message_id: str
    correlation_id: str
    status: ReportStatus
    targets_contacted: int
    errors: tuple[str, ...]
    latency_ms: float
    deliveries: tuple[Delivery, ...] = ()


def status_of(deliveries: Sequence[Delivery]) -> ReportStatus:
    """Sum up the outcomes."""
    if not deliveries:
        return "no_recipients"
    failed = sum(delivery.status == "failed" for delivery in deliveries)
    if failed == 0:
        return "delivered"
    return "failed" if failed == len(deliveries) else "partly_delivered"
