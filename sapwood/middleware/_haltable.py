"""Haltable: a tool or a rule may stop the run for good, with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from sapwood.conversation import Interrupt, PatchMetadata, State, ToolCall, evolve
from sapwood.errors import InvalidOption
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import HookResult, Middleware, Suspend, ToolInvocation
from sapwood.tools import ToolOutcome, ToolOutput

KEY: Final = "halt"
"""Where a tool's wish to halt is kept in the metadata, with the run that it is about."""

HaltRule: TypeAlias = Callable[[State], str | None]
"""Looks at the conversation before a model call; returns why the run must halt, or None to let it go on."""


def halt(reason: str, content: Any = None) -> ToolOutput:
    """Return this from a tool to halt the run: the model is not called again.

    The agent needs `Haltable` among its middleware; without it the tool just answers.

    Args:
        reason: Why; people see it.
        content: What the tool answers; by default the reason.

    Raises:
        InvalidOption: if the reason is blank.
    """
    if not reason.strip():
        raise InvalidOption("halt: expected a reason that is not blank")
    return ToolOutput(reason if content is None else content, [PatchMetadata({KEY: {"reason": reason}})])


class Haltable(Middleware):
    """Lets tools, by returning `halt(reason)`, and a rule stop a run before its next model call.

    A halted run is `interrupted`: an interrupt of kind `halt` with the reason is open, over restarts as well, and
    takes no decision. The next message ends it and starts a new run. Tool calls of the same answer are all finished
    first, and one that halts among them is enough (AR-24.21).

    Args:
        when: The rule, asked before every model call; None for tools alone. An exception in it fails the run.
    """

    def __init__(self, when: HaltRule | None = None) -> None:
        self.when = when

    async def around_tool_call(
        self, call: ToolCall, call_next: ToolInvocation, context: MiddlewareContext
    ) -> ToolOutcome:
        outcome = await call_next(call)
        if not any(_halts(each) for each in outcome.operations):
            return outcome
        marked = tuple(_marked(each, call, context.run_id) for each in outcome.operations)
        return evolve(outcome, operations=marked)

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        reason, call = _wish(state, context.run_id)
        if not reason and self.when is not None:
            reason = self.when(state) or ""
        if not reason:
            return None
        now = context.environment.wall()
        return Suspend((Interrupt(f"halt:{context.run_id}", "halt", call, reason, created_at=now),))


def _halts(operation: object) -> bool:
    return isinstance(operation, PatchMetadata) and KEY in operation.values


def _marked(operation: Any, call: ToolCall, run_id: str) -> Any:
    if not _halts(operation):
        return operation
    wish = {**operation.values[KEY], "run": run_id, "call": call.id, "tool": call.name}
    return evolve(operation, values={**operation.values, KEY: wish})


def _wish(state: State, run_id: str) -> tuple[str, ToolCall]:
    stored: object = state.metadata.get(KEY)
    wish = cast("Mapping[str, Any]", stored) if isinstance(stored, Mapping) else dict[str, Any]()
    if wish.get("run") != run_id:
        return "", ToolCall("", "halt")
    return str(wish.get("reason", "")), ToolCall(str(wish.get("call", "")), str(wish.get("tool", "")))
