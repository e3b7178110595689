"""The tool phase: journaled calls are carried out, at the same time where they may, each with one result."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio

from sapwood.agents._agent import Agent
from sapwood.agents._log import Log
from sapwood.conversation import (
    Decision,
    Interrupt,
    PendingCall,
    ToolCall,
    ToolResult,
    edited_call,
    evolve,
    idempotency_key,
    journal,
)
from sapwood.middleware import MiddlewareContext
from sapwood.tools import CrashResume, Toolbox, ToolContext, ToolOutcome

UNKNOWN_OUTCOME: Final = (
    "Error: the process ended while {name} was running; whether it had its effect is unknown. Check before trying again"
)
REJECTED: Final = "Error: {name} was not run: rejected{by}{reason}"


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
        self._begun_here: set[str] = set()

    def intents(self, calls: tuple[ToolCall, ...]) -> list[journal.JournalEvent]:
        """Return the events that say that calls are about to be carried out, with the keys of all their attempts."""
        return [journal.ToolIntended(call, self._key(call)) for call in calls]

    def _key(self, call: ToolCall) -> str:
        return idempotency_key(self._log.agent_id, self._log.seq, call.id)

    async def run(self) -> None:
        """Carry out all pending calls that nobody has to decide about, and return when each has its result."""
        waiting = {interrupt.id for interrupt in self._log.state.interrupts}
        ready = [each for each in self._log.state.pending if each.call.id not in waiting]
        limit = trio.CapacityLimiter(self._agent.limits.parallel_tools)
        async with trio.open_nursery() as nursery:
            for pending in ready:
                nursery.start_soon(self._one, pending, limit)

    async def _one(self, pending: PendingCall, limit: trio.CapacityLimiter) -> None:
        async with limit:
            if pending.phase == "started" and pending.call.id not in self._begun_here:
                resume = _RESUMES[self._crash_resume(pending.call)]
                await resume(self, pending)
            else:
                await self._carry_out(pending)

    def _crash_resume(self, call: ToolCall) -> CrashResume:
        tool = self._toolbox.get(call.name)
        return tool.crash_resume if tool is not None else "fail"

    async def _carry_out(self, pending: PendingCall) -> None:
        call = pending.call
        self._begun_here.add(call.id)
        await self._log.commit(journal.ToolStarted(call.id))
        context = self._context()
        invoke = self._agent.stack.around_tool_call(self._invocation(pending), context)
        outcome = await invoke(call)
        await self._finish(self._with_note(outcome.result), outcome)

    def _with_note(self, result: ToolResult) -> ToolResult:
        """Tell the model that a person changed its arguments, or it would call again with its own (UP-21)."""
        decision = self._log.state.decision(result.call_id)
        if decision is None or decision.verdict != "edit":
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

    async def _finish(self, result: ToolResult, outcome: ToolOutcome | None = None) -> None:
        result = evolve(result, id=self._context().environment.new_id("msg_"))
        await self._log.commit(journal.ToolFinished(result, outcome.operations if outcome is not None else ()))

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
        await self._finish(error_result(pending.call, UNKNOWN_OUTCOME.format(name=pending.call.name)))

    # --- decisions --------------------------------------------------------------------------------

    async def act_on_decisions(self) -> None:
        """Carry out what people have decided about open interrupts; a decision is acted on once (UP-11)."""
        state = self._log.state
        for interrupt in state.interrupts:
            decision = state.decision(interrupt.id)
            if decision is None:
                continue
            match decision.verdict:
                case "approve" | "edit":
                    events = self._go_ahead(edited_call(interrupt, decision))
                case "answer":
                    events = self._result(answer_result(interrupt.call, decision))
                case "reject" if interrupt.kind == "reconcile":
                    events = self._result(
                        error_result(interrupt.call, UNKNOWN_OUTCOME.format(name=interrupt.call.name))
                    )
                case _:
                    by = f" by {decision.by}" if decision.by else ""
                    reason = f": {decision.reason}" if decision.reason else ""
                    text = REJECTED.format(name=interrupt.call.name, by=by, reason=reason)
                    events = self._result(error_result(interrupt.call, text))
            await self._log.commit(*events, journal.InterruptClosed(interrupt.id, "carried_out"))

    def _go_ahead(self, call: ToolCall) -> list[journal.JournalEvent]:
        earlier = next((each for each in self._log.state.pending if each.call.id == call.id), None)
        if earlier is None:
            return [journal.ToolIntended(call, self._key(call))]
        return [journal.ToolIntended(call, earlier.key, earlier.attempt + 1)]

    def _result(self, result: ToolResult) -> list[journal.JournalEvent]:
        return [journal.ToolFinished(evolve(result, id=self._context().environment.new_id("msg_")))]


def error_result(call: ToolCall, text: str) -> ToolResult:
    """Return the result of a call that failed."""
    return ToolResult(call_id=call.id, name=call.name, content=text, is_error=True)


def answer_result(call: ToolCall, decision: Decision) -> ToolResult:
    """Return the result that a person gave for a call: the answer `result` as it is, any other as JSON."""
    answer = decision.arguments
    text = answer["result"] if set(answer) == {"result"} else answer
    content = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return ToolResult(call_id=call.id, name=call.name, content=content)


_RESUMES: Mapping[CrashResume, Callable[[ToolPhase, PendingCall], Awaitable[None]]] = {
    "rerun": ToolPhase._rerun,
    "ask": ToolPhase._ask,
    "fail": ToolPhase._fail,
}
