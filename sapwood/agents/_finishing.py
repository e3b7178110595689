"""Finishing: what came of a call is journaled, whatever it is, with the whole of a large result kept elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from sapwood.agents._changes import named_operations
from sapwood.agents._log import COMMIT_WITHIN, Log
from sapwood.agents._turn import last_answer
from sapwood.conversation import Deferral, Operation, PendingCall, ToolResult, clean_text, evolve, journal
from sapwood.errors import CodecError, PersistenceError
from sapwood.middleware import MiddlewareContext
from sapwood.tools import POLL_EVERY, Pending, ResultStore, ToolOutcome

KEPT: Final = "\n[the whole of it is kept as {reference}]"


class Finishing:
    """Writes the ends of tool calls.

    Args:
        log: The conversation.
        context: Makes the context that middleware sees.
        results: Where whole results are kept; None if nowhere.
    """

    def __init__(self, log: Log, context: Callable[[], MiddlewareContext], results: ResultStore | None) -> None:
        self._log = log
        self._context = context
        self._results = results

    async def outcome(self, pending: PendingCall, outcome: ToolOutcome) -> None:
        """Journal what came of a call: its result, or where it goes on."""
        if outcome.pending is not None:
            await self.defer(pending, outcome.pending)
            return
        result = evolve(outcome.result, call_id=pending.call.id)
        if outcome.whole is not None:
            result = await self._keep(result, outcome.whole, pending.key)
        await self.result(self._with_note(result), outcome.operations)

    async def result(self, result: ToolResult, operations: tuple[Operation, ...] = ()) -> None:
        """Journal a result, although the run may have been cancelled: it has happened (BR-26, UP-36)."""
        new_id = self._context().environment.new_id
        result = evolve(result, id=new_id("msg_"))
        with trio.CancelScope(shield=True, deadline=trio.current_time() + COMMIT_WITHIN):
            try:
                await self._log.commit(journal.ToolFinished(result, named_operations(operations, new_id)))
            except CodecError as error:
                text = f"Error: {result.name} ran, but what it returned cannot be stored: {error}"
                failed = evolve(result, content=text, is_error=True, problem="failed")
                await self._log.commit(journal.ToolFinished(failed))

    async def defer(self, pending: PendingCall, found: Pending) -> None:
        """Journal where a call goes on, although the run may have been cancelled, and when it is asked about."""
        now = self._context().environment.wall()
        earlier = pending.deferral
        every = found.every or (earlier.every if earlier is not None else POLL_EVERY)
        give_up_at = earlier.give_up_at if earlier is not None else None
        if earlier is None and found.give_up_after is not None:
            give_up_at = now + found.give_up_after
        next_at = now + every if give_up_at is None else min(now + every, give_up_at)
        deferral = Deferral(found.poll_id, every, next_at, give_up_at, clean_text(found.note))
        with trio.CancelScope(shield=True, deadline=trio.current_time() + COMMIT_WITHIN):
            await self._log.commit(journal.ToolDeferred(pending.call.id, deferral))

    async def _keep(self, result: ToolResult, whole: str, key: str) -> ToolResult:
        """Keep the whole of a result of which the model sees only the beginning (UP-66, UP-67).

        A store that cannot take it costs the rest of the text, and the model is told.
        """
        if self._results is None:
            return result
        note, reference = "\n[the rest of it could not be kept]", ""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + COMMIT_WITHIN):
            try:
                reference = await self._results.put(self._log.agent_id, key, whole)
            except PersistenceError as error:
                note = f"\n[the rest of it could not be kept: {error}]"
        if reference:
            note = KEPT.format(reference=reference)
        return evolve(result, content=result.content + note, reference=reference)

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
