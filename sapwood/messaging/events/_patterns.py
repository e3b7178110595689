"""Patterns of event types: an exact type, everything below a prefix, or everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sapwood.errors import InvalidOption

ALL: Final = "*"


def check_pattern(pattern: object) -> str:
    """Return a pattern that can match.

    Raises:
        InvalidOption: if it is none of the three forms.
    """
    if isinstance(pattern, str) and pattern:
        fixed = pattern.removesuffix(".*") if pattern.endswith(".*") else "" if pattern == ALL else pattern
        if "*" not in fixed and (fixed or pattern == ALL):
            return pattern
    raise InvalidOption(
        f"event pattern: expected an exact type ('trade.filled'), a prefix ('trade.*', which matches 'trade.a.b' too) "
        f"or '*' for everything; got {pattern!r}"
    )


def matches(pattern: str, event_type: str) -> bool:
    """Say whether a pattern matches a type (S1-023).

    `a.*` matches `a.b` and `a.b.c`, and neither `a` nor `ab`. Levels may be empty: it matches `a.` and `a..b`.
    """
    if pattern == ALL:
        return True
    return event_type.startswith(pattern[:-1]) if pattern.endswith(".*") else pattern == event_type


def candidates(event_type: str) -> Iterator[str]:
    """Yield every pattern that matches a type: the type itself, its prefixes from long to short, and `*`."""
    yield event_type
    end = event_type.rfind(".")
    while end > 0:
        yield f"{event_type[:end]}.*"
        end = event_type.rfind(".", 0, end)
    yield ALL
