"""Journal events: every change of a conversation, written before its effect can be seen."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

from sapwood.actors import record
from sapwood.conversation._interrupts import Decision, Interrupt
from sapwood.conversation._messages import AssistantMessage, Message, ToolCall, ToolResult, Usage
from sapwood.conversation._operations import Operation
from sapwood.conversation._origin import Origin
from sapwood.conversation._state import Deferral, QueuedMessage, RunTrigger, Until
from sapwood.conversation._sub_agents import SubAgent, SubAgentOutcome
from sapwood.conversation._todos import Todo

RunOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "interrupted", "paused", "waiting"]
"""The first three end a run; the others suspend it."""

Cause: TypeAlias = Literal["", "model", "refused", "limit", "not_called", "error"]
"""Why a run failed: no model could be reached, the model refused, a limit was used up, no tool was called that the run
was for, or something broke. Empty: it did not fail."""

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


@record("conversation.routed")
class ConversationRouted:
    """The conversation belongs to a factory, which builds its agent from this data at every start (S4-037).

    Attributes:
        routing: JSON-like; never a secret.
    """

    routing: dict[str, Any]


@record("conversation.copied")
class ConversationCopied:
    """A new conversation begins with what another one had; of no effect if something was said.

    Attributes:
        origin: Where it came from.
        messages: What had been said, every call with its result.
        todos: The to-dos.
        metadata: The metadata.
    """

    origin: Origin
    messages: tuple[Message, ...] = ()
    todos: tuple[Todo, ...] = ()
    metadata: dict[str, Any] = attrs.field(factory=dict[str, Any])


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
        until: What a new run has to bring about; None for an answer.
    """

    run_id: str
    trigger: RunTrigger = "message"
    at: float = 0.0
    until: Until | None = None


@record("run.pause_asked")
class PauseAsked:
    """The open run is to pause at the next safe boundary; until it goes on, or ends before."""

    run_id: str


@record("run.finished")
class RunFinished:
    """A run ended or was suspended; of no effect if another run is open.

    Attributes:
        run_id: Id of the run.
        outcome: How.
        detail: Why, in words; of a failed run it becomes the conversation's error.
        at: Wall-clock seconds since 1970 UTC.
        seconds: How long it ran since it was started or went on.
        cause: Why it failed, for code; empty if it did not.
    """

    run_id: str
    outcome: RunOutcome = "completed"
    detail: str = ""
    at: float = 0.0
    seconds: float = 0.0
    cause: Cause = ""


@record("model.started")
class ModelCallStarted:
    """A model call begins; it counts even if no answer comes."""

    run_id: str
    model: str = ""


AfterFailure: TypeAlias = Literal["retry", "fallback", "fail", "stop"]
"""What follows a failed attempt: the same model again, the next model, or nothing. `stop`: it was cancelled."""


@record("model.attempt_failed")
class ModelAttemptFailed:
    """An attempt to call a model failed. Its tokens count, and so does the call that follows it.

    Attributes:
        run_id: Id of the run.
        model: The model that failed.
        problem: What it failed with.
        usage: Tokens that it consumed, estimated from what was sent and received.
        following: What is done about it.
        next_model: The model that is called next; empty if none is.
        wait: Seconds until then.
    """

    run_id: str
    model: str
    problem: str
    usage: Usage = attrs.field(factory=Usage)
    following: AfterFailure = "fail"
    next_model: str = ""
    wait: float = 0.0


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


@record("tool.deferred")
class ToolDeferred:
    """A started call goes on elsewhere; also what became known of it at a poll."""

    call_id: str
    deferral: Deferral


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


@record("sub_agent.started")
class SubAgentStarted:
    """A sub-agent was ordered; written before anything of it runs. Of no effect if there is one of this id."""

    sub_agent: SubAgent


@record("sub_agent.ended")
class SubAgentEnded:
    """The work of a sub-agent is over; its tokens count for the run that waited for it.

    Attributes:
        id: Id of the call that ordered it.
        outcome: How it ended.
        detail: Why, if it did not complete.
        usage: Tokens that it used.
    """

    id: str
    outcome: SubAgentOutcome
    detail: str = ""
    usage: Usage = attrs.field(factory=Usage)


@record("state.reset")
class StateReset:
    """The conversation starts anew; the agent, the counters and the usage stay.

    Attributes:
        keep_metadata: Whether the metadata stays too.
    """

    keep_metadata: bool = False


JournalEvent: TypeAlias = (
    ConversationCreated
    | ConversationRouted
    | ConversationCopied
    | MessageAdded
    | MessageQueued
    | MessageUnqueued
    | QueuedMessageEdited
    | RunStarted
    | PauseAsked
    | RunFinished
    | ModelCallStarted
    | ModelAttemptFailed
    | ModelAnswered
    | ToolIntended
    | ToolStarted
    | ToolDeferred
    | ToolFinished
    | OperationsApplied
    | MessagesReplaced
    | InterruptRaised
    | InterruptDecided
    | InterruptClosed
    | SubAgentStarted
    | SubAgentEnded
    | StateReset
)
"""Everything that a journal may hold."""
