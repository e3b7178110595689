"""The state of a conversation: everything about it that must survive a crash, and nothing else."""

from __future__ import annotations

import hashlib
from typing import Any, Literal, TypeAlias

import attrs

from sapwood.actors import record
from sapwood.conversation._interrupts import Decision, DecisionOutcome, Interrupt, judge
from sapwood.conversation._messages import Message, ToolCall, Usage, UserMessage
from sapwood.conversation._operations import Delivery
from sapwood.conversation._origin import Origin
from sapwood.conversation._sub_agents import SubAgent
from sapwood.conversation._todos import Todo

StatusName: TypeAlias = Literal["idle", "running", "interrupted", "paused", "waiting", "error", "stopped"]
"""What an agent is doing; all but `stopped`, which only a server knows, follow from its state."""

RunPhase: TypeAlias = Literal["running", "interrupted", "paused", "waiting"]
"""`interrupted` waits for people, `paused` for somebody to resume it, `waiting` for asynchronous tools."""

RunTrigger: TypeAlias = Literal["message", "queue", "self", "resume", "restart"]
"""Why a run starts: a person's message, a queued one, the agent's own doing, an answer, or a restart."""

CallPhase: TypeAlias = Literal["intended", "started", "deferred"]
"""`intended`: it has not begun and may safely run. `started`: it may have had its effect. `deferred`: it goes on
elsewhere, and is asked from time to time whether it is done."""


@record("conversation.deferral")
class Deferral:
    """What is known of a call that goes on elsewhere.

    Attributes:
        poll_id: What its tool calls the work.
        every: Seconds between two polls.
        next_at: Wall-clock seconds since 1970 UTC of the next poll.
        give_up_at: Wall-clock seconds from which it counts as timed out, or None for never.
        note: What its tool last said about it.
    """

    poll_id: str
    every: float = 30.0
    next_at: float = 0.0
    give_up_at: float | None = None
    note: str = ""


@record("conversation.pending_call")
class PendingCall:
    """A tool call that is journaled and has no result yet.

    Attributes:
        call: The call as it runs, edits included.
        key: Idempotency key; the same for every attempt (C18).
        attempt: Number of the attempt, from 1.
        phase: `intended`, `started` or `deferred`.
        deferral: Where a deferred call goes on, else None.
    """

    call: ToolCall
    key: str
    attempt: int = 1
    phase: CallPhase = "intended"
    deferral: Deferral | None = None


@record("conversation.queued_message")
class QueuedMessage:
    """A message that was accepted and is not yet part of the conversation.

    Attributes:
        id: Names it until it is delivered.
        message: What was said.
        delivery: `now`, `next_turn` or `next_run`.
        at: Wall-clock seconds since 1970 UTC.
        by_person: Whether a person sent it, and not a tool.
    """

    id: str
    message: UserMessage
    delivery: Delivery = "next_run"
    at: float = 0.0
    by_person: bool = True


@record("conversation.until")
class Until:
    """What a run has to bring about: one of these tools is called.

    Attributes:
        tools: Their names.
        success: Whether only a call without an error counts; the model may try again after one with an error.
    """

    tools: tuple[str, ...]
    success: bool = True


@record("conversation.run")
class Run:
    """The open run. A run that is interrupted, paused or waiting stays open and keeps its counts (AR-22.17).

    Attributes:
        id: Id of the run.
        phase: `running`, `interrupted`, `paused` or `waiting`.
        trigger: Why it started first.
        started_at: Wall-clock seconds since 1970 UTC.
        model_calls: Model calls that it began.
        tool_calls: Tool calls that it intended, without further attempts.
        steps: Answers of the model.
        since: Id of the last message before it; empty if there was none.
        usage: Tokens that it consumed, failed attempts included.
        seconds: Seconds that it ran, without those in which it was suspended or the process was down.
        until: What it has to bring about, or None for an answer.
        pausing: Whether it is to pause at the next safe boundary.
        approved: Names of the tools whose calls somebody approved for the whole run.
    """

    id: str
    phase: RunPhase = "running"
    trigger: RunTrigger = "message"
    started_at: float = 0.0
    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = attrs.field(factory=Usage)
    steps: int = 0
    since: str = ""
    seconds: float = 0.0
    until: Until | None = None
    pausing: bool = False
    approved: tuple[str, ...] = ()


