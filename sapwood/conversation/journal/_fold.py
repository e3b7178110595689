"""The fold: what each journal event does to the state.

Pure, total and deterministic. Whatever the events, every result in the state has its call, and no call has two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sapwood.conversation._evolve import evolve
from sapwood.conversation._interrupts import Decision, Interrupt
from sapwood.conversation._messages import AssistantMessage, Message, ToolResult, Usage
from sapwood.conversation._operations import AddMessage, Operation, PatchMetadata, QueueMessage, SetTodos
from sapwood.conversation._pairs import drop_orphans, place_result
from sapwood.conversation._state import PendingCall, QueuedMessage, Run, RunPhase, State
from sapwood.conversation._todos import merge_todos, replace_todos
from sapwood.conversation.journal import _events as e
from sapwood.errors import InvalidMessage

REMEMBERED_DECISIONS = 64
REMEMBERED_SUB_AGENTS = 64
_NO_USAGE = Usage()

AFTER_RUN: Mapping[e.RunOutcome, RunPhase | None] = {
    "completed": None,
    "failed": None,
    "cancelled": None,
    "interrupted": "interrupted",
    "paused": "paused",
    "waiting": "waiting",
}
"""The phase of the open run after each outcome; None: no run is open."""


def fold(state: State, events: Iterable[e.JournalEvent]) -> State:
    """Return the state after the events, in order."""
    for event in events:
        state = apply(state, event)
    return state


def apply(state: State, event: e.JournalEvent) -> State:
    """Return the state after one event; the given one is unchanged.

    Raises:
        InvalidMessage: if the event is no journal event.
    """
    change = _CHANGES.get(type(event))
    if change is None:
        raise InvalidMessage(f"expected a journal event; got {type(event).__qualname__}")
    return change(state, event)


# --- messages and queue ---------------------------------------------------------------------------


def _created(state: State, event: e.ConversationCreated) -> State:
    return evolve(state, agent=event.agent, definition=event.definition)


def _routed(state: State, event: e.ConversationRouted) -> State:
    return evolve(state, routing=event.routing)


def _copied(state: State, event: e.ConversationCopied) -> State:
    if state.messages:
        return state
    messages, todos = drop_orphans(event.messages), replace_todos(event.todos)
    return evolve(state, origin=event.origin, messages=messages, todos=todos, metadata=event.metadata)


def _add(state: State, message: Message) -> State:
    if not isinstance(message, ToolResult):
        # `+` copies once; unpacking into a new tuple would copy twice, which long conversations feel at every event.
        return evolve(state, messages=state.messages + (message,))  # noqa: RUF005  # as above
    placed = place_result(state.messages, message)
    if placed is None:
        return state
    pending = tuple(each for each in state.pending if each.call.id != message.call_id)
    return evolve(state, messages=placed, pending=pending)


def _added(state: State, event: e.MessageAdded) -> State:
    return _add(state, event.message)


def _queued(state: State, event: e.MessageQueued) -> State:
    return _enqueue(state, event.item)


def _enqueue(state: State, item: QueuedMessage) -> State:
    if any(each.id == item.id for each in state.queue):
        return state
    return evolve(state, queue=(*state.queue, item))


def _unqueued(state: State, event: e.MessageUnqueued) -> State:
    item = next((each for each in state.queue if each.id == event.id), None)
    if item is None:
        return state
    state = evolve(state, queue=tuple(each for each in state.queue if each is not item))
    return _add(state, item.message) if event.fate == "delivered" else state


def _edited(state: State, event: e.QueuedMessageEdited) -> State:
    def edit(item: QueuedMessage) -> QueuedMessage:
        return evolve(item, message=evolve(item.message, text=event.text)) if item.id == event.id else item

    return evolve(state, queue=tuple(edit(item) for item in state.queue))


def _replaced(state: State, event: e.MessagesReplaced) -> State:
    gone = set(event.removed) - {""}
    ids = [message.id for message in state.messages]
    first_gone = next((index for index, each in enumerate(ids) if each in gone), len(ids))
    at = ids.index(event.before) if event.before and event.before in ids else first_gone
    kept = [(index, message) for index, message in enumerate(state.messages) if message.id not in gone]
    new = tuple(message for message in event.inserted if not isinstance(message, ToolResult))
    messages: tuple[Message, ...] = (
        *(message for index, message in kept if index < at),
        *new,
        *(message for index, message in kept if index >= at),
    )
    state = evolve(state, messages=drop_orphans(messages))
    for message in event.inserted:
        if isinstance(message, ToolResult):
            state = _add(state, message)
    return state


# --- runs and model calls -------------------------------------------------------------------------


def _run_started(state: State, event: e.RunStarted) -> State:
    if state.run is not None and state.run.id == event.run_id:
        pausing = state.run.pausing and event.trigger == "restart"
        return evolve(state, run=evolve(state.run, phase="running", pausing=pausing), error="")
    self_started = state.counters.self_started
    match event.trigger:
        case "message" | "queue":
            self_started = 0
        case "self":
            self_started += 1
        case "resume" | "restart":
            pass
    counters = evolve(state.counters, runs=state.counters.runs + 1, self_started=self_started)
    since = state.messages[-1].id if state.messages else ""
    run = Run(event.run_id, trigger=event.trigger, started_at=event.at, until=event.until, since=since)
    return evolve(state, run=run, error="", counters=counters)


def _pause_asked(state: State, event: e.PauseAsked) -> State:
    if state.run is None or state.run.id != event.run_id:
        return state
    return evolve(state, run=evolve(state.run, pausing=True))


def _run_finished(state: State, event: e.RunFinished) -> State:
    if state.run is None or state.run.id != event.run_id:
        return state
    phase = AFTER_RUN[event.outcome]
    run = None
    if phase is not None:
        pausing = state.run.pausing and event.outcome != "paused"
        run = evolve(state.run, phase=phase, seconds=state.run.seconds + event.seconds, pausing=pausing)
    error = (event.detail or "failed") if event.outcome == "failed" else state.error
    return evolve(state, run=run, error=error)


def _count(
    state: State, run_id: str, *, model_calls: int = 0, tool_calls: int = 0, steps: int = 0, used: Usage = _NO_USAGE
) -> State:
    counters = evolve(
        state.counters,
        model_calls=state.counters.model_calls + model_calls,
        tool_calls=state.counters.tool_calls + tool_calls,
    )
    run = state.run
    if run is not None and run.id == run_id:
        run = evolve(
            run,
            model_calls=run.model_calls + model_calls,
            tool_calls=run.tool_calls + tool_calls,
            steps=run.steps + steps,
            usage=run.usage + used,
        )
    return evolve(state, counters=counters, run=run, usage=state.usage + used)


def _model_started(state: State, event: e.ModelCallStarted) -> State:
    return _count(state, event.run_id, model_calls=1)


def _attempt_failed(state: State, event: e.ModelAttemptFailed) -> State:
    again = 1 if event.following in ("retry", "fallback") else 0
    return _count(state, event.run_id, model_calls=again, used=event.usage)


def _answered(state: State, event: e.ModelAnswered) -> State:
    return _count(_add(state, event.message), event.run_id, steps=1, used=event.message.usage)


# --- tools and operations -------------------------------------------------------------------------


def _intended(state: State, event: e.ToolIntended) -> State:
    new = PendingCall(event.call, event.key, event.attempt)
    if any(each.call.id == event.call.id for each in state.pending):
        again = tuple(new if each.call.id == event.call.id else each for each in state.pending)
        return evolve(state, pending=again)
    run_id = state.run.id if state.run is not None else ""
    return _count(evolve(state, pending=(*state.pending, new)), run_id, tool_calls=1)


def _started(state: State, event: e.ToolStarted) -> State:
    pending = tuple(evolve(each, phase="started") if each.call.id == event.call_id else each for each in state.pending)
    return evolve(state, pending=pending)


def _deferred(state: State, event: e.ToolDeferred) -> State:
    def defer(each: PendingCall) -> PendingCall:
        return evolve(each, phase="deferred", deferral=event.deferral) if each.call.id == event.call_id else each

    return evolve(state, pending=tuple(defer(each) for each in state.pending))


def _finished(state: State, event: e.ToolFinished) -> State:
    call_id = event.result.call_id
    pending = tuple(each for each in state.pending if each.call.id != call_id)
    placed = place_result(state.messages, event.result)
    # A pending call whose message was summarized away keeps its effects; only its result has no place any more.
    if placed is None and (len(pending) == len(state.pending) or _has_call(state, call_id)):
        return evolve(state, pending=pending)
    state = evolve(state, messages=state.messages if placed is None else placed, pending=pending)
    return _operate(state, event.operations)


def _has_call(state: State, call_id: str) -> bool:
    return any(
        call.id == call_id
        for message in state.messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    )


def _applied(state: State, event: e.OperationsApplied) -> State:
    return _operate(state, event.operations)


def _operate(state: State, operations: tuple[Operation, ...]) -> State:
    for operation in operations:
        match operation:
            case AddMessage(message):
                state = _add(state, message)
            case QueueMessage(message, delivery):
                state = _enqueue(state, QueuedMessage(message.id, message, delivery, by_person=False))
            case SetTodos(todos, merge):
                state = evolve(state, todos=merge_todos(state.todos, todos) if merge else replace_todos(todos))
            case PatchMetadata(values, remove):
                kept = {key: value for key, value in state.metadata.items() if key not in remove}
                state = evolve(state, metadata={**kept, **values})
    return state


# --- interrupts -----------------------------------------------------------------------------------


def _raised(state: State, event: e.InterruptRaised) -> State:
    new = event.interrupt
    if state.interrupt(new.id) is not None:
        return state
    others = tuple(each for each in state.decisions if each.interrupt_id != new.id)
    return evolve(state, interrupts=(*state.interrupts, new), decisions=others)


def _decided(state: State, event: e.InterruptDecided) -> State:
    decision = event.decision
    interrupt = state.interrupt(decision.interrupt_id)
    if interrupt is None or state.decision(decision.interrupt_id) is not None:
        return state
    if decision.verdict == "escalate":
        patience = interrupt.patience
        expires_at = interrupt.expires_at if patience is None else decision.at + patience
        passed_on = evolve(interrupt, escalations=(*interrupt.escalations, decision.by), expires_at=expires_at)
        interrupts = tuple(passed_on if each is interrupt else each for each in state.interrupts)
        return evolve(state, interrupts=interrupts)
    run = state.run
    if decision.scope == "run" and run is not None and interrupt.call.name not in run.approved:
        run = evolve(run, approved=(*run.approved, interrupt.call.name))
    return evolve(state, decisions=(*state.decisions, decision), run=run)


def _closed(state: State, event: e.InterruptClosed) -> State:
    interrupts = tuple(each for each in state.interrupts if each.id != event.id)
    return evolve(state, interrupts=interrupts, decisions=_remembered(state.decisions, interrupts))


def _remembered(decisions: tuple[Decision, ...], interrupts: tuple[Interrupt, ...]) -> tuple[Decision, ...]:
    still_open = {interrupt.id for interrupt in interrupts}
    closed = [decision for decision in decisions if decision.interrupt_id not in still_open]
    forgotten = {decision.interrupt_id for decision in closed[:-REMEMBERED_DECISIONS]}
    return tuple(decision for decision in decisions if decision.interrupt_id not in forgotten)


# --- sub-agents -----------------------------------------------------------------------------------


def _sub_agent_started(state: State, event: e.SubAgentStarted) -> State:
    if any(each.id == event.sub_agent.id and not each.outcome for each in state.sub_agents):
        return state
    others = tuple(each for each in state.sub_agents if each.id != event.sub_agent.id)
    return evolve(state, sub_agents=(*others, event.sub_agent))


def _sub_agent_ended(state: State, event: e.SubAgentEnded) -> State:
    sub_agent = next((each for each in state.sub_agents if each.id == event.id), None)
    if sub_agent is None or sub_agent.outcome:
        return state
    ended = evolve(sub_agent, outcome=event.outcome, detail=event.detail, usage=event.usage)
    everybody = tuple(ended if each is sub_agent else each for each in state.sub_agents)
    over = [each.id for each in everybody if each.outcome]
    forgotten = set(over[:-REMEMBERED_SUB_AGENTS])
    state = evolve(state, sub_agents=tuple(each for each in everybody if each.id not in forgotten))
    if state.run is None or sub_agent.background:
        return state
    return evolve(state, run=evolve(state.run, usage=state.run.usage + event.usage))


def _reset(state: State, event: e.StateReset) -> State:
    return State(
        agent=state.agent,
        definition=state.definition,
        metadata=state.metadata if event.keep_metadata else {},
        usage=state.usage,
        counters=state.counters,
        routing=state.routing,
        origin=state.origin,
    )


_CHANGES: Mapping[type, Callable[[State, Any], State]] = {
    e.ConversationCreated: _created,
    e.ConversationRouted: _routed,
    e.ConversationCopied: _copied,
    e.MessageAdded: _added,
    e.MessageQueued: _queued,
    e.MessageUnqueued: _unqueued,
    e.QueuedMessageEdited: _edited,
    e.RunStarted: _run_started,
    e.PauseAsked: _pause_asked,
    e.RunFinished: _run_finished,
    e.ModelCallStarted: _model_started,
    e.ModelAttemptFailed: _attempt_failed,
    e.ModelAnswered: _answered,
    e.ToolIntended: _intended,
    e.ToolStarted: _started,
    e.ToolDeferred: _deferred,
    e.ToolFinished: _finished,
    e.OperationsApplied: _applied,
    e.MessagesReplaced: _replaced,
    e.InterruptRaised: _raised,
    e.InterruptDecided: _decided,
    e.InterruptClosed: _closed,
    e.SubAgentStarted: _sub_agent_started,
    e.SubAgentEnded: _sub_agent_ended,
    e.StateReset: _reset,
}
