"""What calls tell their observers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from sapwood.messaging.rpc._breaker import BreakerChanged, BreakerStatistics
from sapwood.messaging.rpc._outcomes import CallOutcome


@attrs.frozen
class AttemptFailed:
    """One attempt of a call failed.

    Attributes:
        target: Who was called.
        request: Type name of the request.
        attempt: Number of the attempt, from 1.
        outcome: Transient or permanent.
        error: What it failed with.
        retry_in: Seconds until the next attempt; None if there is none.
    """

    target: str
    request: str
    attempt: int
    outcome: CallOutcome
    error: Exception
    retry_in: float | None


@attrs.frozen
class CallEnded:
    """A call has ended, and was not cancelled.

    Attributes:
        target: Who was called.
        request: Type name of the request.
        outcome: One of three; of a permanent one, whoever observes may keep the request as a dead letter (S1-054).
        attempts: Attempts begun.
        seconds: How long it took, waits included.
        error: What the caller got instead of an answer, or None.
    """

    target: str
    request: str
    outcome: CallOutcome
    attempts: int
    seconds: float
    error: Exception | None


@attrs.frozen
class HedgeStarted:
    """A further attempt was begun beside one that takes long."""

    target: str
    request: str


CallEvent: TypeAlias = AttemptFailed | CallEnded | HedgeStarted | BreakerChanged
Observer: TypeAlias = Callable[[CallEvent], None]


@attrs.frozen
class CallStatistics:
    """What calls to one target have come to.

    Attributes:
        target: The target.
        calls: Calls begun.
        succeeded: Calls that were answered.
        transient: Calls that failed in a way that may pass, the deadline included.
        permanent: Calls that failed for good.
        cancelled: Calls whose caller was cancelled.
        retries: Attempts after the first of a call.
        hedges: Attempts begun beside another one.
        running: Attempts that run now.
        waiting: Attempts that wait for a slot of the bulkhead.
        refused: Attempts that the bulkhead refused.
        breaker: What the circuit breaker has seen.
    """

    target: str
    calls: int
    succeeded: int
    transient: int
    permanent: int
    cancelled: int
    retries: int
    hedges: int
    running: int
    waiting: int
    refused: int
    breaker: BreakerStatistics
