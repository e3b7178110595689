"""The turn: what a conversation's state says about the calls that are still open, and how they are settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sapwood.conversation import (
    AssistantMessage,
    Interrupt,
    Problem,
    State,
    ToolCall,
    ToolResult,
    journal,
    lifted_from,
    unanswered_calls,
)

UNKNOWN_OUTCOME: Final = (
    "Error: the process ended while {name} was running; whether it had its effect is unknown. Check before trying again"
)
STOPPED: Final = "Error: {name} was stopped ({why}); it may have had its effect. Check before trying again"
LEFT: Final = (
    "Error: {name} was left open by an earlier run; whether it had its effect is unknown. Check before trying again"
)
NOT_RUN: Final = "Error: {name} was not run ({why})"


def last_answer(state: State) -> AssistantMessage | None:
    """Return the model's last answer, which may have messages after it; None if there is none."""
    return next((each for each in reversed(state.messages) if isinstance(each, AssistantMessage)), None)


def final_answer(state: State) -> AssistantMessage | None:
    """Return the answer that ends the turn: the last message, if it calls no tools."""
    last = state.messages[-1] if state.messages else None
    return last if isinstance(last, AssistantMessage) and not last.tool_calls else None


def final_text(state: State) -> str:
    """Return the text of the answer that the conversation ends with; empty if it ends with something else."""
    last = state.messages[-1] if state.messages else None
    return last.text if isinstance(last, AssistantMessage) else ""


def open_calls(state: State) -> tuple[ToolCall, ...]:
    """Return the calls of the model's last answer that have no result yet, in order."""
    for index in range(len(state.messages) - 1, -1, -1):
        if isinstance(state.messages[index], AssistantMessage):
            return unanswered_calls(state.messages[index:])
    return ()


def untouched_calls(state: State) -> tuple[ToolCall, ...]:
    """Return the open calls that are neither journaled as intended nor the subject of an interrupt."""
    known = {each.call.id for each in state.pending} | {each.id for each in state.interrupts}
    return tuple(call for call in open_calls(state) if call.id not in known)


def holding(state: State) -> tuple[Interrupt, ...]:
    """Return the open interrupts that hold back the run: not those of sub-agents that work in the background."""
    calls = {each.call.id for each in state.pending}
    origins = ((each, lifted_from(each)) for each in state.interrupts)
    return tuple(each for each, origin in origins if origin is None or origin[0] in calls)


def undecided(state: State) -> tuple[Interrupt, ...]:
    """Return those of them that nobody has decided."""
    held = {each.id for each in holding(state)}
    return tuple(each for each in state.undecided if each.id in held)


def is_about_a_call(state: State, interrupt: Interrupt) -> bool:
    """Say whether an interrupt holds back a tool call, and not the run as a whole."""
    return any(each.call.id == interrupt.id for each in state.pending) or any(
        call.id == interrupt.id for call in open_calls(state)
    )


def settle(state: State, why: str, new_id: Callable[[str], str]) -> list[journal.JournalEvent]:
    """Return the events that end everything open, each call with a result that says honestly what is known of it.

    Nothing may stay open without a run: a call without a result would spoil every later turn, and a decision about an
    interrupt would be taken and never acted on.

    Args:
        state: The conversation.
        why: What the results give as the reason.
        new_id: Makes ids of messages from a prefix.
    """
    known: dict[str, tuple[ToolCall, str, Problem]] = {}
    for pending in state.pending:
        ran = pending.phase != "intended"
        known[pending.call.id] = pending.call, STOPPED if ran else NOT_RUN, "unknown" if ran else "stopped"
    for interrupt in state.interrupts:
        if interrupt.kind == "reconcile" and not interrupt.path:
            known[interrupt.id] = interrupt.call, UNKNOWN_OUTCOME, "unknown"
    for call in open_calls(state):
        known.setdefault(call.id, (call, NOT_RUN, "stopped"))
    results: list[journal.JournalEvent] = [
        journal.ToolFinished(error_result(call, text.format(name=call.name, why=why), new_id("msg_"), problem))
        for call, text, problem in known.values()
    ]
    return [*results, *(journal.InterruptClosed(each.id, "withdrawn") for each in holding(state))]


def leave_behind(state: State, new_id: Callable[[str], str]) -> list[journal.JournalEvent]:
    """Return the events that settle calls which no run will ever carry out, as in a conversation that was imported.

    Nobody runs them, since nobody knows whether that was done elsewhere.
    """
    return [
        journal.ToolFinished(error_result(call, LEFT.format(name=call.name), new_id("msg_"), "unknown"))
        for call in open_calls(state)
    ]


def error_result(call: ToolCall, text: str, message_id: str, problem: Problem) -> ToolResult:
    """Return the result of a call that failed."""
    return ToolResult(call_id=call.id, name=call.name, content=text, is_error=True, id=message_id, problem=problem)
