"""Backoff and intensity: how fast, and how often, children may be restarted."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import attrs

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
    """

    initial: float = 0.1
    factor: float = 2.0
    maximum: float = 30.0
    jitter: float = 0.2
    reset_after: float = 60.0

    def __attrs_post_init__(self) -> None:
        if not 0 < self.initial <= self.maximum or self.factor < 1 or not 0 <= self.jitter <= 1:
            raise InvalidChildSpec("backoff", "0 < initial <= maximum, factor >= 1 and 0 <= jitter <= 1", self)

    def delay(self, failures: int, source: random.Random) -> float:
        """Return the delay in seconds before a restart, after so many failures in a row (from 1)."""
        # The exponent is bounded so that a long row of failures cannot overflow a float.
        full = min(self.maximum, self.initial * self.factor ** min(failures - 1, 64))
        return full * (1.0 - self.jitter * source.random())


class Intensity:
    """A sliding window of restarts: more than `restarts` of them within `period` seconds is too many.

    A restart exactly `period` seconds old still counts (OTP D01–D04, D09).
    """

    def __init__(self, restarts: int, period: float) -> None:
        if type(restarts) is not int or restarts < 0:
            raise InvalidChildSpec("restarts", "an int >= 0", restarts)
        if not _is_positive(period):
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
        while self._times and self._times[0] < now - self.period:
            self._times.popleft()


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
