"""Kinds of messages: an open set of names, with those of trading desks, of buses and of teams of agents built in."""

from __future__ import annotations

import re
from typing import Final

import attrs

from sapwood.errors import DuplicateName, InvalidEnvelope

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


@attrs.frozen
class MessageKind:
    """What is known of one kind.

    Attributes:
        name: Lower-case name, dotted where it belongs to one application.
        description: What it is for.
        answers: Whether it answers another message, and so carries `reply_to`.
    """

    name: str
    description: str
    answers: bool = False


BUILT_IN: Final = (
    # trading (S1-005)
    MessageKind("signal", "a strategy proposes a trade"),
    MessageKind("risk_check", "asks whether an order is within limits"),
    MessageKind("risk_result", "answers a risk check", answers=True),
    MessageKind("order", "an order to be executed"),
    MessageKind("fill_report", "an execution of an order", answers=True),
    MessageKind("position_update", "a position has changed"),
    MessageKind("market_data", "prices and volumes"),
    MessageKind("system_heartbeat", "a component says that it lives"),
    # buses (S2-002)
    MessageKind("request", "wants an answer"),
    MessageKind("response", "answers a request", answers=True),
    MessageKind("notification", "tells something; no answer is expected"),
    MessageKind("command", "orders a change of state"),
    MessageKind("event", "something has happened"),
    # teams of agents (S3-106), beyond those above
    MessageKind("heartbeat", "an agent says that it works on its task"),
    MessageKind("cancel", "withdraws work that was delegated"),
    MessageKind("escalation", "passes a matter to somebody with more authority"),
)
"""The kinds that are always there."""

_kinds: dict[str, MessageKind] = {kind.name: kind for kind in BUILT_IN}


def declare_kind(name: str, description: str, *, answers: bool = False) -> MessageKind:
    """Add a kind to the open set; declaring the same one again changes nothing.

    Raises:
        InvalidEnvelope: if the name is not lower-case words of letters, digits and `_`, joined by dots.
        DuplicateName: if there is another kind of this name.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidEnvelope("kind", 'a name such as "shop.shipment"', name)
    kind = MessageKind(name, description, answers)
    holder = _kinds.setdefault(name, kind)
    if holder != kind:
        raise DuplicateName("message kind", name, holder)
    return kind


def kind_named(name: object) -> MessageKind:
    """Return a kind by its name (S1-011).

    Raises:
        InvalidEnvelope: if there is none of this name; the error lists those that exist.
    """
    kind = _kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidEnvelope(
            "kind",
            f"one of {', '.join(_kinds)}",
            f"Unknown MessageType: {name!r}",
            hint='declare_kind("shop.shipment", "goods have left the house") adds one',
        )
    return kind


def message_kinds() -> tuple[MessageKind, ...]:
    """Return all kinds, the built-in ones first."""
    return tuple(_kinds.values())
