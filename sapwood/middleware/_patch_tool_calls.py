"""PatchToolCalls: no model call ever sees a tool call without its result."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.conversation import (
    AddMessage,
    AssistantMessage,
    Message,
    State,
    ToolCall,
    ToolResult,
    evolve,
    orphan_results,
    unanswered_calls,
)
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import Change, HookResult, Middleware, ReplaceMessages


class PatchToolCalls(Middleware):
    """Gives every call that will never be answered an error result, before each model call (S4-015).

    Such calls come from imported conversations and from summaries; providers refuse every later turn of a
    conversation that holds one. Calls that are still journaled as pending are left alone. A call whose id a later
    answer uses again can get no result any more and is taken out, and so are results without a call. A conversation
    that is in order is not touched.

    Args:
        content: What the model reads in place of a result.
    """

    def __init__(self, content: str = "this call was interrupted before it had a result") -> None:
        self.content = content

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        # What was in order before the last model call need not be looked at again, or every turn of a long
        # conversation would cost more than the one before.
        known: tuple[Message, ...] = context.local.get(self.name, ())
        is_known = state.messages[: len(known)] == known
        messages = state.messages[len(known) :] if is_known else state.messages
        dangling = unanswered_calls(messages)
        changes: list[Change] = [*_without_covered(messages, dangling)]
        pending = {each.call.id for each in state.pending}
        for call in {call.id: call for call in dangling if call.id not in pending}.values():
            new_id = context.environment.new_id("msg_")
            content = f"Error: {self.content}"
            changes.append(AddMessage(ToolResult(call.id, call.name, content, is_error=True, id=new_id)))
        orphans = tuple(result.id for result in orphan_results(messages) if result.id)
        if orphans:
            changes.append(ReplaceMessages(removed=orphans))
        if not dangling and not changes:
            context.local[self.name] = state.messages
        return changes


def _without_covered(messages: tuple[Message, ...], dangling: tuple[ToolCall, ...]) -> Iterator[ReplaceMessages]:
    """Take out the dangling calls whose ids later answers use again: a result goes to the latest call of its id."""
    if not dangling:
        return
    open_now = {id(call) for call in dangling}
    later: set[str] = set()
    for message in reversed(messages):
        if not isinstance(message, AssistantMessage):
            continue
        covered = [call for call in message.tool_calls if id(call) in open_now and call.id in later]
        later.update(call.id for call in message.tool_calls)
        if covered and message.id:
            kept = tuple(call for call in message.tool_calls if call not in covered)
            rest = (evolve(message, tool_calls=kept),) if kept or message.text else ()
            yield ReplaceMessages((message.id,), rest)
