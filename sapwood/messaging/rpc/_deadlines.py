"""Deadlines that travel with calls: whoever is called in the course of a call has what is left of its time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from sapwood.actors import Environment
from sapwood.errors import InvalidOption

DEADLINE: Final[ContextVar[float | None]] = ContextVar("sapwood_deadline", default=None)
"""End of the call in whose course the code here runs, on the monotonic clock; None if there is none.

It travels into the handler of a called actor if the actor system is opened with `propagate=(DEADLINE,)`.
"""


@contextmanager
def deadline(seconds: float, environment: Environment) -> Generator[float]:
    """Give all calls in the block so many seconds together, or less if less is left already; yield the end.

    Nothing is cancelled at the end; calls are refused from then on.

    Raises:
        InvalidOption: if `seconds` is no number from 0.
    """
    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidOption(f"deadline: expected seconds >= 0; got {seconds!r}")
    end = environment.monotonic() + seconds
    outer = DEADLINE.get()
    if outer is not None:
        end = min(end, outer)
    token = DEADLINE.set(end)
    try:
        yield end
    finally:
        DEADLINE.reset(token)


def remaining(environment: Environment) -> float | None:
    """Return the seconds that are left of the current deadline, at least 0; None if there is none."""
    end = DEADLINE.get()
    return None if end is None else max(0.0, end - environment.monotonic())
