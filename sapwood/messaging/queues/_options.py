"""How a queue behaves: its delivery mode, its order, its limits and its times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias, get_args

import attrs

from sapwood.errors import InvalidOption
from sapwood.supervision import Backoff

DeliveryMode: TypeAlias = Literal["at_most_once", "at_least_once", "effectively_once"]
Ordering: TypeAlias = Literal["fifo", "priority", "none", "partitioned"]
Overflow: TypeAlias = Literal["wait", "reject", "drop_newest", "drop_oldest", "drop_lowest"]

ORDERS: Final[dict[Ordering, str]] = {
    "fifo": "by sequence number; a message that waits for its retry does not hold up those behind it",
    "priority": "URGENT first and LOW last; by sequence number within a priority",
    "none": "no promise: a message that is delivered again goes behind all that are fresh",
    "partitioned": "by sequence number within a key, strictly: the next one waits until the one before is settled",
}
"""Ordering mode: in which order messages are delivered (S2-024, S2-025, S2-041)."""


@attrs.frozen
class QueueOptions:
    """How a queue behaves. They may differ from one opening to the next; the stored messages follow.

    Attributes:
        mode: What a crash may do to a delivery, see `GUARANTEES` (S2-026).
        ordering: `fifo`, `priority`, `none` or `partitioned`, see `ORDERS`.
        capacity: Most messages at a time, those being worked on included and dead letters not; None for no limit.
        overflow: What an append to a full queue does. `wait` for room; `reject` with `QueueFull`; or shed load: the
            newest, the oldest, or the newest of the least urgent messages become dead letters (S2-036, S2-037).
        visibility: Seconds that a receiver has to settle a delivery before it is delivered again.
        max_attempts: Deliveries that may fail before the message becomes a dead letter (S3-109). At most once: one.
        retry: Delays before the message is delivered again after a `nack` (S2-028).
        ttl: Seconds after which a message that was not delivered becomes a dead letter; None for never.
        dedup_window: Seconds in which a message id is accepted once (S2-031). None: 300 s if effectively once, else 0.
        retention: Seconds that settled messages stay readable and can be replayed (S2-044).
        dead_retries: Times that a dead letter with a transient reason is tried again by itself (S3-111).
        dead_retry_delay: Seconds before the first of these; each further one waits twice as long.
        alert_after: Seconds that a message has been dead when its alert is due (S3-111).

    Raises:
        InvalidOption: naming the option that is out of its range.
    """

    mode: DeliveryMode = "at_least_once"
    ordering: Ordering = "fifo"
    capacity: int | None = None
    overflow: Overflow = "wait"
    visibility: float = 30.0
    max_attempts: int = 3
    retry: Backoff = Backoff(initial=1.0, factor=2.0, maximum=60.0, jitter=0.2)  # noqa: RUF009  # frozen
    ttl: float | None = None
    dedup_window: float | None = None
    retention: float = 86_400.0
    dead_retries: int = 3
    dead_retry_delay: float = 60.0
    alert_after: float = 300.0

    def __attrs_post_init__(self) -> None:
        for name, fine, expected in _CHECKS:
            if not fine(self):
                raise InvalidOption(f"queue option {name}: expected {expected}; got {getattr(self, name)!r}")

    @property
    def attempts(self) -> int:
        """Deliveries that a message gets at most before it is dead."""
        return 1 if self.mode == "at_most_once" else self.max_attempts

    @property
    def window(self) -> float:
        """Seconds in which a message id is accepted once; 0 if ids are not looked at."""
        if self.dedup_window is not None:
            return self.dedup_window
        return 300.0 if self.mode == "effectively_once" else 0.0


def is_seconds(value: object, *, zero: bool = False) -> bool:
    """Say whether a value is a finite number of seconds above zero, or also zero itself."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < float("inf") if zero else 0 < value < float("inf")


def is_count(value: object, least: int) -> bool:
    """Say whether a value is a whole number of at least `least`."""
    return type(value) is int and value >= least


_CHECKS: Final[tuple[tuple[str, Callable[[QueueOptions], bool], str], ...]] = (
    ("mode", lambda options: options.mode in get_args(DeliveryMode), f"one of {', '.join(get_args(DeliveryMode))}"),
    ("ordering", lambda options: options.ordering in get_args(Ordering), f"one of {', '.join(get_args(Ordering))}"),
    ("capacity", lambda options: options.capacity is None or is_count(options.capacity, 1), "None or an int >= 1"),
    ("overflow", lambda options: options.overflow in get_args(Overflow), f"one of {', '.join(get_args(Overflow))}"),
    ("visibility", lambda options: is_seconds(options.visibility), "seconds > 0"),
    ("max_attempts", lambda options: is_count(options.max_attempts, 1), "an int >= 1"),
    ("retry", lambda options: isinstance(options.retry, Backoff), "a Backoff"),
    ("ttl", lambda options: options.ttl is None or is_seconds(options.ttl), "None or seconds > 0"),
    ("dedup_window", lambda options: is_seconds(options.window, zero=True), "None or seconds >= 0"),
    (
        "dedup_window",
        lambda options: options.mode != "effectively_once" or options.window > 0,
        "seconds > 0 if the mode is effectively_once",
    ),
    ("retention", lambda options: is_seconds(options.retention, zero=True), "seconds >= 0"),
    ("dead_retries", lambda options: is_count(options.dead_retries, 0), "an int >= 0"),
    ("dead_retry_delay", lambda options: is_seconds(options.dead_retry_delay), "seconds > 0"),
    ("alert_after", lambda options: is_seconds(options.alert_after), "seconds > 0"),
)
