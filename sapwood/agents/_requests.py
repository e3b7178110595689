"""What one may ask of an agent's server."""

from __future__ import annotations

from typing import Any

import attrs

from sapwood.actors import Priority, Request, message
from sapwood.agents._log import Log
from sapwood.conversation import (
    AssistantMessage,
    Decision,
    DecisionOutcome,
    Delivery,
    State,
    StatusName,
    Until,
)
from sapwood.conversation import QueueAnswer as QueueAnswer
from sapwood.conversation import WhileRunning as WhileRunning
from sapwood.conversation.journal import RunOutcome


@attrs.frozen
class Receipt:
    """A message was taken: it is durable.

    Attributes:
        message_id: Its id.
        run_id: The run that it started; empty if it waits for the present one to end, or if that run is over.
        queued: Whether it waits.
        outcome: How its run ended, or why it waits now, if the message was sent again after that; else None.
        text: The answer that ended its run, if the message was sent again after that.
    """

    message_id: str
    run_id: str
    queued: bool
    outcome: RunOutcome | None = None
    text: str = ""


def receipt_of(state: State, message_id: str) -> Receipt | None:
    """Return the receipt of a message that was taken before, as it is now; None if it never was.

    A run does not name its messages, so what a message led to is read off the conversation: the first answer without
    tool calls after it, else the run that is open now.
    """
    if any(item.message.id == message_id for item in state.queue):
        return Receipt(message_id, "", queued=True)
    place = next((index for index, each in enumerate(state.messages) if each.id == message_id), None)
    if place is None:
        return None
    for each in state.messages[place:]:
        if isinstance(each, AssistantMessage) and not each.tool_calls and each is not state.messages[-1]:
            return Receipt(message_id, "", queued=False, outcome="completed", text=each.text)
    if state.run is not None:
        waits = state.run.phase if state.run.phase in ("interrupted", "paused") else None
        return Receipt(message_id, state.run.id, queued=False, outcome=waits)
    last = state.messages[-1]
    if isinstance(last, AssistantMessage) and not last.tool_calls:
        return Receipt(message_id, "", queued=False, outcome="completed", text=last.text)
    return Receipt(message_id, "", queued=False, outcome="failed" if state.error else "cancelled")


@attrs.frozen
class SessionStatus:
    """What an agent is doing.

    Attributes:
        agent_id: The conversation.
        agent: Name of the agent.
        status: `idle`, `running`, `interrupted`, `paused`, `waiting`, `error` or `stopped`.
        error: Why the last run failed; empty if it did not.
        run_id: The open run; empty if there is none.
        messages: How many there are.
        queued: Messages that wait for the present run to end.
        open_interrupts: Ids of what people have to decide.
        epoch: Fencing token of the present server.
        seq: Last sequence number of its journal.
        snapshot_problem: Why the last snapshot could not be saved; empty if it could. Nothing is lost, but restarts
            take longer.
    """

    agent_id: str
    agent: str
    status: StatusName
    error: str
    run_id: str
    messages: int
    queued: int
    open_interrupts: tuple[str, ...]
    epoch: int
    seq: int
    snapshot_problem: str = ""


def status_of(log: Log, agent: str) -> SessionStatus:
    """Return what an agent is doing, as its state says."""
    state = log.state
    return SessionStatus(
        agent_id=log.agent_id,
        agent=agent,
        status=state.status,
        error=state.error,
        run_id=state.run.id if state.run is not None else "",
        messages=len(state.messages),
        queued=len(state.queue),
        open_interrupts=tuple(each.id for each in state.undecided),
        epoch=log.epoch,
        seq=log.seq,
        snapshot_problem=log.snapshot_problem,
    )


GRACE = 2.0
"""Seconds that tools have to end by themselves when their run is cancelled."""


@message("agent.send")
class SendMessage(Request[Receipt]):
    """Add a person's message and run; what happens while a run is open the sender says (S4-020, UP-46)."""

    text: str
    message_id: str = ""
    delivery: Delivery = "next_run"
    while_running: WhileRunning = "queue"
    until: Until | None = None


@message("agent.edit_queued", priority=Priority.HIGH)
class EditQueued(Request[QueueAnswer]):
    """Change the text of a message that still waits."""

    message_id: str
    text: str


@message("agent.cancel_queued", priority=Priority.HIGH)
class CancelQueued(Request[QueueAnswer]):
    """Take back a message that still waits."""

    message_id: str


@message("agent.pause", priority=Priority.HIGH)
class PauseRun(Request[bool]):
    """Pause the open run at the next safe boundary; answers whether there was one."""


@message("agent.hold", priority=Priority.HIGH)
class HoldRun(Request[bool]):
    """Begin no run any more, and leave the open one at its next boundary; answers once nothing is at work.

    Nothing of it is journaled: whoever claims the conversation next goes on there.
    """


@message("agent.resume", priority=Priority.HIGH)
class ResumeRun(Request[bool]):
    """Let a run go on that is paused, or is about to be; answers whether there was one."""


@message("agent.cancel", priority=Priority.HIGH)
class CancelRun(Request[bool]):
    """Cancel the open run, keeping what was journaled; answers whether there was one.

    With `background` its sub-agents that work in the background end too.
    """

    reason: str = ""
    grace: float = GRACE
    background: bool = False


@message("agent.reset")
class Reset(Request[bool]):
    """Begin the conversation anew; true."""

    keep_metadata: bool = False


@message("agent.cut_off", priority=Priority.HIGH)
class CutOff:
    """The grace of a cancel is over."""

    serial: int


@message("agent.dismiss", priority=Priority.HIGH)
class Dismiss(Request[bool]):
    """Dismiss a halt; answers whether it was open."""

    interrupt_id: str


@message("agent.decide", priority=Priority.HIGH)
class Decide(Request[DecisionOutcome]):
    """Decide about one interrupt; the run goes on when nothing is undecided any more."""

    decision: Decision


@message("agent.status")
class GetStatus(Request[SessionStatus]):
    """Say what the agent is doing."""


@message("agent.state")
class GetState(Request[State]):
    """Return the conversation."""


@message("agent.notify")
class NotifyMiddleware(Request[bool]):
    """Hand a message to a middleware by its name; answers whether there is such a one (S4-011)."""

    middleware: str
    message: Any
