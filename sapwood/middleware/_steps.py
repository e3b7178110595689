"""Steps of a conversation, and the places between them where it may be cut."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate

from sapwood.conversation import AssistantMessage, Message, ToolResult, UserMessage


def step_starts(messages: Sequence[Message]) -> list[int]:
    """Return where each step begins: what people said, the answer to it, and the results of the answer's calls.

    The first step begins at 0, whatever stands there.
    """
    starts = [0] if messages else []
    answered = False
    for index, message in enumerate(messages):
        match message:
            case UserMessage() if answered:
                starts.append(index)
                answered = False
            case AssistantMessage():
                if answered:
                    starts.append(index)
                answered = True
            case _:
                pass
    return starts


def safe_cuts(messages: Sequence[Message], open_calls: Collection[str] = ()) -> list[int]:
    """Return the starts of steps that part no call from its result, wherever that stands (BR-61, BR-62).

    Args:
        messages: The conversation.
        open_calls: Ids of calls whose results are still to come; they stand after every cut.
    """
    crossing = [0] * (len(messages) + 1)
    waiting: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                waiting.setdefault(call.id, []).append(index)
        elif isinstance(message, ToolResult) and waiting.get(message.call_id):
            called = waiting[message.call_id].pop()
            crossing[called + 1] += 1
            crossing[index + 1] -= 1
    for call_id in open_calls:
        for called in waiting.get(call_id, ()):
            crossing[called + 1] += 1
    parted = list(accumulate(crossing))
    return [start for start in step_starts(messages) if parted[start] == 0]
