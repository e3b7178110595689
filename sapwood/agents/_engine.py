"""The run engine: what to do next follows from the state alone, so a run can be taken up anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio

from sapwood.agents._agent import Agent
from sapwood.agents._log import Log
from sapwood.agents._publisher import Publisher
from sapwood.agents._tool_phase import ToolPhase
from sapwood.conversation import (
    AddMessage,
    AssistantMessage,
    PatchMetadata,
    SetTodos,
    State,
    TextDiscarded,
    TextStreamed,
    ToolCall,
    ToolCallSeen,
    ToolResult,
    distinct_calls,
    evolve,
    journal,
    unanswered_calls,
)
from sapwood.errors import InvalidOption, ModelError
from sapwood.middleware import Change, MiddlewareContext, ReplaceMessages, Suspend
from sapwood.models import (
    ModelAnswer,
    ModelRequest,
    StreamRestarted,
    TextDelta,
    ToolCallStarted,
    retrying,
)
from sapwood.tools import Toolbox


@attrs.frozen
class Outcome:
    """How the engine left a run.

    Attributes:
        outcome: `completed`, `failed` or `interrupted`.
        detail: Why, if it failed.
    """

    outcome: journal.RunOutcome
    detail: str = ""


class RunEngine:
    """Carries a run from wherever its journal ends to where it is done or has to wait (S4-023, S4-027).

    One step: decisions that people made are acted on; journaled tool calls are carried out; else the model is
    called, between the hooks of the middleware. After a crash the same function goes on: what is journaled is not
    done again, and what was started but not finished is dealt with as each tool says.

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
        self._hooks_done_for = ""

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
            Exception: what a middleware raised.
        """
        result: list[Outcome] = []

        async def inner() -> None:
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
        answer, open_calls = self._latest_answer()
        if answer is not None and (open_calls or not answer.tool_calls):
            if self._hooks_done_for != answer.id:
                return await self._after_model(answer)
            if not open_calls:
                return self._final(answer)
            await self._log.commit(*self._tools.intents(open_calls))
            return None
        return await self._call_model()

    def _latest_answer(self) -> tuple[AssistantMessage | None, tuple[ToolCall, ...]]:
        """Return the answer that the conversation ends with, and those of its calls that nothing was done about."""
        state = self._state
        index = len(state.messages) - 1
        while index >= 0 and isinstance(state.messages[index], ToolResult):
            index -= 1
        answer = state.messages[index] if index >= 0 else None
        if not isinstance(answer, AssistantMessage):
            return None, ()
        known = {each.call.id for each in state.pending} | {each.id for each in state.interrupts}
        return answer, tuple(call for call in unanswered_calls(state.messages[index:]) if call.id not in known)

    def _final(self, last: AssistantMessage) -> Outcome:
        if last.stop_reason == "refused":
            return Outcome("failed", "the model refused to answer")
        return Outcome("completed", "" if last.stop_reason == "end" else last.stop_reason)

    # --- the model and its hooks ------------------------------------------------------------------

    async def _call_model(self) -> Outcome | None:
        run = self._state.run
        limit = self._agent.limits.model_calls
        if run is not None and run.model_calls >= limit:
            return Outcome("failed", f"the run used up its limit of {limit} model calls")
        for layer in self._agent.stack.before_model:
            result = await layer.before_model(self._state, self._context())
            if isinstance(result, Suspend):
                await self._log.commit(*(journal.InterruptRaised(interrupt) for interrupt in result.interrupts))
                return None
            await self._log.commit(*change_events(layer.name, result or ()))
        context = self._context()
        request = ModelRequest(
            system=self._agent.stack.system_prompt(self._agent.prompt, context),
            messages=self._state.messages,
            tools=self._toolbox.specs(),
            max_tokens=self._agent.limits.output_tokens,
            temperature=self._agent.temperature,
        )
        await self._log.commit(journal.ModelCallStarted(self._run_id, self._agent.model.name))
        call = self._agent.stack.around_model_call(self._stream, context)
        answer = distinct_calls(evolve(await call(request), id=context.environment.new_id("msg_")))
        await self._log.commit(journal.ModelAnswered(self._run_id, answer))
        return None

    async def _stream(self, request: ModelRequest) -> AssistantMessage:
        agent = self._agent
        environment = self._context().environment
        publish, run_id = self._publisher.publish, self._run_id
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
        raise InvalidOption(f"model {agent.model.name}: expected an answer at the end of its stream; got none")

    async def _after_model(self, answer: AssistantMessage) -> Outcome | None:
        for layer in self._agent.stack.after_model:
            result = await layer.after_model(self._state, self._context())
            if isinstance(result, Suspend):
                # Calls that nobody has to approve do not wait for those that somebody has to (C23).
                gated = {interrupt.id for interrupt in result.interrupts}
                free = tuple(call for call in self._latest_answer()[1] if call.id not in gated)
                raised = (journal.InterruptRaised(interrupt) for interrupt in result.interrupts)
                await self._log.commit(*self._tools.intents(free), *raised)
                return None
            await self._log.commit(*change_events(layer.name, result or ()))
        self._hooks_done_for = answer.id
        return None


def change_events(source: str, changes: Sequence[Change]) -> list[journal.JournalEvent]:
    """Turn what a middleware wants changed into journal events.

    Raises:
        InvalidOption: if it is none of the changes there are.
    """
    events: list[journal.JournalEvent] = []
    for change in changes:
        match change:
            case ReplaceMessages(removed, inserted, before):
                events.append(journal.MessagesReplaced(removed, inserted, before, source))
            case AddMessage() | SetTodos() | PatchMetadata():
                events.append(journal.OperationsApplied((change,), source))
            case _:
                raise InvalidOption(
                    f"middleware {source}: expected AddMessage, SetTodos, PatchMetadata or ReplaceMessages; got {change!r}"
                )
    return events


