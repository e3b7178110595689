"""The tool phase: journaled calls are carried out, at the same time where they may, each with one result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from sapwood.agents._agent import Agent
from sapwood.agents._finishing import Finishing
from sapwood.agents._log import Log
from sapwood.agents._turn import UNKNOWN_OUTCOME, error_result
from sapwood.agents._waits import Waits
from sapwood.conversation import Interrupt, PendingCall, Problem, ToolCall, ToolResult, evolve, journal
from sapwood.errors import ToolError
from sapwood.middleware import MiddlewareContext
from sapwood.tools import CrashResume, ResultStore, StopSignal, Toolbox, ToolContext, ToolOutcome

UNKNOWN_QUESTION: Final = (
    "Tool '{name}' was dispatched but we don't know if it completed. Please check manually and confirm the result."
)
"""What a person is asked about a call that the process died in (S3-145)."""


class ToolPhase:
    """Carries out the pending calls of one conversation (S3-142 … S3-146, C18, C23).

    For every call the journal says what was intended, that it started, and what came of it, each before the next
    step is taken. A call that was started by a former process is dealt with as its tool says (`crash_resume`).

    Args:
        agent: The agent.
        toolbox: Its tools and those of its middleware.
        log: The conversation.
        context: Makes the context that middleware sees.
        results: Where whole results are kept; None if nowhere.
        stop: Asked when no further call may begin.
        waits: Knows for whom a call waits.
    """

    def __init__(
        self,
        agent: Agent,
        toolbox: Toolbox,
        log: Log,
        context: Callable[[], MiddlewareContext],
        *,
        results: ResultStore | None,
        stop: StopSignal,
        waits: Waits,
    ) -> None:
        self._agent = agent
        self._toolbox = toolbox
        self._log = log
        self._context = context
        self._results = results
        self._stop = stop
        self._waits = waits
        self._finishing = Finishing(log, context, results)

    async def run(self) -> None:
        """Carry out all pending calls that nobody has to decide about, and return when each has its result.

        What goes wrong with one call is its result, and harms no other (UP-52). A call that is found started was
        started by a former process.
        """
        waiting = {interrupt.id for interrupt in self._log.state.interrupts}
        ready = [each for each in self._log.state.pending if each.call.id not in waiting and each.phase != "deferred"]
        places = trio.Semaphore(self._agent.limits.parallel_tools)
        async with trio.open_nursery() as nursery:
            for pending in ready:
                await places.acquire()  # here, so that calls begin in their order
                if self._stop.asked:
                    break  # those that have not begun are settled with the end of the run (UP-39)
                nursery.start_soon(self._one, pending, places)

    async def _one(self, pending: PendingCall, places: trio.Semaphore) -> None:
        try:
            if pending.phase == "started":
                tool = self._toolbox.get(pending.call.name)
                await _RESUMES[tool.crash_resume if tool is not None else "fail"](self, pending)
            else:
                await self._carry_out(pending)
        finally:
            places.release()

    async def _carry_out(self, pending: PendingCall) -> None:
        call = pending.call
        await self._log.commit(journal.ToolStarted(call.id))
        invoke = self._agent.stack.around_tool_call(self._invocation(pending), self._context())
        try:
            outcome = await invoke(call)
        except Exception as error:
            # A middleware's: those of tools are results already. Calls beside this one must not suffer from it.
            text = str(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
            await self._finishing.result(self._failed(call, f"Error: {text}", "failed"))
        else:
            await self._finishing.outcome(pending, outcome)

    def _invocation(self, pending: PendingCall) -> Callable[[ToolCall], Awaitable[ToolOutcome]]:
        """Return what middleware awaits to carry out a call.

        Once the call has succeeded its outcome is kept: asked again under its key, it is given again, and nothing runs
        a second time; with other arguments that is an error (S3-143, BR-28).
        """
        kept: list[tuple[dict[str, Any], ToolOutcome]] = []

        async def invoke(call: ToolCall) -> ToolOutcome:
            for arguments, outcome in kept:
                if call.arguments == arguments:
                    return outcome
                problem = f"{call.name} has already run under this idempotency key, with other arguments"
                return self._toolbox.fail(call, problem, "failed")
            tool = self._toolbox.get(call.name)
            with self._waits.at_work(self._log.agent_id, in_thread=tool is not None and tool.blocking):
                outcome = await self._toolbox.invoke(call, self.context_of(pending))
            if not outcome.result.is_error:
                kept.append((call.arguments, outcome))
            return outcome

        return invoke

    def context_of(self, pending: PendingCall) -> ToolContext:
        """Return what a tool may know of the call that it carries out."""
        state = self._log.state
        return ToolContext(
            agent_id=self._log.agent_id,
            run_id=state.run.id if state.run is not None else "",
            call_id=pending.call.id,
            idempotency_key=pending.key,
            state=state,
            host=self._agent.host,
            environment=self._context().environment,
            stop=self._stop,
            results=self._results,
        )

    def _failed(self, call: ToolCall, text: str, problem: Problem) -> ToolResult:
        return error_result(call, text, self._context().environment.new_id("msg_"), problem)

    # --- calls that a former process had started --------------------------------------------------

    async def _rerun(self, pending: PendingCall) -> None:
        again = evolve(pending, attempt=pending.attempt + 1, phase="intended")
        await self._log.commit(journal.ToolIntended(again.call, again.key, again.attempt))
        await self._carry_out(again)

    async def _ask(self, pending: PendingCall) -> None:
        call = pending.call
        interrupt = Interrupt(
            id=call.id,
            kind="reconcile",
            call=call,
            reason=UNKNOWN_QUESTION.format(name=call.name),
            created_at=self._context().environment.wall(),
            details={"idempotency_key": pending.key, "attempt": pending.attempt},
        )
        await self._log.commit(journal.InterruptRaised(interrupt))

    async def _fail(self, pending: PendingCall) -> None:
        text = UNKNOWN_OUTCOME.format(name=pending.call.name)
        await self._finishing.result(self._failed(pending.call, text, "unknown"))


_RESUMES: Mapping[CrashResume, Callable[[ToolPhase, PendingCall], Awaitable[None]]] = {
    "rerun": ToolPhase._rerun,
    "ask": ToolPhase._ask,
    "fail": ToolPhase._fail,
}
