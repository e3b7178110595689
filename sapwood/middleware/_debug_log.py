"""DebugLog: what an agent does, in structured log lines with times, and without secrets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from sapwood.actors import get_logger
from sapwood.conversation import AssistantMessage, State, ToolCall
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import Middleware, ModelCall, RunCall, ToolInvocation
from sapwood.middleware._redaction import redact, redact_text
from sapwood.models import ModelRequest
from sapwood.tools import ToolOutcome

Redact: TypeAlias = Callable[[Any], Any]
"""Returns a JSON-like value as it may be logged."""

LOGGER: Final = "sapwood.debug"


class DebugLog(Middleware):
    """Writes a structlog line at server start and at every hook of a run, with the seconds of what it wraps.

    Each line carries the agent, the conversation and the run. Durations are in seconds. Of what is said only sizes
    are logged, unless `content` is set; then texts, arguments and results are logged shortened, and whatever is named
    or looks like a secret is hidden. Values of the host are never logged. A logger that fails never reaches the agent.

    Times and answers are those that this layer sees: as the first of the list it measures all others, as the last the
    model and the tools alone.

    Args:
        logger: A structlog logger; by default `sapwood.actors.get_logger("sapwood.debug")`.
        content: Whether texts, arguments and results are logged.
        redact: Hides what must not be logged, after the built-in redaction.
        enabled: Whether it does anything at all.
    """

    def __init__(
        self, *, logger: Any = None, content: bool = False, redact: Redact | None = None, enabled: bool = True
    ) -> None:
        self.logger: Any = get_logger(LOGGER) if logger is None else logger
        self.content = content
        self.redact = redact
        self.enabled = enabled

    async def on_server_start(self, context: MiddlewareContext) -> None:
        state = context.state
        self._log(context, "server_started", messages=len(state.messages), status=state.status)

    async def before_model(self, state: State, context: MiddlewareContext) -> None:
        self._log(context, "before_model", messages=len(state.messages), todos=len(state.todos))

    async def after_model(self, state: State, context: MiddlewareContext) -> None:
        self._log(context, "after_model", messages=len(state.messages))

    async def around_run(self, call_next: RunCall, context: MiddlewareContext) -> None:
        begin = context.environment.monotonic()
        self._log(context, "run_started")
        try:
            await call_next()
        except BaseException as error:
            self._ended(context, "run_stopped", begin, error=error)
            raise
        usage = context.state.usage
        self._ended(context, "run_ended", begin, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        begin = context.environment.monotonic()
        sizes = {"messages": len(request.messages), "tools": len(request.tools), "system": len(request.system)}
        self._log(context, "model_called", **sizes)
        try:
            answer = await call_next(request)
        except BaseException as error:
            self._ended(context, "model_failed", begin, error=error)
            raise
        self._ended(
            context,
            "model_answered",
            begin,
            stop_reason=answer.stop_reason,
            calls=[call.name for call in answer.tool_calls],
            input_tokens=answer.usage.input_tokens,
            output_tokens=answer.usage.output_tokens,
            **self._said("text", answer.text),
        )
        return answer

    async def around_tool_call(
        self, call: ToolCall, call_next: ToolInvocation, context: MiddlewareContext
    ) -> ToolOutcome:
        begin = context.environment.monotonic()
        which = {"tool": call.name, "call_id": call.id}
        self._log(context, "tool_called", **which, **self._said("arguments", call.arguments))
        try:
            outcome = await call_next(call)
        except BaseException as error:
            self._ended(context, "tool_failed", begin, error=error, **which)
            raise
        result = outcome.result
        said = self._said("result", result.content)
        self._ended(context, "tool_answered", begin, is_error=result.is_error, **which, **said)
        return outcome

    def _said(self, name: str, value: Any) -> dict[str, Any]:
        if not self.content:
            return {f"{name}_size": len(value)}
        try:
            shown = redact(value)
            return {name: shown if self.redact is None else self.redact(shown)}
        except Exception:
            # What cannot be redacted is not logged.
            return {f"{name}_size": len(value)}

    def _ended(self, context: MiddlewareContext, event: str, begin: float, **fields: Any) -> None:
        error = fields.pop("error", None)
        if error is not None:
            fields["error"] = type(error).__name__
            if self.content:
                fields["reason"] = redact_text(str(error))
        self._log(context, event, seconds=round(context.environment.monotonic() - begin, 6), **fields)

    def _log(self, context: MiddlewareContext, event: str, **fields: Any) -> None:
        if not self.enabled:
            return
        try:
            self.logger.debug(
                event, agent=context.agent.name, conversation=context.agent_id, run=context.run_id, **fields
            )
        except Exception:
            # A log that cannot be written is no reason to fail a run.
            return
