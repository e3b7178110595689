"""Stream events: what an agent tells its subscribers while it works.

They are for watching. What is durable is in the journal; an event of that kind is sent after it is journaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

from sapwood.actors import record
from sapwood.conversation._interrupts import Interrupt, Verdict
from sapwood.conversation._messages import Message, ToolCall, ToolResult, Usage
from sapwood.conversation._state import Deferral, QueuedMessage, StatusName
from sapwood.conversation._sub_agents import SubAgent, SubAgentOutcome
from sapwood.conversation._todos import Todo
from sapwood.conversation.journal import AfterFailure, Cause, ClosingOutcome, RunOutcome


@record("stream.event")
class StreamEvent:
    """What every stream event has.

    Attributes:
        agent_id: The agent that sent it.
        run_id: Its open run; empty outside a run.
        seq: Number of the event, rising by one for each event of an agent; what is dropped leaves a `Gap`.
        at: Wall-clock seconds since 1970 UTC.
    """

    agent_id: str
    run_id: str
    seq: int
    at: float


@record("stream.status_changed")
class StatusChanged(StreamEvent):
    """The agent does something else now; also the first event of a new subscription (S4-069)."""

    status: StatusName
    detail: str = ""


@record("stream.text_streamed")
class TextStreamed(StreamEvent):
    """A piece of the model's text, in order; the whole text follows in `MessageCompleted`."""

    text: str


@record("stream.text_discarded")
class TextDiscarded(StreamEvent):
    """The model call failed and is made again: the text streamed since the last `MessageCompleted` is void."""

    reason: str


@record("stream.tool_call_seen")
class ToolCallSeen(StreamEvent):
    """The model has named a tool; its arguments are still to come."""

    call_id: str
    name: str


@record("stream.tool_started")
class ToolStarted(StreamEvent):
    """A tool begins to run."""

    call: ToolCall
    attempt: int = 1


@record("stream.tool_deferred")
class ToolDeferred(StreamEvent):
    """A call goes on elsewhere, or was asked how far it is; its result follows in `ToolFinished`."""

    call_id: str
    deferral: Deferral


@record("stream.tool_finished")
class ToolFinished(StreamEvent):
    """A call has its result."""

    result: ToolResult


@record("stream.message_completed")
class MessageCompleted(StreamEvent):
    """A whole message has joined the conversation."""

    message: Message


@record("stream.queue_changed")
class QueueChanged(StreamEvent):
    """The complete new list of messages that wait for their delivery."""

    queue: tuple[QueuedMessage, ...]


@record("stream.queue_held")
class QueueHeld(StreamEvent):
    """Messages that wait are not delivered before a person says something.

    Attributes:
        reason: Why.
        queued: How many wait.
    """

    reason: str
    queued: int


@record("stream.todos_changed")
class TodosChanged(StreamEvent):
    """The complete new to-do list."""

    todos: tuple[Todo, ...]


@record("stream.metadata_changed")
class MetadataChanged(StreamEvent):
    """Keys of the metadata that were set, and those that were removed."""

    values: dict[str, Any]
    removed: tuple[str, ...] = ()


@record("stream.interrupt_raised")
class InterruptRaised(StreamEvent):
    """The agent waits for a person."""

    interrupt: Interrupt


@record("stream.interrupt_decided")
class InterruptDecided(StreamEvent):
    """A decision was accepted."""

    interrupt_id: str
    verdict: Verdict
    by: str = ""
    reason: str = ""


@record("stream.interrupt_closed")
class InterruptClosed(StreamEvent):
    """An interrupt is no longer open."""

    interrupt_id: str
    outcome: ClosingOutcome


@record("stream.attempt_failed")
class ModelAttemptFailed(StreamEvent):
    """An attempt to call a model failed.

    Attributes:
        model: The model.
        problem: What it failed with.
        following: `retry`, `fallback`, `fail` or `stop`.
        next_model: The model that is called next; empty if none is.
        wait: Seconds until then.
    """

    model: str
    problem: str
    following: AfterFailure
    next_model: str = ""
    wait: float = 0.0


@record("stream.sub_agent_started")
class SubAgentStarted(StreamEvent):
    """A sub-agent was ordered; it may have to wait for a place.

    Attributes:
        sub_agent: The sub-agent; one can subscribe to its conversation `sub_agent.agent_id`.
        path: Names of the agents from this one to the sub-agent's type.
    """

    sub_agent: SubAgent
    path: tuple[str, ...]


