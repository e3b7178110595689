"""What one may ask of an agent's server."""

from __future__ import annotations

from typing import Any

import attrs

from sapwood.actors import Priority, Request, message
from sapwood.conversation import Decision, DecisionOutcome, State, StatusName


@attrs.frozen
class Receipt:
    """A message was taken: it is durable.

    Attributes:
        message_id: Its id.
        run_id: The run that it started; empty if it waits for the present one to end.
        queued: Whether it waits.
    """

    message_id: str
    run_id: str
    queued: bool


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


@message("agent.send")
class SendMessage(Request[Receipt]):
    """Add a person's message and run; while a run is open the message waits for its end, durably (S4-020)."""

    text: str
    message_id: str = ""


@message("agent.cancel", priority=Priority.HIGH)
class CancelRun(Request[bool]):
    """Cancel the open run, keeping what was journaled; answers whether there was one."""

    reason: str = ""


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
