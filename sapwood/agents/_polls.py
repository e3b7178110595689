"""Polls: calls that go on elsewhere are asked about, outside of any run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

import trio

from sapwood.agents._finishing import Finishing
from sapwood.agents._log import Log
from sapwood.agents._waits import Waits
from sapwood.conversation import PendingCall
from sapwood.errors import PersistenceError
from sapwood.middleware import MiddlewareContext
from sapwood.tools import Pending, Toolbox, ToolContext, ToolOutcome

ATTEMPTS: Final = 5
"""Polls of one call that may fail in a row before the call counts as failed."""


class Polls:
    """Asks about the calls of one conversation that go on elsewhere.

    Args:
        toolbox: The agent's tools and those of its middleware.
        log: The conversation.
        context: Makes the context that middleware sees.
        finishing: Writes the ends of calls.
        context_of: Makes the context of a call.
        waits: Knows for whom a poll waits.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        log: Log,
        context: Callable[[], MiddlewareContext],
        finishing: Finishing,
        context_of: Callable[[PendingCall], ToolContext],
        *,
        waits: Waits,
    ) -> None:
        self._toolbox = toolbox
        self._log = log
        self._context = context
        self._finishing = finishing
        self._context_of = context_of
        self._waits = waits
        self._failures: Counter[str] = Counter()

    async def run(self, ready: Collection[str] = ()) -> None:
        """Ask about all calls whose time has come, or that are known to be done, at the same time."""
        now = self._context().environment.wall()
        with self._waits.at_work(self._log.agent_id):
            async with trio.open_nursery() as nursery:
                for pending in self._log.state.deferred:
                    due = pending.deferral is not None and pending.deferral.next_at <= now
                    if due or pending.call.id in ready:
                        nursery.start_soon(self._ask, pending, now)

    async def _ask(self, pending: PendingCall, now: float) -> None:
        call, deferral = pending.call, pending.deferral
        assert deferral is not None
        try:
            outcome = await self._toolbox.poll(call, deferral.poll_id, self._context_of(pending))
        except PersistenceError:
            raise
        except Exception as error:
            outcome = self._failed_poll(pending, error)
        else:
            self._failures.pop(call.id, None)
        if outcome.pending is not None and deferral.give_up_at is not None and now >= deferral.give_up_at:
            late = f"{call.name} was not done in time; it may go on as {deferral.poll_id}"
            outcome = self._toolbox.fail(call, late, "timeout")
        if any(each.call.id == call.id for each in self._log.state.deferred):
            await self._finishing.outcome(pending, outcome)

    def _failed_poll(self, pending: PendingCall, error: Exception) -> ToolOutcome:
        """Return the outcome of a poll that failed: still pending, unless too many have failed in a row."""
        call, deferral = pending.call, pending.deferral
        assert deferral is not None
        self._failures[call.id] += 1
        problem = f"{type(error).__name__}: {error}"
        if self._failures[call.id] < ATTEMPTS:
            outcome = self._toolbox.fail(call, problem, "failed")
            return ToolOutcome(outcome.result, pending=Pending(deferral.poll_id, note=f"could not be asked: {problem}"))
        lost = f"{call.name} could not be asked {ATTEMPTS} times in a row ({problem})"
        lost += f"; it may go on as {deferral.poll_id}"
        return self._toolbox.fail(call, lost, "unknown")
