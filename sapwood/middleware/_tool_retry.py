"""ToolRetry: a tool call that failed in a way that may pass is made again, if repeating it does no harm."""

from __future__ import annotations

from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import TypeAlias

from sapwood.conversation import ToolCall
from sapwood.errors import InvalidOption
from sapwood.middleware._backoff import Backoff, may_pass
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import Change, Middleware, ToolInvocation
from sapwood.middleware._names import several_names
from sapwood.models import RetryPolicy
from sapwood.tools import ToolOutcome

ClassifyTool: TypeAlias = Callable[[BaseException], bool]
"""Says whether the same call may succeed later."""


class ToolRetry(Middleware):
    """Repeats calls of idempotent tools that raised something which may pass, with the same idempotency key.

    A tool that is not declared `idempotent` is never repeated, unless it is named in `also`: nobody knows whether its
    effect has happened. A `ToolError` is an answer and not repeated. A call that ran out of its tool's `timeout`
    counts as one that may pass. The result of the last attempt counts.

    Args:
        policy: How often and how patiently; default `RetryPolicy()`. Jitter comes from the environment.
        when: Which exceptions are worth another attempt; by default lost connections, time-outs, and parts of the
            runtime that are being restarted.
        also: Names of tools that may be repeated although they are not declared idempotent.

    Raises:
        InvalidOption: if `also` is a single text; at server start, if it names a tool that does not exist and looks
            much like one that does.
    """

    def __init__(
        self, policy: RetryPolicy | None = None, *, when: ClassifyTool = may_pass, also: Collection[str] = ()
    ) -> None:
        self.policy = policy or RetryPolicy()
        self.when = when
        self.also = frozenset(several_names(also, "ToolRetry also"))

    async def on_server_start(self, context: MiddlewareContext) -> list[Change]:
        names = [tool.name for tool in context.tools]
        for name in sorted(self.also.difference(names)):
            for near in get_close_matches(name, names, n=1, cutoff=0.85):
                raise InvalidOption(f"ToolRetry: there is no tool {name!r}; did you mean {near!r}?")
        return []

    async def around_tool_call(
        self, call: ToolCall, call_next: ToolInvocation, context: MiddlewareContext
    ) -> ToolOutcome:
        tool = context.tools.get(call.name)
        if tool is None or not (tool.idempotent or call.name in self.also):
            return await call_next(call)
        backoff = Backoff(self.policy, context.environment)
        while True:
            outcome = await call_next(call)
            wait = backoff.next_wait() if self._is_worth_it(outcome) else None
            if wait is None:
                return outcome
            await backoff.wait(wait)

    def _is_worth_it(self, outcome: ToolOutcome) -> bool:
        if outcome.exception is not None:
            return self.when(outcome.exception)
        return outcome.result.problem == "timeout"
