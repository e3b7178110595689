"""The run engine: what to do next follows from the state alone, so a run can be taken up anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from sapwood.agents._agent import Agent
from sapwood.agents._decisions import Decisions
from sapwood.agents._finishing import Finishing
from sapwood.agents._hooks import Hooks
from sapwood.agents._log import Log
from sapwood.agents._model_calls import ModelCalls
from sapwood.agents._outcome import Outcome, result_wanted, used_up
from sapwood.agents._polls import Polls
from sapwood.agents._publisher import Publisher
from sapwood.agents._tool_phase import ToolPhase
from sapwood.agents._turn import final_answer, holding, untouched_calls
from sapwood.agents._waits import Waits
from sapwood.conversation import State, distinct_calls, evolve, journal
from sapwood.errors import InvalidOption, LimitReached, ModelError
from sapwood.middleware import MiddlewareContext
from sapwood.models import ModelRequest
from sapwood.tools import ResultStore, StopSignal, Toolbox


class RunEngine:
    """Carries a run from wherever its journal ends to where it is done or has to wait (S4-023, S4-027).

    One step: decisions that people made are acted on; journaled tool calls are carried out; else the model is
    called, between the hooks of the middleware. After a crash the same function goes on: what is journaled is not
    done again, and what was started but not finished is dealt with as each tool says.

    What the hooks around one model call change is journaled together with what follows from it, so that after a
    crash either nothing of it has happened or all of it.

    Runs in a task of the agent's server, which stays answerable meanwhile.

    Attributes:
        decisions: Acts on what people have decided, or have not in time.
        polls: Asks about calls that go on elsewhere.
    """

    def __init__(
        self,
        agent: Agent,
        toolbox: Toolbox,
        log: Log,
        publisher: Publisher,
        context: Callable[[], MiddlewareContext],
        *,
        results: ResultStore | None,
        waits: Waits,
    ) -> None:
        self._agent = agent
        self._toolbox = toolbox
        self._log = log
        self._context = context
        self._waits = waits
        self._stop = StopSignal()
        self._speaking = trio.CancelScope()
        self.held = False
        self._hooks = Hooks(agent, log, context)
        self._models = ModelCalls(agent, log, publisher, context)
        self.decisions = Decisions(log, context)
        self._tools = ToolPhase(agent, toolbox, log, context, results=results, stop=self._stop, waits=waits)
        finishing = Finishing(log, context, results)
        self.polls = Polls(toolbox, log, context, finishing, self._tools.context_of, waits=waits)

    @property
    def _state(self) -> State:
        return self._log.state

    def prepare(self) -> None:
        """Get ready for a run that is about to begin; a cancel may come before its task does."""
        self._stop.clear()

    def stop_softly(self, reason: str) -> None:
        """End the run at the next boundary: the model is cut off, no further tool starts, those that run are told."""
        self._stop.ask(reason)
        self._speaking.cancel()

    async def run(self) -> Outcome:
        """Go on until the run is done, has failed, or waits; the caller journals how it ended.

        Raises:
            StaleEpoch, StoreUnavailable: if the journal cannot be written; nothing unjournaled was done.
            CodecError: if something that a model or a middleware made cannot be stored.
            Exception: what a middleware raised.
        """
        result: list[Outcome] = []

        async def inner() -> None:
            if result:
                raise InvalidOption("around_run: expected call_next() to be awaited once; it was awaited again")
            result.append(await self._within_time())

        with self._waits.at_work(self._log.agent_id):
            await self._agent.stack.around_run(inner, self._context())()
        return result[0] if result else Outcome("completed", "a middleware ended the run")

    async def _within_time(self) -> Outcome:
        limit = self._agent.limits.seconds
        run = self._state.run
        left = math.inf if limit is None else max(0.0, limit - (run.seconds if run is not None else 0.0))
        with trio.move_on_after(left):
            return await self._until_done()
        assert limit is not None
        return used_up(LimitReached("seconds", limit, "seconds"))

    async def _until_done(self) -> Outcome:
        while True:
            try:
                outcome = await self._step()
            except ModelError as error:
                return Outcome("failed", str(error), cause="model")
            except LimitReached as error:
                return used_up(error)
            if outcome is not None:
                return outcome

    async def _step(self) -> Outcome | None:
        await self.decisions.carry_out()
        if self._stop.asked:
            return Outcome("cancelled", self._stop.reason)
        state = self._state
        pausing = self.held or (state.run is not None and state.run.pausing)
        if pausing and final_answer(state) is None:
            return Outcome("paused")
        waiting = {interrupt.id for interrupt in holding(state)}
        if any(each.call.id not in waiting and each.phase != "deferred" for each in state.pending):
            await self._tools.run()
            return None
        if waiting:
            return Outcome("interrupted")
        if state.deferred:
            return Outcome("waiting")
        if result_wanted(state) is not None and not untouched_calls(state):
            return Outcome("completed")
        if untouched_calls(state) or final_answer(state) is not None:
            return await self._hooks.after_model()
        outcome = await self._hooks.before_model()
        if outcome is None:
            await self._call_model()
        return outcome

    async def _call_model(self) -> None:
        context = self._context()
        request = ModelRequest(
            system=self._agent.stack.system_prompt(self._agent.prompt, context),
            messages=self._state.messages,
            tools=self._toolbox.specs(),
            max_tokens=self._agent.limits.output_tokens,
            temperature=self._agent.temperature,
        )
        call = self._agent.stack.around_model_call(self._models.call, context)
        run_id = self._state.run.id if self._state.run is not None else ""
        answer = None
        with trio.CancelScope() as self._speaking:
            if self._stop.asked:
                self._speaking.cancel()
            answer = await call(request)
        if answer is None:
            return
        if self._stop.asked:
            # It was given in spite of the cancel; nobody hears it, but it is on the bill (BR-68).
            late = journal.ModelAttemptFailed(run_id, self._agent.model.name, "cancelled", answer.usage, "stop")
            await self._log.commit(late)
            return
        # A provider may use an id again; a task with the id of an earlier one would be taken for that one.
        known = {sub_agent.id for sub_agent in self._state.sub_agents}
        named = distinct_calls(evolve(answer, id=context.environment.new_id("msg_")), known)
        await self._log.commit(journal.ModelAnswered(run_id, named))
