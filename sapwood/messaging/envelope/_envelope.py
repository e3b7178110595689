"""The envelope: one immutable record around every payload that leaves its actor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import attrs

from sapwood.actors import Environment, Priority, Request, Wire, message, wire_of
from sapwood.errors import InvalidEnvelope
from sapwood.messaging.envelope._kinds import kind_named
from sapwood.messaging.envelope._priorities import PriorityName, lane_of, priority_named

T = TypeVar("T")
U = TypeVar("U")

NANOSECONDS: Final = 1_000_000_000

Header: TypeAlias = str | int | float | bool | None
HeaderPairs: TypeAlias = tuple[tuple[str, Header], ...]

TRACE_HEADERS: Final = ("traceparent", "tracestate")
"""Headers of the W3C trace context; what answers or follows a message carries them on."""


def _pairs(headers: Mapping[str, Header] | Iterable[tuple[str, Header]]) -> HeaderPairs:
    pairs = cast("Iterable[Any]", headers.items() if isinstance(headers, Mapping) else headers)
    try:
        table: dict[Any, Any] = dict(pairs)
    except (TypeError, ValueError):
        raise InvalidEnvelope("headers", "a mapping of names to values", repr(cast("Any", headers))) from None
    for name, value in table.items():
        if not isinstance(name, str) or not name:
            raise InvalidEnvelope("headers", "names that are text", name)
        plain = type(value) in {str, int, float, bool, type(None)}
        if not plain or (type(value) is float and not math.isfinite(value)):
            raise InvalidEnvelope(f"headers.{name}", "text, a finite number, a bool or None", value)
    return tuple(sorted(table.items()))


def _priority(value: PriorityName | Priority) -> PriorityName:
    return priority_named(value)


@message("messaging.envelope")
class Envelope(Request[Any], Generic[T]):
    """A payload with all that the bus, its log and its readers need to know of it; never changes (S1-006, S1-009).

    Make one with `make_envelope`, `Envelope.answer` or `Envelope.follow`, which take ids and time from the
    environment. An actor takes envelopes with a method marked `@handle(Envelope)`; asked with one, what the method
    returns is the answer.

    Attributes:
        message_id: Unique id of this message.
        payload: An instance of a class made with `@message` or `@record`.
        sender: Name of who sent it.
        created_at: Wall clock of the sender, in nanoseconds since 1970 UTC.
        recipient: Name of who is to get it; None for a topic, a broadcast, or a route.
        topic: Dotted topic it is published on, or None.
        kind: One of `message_kinds()`; `notification` by default.
        correlation_id: The same for all messages of one chain; that of the first is its own id (S1-007).
        causation_id: The message that led to this one, or None.
        reply_to: Id of the message that this answers; in answers only, None elsewhere (C28).
        priority: `low`, `normal`, `high` or `urgent`.
        ttl: Seconds after `created_at` within which it must be delivered; None for no limit.
        deadline: Wall clock after which nobody needs an answer, in nanoseconds since 1970; None for none.
        header_pairs: The headers as sorted pairs; read them with `headers`, give them as `headers=`.
    """

    message_id: str
    payload: T
    sender: str
    created_at: int
    recipient: str | None = None
    topic: str | None = None
    kind: str = "notification"
    correlation_id: str = ""
    causation_id: str | None = None
    reply_to: str | None = None
    priority: PriorityName = attrs.field(default="normal", converter=_priority)
    ttl: float | None = None
    deadline: int | None = None
    header_pairs: HeaderPairs = attrs.field(default=(), converter=_pairs, alias="headers")

    def __attrs_post_init__(self) -> None:
        if self.correlation_id == "":
            object.__setattr__(self, "correlation_id", self.message_id)
        for field, fine, expected in _CHECKS:
            value = getattr(self, field)
            if not fine(value):
                raise InvalidEnvelope(field, expected, value)
        if wire_of(type(self.payload)) is None:
            raise _no_record(self.payload)
        kind = kind_named(self.kind)
        if self.reply_to is not None and (not kind.answers or self.reply_to == self.message_id):
            expected = "None unless the kind answers another message, and never the message's own id"
            raise InvalidEnvelope("reply_to", expected, f"{self.reply_to!r} in a message of kind {self.kind!r}")

    # --- what it says -----------------------------------------------------------------------------

    @property
    def headers(self) -> Mapping[str, Header]:
        """The headers, read-only."""
        return MappingProxyType(dict(self.header_pairs))

    @property
    def schema(self) -> Wire:
        """Wire name and version of the payload's class."""
        wire = wire_of(type(self.payload))
        assert wire is not None
        return wire

    @property
    def lane(self) -> Priority:
        """The mailbox lane of its priority."""
        return lane_of(self.priority)

    @property
    def expires_at(self) -> int | None:
        """Wall clock after which it may not be delivered, in nanoseconds since 1970; None for never.

        The earlier of time to live and deadline.
        """
        ends = [] if self.ttl is None else [self.created_at + round(self.ttl * NANOSECONDS)]
        if self.deadline is not None:
            ends.append(self.deadline)
        return min(ends, default=None)

    def age_ns(self, environment: Environment) -> int:
        """Return the nanoseconds since it was made, at least 0 where clocks differ (S1-008)."""
        return max(0, now_ns(environment) - self.created_at)

    def age_ms(self, environment: Environment) -> float:
        """Return the milliseconds since it was made, at least 0 (S1-008)."""
        return self.age_ns(environment) / 1_000_000

    def expired(self, environment: Environment) -> bool:
        """Say whether it may not be delivered any more."""
        end = self.expires_at
        return end is not None and now_ns(environment) >= end

    # --- what comes after it ----------------------------------------------------------------------

    def answer(
        self,
        environment: Environment,
        payload: U,
        *,
        sender: str | None = None,
        kind: str = "response",
        headers: Mapping[str, Header] | None = None,
    ) -> Envelope[U]:
        """Make the answer to this message, for its sender, in its conversation and trace (S2-020, S2-023).

        Args:
            environment: Source of id and time.
            payload: The answer.
            sender: Who answers; None for the recipient of this message.
            kind: A kind that answers.
            headers: Headers beside the trace context.

        Raises:
            InvalidEnvelope: if `sender` is left out and this message had no recipient, or a field cannot be.
        """
        sender = self.recipient if sender is None else sender
        if sender is None:
            raise InvalidEnvelope("sender", "sender=..., for the message was for no one in particular", None)
        return make_envelope(
            environment,
            payload,
            sender=sender,
            recipient=self.sender,
            kind=kind,
            correlation_id=self.correlation_id,
            causation_id=self.message_id,
            reply_to=self.message_id,
            priority=self.priority,
            deadline=self.deadline,
            headers={**self._trace(), **(headers or {})},
        )

    def follow(
        self,
        environment: Environment,
        payload: U,
        *,
        sender: str,
        recipient: str | None = None,
        topic: str | None = None,
        kind: str = "notification",
        priority: PriorityName | Priority = "normal",
        ttl: float | None = None,
        deadline: int | None = None,
        headers: Mapping[str, Header] | None = None,
    ) -> Envelope[U]:
        """Make a message that this one leads to: its correlation id and trace, caused by it (S1-059).

        Raises:
            InvalidEnvelope: if a field cannot be.
        """
        return make_envelope(
            environment,
            payload,
            sender=sender,
            recipient=recipient,
            topic=topic,
            kind=kind,
            correlation_id=self.correlation_id,
            causation_id=self.message_id,
            priority=priority,
            ttl=ttl,
            deadline=deadline,
            headers={**self._trace(), **(headers or {})},
        )

    def _trace(self) -> dict[str, Header]:
        return {name: value for name, value in self.header_pairs if name in TRACE_HEADERS}


