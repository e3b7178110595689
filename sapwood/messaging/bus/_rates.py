"""Rate limits: one bucket of tokens for each sender."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from sapwood.actors import Environment
from sapwood.errors import InvalidOption

SWEEP_ABOVE: Final = 1_000
"""Buckets that are kept before the full ones are dropped; next at twice what is left then."""


@attrs.frozen
class RateLimit:
    """How much one sender may send (S2-053).

    Attributes:
        rate: Messages a second, in the long run.
        burst: Messages at once, after a pause.
    """

    rate: float
    burst: int = 1

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.rate, int | float) or not self.rate > 0:
            raise InvalidOption(f"rate limit: expected rate > 0 messages a second; got {self.rate!r}")
        if type(self.burst) is not int or self.burst < 1:
            raise InvalidOption(f"rate limit: expected burst >= 1 message; got {self.burst!r}")


@attrs.define
class _Bucket:
    tokens: float
    at: float


class RateLimiter:
    """Buckets that fill on the monotonic clock.

    Args:
        default: The limit of every sender without one of its own; None for none.
        by_sender: Limits of single senders.
    """

    def __init__(self, default: RateLimit | None, by_sender: Mapping[str, RateLimit]) -> None:
        self._default = default
        self._by_sender = dict(by_sender)
        self._buckets: dict[str, _Bucket] = {}
        self._sweep_at = SWEEP_ABOVE

    def take(self, sender: str, environment: Environment, amount: int = 1) -> float:
        """Take tokens if there are enough; return 0.0, or else the seconds until there would be."""
        limit = self._by_sender.get(sender, self._default)
        if limit is None:
            return 0.0
        now = environment.monotonic()
        bucket = self._buckets.get(sender)
        if bucket is None:
            if len(self._buckets) >= self._sweep_at:
                self._sweep(now)
            bucket = self._buckets[sender] = _Bucket(float(limit.burst), now)
        bucket.tokens = min(float(limit.burst), bucket.tokens + (now - bucket.at) * limit.rate)
        bucket.at = now
        # A rounding error of the refill must not cost a sender that waited exactly as long as it was told.
        if bucket.tokens >= amount - 1e-9:
            bucket.tokens = max(0.0, bucket.tokens - amount)
            return 0.0
        return (amount - bucket.tokens) / limit.rate

    def _sweep(self, now: float) -> None:
        """Drop the buckets that are full again, which is as if they had never been."""
        for sender, bucket in list(self._buckets.items()):
            limit = self._by_sender.get(sender, self._default)
            if limit is None or bucket.tokens + (now - bucket.at) * limit.rate >= limit.burst:
                del self._buckets[sender]
        self._sweep_at = max(SWEEP_ABOVE, 2 * len(self._buckets))

    def __len__(self) -> int:
        return len(self._buckets)