@record("stream.sub_agent_changed")
class SubAgentChanged(StreamEvent):
    """A sub-agent at any depth does something else now.

    Attributes:
        path: Names of the agents from this one to the sub-agent.
        sub_agent: Its conversation.
        status: What it does.
        detail: Why its run failed; empty if it did not.
    """

    path: tuple[str, ...]
    sub_agent: str
    status: StatusName
    detail: str = ""


@record("stream.sub_agent_finished")
class SubAgentFinished(StreamEvent):
    """The work of a sub-agent is over.

    Attributes:
        path: Names of the agents from this one to the sub-agent's type.
        sub_agent: Its conversation, which can still be read.
        outcome: How it ended.
        detail: Why, if it did not complete.
    """

    path: tuple[str, ...]
    sub_agent: str
    outcome: SubAgentOutcome
    detail: str = ""


@record("stream.usage_counted")
class UsageCounted(StreamEvent):
    """A model call consumed tokens.

    Attributes:
        usage: Tokens of this call.
        total: Tokens of the whole conversation.
    """

    usage: Usage
    total: Usage


@record("stream.run_finished")
class RunFinished(StreamEvent):
    """A run ended or was suspended; the last event of a run.

    Attributes:
        outcome: How.
        text: The final text of the model; empty if there is none.
        reason: Why, if it did not complete.
        cause: Why it failed, for code; empty if it did not.
    """

    outcome: RunOutcome
    text: str = ""
    reason: str = ""
    cause: Cause = ""


@record("stream.agent_shutdown")
class AgentShutdown(StreamEvent):
    """The agent's server stops; the last event before it starts again.

    Attributes:
        reason: Why, such as `normal`, `shutdown`, `inactivity`, `fenced` or `crash`.
        status: What it was doing.
        open_interrupts: Ids of the interrupts that will be open again after a restart.
        queued: Number of messages that will be delivered after a restart.
    """

    reason: str
    status: StatusName
    open_interrupts: tuple[str, ...] = ()
    queued: int = 0


@record("stream.debug_note")
class DebugNote(StreamEvent):
    """One change of the conversation as it was journaled; only for subscriptions that ask for such notes (S4-070).

    Its number is that of the last event before it, since other subscriptions know nothing of it; it is not replayed.

    Attributes:
        journal_seq: Sequence number in the journal.
        kind: Wire name of the journal event, such as `operations.applied`.
        source: The middleware that wanted the change; empty if none did.
        data: All of the event, for people to look at.
    """

    journal_seq: int
    kind: str
    source: str = ""
    data: dict[str, Any] = attrs.field(factory=dict[str, Any])


@record("stream.gap")
class Gap(StreamEvent):
    """Events of this subscription that were dropped, or are no longer kept.

    Attributes:
        from_seq: Number of the first missing event.
        to_seq: Number of the last missing event.
    """

    from_seq: int
    to_seq: int


Loss: TypeAlias = Literal["may_be_dropped", "never_dropped"]
"""What may happen to an event on its way to a slow reader (C34)."""

LOSS: Mapping[type[StreamEvent], Loss] = {
    TextStreamed: "may_be_dropped",
    ToolCallSeen: "may_be_dropped",
    TextDiscarded: "never_dropped",
    StatusChanged: "never_dropped",
    ToolStarted: "never_dropped",
    ToolDeferred: "never_dropped",
    ToolFinished: "never_dropped",
    QueueChanged: "never_dropped",
    QueueHeld: "never_dropped",
    ModelAttemptFailed: "never_dropped",
    MessageCompleted: "never_dropped",
    TodosChanged: "never_dropped",
    MetadataChanged: "never_dropped",
    InterruptRaised: "never_dropped",
    InterruptDecided: "never_dropped",
    InterruptClosed: "never_dropped",
    UsageCounted: "never_dropped",
    SubAgentStarted: "never_dropped",
    SubAgentChanged: "never_dropped",
    SubAgentFinished: "never_dropped",
    RunFinished: "never_dropped",
    AgentShutdown: "never_dropped",
    DebugNote: "never_dropped",
    Gap: "never_dropped",
}
"""Every kind of stream event. A dropped delta costs nothing: `MessageCompleted` repeats the whole text."""
