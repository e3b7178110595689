"""Journal events: every change of a conversation, written before its effect can be seen."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sapwood.actors import record
from sapwood.conversation._interrupts import Decision, Interrupt
from sapwood.conversation._messages import AssistantMessage, Message, ToolCall, ToolResult
from sapwood.conversation._operations import Operation
from sapwood.conversation._state import QueuedMessage, RunTrigger

RunOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "interrupted", "paused", "waiting"]
"""The first three end a run; the others suspend it."""

ClosingOutcome: TypeAlias = Literal["carried_out", "withdrawn", "expired", "dismissed"]
"""Acted upon, made pointless by a message or a cancel, out of time, or a halt that somebody dismissed."""


@record("conversation.created")
class ConversationCreated:
    """A conversation begins.

    Attributes:
        agent: Name of the agent.
        definition: Hash of its definition.
        at: Wall-clock seconds since 1970 UTC.
    """

    agent: str
    definition: str = ""
    at: float = 0.0


@record("message.added")
class MessageAdded:
    """A message joins the conversation; a tool result goes next to its call."""

    message: Message


@record("message.queued")
class MessageQueued:
    """A message was accepted and waits for its delivery."""

    item: QueuedMessage


@record("message.unqueued")
class MessageUnqueued:
    """A queued message leaves the queue: delivered into the conversation in the same step, or cancelled."""

    id: str
    fate: Literal["delivered", "cancelled"] = "delivered"


@record("message.edited")
class QueuedMessageEdited:
    """The text of a message that still waits was changed."""

    id: str
    text: str


@record("run.started")
class RunStarted:
    """A run starts, or an open one goes on if it has the same id.

    Attributes:
        run_id: Id of the run.
        trigger: Why.
        at: Wall-clock seconds since 1970 UTC.
    """

    run_id: str
    trigger: RunTrigger = "message"
    at: float = 0.0


@record("run.finished")
class RunFinished:
    """A run ended or was suspended; of no effect if another run is open.

    Attributes:
        run_id: Id of the run.
        outcome: How.
        detail: Why, in words; of a failed run it becomes the conversation's error.
        at: Wall-clock seconds since 1970 UTC.
    """

    run_id: str
    outcome: RunOutcome = "completed"
    detail: str = ""
    at: float = 0.0


@record("model.started")
class ModelCallStarted:
    """A model call begins; it counts even if no answer comes."""

    run_id: str
    model: str = ""


@record("model.answered")
class ModelAnswered:
    """The model's complete answer joins the conversation, and its usage the totals."""

    run_id: str
    message: AssistantMessage


@record("tool.intended")
class ToolIntended:
    """A call is about to be dispatched; written before it is, with the key that every attempt will use (C18).

    Attributes:
        call: The call as it will run, edits included.
        key: Idempotency key.
        attempt: Number of the attempt, from 1.
    """

    call: ToolCall
    key: str
    attempt: int = 1


@record("tool.started")
class ToolStarted:
    """The tool begins; from now on nobody can say that it had no effect until `ToolFinished`."""

    call_id: str


@record("tool.finished")
class ToolFinished:
    """The result of a call and its state operations, in one step; a second one for a call has no effect."""

    result: ToolResult
    operations: tuple[Operation, ...] = ()


@record("operations.applied")
class OperationsApplied:
    """State operations of a middleware or of the host, applied in order.

    Attributes:
        operations: The operations.
        source: Who asked for them.
    """

    operations: tuple[Operation, ...]
    source: str = ""


@record("messages.replaced")
class MessagesReplaced:
    """Messages give way to others, as in a summary or a repair.

    Attributes:
        removed: Ids of messages to remove; results whose calls go with them go too.
        inserted: Messages to insert, in order; tool results go next to their calls.
        before: Id of the message to insert before. Empty: where the first removed one was, else at the end.
        source: Who asked for it.
    """

    removed: tuple[str, ...] = ()
    inserted: tuple[Message, ...] = ()
    before: str = ""
    source: str = ""


@record("interrupt.raised")
class InterruptRaised:
    """An interrupt is open; written before it is announced. Of no effect if one with its id is open."""

    interrupt: Interrupt


@record("interrupt.decided")
class InterruptDecided:
    """A decision was accepted; written before it is acted on. Of no effect if there is one already."""

    decision: Decision


@record("interrupt.closed")
class InterruptClosed:
    """An interrupt is no longer open."""

    id: str
    outcome: ClosingOutcome = "carried_out"


@record("state.reset")
class StateReset:
    """The conversation starts anew; the agent, the counters and the usage stay.

    Attributes:
        keep_metadata: Whether the metadata stays too.
    """

    keep_metadata: bool = False


JournalEvent: TypeAlias = (
    ConversationCreated
    | MessageAdded
    | MessageQueued
    | MessageUnqueued
    | QueuedMessageEdited
    | RunStarted
    | RunFinished
    | ModelCallStarted
    | ModelAnswered
    | ToolIntended
    | ToolStarted
    | ToolFinished
    | OperationsApplied
    | MessagesReplaced
    | InterruptRaised
    | InterruptDecided
    | InterruptClosed
    | StateReset
)
"""Everything that a journal may hold."""
