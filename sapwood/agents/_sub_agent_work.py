"""How the work of a sub-agent ended, read off its conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from sapwood.agents._submit_result import SUBMIT
from sapwood.conversation import (
    AssistantMessage,
    Message,
    State,
    SubAgent,
    SubAgentOutcome,
    ToolResult,
    Usage,
)

KEY: Final = "sub_agent"
"""Where the metadata of a sub-agent's conversation say whose it is."""

ENDED: Final[Mapping[str, str]] = {"completed": "is done", "failed": "failed", "cancelled": "was cancelled"}
"""What is said of a sub-agent whose work is over."""


@attrs.frozen
class WorkEnd:
    """How the work ended.

    Attributes:
        outcome: `completed`, `failed` or `cancelled`.
        text: The result, or why there is none.
        usage: Tokens that it used.
    """

    outcome: SubAgentOutcome
    text: str = ""
    usage: Usage = attrs.field(factory=Usage)


def task_id(sub_agent: SubAgent) -> str:
    """Return the id of the message that says what it has to do, so that it is said once."""
    return f"task_{sub_agent.key}"


def was_told(state: State) -> bool:
    """Say whether a sub-agent knows its task; a summary may have taken the message away."""
    return state.counters.runs > 0 or bool(state.queue)


def end_of(state: State, *, submits: bool) -> WorkEnd | None:
    """Return how the work ended; None while it goes on.

    Args:
        state: The conversation of the sub-agent.
        submits: Whether its result is what it hands in, and not what it says last.
    """
    at_work = state.run is not None or bool(state.queue) or any(not each.outcome for each in state.sub_agents)
    if at_work or not was_told(state):
        return None
    usage = total_usage(state)
    text = _submitted(state.messages) if submits else _said(state.messages)
    if text is not None and not state.error:
        return WorkEnd("completed", text, usage)
    if state.error:
        return WorkEnd("failed", state.error, usage)
    return WorkEnd("cancelled", "its run was cancelled", usage)


def total_usage(state: State) -> Usage:
    """Return the tokens of a conversation with those of its sub-agents."""
    return sum((each.usage for each in state.sub_agents), start=state.usage)


def _said(messages: Sequence[Message]) -> str | None:
    last = messages[-1] if messages else None
    return last.text if isinstance(last, AssistantMessage) and not last.tool_calls else None


def _submitted(messages: Sequence[Message]) -> str | None:
    last = messages[-1] if messages else None
    accepted = {each.call_id for each in messages if isinstance(each, ToolResult) and not each.is_error}
    if not isinstance(last, ToolResult):
        return None
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if call.name == SUBMIT and call.id in accepted:
                    result: Any = call.arguments["result"]
                    return json.dumps(result, ensure_ascii=False)
    return None
