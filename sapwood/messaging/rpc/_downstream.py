"""What a client keeps of each target that it calls."""

from __future__ import annotations

from sapwood.messaging.rpc._breaker import BreakerState, CircuitBreaker
from sapwood.messaging.rpc._bulkhead import Bulkhead
from sapwood.messaging.rpc._events import CallStatistics
from sapwood.messaging.rpc._outcomes import CallOutcome


class Downstream:
    """Breaker, bulkhead and counters of one target."""

    def __init__(self, target: str, breaker: CircuitBreaker, bulkhead: Bulkhead) -> None:
        self.target = target
        self.breaker = breaker
        self.bulkhead = bulkhead
        self.open_calls = 0
        self.calls = self.retries = self.hedges = self.cancelled = 0
        self.ended = dict.fromkeys(CallOutcome, 0)

    @property
    def forgettable(self) -> bool:
        """Whether nothing would be different with a new one, the counters aside."""
        return not self.open_calls and self.breaker.quiet

    @property
    def needed(self) -> bool:
        """Whether it is called now, or to be left alone."""
        return bool(self.open_calls) or self.breaker.state is BreakerState.OPEN

    def statistics(self) -> CallStatistics:
        """Return the counters."""
        return CallStatistics(
            target=self.target,
            calls=self.calls,
            succeeded=self.ended[CallOutcome.SUCCESS],
            transient=self.ended[CallOutcome.TRANSIENT],
            permanent=self.ended[CallOutcome.PERMANENT],
            cancelled=self.cancelled,
            retries=self.retries,
            hedges=self.hedges,
            running=self.bulkhead.running,
            waiting=self.bulkhead.waiting,
            refused=self.bulkhead.refused,
            breaker=self.breaker.statistics(),
        )
