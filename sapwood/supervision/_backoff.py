"""Backoff and intensity: how fast, and how often, children may be restarted."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import attrs

from sapwood.actors import growing_wait
from sapwood.errors import InvalidChildSpec


@attrs.frozen
class Backoff:
    """Growing delays between the restarts of one child; beyond OTP, which has none.

    The n-th restart in a row waits `initial * factor ** (n - 1)` seconds, at most `maximum`, less a random part of
    up to `jitter`. A child that has run for `reset_after` seconds starts over.

    Attributes:
        initial: First delay, in seconds.
        factor: Growth from one delay to the next.
        maximum: Longest delay, in seconds.
        jitter: Random part, from 0 to 1 of the delay.
        reset_after: Seconds of life after which the delays start over.

    Raises:
        InvalidChildSpec: naming the value that is out of its range.
    """

    initial: float = 0.1
    factor: float = 2.0
    maximum: float = 30.0
    jitter: float = 0.2
    reset_after: float = 60.0

    def __attrs_post_init__(self) -> None:
        checks: tuple[tuple[str, Callable[[], bool], str], ...] = (
            ("initial", lambda: self.initial > 0, "seconds > 0"),
            ("factor", lambda: self.factor >= 1, "a number >= 1"),
            ("maximum", lambda: self.maximum >= self.initial, "seconds >= initial"),
            ("jitter", lambda: self.jitter <= 1, "a number from 0 to 1"),
            ("reset_after", lambda: True, "seconds >= 0"),
        )
        for field, in_range, expected in checks:
            value = getattr(self, field)
            if not is_seconds(value) or not in_range():
                raise InvalidChildSpec(f"backoff.{field}", expected, value)

    def delay(self, failures: int, source: random.Random) -> float:
        """Return the delay in seconds before a restart, after so many failures in a row (from 1)."""
        full = growing_wait(self.initial, self.factor, failures, self.maximum)
        return full * (1.0 - self.jitter * source.random())


class Intensity:
    """A sliding window of restarts: more than `restarts` of them within `period` seconds is too many.

    A restart exactly `period` seconds old still counts (OTP D01–D04, D09).

    Args:
        restarts: Most restarts within the window.
        period: Length of the window, in seconds.

    Raises:
        InvalidChildSpec: if one of them is out of its range (OTP A08).
    """

    def __init__(self, restarts: int, period: float) -> None:
        if type(restarts) is not int or restarts < 0:
            raise InvalidChildSpec("restarts", "an int >= 0", restarts)
        if not is_seconds(period) or period == 0:
            raise InvalidChildSpec("period", "seconds > 0", period)
        self.restarts = restarts
        self.period = period
        self._times: deque[float] = deque()

    def add(self, now: float) -> bool:
        """Count one restart; say whether it is still allowed."""
        self._drop(now)
        self._times.append(now)
        return len(self._times) <= self.restarts

    def count(self, now: float) -> int:
        """Return how many restarts lie in the window."""
        self._drop(now)
        return len(self._times)

    def _drop(self, now: float) -> None:
        while self._times and now - self._times[0] > self.period:
            self._times.popleft()


def is_seconds(value: object) -> bool:
    """Say whether a value is a number of seconds >= 0; neither a bool nor NaN is."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
