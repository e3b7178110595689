"""The hooks around a model call: what middleware wants is journaled in one step with what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from sapwood.agents._agent import Agent
from sapwood.agents._changes import Draft, change_events
from sapwood.agents._log import Log
from sapwood.agents._outcome import Outcome, answered, used_up
from sapwood.agents._turn import error_result, final_answer, last_answer, untouched_calls
from sapwood.conversation import Delivery, Interrupt, State, ToolCall, ToolResult, idempotency_key, journal
from sapwood.errors import LimitReached
from sapwood.middleware import MiddlewareContext, Suspend

NO_CALLS_LEFT = "Error: {name} was not run: the run used up its limit of {limit} tool calls"


class Hooks:
    """Runs `before_model` and `after_model` of all layers, and says what comes next (S4-006 … S4-009).

    Args:
        agent: The agent.
        log: The conversation.
        context: Makes the context that middleware sees.
    """

    def __init__(self, agent: Agent, log: Log, context: Callable[[], MiddlewareContext]) -> None:
        self._agent = agent
        self._log = log
        self._context = context

    async def before_model(self) -> Outcome | None:
        """Run the hooks and note that the model is called; the outcome, if it is not.

        Messages that were to be delivered at once come before everything else.
        """
        state = self._log.state
        if state.run is not None:
            try:
                self._agent.limits.check(state.run)
            except LimitReached as error:
                return used_up(error)
        draft = Draft(state)
        draft.add(due(state, ("now",)))
        for layer in self._agent.stack.before_model:
            result = await layer.before_model(draft.state, self._seeing(draft))
            if isinstance(result, Suspend):
                await self._log.commit(*draft.events, *map(journal.InterruptRaised, result.interrupts))
                return Outcome("interrupted")
            draft.add(change_events(layer.name, result or (), self._new_id))
        run_id = state.run.id if state.run is not None else ""
        await self._log.commit(*draft.events, journal.ModelCallStarted(run_id, self._agent.model.name))
        return None

    async def after_model(self) -> Outcome | None:
        """Run the hooks, then say what is to be done about the calls of the answer, or that the run is done."""
        draft = Draft(self._log.state)
        interrupts: list[Interrupt] = []
        for layer in self._agent.stack.after_model:
            result = await layer.after_model(draft.state, self._seeing(draft))
            if isinstance(result, Suspend):
                interrupts += result.interrupts
            else:
                draft.add(change_events(layer.name, result or (), self._new_id))
        # Nobody is asked about a call that an earlier step, or another layer in this one, has dealt with.
        settled = dealt_with(draft.state)
        interrupts = [interrupt for interrupt in interrupts if interrupt.id not in settled]
        answer = final_answer(draft.state)
        if answer is None or interrupts:
            await self._log.commit(*draft.events, *self._dispatch(draft.state, interrupts))
            return None
        more = due(self._log.state, ("now", "next_turn"))
        if more and answer.stop_reason != "refused":
            # What was to be said in this run is said now; the run goes on with it.
            await self._log.commit(*draft.events, *more)
            return None
        run = self._log.state.run
        return answered(answer, run.until if run is not None else None, tuple(draft.events))

    def _dispatch(self, state: State, interrupts: Sequence[Interrupt]) -> list[journal.JournalEvent]:
        """Return what happens to the calls of the answer: too many are refused, some are asked about, the rest run."""
        calls = untouched_calls(state)
        left = self._agent.limits.calls_left(state.run)
        most = len(calls) if left > len(calls) else int(left)
        granted, refused = calls[:most], calls[most:]
        beyond = {call.id for call in refused}
        needed = [interrupt for interrupt in interrupts if interrupt.id not in beyond]
        return [
            *(journal.ToolFinished(self._no_calls_left(call)) for call in refused),
            *intents(self._log, free(granted, needed)),
            *map(journal.InterruptRaised, needed),
        ]

    def _no_calls_left(self, call: ToolCall) -> ToolResult:
        text = NO_CALLS_LEFT.format(name=call.name, limit=self._agent.limits.tool_calls)
        return error_result(call, text, self._new_id("msg_"), "limit")

    def _seeing(self, draft: Draft) -> MiddlewareContext:
        return attrs.evolve(self._context(), read_state=lambda: draft.state)

    def _new_id(self, prefix: str) -> str:
        return self._context().environment.new_id(prefix)


def dealt_with(state: State) -> set[str]:
    """Return the ids of the calls of the last answer about which something has been done."""
    answer = last_answer(state)
    calls = {call.id for call in answer.tool_calls} if answer is not None else set[str]()
    return calls - {call.id for call in untouched_calls(state)}


def due(state: State, deliveries: tuple[Delivery, ...]) -> list[journal.JournalEvent]:
    """Return the delivery of the messages that wait for one of these moments."""
    return [journal.MessageUnqueued(item.id) for item in state.queue if item.delivery in deliveries]


def intents(log: Log, calls: Sequence[ToolCall]) -> list[journal.JournalEvent]:
    """Return the events that say that calls are about to be carried out, with the keys of all their attempts (C18)."""
    return [journal.ToolIntended(call, idempotency_key(log.agent_id, log.seq, call.id)) for call in calls]


def free(calls: tuple[ToolCall, ...], interrupts: Sequence[Interrupt]) -> tuple[ToolCall, ...]:
    """Return the calls that may begin although people are asked about others (C23).

    An interrupt that is about none of the calls holds back the run as a whole, so nothing begins.
    """
    gated = {interrupt.id for interrupt in interrupts}
    if gated - {call.id for call in calls}:
        return ()
    return tuple(call for call in calls if call.id not in gated)
