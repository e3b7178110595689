"""Retries: how often a failed call is repeated, and after how long."""

from __future__ import annotations

import math
from random import Random

import attrs

from sapwood.actors import growing_wait
from sapwood.errors import InvalidOption


@attrs.frozen(kw_only=True)
class Retry:
    """How often and how patiently a call is repeated that failed in a way that may pass (S1-050).

    The wait before attempt n + 1 is `base * factor ** (n - 1)` seconds, at most `max_wait`, plus a random 0 to `jitter`
    of it. All attempts and waits together stay within the deadline of the call (S1-051).

    Attributes:
        attempts: Attempts in all, from 1 (which means no retry).
        base: Seconds before the second attempt.
        factor: What each wait is multiplied by for the next.
        max_wait: Longest wait in seconds, without jitter.
        jitter: Largest random addition to a wait, as a fraction of it.

    Raises:
        InvalidOption: if a value is out of its range.
    """

    attempts: int = 5
    base: float = 0.1
    factor: float = 2.0
    max_wait: float = 10.0
    jitter: float = 0.2

    def __attrs_post_init__(self) -> None:
        for option, least in (("attempts", 1), ("base", 0), ("factor", 1), ("max_wait", 0), ("jitter", 0)):
            value = getattr(self, option)
            if not isinstance(value, int | float) or not value >= least or math.isinf(value):
                raise InvalidOption(f"Retry {option}: expected a number from {least} up; got {value!r}")

    def wait_after(self, attempt: int, random: Random, *, at_least: float = 0.0) -> float | None:
        """Return the seconds to wait after a failed attempt, or None if it was the last.

        Args:
            attempt: Number of the attempt that failed, from 1.
            random: Source of the jitter.
            at_least: Seconds for which the target asked, if it did.
        """
        if attempt >= self.attempts:
            return None
        wait = max(growing_wait(self.base, self.factor, attempt, self.max_wait), at_least)
        return wait + wait * random.uniform(0.0, self.jitter)


NO_RETRY = Retry(attempts=1)
"""Every failure is raised at once."""
