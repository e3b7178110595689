"""CallLimits: how many model and tool calls a run, or a conversation in its whole life, may make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from sapwood.conversation import AddMessage, AssistantMessage, State, ToolCall, ToolResult, unanswered_calls
from sapwood.errors import InvalidOption, LimitReached
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import Change, HookResult, Middleware, ModelCall
from sapwood.models import ModelRequest

_UNITS: Final = {
    "model_calls": "model calls",
    "tool_calls": "tool calls",
    "conversation_model_calls": "model calls for the whole conversation",
    "conversation_tool_calls": "tool calls for the whole conversation",
}

OnLimit: TypeAlias = Literal["finish", "error"]
"""`finish`: the run ends as if the model had answered. `error`: the run fails."""

ON_LIMIT: Final = ("finish", "error")


class CallLimits(Middleware):
    """Bounds the model calls and the tool calls of each run, and of a conversation over all its runs.

    The counts are those of the journal, so a restart or a resumed run begins no new ones. With `on_limit="finish"` a
    model call beyond the limit is not made: the run ends with an answer that says why, its stop reason is `limit`.
    Tool calls beyond a limit are not run: each gets an error result, and the model may still answer. With `"error"`
    the run fails with `LimitReached` in both cases.

    The limit `Agent(limits=Limits(model_calls=...))` holds beside these.

    Args:
        model_calls: Most model calls of one run; None for no limit.
        tool_calls: Most tool calls of one run, of all tools together.
        conversation_model_calls: Most model calls of the conversation.
        conversation_tool_calls: Most tool calls of the conversation.
        on_limit: What happens beyond a limit.

    Raises:
        InvalidOption: if a limit is below 1, or 0 for tool calls, or there is none at all, or `on_limit` is unknown.
    """

    def __init__(
        self,
        *,
        model_calls: int | None = None,
        tool_calls: int | None = None,
        conversation_model_calls: int | None = None,
        conversation_tool_calls: int | None = None,
        on_limit: OnLimit = "finish",
    ) -> None:
        least = {"model_calls": 1, "tool_calls": 0, "conversation_model_calls": 1, "conversation_tool_calls": 0}
        given = {
            "model_calls": model_calls,
            "tool_calls": tool_calls,
            "conversation_model_calls": conversation_model_calls,
            "conversation_tool_calls": conversation_tool_calls,
        }
        for option, value in given.items():
            if value is not None and (type(value) is not int or value < least[option]):
                raise InvalidOption(f"CallLimits {option}: expected None or an int >= {least[option]}; got {value!r}")
        if all(value is None for value in given.values()):
            raise InvalidOption(f"CallLimits: expected at least one of {', '.join(given)}; got none")
        if on_limit not in ON_LIMIT:
            raise InvalidOption(f"CallLimits on_limit: expected finish or error; got {on_limit!r}")
        self.limits: Mapping[str, int | None] = given
        self.on_limit: OnLimit = on_limit

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        state = context.state
        made = state.run.model_calls if state.run is not None else 0
        # The present call is among those counted.
        reached = self._reached(("model_calls", made - 1), ("conversation_model_calls", state.counters.model_calls - 1))
        if reached is None:
            return await call_next(request)
        if self.on_limit == "error":
            raise reached
        return AssistantMessage(f"I stopped: {reached}.", stop_reason="limit")

    async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
        calls = _untouched(state)
        if not calls:
            return None
        made = state.run.tool_calls if state.run is not None else 0
        changes: list[Change] = []
        for ahead, call in enumerate(calls):
            reached = self._reached(
                ("tool_calls", made + ahead), ("conversation_tool_calls", state.counters.tool_calls + ahead)
            )
            if reached is None:
                continue
            if self.on_limit == "error":
                raise reached
            content = f"Error: {call.name} was not run: {reached}"
            new_id = context.environment.new_id("msg_")
            changes.append(
                AddMessage(ToolResult(call.id, call.name, content, is_error=True, id=new_id, problem="limit"))
            )
        return changes

    def _reached(self, *made: tuple[str, int]) -> LimitReached | None:
        for option, count in made:
            limit = self.limits[option]
            if limit is not None and count >= limit:
                return LimitReached(option, limit, _UNITS[option])
        return None


def _untouched(state: State) -> tuple[ToolCall, ...]:
    """Return the calls of the last answer that nothing has been done about yet."""
    messages = state.messages
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], AssistantMessage):
            known = {each.call.id for each in state.pending} | {each.id for each in state.interrupts}
            return tuple(call for call in unanswered_calls(messages[index:]) if call.id not in known)
    return ()
