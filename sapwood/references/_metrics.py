"""What a store does, told to listeners, and exported as metrics (S0-042)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import attrs

Outcome: TypeAlias = Literal["ok", "not_found", "unavailable", "corrupt", "in_use", "error", "cancelled"]


@attrs.frozen
class ReferenceOperation:
    """A call of a store has ended.

    Attributes:
        store: What the store is called.
        operation: Name of the method: `store`, `resolve`, `collect` ...
        outcome: How it ended.
        bytes: Size of the payload, uncompressed; of a collection what it freed; otherwise 0.
        seconds: How long it took.
    """

    store: str
    operation: str
    outcome: Outcome
    bytes: int
    seconds: float


ReferenceListener: TypeAlias = Callable[[ReferenceOperation], None]


def metrics_listener(meter: Any) -> ReferenceListener:
    """Return a listener that counts operations, bytes and durations in an OpenTelemetry meter.

    Instruments: `sapwood.references.operations` (counter), `sapwood.references.bytes` (counter, By) and
    `sapwood.references.duration` (histogram, s), all with the attributes `store`, `operation` and `outcome`.

    Args:
        meter: An `opentelemetry.metrics.Meter`.
    """
    operations = meter.create_counter("sapwood.references.operations", description="Calls of reference stores")
    size = meter.create_counter("sapwood.references.bytes", unit="By", description="Payload moved by them")
    duration = meter.create_histogram("sapwood.references.duration", unit="s", description="Time they took")

    def listen(event: ReferenceOperation) -> None:
        attributes: dict[str, Any] = {
            "store": event.store,
            "operation": event.operation,
            "outcome": event.outcome,
        }
        operations.add(1, attributes)
        duration.record(event.seconds, attributes)
        if event.bytes:
            size.add(event.bytes, attributes)

    return listen
