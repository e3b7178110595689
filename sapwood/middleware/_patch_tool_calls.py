"""PatchToolCalls: no model call ever sees a tool call without its result."""

from __future__ import annotations

from sapwood.conversation import AddMessage, State, ToolResult, orphan_results, unanswered_calls
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import Change, HookResult, Middleware, ReplaceMessages


class PatchToolCalls(Middleware):
    """Gives every call that will never be answered an error result, before each model call (S4-015).

    Such calls come from imported conversations and from summaries; providers refuse every later turn of a
    conversation that holds one. Calls that are still journaled as pending are left alone. Results without a call are
    taken out. A conversation that is in order is not touched.

    Args:
        content: What the model reads in place of a result.
    """

    def __init__(self, content: str = "this call was interrupted before it had a result") -> None:
        self.content = content

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        pending = {each.call.id for each in state.pending}
        changes: list[Change] = [
            AddMessage(
                ToolResult(
                    call_id=call.id,
                    name=call.name,
                    content=f"Error: {self.content}",
                    is_error=True,
                    id=context.environment.new_id("msg_"),
                )
            )
            for call in unanswered_calls(state.messages)
            if call.id not in pending
        ]
        orphans = tuple(result.id for result in orphan_results(state.messages) if result.id)
        if orphans:
            changes.append(ReplaceMessages(removed=orphans))
        return changes
