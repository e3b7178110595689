"""What subscribers are told of what was journaled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from sapwood.agents._publisher import Publisher
from sapwood.agents._turn import final_text
from sapwood.conversation import (
    AddMessage,
    InterruptClosed,
    InterruptDecided,
    InterruptRaised,
    MessageCompleted,
    MetadataChanged,
    ModelAttemptFailed,
    Operation,
    PatchMetadata,
    QueueChanged,
    RunFinished,
    State,
    StatusChanged,
    StatusName,
    SubAgentFinished,
    SubAgentStarted,
    TodosChanged,
    ToolDeferred,
    ToolFinished,
    ToolResult,
    ToolStarted,
    Usage,
    UsageCounted,
    journal,
)

NOTHING = Usage()


@attrs.frozen
class Step:
    """One journaled event and the states around it."""

    event: journal.JournalEvent
    before: State
    after: State


def steps_of(state: State, events: Sequence[journal.JournalEvent]) -> list[Step]:
    """Fold events into a state, one step for each."""
    steps: list[Step] = []
    for event in events:
        after = journal.apply(state, event)
        steps.append(Step(event, state, after))
        state = after
    return steps


def announce(publisher: Publisher, steps: Sequence[Step]) -> None:
    """Publish what the events of one commit mean to those who watch, in order.

    The status comes before the end of the run that led to it. Between a run and the one that takes over the messages
    which waited for its end there is no idle moment, and none is announced (AR-24.3).
    """
    told = steps[0].before.status
    for step, following in zip(steps, (*steps[1:], None), strict=True):
        match step.event:
            case journal.RunStarted():
                told = _status(publisher, told, step)
            case journal.RunFinished():
                if step.event.outcome in ("failed", "cancelled"):
                    publisher.discard(step.event.run_id, step.event.detail or step.event.outcome)
                if following is None or not _takes_over(following.event):
                    told = _status(publisher, told, step)
                _end(publisher, step.event, step.before)
            case _:
                tell = _ANNOUNCEMENTS.get(type(step.event))
                if tell is not None:
                    tell(publisher, _run_id(step), step.event, step)
        if step.after.todos is not step.before.todos and step.after.todos != step.before.todos:
            publisher.publish(TodosChanged, _run_id(step), todos=step.after.todos)
        if step.after.queue is not step.before.queue and step.after.queue != step.before.queue:
            publisher.publish(QueueChanged, _run_id(step), queue=step.after.queue)
    _status(publisher, told, steps[-1])


def _takes_over(event: journal.JournalEvent) -> bool:
    return isinstance(event, journal.RunStarted) and event.trigger in ("queue", "self")


def _run_id(step: Step) -> str:
    run = step.after.run or step.before.run
    return run.id if run is not None else ""


def _status(publisher: Publisher, told: StatusName, step: Step) -> StatusName:
    status = step.after.status
    if status != told:
        publisher.publish(StatusChanged, _run_id(step), status=status, detail=step.after.error)
    return status


def _end(publisher: Publisher, event: journal.RunFinished, before: State) -> None:
    publisher.publish(
        RunFinished,
        event.run_id,
        outcome=event.outcome,
        text=final_text(before),
        reason=event.detail,
        cause=event.cause,
    )


def _message(publisher: Publisher, run_id: str, event: journal.MessageAdded, step: Step) -> None:
    publisher.publish(MessageCompleted, run_id, message=event.message)


def _answered(publisher: Publisher, run_id: str, event: journal.ModelAnswered, step: Step) -> None:
    publisher.publish(MessageCompleted, run_id, message=event.message)
    publisher.publish(UsageCounted, run_id, usage=event.message.usage, total=step.after.usage)


def _attempt_failed(publisher: Publisher, run_id: str, event: journal.ModelAttemptFailed, step: Step) -> None:
    publisher.discard(run_id, event.problem)
    if event.following != "stop":
        publisher.publish(
            ModelAttemptFailed,
            run_id,
            model=event.model,
            problem=event.problem,
            following=event.following,
            next_model=event.next_model,
            wait=event.wait,
        )
    if event.usage != NOTHING:
        publisher.publish(UsageCounted, run_id, usage=event.usage, total=step.after.usage)


def _deferred(publisher: Publisher, run_id: str, event: journal.ToolDeferred, step: Step) -> None:
    publisher.publish(ToolDeferred, run_id, call_id=event.call_id, deferral=event.deferral)


def _started(publisher: Publisher, run_id: str, event: journal.ToolStarted, step: Step) -> None:
    pending = next((each for each in step.after.pending if each.call.id == event.call_id), None)
    if pending is not None:
        publisher.publish(ToolStarted, run_id, call=pending.call, attempt=pending.attempt)


def _finished(publisher: Publisher, run_id: str, event: journal.ToolFinished, step: Step) -> None:
    publisher.publish(ToolFinished, run_id, result=event.result)
    _operations(publisher, run_id, event.operations)


def _applied(publisher: Publisher, run_id: str, event: journal.OperationsApplied, step: Step) -> None:
    _operations(publisher, run_id, event.operations)


def _operations(publisher: Publisher, run_id: str, operations: tuple[Operation, ...]) -> None:
    for operation in operations:
        match operation:
            case PatchMetadata(values, removed):
                publisher.publish(MetadataChanged, run_id, values=values, removed=removed)
            case AddMessage(ToolResult() as result):
                publisher.publish(ToolFinished, run_id, result=result)
            case AddMessage(message):
                publisher.publish(MessageCompleted, run_id, message=message)
            case _:
                pass  # to-dos are compared as a whole


def _replaced(publisher: Publisher, run_id: str, event: journal.MessagesReplaced, step: Step) -> None:
    for message in event.inserted:
        publisher.publish(MessageCompleted, run_id, message=message)


def _unqueued(publisher: Publisher, run_id: str, event: journal.MessageUnqueued, step: Step) -> None:
    if event.fate == "delivered" and step.after.messages is not step.before.messages:
        publisher.publish(MessageCompleted, run_id, message=step.after.messages[-1])


def _raised(publisher: Publisher, run_id: str, event: journal.InterruptRaised, step: Step) -> None:
    publisher.publish(InterruptRaised, run_id, interrupt=event.interrupt)


def _decided(publisher: Publisher, run_id: str, event: journal.InterruptDecided, step: Step) -> None:
    decision = event.decision
    publisher.publish(
        InterruptDecided,
        run_id,
        interrupt_id=decision.interrupt_id,
        verdict=decision.verdict,
        by=decision.by,
        reason=decision.reason,
    )


def _closed(publisher: Publisher, run_id: str, event: journal.InterruptClosed, step: Step) -> None:
    publisher.publish(InterruptClosed, run_id, interrupt_id=event.id, outcome=event.outcome)


def _sub_agent_started(publisher: Publisher, run_id: str, event: journal.SubAgentStarted, step: Step) -> None:
    path = (step.after.agent, event.sub_agent.agent)
    publisher.publish(SubAgentStarted, run_id, sub_agent=event.sub_agent, path=path)


def _sub_agent_ended(publisher: Publisher, run_id: str, event: journal.SubAgentEnded, step: Step) -> None:
    sub_agent = next((each for each in step.before.sub_agents if each.id == event.id), None)
    if sub_agent is not None:
        publisher.publish(
            SubAgentFinished,
            run_id,
            path=(step.after.agent, sub_agent.agent),
            sub_agent=sub_agent.agent_id,
            outcome=event.outcome,
            detail=event.detail,
        )


Announcement: TypeAlias = Callable[[Publisher, str, Any, Step], None]

_ANNOUNCEMENTS: Mapping[type, Announcement] = {
    journal.MessageAdded: _message,
    journal.MessageUnqueued: _unqueued,
    journal.MessagesReplaced: _replaced,
    journal.ModelAnswered: _answered,
    journal.ToolStarted: _started,
    journal.ModelAttemptFailed: _attempt_failed,
    journal.ToolDeferred: _deferred,
    journal.ToolFinished: _finished,
    journal.OperationsApplied: _applied,
    journal.InterruptRaised: _raised,
    journal.InterruptDecided: _decided,
    journal.InterruptClosed: _closed,
    journal.SubAgentStarted: _sub_agent_started,
    journal.SubAgentEnded: _sub_agent_ended,
}
