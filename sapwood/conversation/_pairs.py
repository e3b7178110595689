"""Calls and their results: providers accept a conversation only if each call is followed by exactly one result.

The results of an assistant message come directly after it, in the order of its calls (UP-25, UP-30).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sapwood.conversation._evolve import evolve
from sapwood.conversation._messages import AssistantMessage, Message, ToolCall, ToolResult

CANCELLED = "Error: this call was cancelled before it had a result"


def unanswered_calls(messages: Iterable[Message]) -> tuple[ToolCall, ...]:
    """Return the calls that have no result, in order."""
    return _match(messages)[0]


def orphan_results(messages: Iterable[Message]) -> tuple[ToolResult, ...]:
    """Return the results without an unanswered call before them, second results included, in order."""
    return tuple(_match(messages)[1].values())


def _match(messages: Iterable[Message]) -> tuple[tuple[ToolCall, ...], dict[int, ToolResult]]:
    calls: list[ToolCall] = []
    waiting: dict[str, list[int]] = {}
    orphans: dict[int, ToolResult] = {}
    answered: set[int] = set()
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                waiting.setdefault(call.id, []).append(len(calls))
                calls.append(call)
        elif isinstance(message, ToolResult):
            if waiting.get(message.call_id):
                answered.add(waiting[message.call_id].pop())
            else:
                orphans[index] = message
    return tuple(call for number, call in enumerate(calls) if number not in answered), orphans


def check_pairs(messages: Sequence[Message]) -> tuple[str, ...]:
    """Say everything a provider would refuse about calls and results; nothing if the conversation can be sent."""
    problems: list[str] = []
    due: list[str] = []
    for index, message in enumerate(messages):
        if isinstance(message, ToolResult):
            if message.call_id in due:
                due.remove(message.call_id)
            else:
                problems.append(f"messages[{index}]: answers {message.call_id!r}, no open call of the message before")
            continue
        problems += [f"messages[{index}]: comes before the result of call {call_id!r}" for call_id in due]
        due = [call.id for call in message.tool_calls] if isinstance(message, AssistantMessage) else []
        if len(set(due)) < len(due):
            problems.append(f"messages[{index}]: several calls with one id")
    problems += [f"call {call_id!r} has no result" for call_id in due]
    return tuple(problems)


def place_result(messages: tuple[Message, ...], result: ToolResult) -> tuple[Message, ...] | None:
    """Return the messages with the result next to its call, in the order of calls, whenever it arrives.

    The call is the latest one with that id. Returns None if there is none, or if it has a result already: the first
    result counts.
    """
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, ToolResult) and message.call_id == result.call_id:
            return None
        if isinstance(message, AssistantMessage):
            order = [call.id for call in message.tool_calls]
            if result.call_id in order:
                at = index + 1 + _earlier_results(messages[index + 1 :], order, order.index(result.call_id))
                # One copy where it comes last, as it nearly always does; unpacking would make two.
                return messages[:at] + (result,) + messages[at:] if at < len(messages) else messages + (result,)  # noqa: RUF005  # as above
    return None


def _earlier_results(following: Sequence[Message], order: list[str], place: int) -> int:
    count = 0
    for message in following:
        if not isinstance(message, ToolResult) or message.call_id not in order[:place]:
            break
        count += 1
    return count


def drop_orphans(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages without the results whose calls are gone."""
    orphans = _match(messages)[1]
    return tuple(message for index, message in enumerate(messages) if index not in orphans) if orphans else messages


def distinct_calls(message: AssistantMessage, known: Collection[str] = ()) -> AssistantMessage:
    """Return the message with an id of its own for every call: repeated and empty ids get a numbered one (BR-22).

    Args:
        message: An answer of a model.
        known: Ids that stand for something else already.
    """
    ids = [call.id for call in message.tool_calls]
    if all(ids) and len(set(ids)) == len(ids) and not set(ids).intersection(known):
        return message
    taken = {*ids, *known}
    seen: set[str] = set(known)
    calls: list[ToolCall] = []
    for call in message.tool_calls:
        new_id = call.id
        number = 1
        while not new_id or new_id in seen or (new_id != call.id and new_id in taken):
            number += 1
            new_id = f"{call.id or 'call'}_{number}"
        seen.add(new_id)
        calls.append(evolve(call, id=new_id))
    return evolve(message, tool_calls=tuple(calls))


def repair_pairs(messages: Sequence[Message], content: str = CANCELLED) -> tuple[Message, ...]:
    """Return a conversation that `check_pairs` finds nothing wrong with.

    Every result moves next to its call, calls without a result get an error result with `content`, results without a
    call are dropped, and calls of one message with one id get ids of their own. All other messages stay, in order.
    """
    owner: dict[str, int] = {}
    results: dict[tuple[int, str], list[ToolResult]] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            owner.update((call.id, index) for call in message.tool_calls)
        elif isinstance(message, ToolResult) and message.call_id in owner:
            results.setdefault((owner[message.call_id], message.call_id), []).append(message)
    repaired: list[Message] = []
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            distinct = distinct_calls(message)
            repaired.append(distinct)
            for old, call in zip(message.tool_calls, distinct.tool_calls, strict=True):
                known = results.get((index, old.id))
                if known:
                    repaired.append(evolve(known.pop(0), call_id=call.id))
                else:
                    repaired.append(ToolResult(call_id=call.id, name=call.name, content=content, is_error=True))
        elif not isinstance(message, ToolResult):
            repaired.append(message)
    return tuple(repaired)
