"""The tool phase: journaled calls are carried out, at the same time where they may, each with one result."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

import trio

from sapwood.agents._agent import Agent
from sapwood.agents._changes import named_operations
from sapwood.agents._log import COMMIT_WITHIN, Log
from sapwood.agents._turn import NOT_RUN, UNKNOWN_OUTCOME, error_result, is_about_a_call, last_answer
from sapwood.conversation import (
    Decision,
    Interrupt,
    Operation,
    PendingCall,
    ToolCall,
    ToolResult,
    edited_call,
    evolve,
    idempotency_key,
    journal,
)
from sapwood.errors import CodecError, ToolError
from sapwood.middleware import MiddlewareContext
from sapwood.tools import CrashResume, Toolbox, ToolContext, ToolOutcome


class ToolPhase:
    """Carries out the pending calls of one conversation (S3-142 … S3-146, C18, C23).

    For every call the journal says what was intended, that it started, and what came of it, each before the next
    step is taken. A call that was started by a former process is dealt with as its tool says (`crash_resume`).

    Args:
        agent: The agent.
        toolbox: Its tools and those of its middleware.
        log: The conversation.
        context: Makes the context that middleware sees.
    """

    def __init__(self, agent: Agent, toolbox: Toolbox, log: Log, context: Callable[[], MiddlewareContext]) -> None:
        self._agent = agent
        self._toolbox = toolbox
        self._log = log
        self._context = context

    def intents(self, calls: tuple[ToolCall, ...]) -> list[journal.JournalEvent]:
        """Return the events that say that calls are about to be carried out, with the keys of all their attempts."""
        return [journal.ToolIntended(call, self._key(call)) for call in calls]

    def _key(self, call: ToolCall) -> str:
        return idempotency_key(self._log.agent_id, self._log.seq, call.id)

    async def run(self) -> None:
        """Carry out all pending calls that nobody has to decide about, and return when each has its result.

        What goes wrong with one call is its result, and harms no other (UP-52). A call that is found started was
        started by a former process.
        """
        waiting = {interrupt.id for interrupt in self._log.state.interrupts}
        ready = [each for each in self._log.state.pending if each.call.id not in waiting]
        limit = trio.CapacityLimiter(self._agent.limits.parallel_tools)
        async with trio.open_nursery() as nursery:
            for pending in ready:
                nursery.start_soon(self._one, pending, limit)

    async def _one(self, pending: PendingCall, limit: trio.CapacityLimiter) -> None:
        async with limit:
            if pending.phase == "started":
                tool = self._toolbox.get(pending.call.name)
                await _RESUMES[tool.crash_resume if tool is not None else "fail"](self, pending)
            else:
                await self._carry_out(pending)

    async def _carry_out(self, pending: PendingCall) -> None:
        call = pending.call
        await self._log.commit(journal.ToolStarted(call.id))
        invoke = self._agent.stack.around_tool_call(self._invocation(pending), self._context())
        try:
            outcome = await invoke(call)
        except Exception as error:
            # A middleware's: those of tools are results already. Calls beside this one must not suffer from it.
            text = str(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
            await self._finish(self._failed(call, f"Error: {text}"))
        else:
            await self._finish(self._with_note(evolve(outcome.result, call_id=call.id)), outcome.operations)

    def _with_note(self, result: ToolResult) -> ToolResult:
        """Tell the model that a person changed its arguments, or it would call again with its own (UP-21)."""
        answer = last_answer(self._log.state)
        asked = next((each for each in answer.tool_calls if each.id == result.call_id), None) if answer else None
        pending = next((each for each in self._log.state.pending if each.call.id == result.call_id), None)
        decision = self._log.state.decision(result.call_id)
        if asked is None or pending is None or decision is None or asked.arguments == pending.call.arguments:
            return result
        by = f" by {decision.by}" if decision.by else ""
        reason = f" ({decision.reason})" if decision.reason else ""
        changed = ", ".join(f"{name}={value!r}" for name, value in decision.arguments.items())
        return evolve(result, content=f"{result.content}\n[the arguments were changed{by}{reason}: {changed}]")

    def _invocation(self, pending: PendingCall) -> Callable[[ToolCall], Awaitable[ToolOutcome]]:
        async def invoke(call: ToolCall) -> ToolOutcome:
            state = self._log.state
            return await self._toolbox.invoke(
                call,
                ToolContext(
                    agent_id=self._log.agent_id,
                    run_id=state.run.id if state.run is not None else "",
                    call_id=pending.call.id,
                    idempotency_key=pending.key,
                    state=state,
                    host=self._agent.host,
                    environment=self._context().environment,
                ),
            )

        return invoke

    async def _finish(self, result: ToolResult, operations: tuple[Operation, ...] = ()) -> None:
        """Journal what came of a call, although the run may have been cancelled: it has happened (BR-26, UP-36)."""
        new_id = self._context().environment.new_id
        result = evolve(result, id=new_id("msg_"))
        with trio.CancelScope(shield=True, deadline=trio.current_time() + COMMIT_WITHIN):
            try:
                await self._log.commit(journal.ToolFinished(result, named_operations(operations, new_id)))
            except CodecError as error:
                text = f"Error: {result.name} ran, but what it returned cannot be stored: {error}"
                failed = evolve(result, content=text, is_error=True)
                await self._log.commit(journal.ToolFinished(failed))

    def _failed(self, call: ToolCall, text: str) -> ToolResult:
        return error_result(call, text, self._context().environment.new_id("msg_"))

    # --- calls that a former process had started --------------------------------------------------

    async def _rerun(self, pending: PendingCall) -> None:
        again = evolve(pending, attempt=pending.attempt + 1, phase="intended")
        await self._log.commit(journal.ToolIntended(again.call, again.key, again.attempt))
        await self._carry_out(again)

    async def _ask(self, pending: PendingCall) -> None:
        call = pending.call
        question = (
            f"{call.name} was running when the process ended. Did it have its effect? "
            "Answer with its result, approve to run it again, or reject to leave it unknown"
        )
        interrupt = Interrupt(
            id=call.id, kind="reconcile", call=call, reason=question, created_at=self._context().environment.wall()
        )
        await self._log.commit(journal.InterruptRaised(interrupt))

    async def _fail(self, pending: PendingCall) -> None:
        await self._finish(self._failed(pending.call, UNKNOWN_OUTCOME.format(name=pending.call.name)))

    # --- decisions --------------------------------------------------------------------------------

    async def act_on_decisions(self) -> None:
        """Carry out what people have decided about open interrupts; a decision is acted on once (UP-11)."""
        for interrupt in self._log.state.interrupts:
            decision = self._log.state.decision(interrupt.id)
            if decision is not None:
                events = self._consequences(interrupt, decision)
                await self._log.commit(*events, journal.InterruptClosed(interrupt.id, "carried_out"))

    def _consequences(self, interrupt: Interrupt, decision: Decision) -> list[journal.JournalEvent]:
        call = interrupt.call
        if not is_about_a_call(self._log.state, interrupt):
            return []  # about the run as a whole: whoever asked finds the decision in the state
        match decision.verdict:
            case "approve" | "edit":
                return self._go_ahead(edited_call(interrupt, decision))
            case "answer":
                result = answer_result(call, decision, self._context().environment.new_id("msg_"))
                return [journal.ToolFinished(result)]
            case "reject" if interrupt.kind == "reconcile":
                return [journal.ToolFinished(self._failed(call, UNKNOWN_OUTCOME.format(name=call.name)))]
            case _:
                by = f" by {decision.by}" if decision.by else ""
                reason = f": {decision.reason}" if decision.reason else ""
                text = NOT_RUN.format(name=call.name, why=f"rejected{by}{reason}")
                return [journal.ToolFinished(self._failed(call, text))]

    def _go_ahead(self, call: ToolCall) -> list[journal.JournalEvent]:
        earlier = next((each for each in self._log.state.pending if each.call.id == call.id), None)
        if earlier is None:
            return self.intents((call,))
        return [journal.ToolIntended(call, earlier.key, earlier.attempt + 1)]


def answer_result(call: ToolCall, decision: Decision, message_id: str) -> ToolResult:
    """Return the result that a person gave for a call: the answer `result` as it is, any other as JSON."""
    answer = decision.arguments
    text = answer["result"] if set(answer) == {"result"} else answer
    content = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return ToolResult(call_id=call.id, name=call.name, content=content, id=message_id)


_RESUMES: Mapping[CrashResume, Callable[[ToolPhase, PendingCall], Awaitable[None]]] = {
    "rerun": ToolPhase._rerun,
    "ask": ToolPhase._ask,
    "fail": ToolPhase._fail,
}
