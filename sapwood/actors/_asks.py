"""Asks: one waiting caller and its answer, and the detection of circles of waiting actors."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import outcome
import trio

from sapwood.errors import AskCycle, AskTimeout

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell
    from sapwood.actors._deadlines import Deadline
    from sapwood.actors._ref import Ref

T = TypeVar("T")

CURRENT: ContextVar[Cell | None] = ContextVar("sapwood_current_actor", default=None)
"""The actor whose code runs here, tasks that it started included."""

BLOCKED: ContextVar[Cell | None] = ContextVar("sapwood_blocked_actor", default=None)
"""The actor that takes no other message while the code here waits; None in tasks started with `start_task`."""


class Failure:
    """Returned by a handler in place of an answer: the ask raises `error` in its caller, and the actor goes on."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class Ask:
    """A request in a mailbox, with the task that waits for its answer.

    Exactly one of answer, failure, time-out and cancellation ends it; what comes later is counted and dropped.
    """

    __slots__ = ("deadline", "request", "target", "task", "timeout")

    def __init__(self, request: Any, target: Cell, task: trio.lowlevel.Task, timeout: float | None) -> None:
        self.request = request
        self.target = target
        # Invariant: `task` is None from the moment the ask has ended.
        self.task: trio.lowlevel.Task | None = task
        self.timeout = timeout
        self.deadline: Deadline | None = None

    def answer(self, value: Any) -> bool:
        """Wake the caller with a value, or the error of a `Failure`; say whether it still waited (OTP I13)."""
        if type(value) is Failure:
            return self._end(outcome.Error(value.error))
        return self._end(outcome.Value(value))

    def fail(self, error: Exception) -> bool:
        """Wake the caller with an exception; say whether it still waited."""
        return self._end(outcome.Error(error))

    def _end(self, result: outcome.Outcome[Any]) -> bool:
        task = self.task
        if task is None:
            self.target.system.late_replies += 1
            return False
        self.task = None
        self._settled()
        trio.lowlevel.reschedule(task, result)
        return True

    def _settled(self) -> None:
        owed = self.target.owed
        if owed:
            owed.discard(self)

    def expire(self) -> None:
        """Wake the caller with `AskTimeout`."""
        if self.task is not None:
            self.fail(AskTimeout(self.target.label, type(self.request).__name__, self.timeout or 0.0))

    def abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        """Let the caller go because it is cancelled."""
        self.task = None
        self._settled()
        return trio.lowlevel.Abort.SUCCEEDED

    async def wait(self) -> Any:
        """Wait in the caller's task for the end of this ask.

        Raises:
            AskTimeout: if the time-out passes first.
            AskCycle: if waiting would close a circle of actors that wait for one another.
        """
        caller = BLOCKED.get()
        if caller is not None:
            check_cycle(caller, self.target)
            if caller.asking is None:
                caller.asking = []
            caller.asking.append(self.target)
        if self.timeout is not None:
            deadlines = self.target.system.deadlines
            self.deadline = deadlines.at(trio.current_time() + self.timeout, self.expire)
        try:
            return await trio.lowlevel.wait_task_rescheduled(self.abort)
        finally:
            if self.deadline is not None:
                self.deadline.cancel()
                self.deadline = None
            if caller is not None and caller.asking is not None:
                caller.asking.remove(self.target)


def current_actor() -> Ref | None:
    """Return the actor whose code runs here, tasks that it started included; None outside of actors."""
    cell = CURRENT.get()
    return cell.ref if cell is not None else None


def blocked_actor() -> Ref | None:
    """Return the actor that takes no other message while the code here waits; None where no actor is held up."""
    cell = BLOCKED.get()
    return cell.ref if cell is not None else None


def check_branch(caller: Cell | None, through: Sequence[Cell], stopped: Cell) -> None:
    """Refuse a wait for the end of an actor by one that it supervises, at whatever depth (OTP E17).

    Args:
        caller: The actor that would wait; None if none does.
        through: Whom it asks for that.
        stopped: The actor that is to end.

    Raises:
        AskCycle: naming the actors in order; nothing has been stopped.
    """
    branch: list[Cell] = []
    at = caller
    while at is not None:
        branch.append(at)
        if at is stopped:
            assert caller is not None
            raise AskCycle([cell.label for cell in (caller, *through, *reversed(branch))])
        at = at.parent


def check_cycle(caller: Cell, target: Cell) -> None:
    """Refuse an ask from a blocked actor whose target already waits, through others, for that actor.

    Raises:
        AskCycle: naming the actors in order, at once and not at the time-out (BR-14).
    """
    chain = _path(target, caller, [caller, target])
    if chain is not None:
        raise AskCycle([cell.label for cell in chain])


def _path(at: Cell, goal: Cell, chain: list[Cell]) -> list[Cell] | None:
    for waits_for in at.asking or ():
        if waits_for is goal:
            return [*chain, goal]
        if waits_for not in chain:
            found = _path(waits_for, goal, [*chain, waits_for])
            if found is not None:
                return found
    return None


class Reply(Generic[T]):
    """The right to answer one request later, from any callback or actor that holds it (OTP I12)."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask

    def __call__(self, value: T) -> bool:
        """Answer the caller; say whether it still waited. A second answer is dropped (OTP I13)."""
        return self._ask is not None and self._ask.answer(value)

    def fail(self, error: Exception) -> bool:
        """Make the caller's ask raise `error`; say whether it still waited."""
        return self._ask is not None and self._ask.fail(error)
