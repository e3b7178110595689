"""Retries of model calls: when to try again, how long to wait, and a stream that does it."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from random import Random

import attrs
import trio

from sapwood.actors import Environment, growing_wait
from sapwood.errors import InvalidOption, ModelError, ModelProtocolError
from sapwood.models._protocol import ChatModel, ModelAnswer, ModelEvent, ModelRequest, StreamRestarted


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """How often and how patiently a failed model call is repeated.

    Only errors whose `retryable` is true are repeated. The wait before attempt n + 1 is `base * factor ** (n - 1)`
    seconds, or what the provider asked for if that is longer, plus a random 0 to `jitter` of it.

    Attributes:
        attempts: Attempts in all, from 1 (which means no retry).
        base: Seconds before the second attempt.
        factor: What each wait is multiplied by for the next.
        jitter: Largest random addition to a wait, as a fraction of it.
        max_total_wait: Seconds that the waits of one call may take together. A wait that would exceed it is not
            begun: the error is raised at once.

    Raises:
        InvalidOption: if a value is out of its range.
    """

    attempts: int = 3
    base: float = 1.0
    factor: float = 2.0
    jitter: float = 0.2
    max_total_wait: float = 60.0

    def __attrs_post_init__(self) -> None:
        for option, least in (("attempts", 1), ("base", 0), ("factor", 1), ("jitter", 0), ("max_total_wait", 0)):
            value = getattr(self, option)
            if not value >= least or (option != "max_total_wait" and math.isinf(value)):
                raise InvalidOption(f"RetryPolicy {option}: expected a number from {least} up; got {value!r}")

    def wait_after(self, attempt: int, error: ModelError, random: Random, *, waited: float = 0.0) -> float | None:
        """Return the seconds to wait after a failed attempt, or None if it must not be repeated.

        Args:
            attempt: Number of the attempt that failed, from 1.
            error: What it failed with.
            random: Source of the jitter.
            waited: Seconds that earlier waits of this call took.
        """
        if not error.retryable:
            return None
        return self.next_wait(attempt, random, waited=waited, at_least=error.retry_after or 0.0)

    def next_wait(self, attempt: int, random: Random, *, waited: float = 0.0, at_least: float = 0.0) -> float | None:
        """Return the seconds to wait after a failed attempt, whatever it failed with, or None if it was the last.

        Args:
            attempt: Number of the attempt that failed, from 1.
            random: Source of the jitter.
            waited: Seconds that earlier waits of this call took.
            at_least: Seconds for which the other side asked.
        """
        if attempt >= self.attempts:
            return None
        wait = max(growing_wait(self.base, self.factor, attempt, math.inf), at_least)
        wait += wait * random.uniform(0.0, self.jitter)
        return wait if waited + wait <= self.max_total_wait else None


NO_RETRY = RetryPolicy(attempts=1)
"""Every error is raised at once."""


@asynccontextmanager
async def retrying(
    model: ChatModel, request: ModelRequest, *, environment: Environment, policy: RetryPolicy | None = None
) -> AsyncGenerator[AsyncIterator[ModelEvent], None]:
    """Call a model like `model.stream(request)`, and again when it fails in a way that may pass.

    Before each repetition the stream yields `StreamRestarted`: the consumer discards what it has got so far. The
    waiting happens when the next event is asked for. A stream that ends without an answer counts as
    `ModelProtocolError`.

    Args:
        model: The model.
        request: The same for every attempt.
        environment: Source of the jitter.
        policy: When to repeat and how long to wait; default `RetryPolicy()`.

    Raises:
        ModelError: the last one, if the policy allows no further attempt.
    """
    async with aclosing(_RetryingStream(model, request, environment, policy or RetryPolicy())) as stream:
        yield stream


class _RetryingStream:
    def __init__(self, model: ChatModel, request: ModelRequest, environment: Environment, policy: RetryPolicy) -> None:
        self._model = model
        self._request = request
        self._environment = environment
        self._policy = policy
        self._attempt = 1
        self._wait = 0.0
        self._waited = 0.0
        self._stack = AsyncExitStack()
        self._events: AsyncIterator[ModelEvent] | None = None
        self._done = False

    def __aiter__(self) -> AsyncIterator[ModelEvent]:
        return self

    async def __anext__(self) -> ModelEvent:
        if self._done:
            raise StopAsyncIteration
        try:
            return await self._next_event()
        except ModelError as error:
            failure = error
        await self.aclose()
        wait = self._policy.wait_after(self._attempt, failure, self._environment.random, waited=self._waited)
        if wait is None:
            self._done = True
            raise failure
        self._wait = wait
        self._attempt += 1
        return StreamRestarted(str(failure), self._attempt, wait)

    async def aclose(self) -> None:
        self._events = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def _next_event(self) -> ModelEvent:
        if self._events is None:
            await trio.sleep(self._wait)
            self._waited += self._wait
            self._events = await self._stack.enter_async_context(self._model.stream(self._request))
        try:
            event = await anext(self._events)
        except StopAsyncIteration:
            raise ModelProtocolError(self._model.name, "the stream ended without an answer") from None
        self._done = isinstance(event, ModelAnswer)
        return event
