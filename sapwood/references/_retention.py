"""How long references live."""

from __future__ import annotations

import math
from typing import Any, Final

import attrs

from sapwood.errors import InvalidOption

STORE_DEFAULT: Final[Any] = object()
"""Stands for the `ttl` of the store where None already means "for ever"."""


@attrs.frozen
class Retention:
    """How long a store keeps what nobody holds; the same in every store (C2, C5, S0-039, S0-041).

    A reference lives as long as a lease on it lasts. Beside that, every plain `store` keeps it for `ttl`, as long as
    it is also used at least once in `max_idle`. When neither holds any more it is gone: it answers "not found" at once,
    and the next collection frees its space. So a collection is never seen, but for the two limits of space.

    Attributes:
        ttl: Seconds that a plain `store` keeps a reference; None: for ever.
        max_idle: Seconds without a `store`, `acquire` or `resolve` after which it is not kept any longer; None: no
            limit.
        max_bytes: Bytes, as stored, above which those used least recently are evicted if nobody holds them; None: no
            limit.
        max_references: References above which the same happens; None: no limit.
    """

    ttl: float | None = None
    max_idle: float | None = None
    max_bytes: int | None = None
    max_references: int | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("ttl", "max_idle"):
            check_seconds(name, getattr(self, name))
        for name in ("max_bytes", "max_references"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise InvalidOption(f"{name}: expected None or an int >= 1; got {value!r}")

    def idle_before(self, now: float) -> float:
        """Return the moment such that what was last used then or earlier is idle."""
        return -math.inf if self.max_idle is None else now - self.max_idle

    def exceeded(self, references: int, stored_bytes: int) -> bool:
        """Whether so many references with so many bytes are above a limit."""
        return (self.max_references is not None and references > self.max_references) or (
            self.max_bytes is not None and stored_bytes > self.max_bytes
        )


@attrs.frozen
class Hold:
    """What keeps a reference that is being stored.

    Attributes:
        kept_until: End of the time for which it is kept without a holder; infinity: for ever, 0: not.
        owner: Who holds it from the start, or None.
        expires: When that lease ends; infinity: by release alone.
    """

    kept_until: float
    owner: str | None = None
    expires: float = math.inf


def check_seconds(name: str, value: object, *, optional: bool = True) -> None:
    """Refuse what is neither a finite number of seconds above 0 nor, if that is optional, None.

    Raises:
        InvalidOption: naming the option.
    """
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        expected = "None or seconds > 0" if optional else "seconds > 0"
        raise InvalidOption(f"{name}: expected {expected}; got {value!r}")


def moment(now: float, seconds: float | None) -> float:
    """Return the moment so many seconds from now; infinity for None."""
    return math.inf if seconds is None else now + seconds


def finite(value: float) -> float | None:
    """Return a moment as public attributes show it: None for one that never comes."""
    return None if value == math.inf else value