@record("conversation.counters")
class Counters:
    """Counts over the whole life of a conversation.

    Attributes:
        runs: Runs that started; a resumed run is the same run.
        model_calls: Model calls that began.
        tool_calls: Tool calls that were intended.
        self_started: Runs that the agent started by itself since a person last did; for a breaker.
    """

    runs: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    self_started: int = 0


@record("conversation.state")
class State:
    """One conversation at one moment: the fold of its journal. Treat the dictionaries inside as read-only.

    Attributes:
        agent: Name of the agent it was created with.
        definition: Hash of that agent's definition.
        messages: What was said, in order.
        todos: Sorted by id; empty once all are resolved.
        metadata: JSON-like values by key.
        interrupts: Open interrupts, in the order they were raised.
        decisions: The decision on each open interrupt that has one, and the latest 64 on closed ones.
        pending: Journaled calls without a result, in the order of their intents.
        queue: Accepted messages that wait for delivery, in order.
        run: The open run, or None.
        usage: Tokens of all model calls.
        error: Why the last run failed; empty if it did not.
        counters: Counts over the whole life.
        routing: What a factory builds its agent from, at every start; JSON-like. Empty if none does.
        origin: Where it was copied from, or None.
        sub_agents: Those that were ordered: all that are at work, and the latest 64 that are done.
    """

    agent: str = ""
    definition: str = ""
    messages: tuple[Message, ...] = ()
    todos: tuple[Todo, ...] = ()
    metadata: dict[str, Any] = attrs.field(factory=dict[str, Any])
    interrupts: tuple[Interrupt, ...] = ()
    decisions: tuple[Decision, ...] = ()
    pending: tuple[PendingCall, ...] = ()
    queue: tuple[QueuedMessage, ...] = ()
    run: Run | None = None
    usage: Usage = attrs.field(factory=Usage)
    error: str = ""
    counters: Counters = attrs.field(factory=Counters)
    routing: dict[str, Any] = attrs.field(factory=dict[str, Any])
    origin: Origin | None = None
    sub_agents: tuple[SubAgent, ...] = ()

    @property
    def status(self) -> StatusName:
        """The phase of the open run; without one `error` if the last run failed, else `idle`."""
        if self.run is not None:
            return self.run.phase
        return "error" if self.error else "idle"

    @property
    def undecided(self) -> tuple[Interrupt, ...]:
        """Open interrupts that nobody has decided, in order. Halts count: only dismissal or a message closes them."""
        decided = {decision.interrupt_id for decision in self.decisions}
        return tuple(interrupt for interrupt in self.interrupts if interrupt.id not in decided)

    @property
    def deferred(self) -> tuple[PendingCall, ...]:
        """Calls that go on elsewhere, in order."""
        return tuple(each for each in self.pending if each.phase == "deferred")

    def interrupt(self, interrupt_id: str) -> Interrupt | None:
        """Return the open interrupt with this id, or None if there is none."""
        return next((each for each in self.interrupts if each.id == interrupt_id), None)

    def decision(self, interrupt_id: str) -> Decision | None:
        """Return the remembered decision on this interrupt, or None."""
        return next((each for each in self.decisions if each.interrupt_id == interrupt_id), None)

    def judge(self, decision: Decision, now: float) -> DecisionOutcome:
        """Say what becomes of a decision at wall-clock time `now`; changes nothing."""
        return judge(self.interrupts, self.decisions, decision, now)

    def expired(self, now: float) -> tuple[Interrupt, ...]:
        """Return the undecided interrupts whose time is up at wall-clock time `now`, in order.

        Those that keep waiting in spite of it are not among them.
        """
        return tuple(
            each
            for each in self.undecided
            if each.expires_at is not None and now >= each.expires_at and each.on_expiry != "queue"
        )


def idempotency_key(task: str, checkpoint_seq: int, tool_call_id: str) -> str:
    """Return the key under which a tool's effect happens once: `idem_` and 24 hex digits (S3-142, C18).

    Args:
        task: Id of the task or conversation.
        checkpoint_seq: Sequence number of the journal at the time of the intent; kept with it, not computed again.
        tool_call_id: Id of the tool call.
    """
    digest = hashlib.sha256(f"{task}:{checkpoint_seq}:{tool_call_id}".encode(errors="backslashreplace")).hexdigest()
    return f"idem_{digest[:24]}"
