"""ModelRetry: a model call that failed in a way that may pass is made again, if need be by another model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sapwood.conversation import AssistantMessage
from sapwood.middleware._backoff import Backoff, may_pass
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import Middleware, ModelCall
from sapwood.models import ModelRequest, RetryPolicy

Classify: TypeAlias = Callable[[Exception], bool]
"""Says whether the same call may succeed later."""


class ModelRetry(Middleware):
    """Repeats model calls, with everything that the layers below it do around them.

    The agent's own `retry` repeats a call of the provider alone, within one model call. This layer sits above: it also
    repeats after errors of other layers, and asks `when` which errors are worth it. With both, the attempts multiply,
    so give the agent `retry=NO_RETRY` or this layer few attempts. What was streamed of a failed attempt is discarded
    for subscribers.

    The wait before attempt n + 1 is exponential, at least what the provider asked for, and jittered through the
    environment; see `RetryPolicy`.

    Args:
        policy: How often and how patiently; default `RetryPolicy()`.
        when: Which errors are worth another attempt; by default those that may pass: errors of models with
            `retryable`, lost connections, time-outs, and parts of the runtime that are being restarted.
    """

    def __init__(self, policy: RetryPolicy | None = None, *, when: Classify = may_pass) -> None:
        self.policy = policy or RetryPolicy()
        self.when = when

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        backoff = Backoff(self.policy, context.environment)
        while True:
            try:
                return await call_next(request)
            except Exception as error:
                asked = getattr(error, "retry_after", None) or 0.0
                wait = backoff.next_wait(at_least=asked) if self.when(error) else None
                if wait is None:
                    raise
            await backoff.wait(wait)
