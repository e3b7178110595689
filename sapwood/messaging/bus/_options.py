"""Options of a bus and of the handlers on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from sapwood.actors import Ref
from sapwood.errors import InvalidOption
from sapwood.messaging.bus._dead_letters import DeadLetter, DeadLetterStore
from sapwood.messaging.bus._history import AuditSink
from sapwood.messaging.bus._rates import RateLimit
from sapwood.messaging.bus._reports import Operation
from sapwood.messaging.bus._routes import Filter, Route
from sapwood.messaging.envelope import SIZE_GUIDANCE, Envelope, Schemas, Verifier
from sapwood.messaging.queues import DeliveryMode
from sapwood.persistence import StoreEngine
from sapwood.references import PolicyManager, ReferenceStore
from sapwood.supervision import Backoff

Handler: TypeAlias = Callable[[Envelope[Any]], Any]
BatchHandler: TypeAlias = Callable[[tuple[Envelope[Any], ...]], Any]
Target: TypeAlias = Handler | Ref

Order: TypeAlias = Literal["priority", "fifo", "none", "partitioned"]

ORDERS: Final[Mapping[str, str]] = {
    "priority": "urgent ones first, in order of arrival within one priority; one at a time",
    "fifo": "in order of arrival whatever their priority; one at a time",
    "partitioned": "in order of arrival within one key; as many at a time as there are workers",
    "none": "in no order; as many at a time as there are workers",
}
"""Ordering modes: how a handler gets its messages (S2-025)."""

Authorize: TypeAlias = Callable[[str, Operation, str], bool | str]
"""Given who, what and whom or which topic: True allows it; False, or text that says why, refuses it."""

Validate: TypeAlias = Callable[[Any], str | None]
"""Given a payload: None if it is fine, or what is wrong with it."""

OnAlert: TypeAlias = Callable[[DeadLetter], Awaitable[None] | None]

SHED_ABOVE: Final[Mapping[str, float]] = {"low": 1.0, "normal": 2.0, "high": 4.0}
"""Priority: how many times `shed_above` must wait before it is shed; urgent messages never are (S2-037)."""


@attrs.frozen(kw_only=True)
class LargePayloads:
    """Where the payloads of stored messages go that are too large to stand in them.

    A payload is held for its message until that was handled, or its dead letter was discarded.

    Attributes:
        store: The reference store.
        policies: Which payloads are large, by the kind of their message.
        hold: Seconds for which a payload is held at most.
    """

    store: ReferenceStore
    policies: PolicyManager = attrs.field(factory=PolicyManager)
    hold: float = 30 * 86_400.0

    def __attrs_post_init__(self) -> None:
        _check_seconds("large payloads hold", self.hold)


@attrs.frozen(kw_only=True)
class BusOptions:
    """How a bus behaves.

    Attributes:
        name: Its name in logs, errors and the tree.
        schemas: The payload types that it carries; None for all.
        validators: `{payload type: function}` that look into payloads (S2-052).
        authorize: Asked before every operation; None allows all (S2-050).
        verifiers: With at least one, messages are accepted from participants and in signed form only (S2-049).
        rate_limit: Limit of every sender without one of its own; None for none (S2-053).
        rate_limits: Limits of single senders.
        filters: Every message passes through them, in order (S2-013).
        routes: What `route` looks through; the first that matches counts.
        warn_bytes: Size above which a warning is logged (S2-006).
        max_bytes: Size above which a message is refused.
        shed_above: Messages waiting at one handler above which less urgent ones are shed; None never sheds.
        history: Messages that are kept for queries.
        dead_letters: Dead letters that are kept in memory.
        alert_after: Seconds after which a dead letter that nobody looked after is an alert (S3-111).
        on_alert: Called with such a letter; None only logs it and tells the sender.
        store: Keeps dead letters beyond the end of the process; None for memory only.
        queues: Returns the open store that has the queues of participants with durable delivery; None if there is
            none, and so no durable delivery.
        large_payloads: Where large payloads of messages are kept that are stored; None keeps them in the message.
        audit: Called with every operation, allowed or refused; None keeps the last ones in memory only (S2-054).
    """

    name: str = "bus"
    schemas: Schemas | None = None
    validators: Mapping[type, Validate] = attrs.field(factory=dict[type, Validate])
    authorize: Authorize | None = None
    verifiers: tuple[Verifier, ...] = ()
    rate_limit: RateLimit | None = None
    rate_limits: Mapping[str, RateLimit] = attrs.field(factory=dict[str, RateLimit])
    filters: tuple[Filter, ...] = ()
    routes: tuple[Route, ...] = ()
    warn_bytes: int = SIZE_GUIDANCE
    max_bytes: int = 4 * SIZE_GUIDANCE
    shed_above: int | None = None
    history: int = 1_000
    dead_letters: int = 1_000
    alert_after: float = 300.0
    on_alert: OnAlert | None = None
    store: DeadLetterStore | None = None
    queues: Callable[[], StoreEngine] | None = None
    large_payloads: LargePayloads | None = None
    audit: AuditSink | None = None

    def __attrs_post_init__(self) -> None:
        for field in ("warn_bytes", "max_bytes", "history", "dead_letters"):
            _check_count(f"bus {field}", getattr(self, field))
        if self.shed_above is not None:
            _check_count("bus shed_above", self.shed_above)
        _check_seconds("bus alert_after", self.alert_after)
        if not isinstance(self.name, str) or not self.name:
            raise InvalidOption(f"bus name: expected text that is not empty; got {self.name!r}")


@attrs.frozen(kw_only=True)
class HandlerOptions:
    """How one handler gets its messages.

    Attributes:
        order: See `ORDERS`.
        workers: How many messages it may handle at a time; more than one with order `none` or `partitioned` only.
        key: The partition key of a message; needed with order `partitioned` (S2-041).
        capacity: Messages that may wait at each worker; None for no limit. `send` waits for room (S2-036).
        accepts: Payload types that it takes; None for all.
        timeout: Seconds that an async handler may run for one message; None for no limit (S2-033).
        delivery: `at_most_once` goes straight into a mailbox. With `at_least_once` and `effectively_once` a message is
            on the disk when `send` returns, and stays until the handler has returned, or it is a dead letter; see
            `sapwood.messaging.queues.GUARANTEES` (S2-026).
        attempts: Deliveries that may fail before a stored message becomes a dead letter.
        retry: Delays between them.
    """

    order: Order = "priority"
    workers: int = 1
    key: Callable[[Envelope[Any]], Any] | None = None
    capacity: int | None = None
    accepts: tuple[type, ...] | None = None
    timeout: float | None = None
    delivery: DeliveryMode = "at_most_once"
    attempts: int = 3
    retry: Backoff = Backoff(initial=1.0, factor=2.0, maximum=60.0, jitter=0.2)  # noqa: RUF009  # frozen

    @property
    def durable(self) -> bool:
        """Whether messages are stored until they are handled."""
        return self.delivery != "at_most_once"

    def __attrs_post_init__(self) -> None:
        if self.delivery not in get_args(DeliveryMode):
            raise InvalidOption(
                f"handler delivery: expected one of {', '.join(get_args(DeliveryMode))}; got {self.delivery!r}"
            )
        _check_count("handler attempts", self.attempts)
        if self.order not in ORDERS:
            raise InvalidOption(f"handler order: expected one of {', '.join(ORDERS)}; got {self.order!r}")
        _check_count("handler workers", self.workers)
        if self.workers > 1 and self.order in {"priority", "fifo"}:
            raise InvalidOption(
                f"handler workers: expected 1 with order={self.order!r}, which is kept one message at a time; got "
                f'{self.workers}: write order="none", or order="partitioned" with key='
            )
        if (self.order == "partitioned") is not (self.key is not None):
            raise InvalidOption('handler key: expected key= with order="partitioned", and only there')
        if self.capacity is not None:
            _check_count("handler capacity", self.capacity)
        if self.timeout is not None:
            _check_seconds("handler timeout", self.timeout)


@attrs.frozen(kw_only=True)
class BatchOptions(HandlerOptions):
    """How a handler gets its messages several at a time (S2-038).

    Attributes:
        size: Most messages that it gets at once.
        seconds: Seconds that a batch which is not full waits for more.
    """

    size: int = 10
    seconds: float = 0.1

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.durable:
            raise InvalidOption(
                f"handler delivery: expected at_most_once for a batch; got {self.delivery!r}: use a queue "
                "and its receive_batch"
            )
        _check_count("batch size", self.size)
        _check_seconds("batch seconds", self.seconds)


def _check_seconds(what: str, value: object) -> None:
    if not isinstance(value, int | float) or not value > 0:
        raise InvalidOption(f"{what}: expected seconds > 0; got {value!r}")


def _check_count(what: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise InvalidOption(f"{what}: expected a whole number >= 1; got {value!r}")
