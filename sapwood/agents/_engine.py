"""The run engine: what to do next follows from the state alone, so a run can be taken up anywhere."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from sapwood.agents._agent import Agent
from sapwood.agents._changes import Draft, change_events
from sapwood.agents._log import Log
from sapwood.agents._publisher import Publisher
from sapwood.agents._tool_phase import ToolPhase
from sapwood.agents._turn import final_answer, last_answer, untouched_calls
from sapwood.conversation import (
    AssistantMessage,
    Interrupt,
    State,
    TextDiscarded,
    TextStreamed,
    ToolCall,
    ToolCallSeen,
    distinct_calls,
    evolve,
    journal,
)
from sapwood.errors import InvalidOption, ModelError, ModelProtocolError
from sapwood.middleware import MiddlewareContext, Suspend
from sapwood.models import ModelAnswer, ModelRequest, StreamRestarted, TextDelta, ToolCallStarted, retrying
from sapwood.tools import Toolbox


@attrs.frozen
class Outcome:
    """How the engine left a run.

    Attributes:
        outcome: `completed`, `failed` or `interrupted`; `cancelled` if somebody else ended it.
        detail: Why, if it did not complete as it should.
        events: Last changes, to be journaled together with the end of the run.
    """

    outcome: journal.RunOutcome
    detail: str = ""
    events: tuple[journal.JournalEvent, ...] = ()


class RunEngine:
    """Carries a run from wherever its journal ends to where it is done or has to wait (S4-023, S4-027).

    One step: decisions that people made are acted on; journaled tool calls are carried out; else the model is
    called, between the hooks of the middleware. After a crash the same function goes on: what is journaled is not
    done again, and what was started but not finished is dealt with as each tool says.

    What the hooks around one model call change is journaled together with what follows from it, so that after a
    crash either nothing of it has happened or all of it.

    Runs in a task of the agent's server, which stays answerable meanwhile.
    """

    def __init__(
        self,
        agent: Agent,
        toolbox: Toolbox,
        log: Log,
        publisher: Publisher,
        context: Callable[[], MiddlewareContext],
    ) -> None:
        self._agent = agent
        self._toolbox = toolbox
        self._log = log
        self._publisher = publisher
        self._context = context
        self._tools = ToolPhase(agent, toolbox, log, context)

    @property
    def _state(self) -> State:
        return self._log.state

    @property
    def _run_id(self) -> str:
        return self._state.run.id if self._state.run is not None else ""

    async def run(self) -> Outcome:
        """Go on until the run is done, has failed, or waits for people; the caller journals how it ended.

        Raises:
            StaleEpoch, StoreUnavailable: if the journal cannot be written; nothing unjournaled was done.
            CodecError: if something that a model or a middleware made cannot be stored.
            Exception: what a middleware raised.
        """
        result: list[Outcome] = []

        async def inner() -> None:
            if result:
                raise InvalidOption("around_run: expected call_next() to be awaited once; it was awaited again")
            result.append(await self._until_done())

        await self._agent.stack.around_run(inner, self._context())()
        return result[0] if result else Outcome("completed", "a middleware ended the run")

    async def _until_done(self) -> Outcome:
        while True:
            try:
                outcome = await self._step()
            except ModelError as error:
                return Outcome("failed", str(error))
            if outcome is not None:
                return outcome

    async def _step(self) -> Outcome | None:
        await self._tools.act_on_decisions()
        state = self._state
        waiting = {interrupt.id for interrupt in state.interrupts}
        if any(each.call.id not in waiting for each in state.pending):
            await self._tools.run()
            return None
        if waiting:
            return Outcome("interrupted")
        if untouched_calls(state) or final_answer(state) is not None:
            return await self._after_model()
        outcome = await self._before_model()
        if outcome is None:
            await self._call_model()
        return outcome

    # --- the hooks around a model call --------------------------------------------------------------

    async def _before_model(self) -> Outcome | None:
        """Run the hooks and note that the model is called; the outcome, if it is not."""
        run = self._state.run
        limit = self._agent.limits.model_calls
        if run is not None and run.model_calls >= limit:
            return Outcome("failed", f"the run used up its limit of {limit} model calls")
        draft = Draft(self._state)
        for layer in self._agent.stack.before_model:
            result = await layer.before_model(draft.state, self._seeing(draft))
            if isinstance(result, Suspend):
                await self._log.commit(*draft.events, *map(journal.InterruptRaised, result.interrupts))
                return Outcome("interrupted")
            draft.add(change_events(layer.name, result or (), self._context().environment.new_id))
        await self._log.commit(*draft.events, journal.ModelCallStarted(self._run_id, self._agent.model.name))
        return None

    async def _after_model(self) -> Outcome | None:
        """Run the hooks, then say what is to be done about the calls of the answer, or that the run is done."""
        draft = Draft(self._state)
        interrupts: list[Interrupt] = []
        for layer in self._agent.stack.after_model:
            result = await layer.after_model(draft.state, self._seeing(draft))
            if isinstance(result, Suspend):
                interrupts += self._still_needed(result)
            else:
                draft.add(change_events(layer.name, result or (), self._context().environment.new_id))
        answer = final_answer(draft.state)
        if answer is not None and not interrupts:
            return _completed(answer, tuple(draft.events))
        free = _free(untouched_calls(draft.state), interrupts)
        raised = map(journal.InterruptRaised, interrupts)
        await self._log.commit(*draft.events, *self._tools.intents(free), *raised)
        return None

    def _seeing(self, draft: Draft) -> MiddlewareContext:
        return attrs.evolve(self._context(), read_state=lambda: draft.state)

    def _still_needed(self, suspend: Suspend) -> list[Interrupt]:
        """Return the interrupts of a layer without those about calls that something has been done about."""
        answer = last_answer(self._state)
        touched = {call.id for call in answer.tool_calls} if answer is not None else set[str]()
        touched -= {call.id for call in untouched_calls(self._state)}
        return [interrupt for interrupt in suspend.interrupts if interrupt.id not in touched]

    # --- the model ----------------------------------------------------------------------------------

    async def _call_model(self) -> None:
        context = self._context()
        request = ModelRequest(
            system=self._agent.stack.system_prompt(self._agent.prompt, context),
            messages=self._state.messages,
            tools=self._toolbox.specs(),
            max_tokens=self._agent.limits.output_tokens,
            temperature=self._agent.temperature,
        )
        call = self._agent.stack.around_model_call(self._stream, context)
        answer = distinct_calls(evolve(await call(request), id=context.environment.new_id("msg_")))
        await self._log.commit(journal.ModelAnswered(self._run_id, answer))

    async def _stream(self, request: ModelRequest) -> AssistantMessage:
        agent = self._agent
        environment = self._context().environment
        publish, run_id = self._publisher.publish, self._run_id
        # A middleware may call again, and a former process may have died in the middle of a sentence.
        self._publisher.discard(run_id, "the model is called again")
        async with retrying(agent.model, request, environment=environment, policy=agent.retry) as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        publish(TextStreamed, run_id, text=text)
                    case ToolCallStarted(call_id, name):
                        publish(ToolCallSeen, run_id, call_id=call_id, name=name)
                    case StreamRestarted(reason):
                        publish(TextDiscarded, run_id, reason=reason)
                    case ModelAnswer(message):
                        return message
                    case _:
                        await trio.lowlevel.checkpoint_if_cancelled()
        raise ModelProtocolError(agent.model.name, "the stream ended without an answer")


def _free(calls: tuple[ToolCall, ...], interrupts: list[Interrupt]) -> tuple[ToolCall, ...]:
    """Return the calls that may begin although people are asked about others (C23).

    An interrupt that is about none of the calls holds back the run as a whole, so nothing begins.
    """
    gated = {interrupt.id for interrupt in interrupts}
    if gated - {call.id for call in calls}:
        return ()
    return tuple(call for call in calls if call.id not in gated)


def _completed(answer: AssistantMessage, events: tuple[journal.JournalEvent, ...]) -> Outcome:
    if answer.stop_reason == "refused":
        return Outcome("failed", "the model refused to answer", events)
    return Outcome("completed", "" if answer.stop_reason == "end" else answer.stop_reason, events)
