"""Waits between attempts: exponential, with jitter from the environment."""

from __future__ import annotations

from typing import Final, cast

import trio

from sapwood.actors import Environment
from sapwood.errors import ActorDown, AskTimeout, ModelError, ModelUnavailable, RegistryUnavailable, StoreUnavailable
from sapwood.models import RetryPolicy

PASSING: Final = (
    ModelUnavailable,
    RegistryUnavailable,
    StoreUnavailable,
    ActorDown,
    AskTimeout,
    ConnectionError,
    TimeoutError,
    trio.BrokenResourceError,
    trio.TooSlowError,
)
"""Errors that may pass by themselves; of models also those that say so (`retryable`)."""


def may_pass(error: BaseException) -> bool:
    """Say whether the same call may succeed later; a group only if all of it may."""
    if isinstance(error, ModelError):
        return error.retryable
    if isinstance(error, BaseExceptionGroup):
        return all(map(may_pass, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, PASSING)


class Backoff:
    """Counts the attempts of one call and waits between them as a policy says.

    Args:
        policy: How often and how long.
        environment: Source of the jitter.
    """

    def __init__(self, policy: RetryPolicy, environment: Environment) -> None:
        self.attempt = 1
        self._policy = policy
        self._environment = environment
        self._waited = 0.0

    def next_wait(self, *, at_least: float = 0.0) -> float | None:
        """Return the seconds to wait before the next attempt, or None if there must be none.

        Args:
            at_least: Seconds that the other side asked for.
        """
        return self._policy.next_wait(self.attempt, self._environment.random, waited=self._waited, at_least=at_least)

    async def wait(self, seconds: float) -> None:
        """Wait, and count the next attempt."""
        await trio.sleep(seconds)
        self._waited += seconds
        self.attempt += 1
