"""What subscribers are told of each journaled event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from sapwood.agents._publisher import Publisher
from sapwood.conversation import (
    AssistantMessage,
    InterruptClosed,
    InterruptDecided,
    InterruptRaised,
    MessageCompleted,
    MetadataChanged,
    Operation,
    PatchMetadata,
    RunFinished,
    State,
    StatusChanged,
    TodosChanged,
    ToolFinished,
    ToolStarted,
    UsageCounted,
    journal,
)

Announcement: TypeAlias = Callable[[Publisher, str, Any, State], None]


def announce(publisher: Publisher, event: journal.JournalEvent, before: State, after: State) -> None:
    """Publish what an event means to those who watch; the status comes before the end of a run, which comes last."""
    run = after.run or before.run
    run_id = run.id if run is not None else ""
    tell = _ANNOUNCEMENTS.get(type(event))
    if tell is not None and not isinstance(event, journal.RunFinished):
        tell(publisher, run_id, event, after)
    if after.todos != before.todos:
        publisher.publish(TodosChanged, run_id, todos=after.todos)


def announce_status(publisher: Publisher, before: State, after: State) -> None:
    """Publish a new status, if it is one."""
    if after.status != before.status:
        run = after.run or before.run
        publisher.publish(StatusChanged, run.id if run is not None else "", status=after.status, detail=after.error)


def announce_end(publisher: Publisher, event: journal.RunFinished, before: State) -> None:
    """Publish the end of a run, after the status that it led to."""
    publisher.publish(
        RunFinished, event.run_id, outcome=event.outcome, text=final_text(before), reason=event.detail
    )


def final_text(state: State) -> str:
    """Return the text of the model's last answer in this turn; empty if there is none."""
    last = state.messages[-1] if state.messages else None
    return last.text if isinstance(last, AssistantMessage) else ""


def _message(publisher: Publisher, run_id: str, event: journal.MessageAdded, _: State) -> None:
    publisher.publish(MessageCompleted, run_id, message=event.message)


def _answered(publisher: Publisher, run_id: str, event: journal.ModelAnswered, after: State) -> None:
    publisher.publish(MessageCompleted, run_id, message=event.message)
    publisher.publish(UsageCounted, run_id, usage=event.message.usage, total=after.usage)


def _started(publisher: Publisher, run_id: str, event: journal.ToolStarted, after: State) -> None:
    pending = next((each for each in after.pending if each.call.id == event.call_id), None)
    if pending is not None:
        publisher.publish(ToolStarted, run_id, call=pending.call, attempt=pending.attempt)


def _finished(publisher: Publisher, run_id: str, event: journal.ToolFinished, _: State) -> None:
    publisher.publish(ToolFinished, run_id, result=event.result)
    _operations(publisher, run_id, event.operations)


def _applied(publisher: Publisher, run_id: str, event: journal.OperationsApplied, _: State) -> None:
    _operations(publisher, run_id, event.operations)


def _operations(publisher: Publisher, run_id: str, operations: tuple[Operation, ...]) -> None:
    for operation in operations:
        if isinstance(operation, PatchMetadata):
            publisher.publish(MetadataChanged, run_id, values=operation.values, removed=operation.remove)


def _unqueued(publisher: Publisher, run_id: str, event: journal.MessageUnqueued, after: State) -> None:
    if event.fate == "delivered" and after.messages:
        publisher.publish(MessageCompleted, run_id, message=after.messages[-1])


def _raised(publisher: Publisher, run_id: str, event: journal.InterruptRaised, _: State) -> None:
    publisher.publish(InterruptRaised, run_id, interrupt=event.interrupt)


def _decided(publisher: Publisher, run_id: str, event: journal.InterruptDecided, _: State) -> None:
    decision = event.decision
    publisher.publish(
        InterruptDecided,
        run_id,
        interrupt_id=decision.interrupt_id,
        verdict=decision.verdict,
        by=decision.by,
        reason=decision.reason,
    )


def _closed(publisher: Publisher, run_id: str, event: journal.InterruptClosed, _: State) -> None:
    publisher.publish(InterruptClosed, run_id, interrupt_id=event.id, outcome=event.outcome)


_ANNOUNCEMENTS: Mapping[type, Announcement] = {
    journal.MessageAdded: _message,
    journal.MessageUnqueued: _unqueued,
    journal.ModelAnswered: _answered,
    journal.ToolStarted: _started,
    journal.ToolFinished: _finished,
    journal.OperationsApplied: _applied,
    journal.InterruptRaised: _raised,
    journal.InterruptDecided: _decided,
    journal.InterruptClosed: _closed,
}
