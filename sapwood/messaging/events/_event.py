"""Events: immutable facts about what an agent did, with a priority."""

from __future__ import annotations

import copy
from enum import IntEnum
from typing import Any, Final

import attrs

from sapwood.actors import Environment, Priority, message
from sapwood.errors import InvalidOption

PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})


class EventPriority(IntEnum):
    """When an event is delivered; events of one priority keep the order in which they were published (S1-021).

    CRITICAL: at once, before everything that waits, and without waiting for a free place among the handlers.
    HIGH: before normal ones. NORMAL: the default. LOW: when nothing else waits for that handler or a free place.
    """

    CRITICAL = Priority.URGENT
    HIGH = Priority.HIGH
    NORMAL = Priority.NORMAL
    LOW = Priority.LOW


@message("events.event")
class AgentEvent:
    """Something that happened; immutable (S1-022).

    It is a message, so actors may subscribe and handle it.

    Attributes:
        event_type: Dotted name of what happened, such as `"trade.filled"`.
        source_agent: Who published it.
        payload: What is to be known about it. Every handler gets a copy of its own.
        priority: When it is delivered.
        timestamp_ns: Wall clock, in nanoseconds since 1970 UTC; 0 until it is published.
        event_id: Unique id; empty until it is published.
    """

    event_type: str
    source_agent: str
    payload: dict[str, Any] = attrs.field(factory=dict[str, Any])
    priority: EventPriority = EventPriority.NORMAL
    timestamp_ns: int = 0
    event_id: str = ""

    def age_ms(self, environment: Environment) -> float:
        """Return the milliseconds since it was published, by the wall clock."""
        return environment.wall() * 1e3 - self.timestamp_ns / 1e6

    def copied(self) -> AgentEvent:
        """Return an equal event with a payload of its own."""
        return self._with(self.timestamp_ns, self.event_id)

    def stamped(self, environment: Environment) -> AgentEvent:
        """Return a copy that has a time and an id; those that it has already stay."""
        stamp = self.timestamp_ns or int(environment.wall() * 1e9)
        return self._with(stamp, self.event_id or environment.new_id("event_"))

    def _with(self, timestamp_ns: int, event_id: str) -> AgentEvent:
        payload = copy_payload(self.payload)
        return AgentEvent(self.event_type, self.source_agent, payload, self.priority, timestamp_ns, event_id)


def copy_payload(payload: dict[str, Any]) -> dict[str, Any]:
    """Copy a payload; a flat one of plain values costs no deep copy."""
    if all(type(value) in PLAIN for value in payload.values()):
        return dict(payload)
    return copy.deepcopy(payload)


def check_event(event: object) -> AgentEvent:
    """Return a copy of an event that may be published.

    Raises:
        InvalidOption: naming what is wrong.
    """
    if not isinstance(event, AgentEvent):
        raise InvalidOption(f"publish: expected AgentEvent('trade.filled', 'agent-1', {{...}}); got {event!r}")
    check_event_type(event.event_type)
    for name, value, expected in (("source_agent", event.source_agent, str), ("payload", event.payload, dict)):
        if not isinstance(value, expected):
            raise InvalidOption(f"event {name}: expected a {expected.__name__}; got {value!r}")
    if not isinstance(event.priority, EventPriority):
        names = ", ".join(member.name for member in EventPriority)
        raise InvalidOption(f"event priority: expected an EventPriority, one of {names}; got {event.priority!r}")
    try:
        return event.copied()
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidOption(
            f"event payload: expected something that can be copied; copying raised {error!r}"
        ) from error


def check_event_type(event_type: object) -> None:
    """Refuse what is no type of an event.

    Raises:
        InvalidOption: if it is no text, empty, or holds a `*`.
    """
    if not isinstance(event_type, str) or not event_type or "*" in event_type:
        raise InvalidOption(
            f"event_type: expected a dotted name such as 'trade.filled', without '*'; got {event_type!r}"
        )
