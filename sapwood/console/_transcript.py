"""The transcript: what an agent does, in short lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sapwood.console._terminal import arguments_line, count, one_line
from sapwood.conversation import (
    AgentShutdown,
    Gap,
    Interrupt,
    InterruptDecided,
    InterruptRaised,
    RunFinished,
    StreamEvent,
    TextDiscarded,
    Todo,
    TodoStatus,
    ToolCall,
    ToolFinished,
    ToolResult,
    ToolStarted,
)

MARKS: Final[Mapping[TodoStatus, str]] = {"pending": "☐", "in_progress": "◐", "completed": "☑", "cancelled": "☒"}
RESULT_WIDTH: Final = 100


def call_line(call: ToolCall) -> str:
    """Return a call as a person would write it; arguments that could not be read, as the model wrote them."""
    return f"{call.name}({one_line(call.malformed, 60) if call.malformed else arguments_line(call.arguments)})"


def result_line(result: ToolResult) -> str:
    """Return the first line of a result, and how many more there are."""
    first, *more = result.content.splitlines() or [""]
    rest = f" (+{count(len(more), 'line')})" if more else ""
    return f"{'✗' if result.is_error else '←'} {one_line(first, RESULT_WIDTH)}{rest}"


def todo_lines(todos: Iterable[Todo]) -> list[str]:
    """Return to-dos, one a line after its mark and its number."""
    return [f"{MARKS[todo.status]} {todo.id} {one_line(todo.content)}" for todo in todos]


def interrupt_line(interrupt: Interrupt) -> str:
    """Return what a person is asked."""
    return f"? {call_line(interrupt.call)}: {one_line(interrupt.reason)}"


def line_of(event: StreamEvent) -> str | None:
    """Return an event in one line, or None if it is shown in another way or not at all."""
    match event:
        case ToolStarted():
            again = f" · attempt {event.attempt}" if event.attempt > 1 else ""
            return f"→ {call_line(event.call)}{again}"
        case ToolFinished():
            return result_line(event.result)
        case InterruptRaised():
            return interrupt_line(event.interrupt)
        case InterruptDecided():
            by = f" by {one_line(event.by)}" if event.by else ""
            return f"· decided: {event.verdict}{by}"
        case TextDiscarded():
            return f"· the model is asked again, the text so far is void: {one_line(event.reason)}"
        case RunFinished() if event.outcome in ("failed", "cancelled"):
            how = "has failed" if event.outcome == "failed" else "has been cancelled"
            return f"✗ the run {how}: {one_line(event.reason)}"
        case AgentShutdown():
            return f"· the agent's server has stopped ({one_line(event.reason)})"
        case Gap():
            return f"· {count(event.to_seq - event.from_seq + 1, 'event')} dropped, because this reader was slow"
        case _:
            return None
