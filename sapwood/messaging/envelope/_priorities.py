"""One scale of priorities, mapped on the lanes of the kernel, and the other scales that lead to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from sapwood.actors import Priority
from sapwood.errors import InvalidEnvelope

PriorityName: TypeAlias = Literal["low", "normal", "high", "urgent"]

LANES: Final[Mapping[str, Priority]] = {
    "low": Priority.LOW,
    "normal": Priority.NORMAL,
    "high": Priority.HIGH,
    "urgent": Priority.URGENT,
}
"""The scale, from the least urgent up, and the mailbox lane of each."""

ALIASES: Final[Mapping[str, PriorityName]] = {
    "low": "low",
    "background": "low",
    "normal": "normal",
    "medium": "normal",
    "default": "normal",
    "high": "high",
    "urgent": "urgent",
    "critical": "urgent",  # S1-021
}
"""Every name that is understood."""

RANKS: Final[Mapping[int, PriorityName]] = {1: "low", 2: "normal", 3: "high", 4: "urgent"}
"""LOW=1 to URGENT=4 (S2-003)."""

_EXPECTED: Final = f"one of {', '.join(ALIASES)}, or a Priority of sapwood.actors"
_BY_LANE: Final[Mapping[Priority, PriorityName]] = {LANES[name]: name for name in RANKS.values()}


def priority_named(value: object) -> PriorityName:
    """Return the priority that a name, an alias or a lane of the kernel stands for.

    Numbers are refused, for two scales of numbers exist: see `priority_from_rank` and `priority_from_level` (BR-11).

    Raises:
        InvalidEnvelope: if it is anything else; nothing has been sent.
    """
    if isinstance(value, Priority):
        return _BY_LANE[value]
    found = ALIASES.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        hint = (
            "numbers: priority_from_rank(4) reads 1 to 4, priority_from_level(0) reads 0 as normal, more as more urgent"
        )
        raise InvalidEnvelope("priority", _EXPECTED, value, hint=hint)
    return found


def priority_from_rank(rank: object) -> PriorityName:
    """Read the scale LOW=1, NORMAL=2, HIGH=3, URGENT=4 (S2-003).

    Raises:
        InvalidEnvelope: if it is none of the four.
    """
    if type(rank) is not int or rank not in RANKS:
        raise InvalidEnvelope("priority", "a rank from 1 (low) to 4 (urgent)", rank)
    return RANKS[rank]


def priority_from_level(level: object) -> PriorityName:
    """Read the scale on which 0 is normal and more is more urgent: below 0 low, 1 high, from 2 urgent (S1-006).

    Raises:
        InvalidEnvelope: if it is no whole number.
    """
    if type(level) is not int:
        raise InvalidEnvelope("priority", "a whole number, 0 for normal", level)
    if level <= 0:
        return "low" if level < 0 else "normal"
    return "high" if level == 1 else "urgent"


def lane_of(priority: str) -> Priority:
    """Return the mailbox lane of a priority of the scale."""
    return LANES[priority]