def make_envelope(
    environment: Environment,
    payload: T,
    *,
    sender: str,
    recipient: str | None = None,
    topic: str | None = None,
    kind: str = "notification",
    correlation_id: str = "",
    causation_id: str | None = None,
    reply_to: str | None = None,
    priority: PriorityName | Priority = "normal",
    ttl: float | None = None,
    deadline: int | None = None,
    headers: Mapping[str, Header] | None = None,
) -> Envelope[T]:
    """Make an envelope with a new id and the present time.

    Args:
        environment: Source of id and time.
        payload: An instance of a class made with `@message` or `@record`.
        sender: See `Envelope`, also for what follows.
        recipient: None for a topic, a broadcast, or a route.
        topic: None for none.
        kind: `notification` by default.
        correlation_id: Empty for that of a new chain.
        causation_id: None for none.
        reply_to: None for what is no answer.
        priority: A name, an alias of one, or a `Priority`.
        ttl: Seconds; None for no limit.
        deadline: Nanoseconds since 1970; None for none.
        headers: Names to text, finite numbers, bools or None.

    Raises:
        InvalidEnvelope: naming the field that cannot be.
    """
    return Envelope(
        message_id=environment.new_id("msg_"),
        payload=payload,
        sender=sender,
        created_at=now_ns(environment),
        recipient=recipient,
        topic=topic,
        kind=kind,
        correlation_id=correlation_id,
        causation_id=causation_id,
        reply_to=reply_to,
        priority=priority_named(priority),
        ttl=ttl,
        deadline=deadline,
        headers=_pairs(headers or {}),
    )


def now_ns(environment: Environment) -> int:
    """Return the wall clock in nanoseconds since 1970 UTC."""
    return round(environment.wall() * NANOSECONDS)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_name_or_none(value: Any) -> bool:
    return value is None or _is_name(value)


def _is_ttl(value: Any) -> bool:
    return value is None or (type(value) in {int, float} and math.isfinite(value) and value > 0)


_CHECKS: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("message_id", _is_name, "text that is not empty"),
    ("sender", _is_name, "text that is not empty"),
    ("created_at", lambda value: type(value) is int and value >= 0, "nanoseconds since 1970 as a whole number"),
    ("recipient", _is_name_or_none, "text that is not empty, or None"),
    ("topic", _is_name_or_none, "text that is not empty, or None"),
    ("kind", _is_name, "text that is not empty"),
    ("correlation_id", _is_name, "text"),
    ("causation_id", _is_name_or_none, "text that is not empty, or None"),
    ("reply_to", _is_name_or_none, "text that is not empty, or None"),
    ("ttl", _is_ttl, "seconds > 0, or None"),
    (
        "deadline",
        lambda value: value is None or type(value) is int,
        "nanoseconds since 1970 as a whole number, or None",
    ),
)


def _no_record(payload: object) -> InvalidEnvelope:
    got = f"the class {payload.__name__}; send an instance" if isinstance(payload, type) else repr(payload)
    return InvalidEnvelope(
        "payload",
        "an instance of a class made with @message or @record",
        got,
        hint='write   @record("shop.order")\n            class Order:\n                cents: int',
    )
