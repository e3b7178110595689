"""Tasks and timers that an actor owns: they end with it, and report back by message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from sapwood.actors._contexts import Values, capture
from sapwood.actors._cycles import BLOCKED
from sapwood.actors._exits import Crashed, ExitReason, Killed, Normal, contain, take_crash
from sapwood.actors._messages import TaskDone

if TYPE_CHECKING:
    from sapwood.actors._actor import Actor
    from sapwood.actors._cell import Cell


class TaskRef:
    """One task of one actor. Only its actor should use this."""

    __slots__ = ("_cell", "_done", "_scope", "name", "values")

    def __init__(self, cell: Cell, name: str) -> None:
        self._cell = cell
        self._scope = trio.CancelScope()
        self._done = False
        self.name = name
        self.values = capture(cell.system.propagate)

    def __repr__(self) -> str:
        return f"<TaskRef {self.name} of {self._cell.label}{' (ended)' if self._done else ''}>"

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._done

    def cancel(self) -> None:
        """Cancel the task; its `TaskDone` comes with reason `Killed` once it has really ended."""
        self._scope.cancel()

    async def run(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        """Run the function in a task of the supervisor's nursery; no ordinary exception leaves it (OTP Q10)."""
        BLOCKED.set(None)
        value: Any = None
        reason: ExitReason = Killed()
        try:
            with self._scope:
                value = await function(*args)
                reason = Normal()
        except Exception as error:
            reason = contain(error)
        except BaseExceptionGroup as group:
            # The function failed at the moment when everything around it was cancelled (BR-20).
            crash, rest = take_crash(group)
            reason = crash or reason
            raise (rest or group) from None
        finally:
            self._done = True
            self._cell.task_ended(self, TaskDone(self, value, reason))


def end_like(actor: Actor, done: TaskDone) -> None:
    """End an actor as the task ended on which all its work depends; call it in the handler of that `TaskDone`.

    Raises:
        Exception: what the task raised, so that it is the actor's own crash.
    """
    match done.reason:
        case Normal():
            actor.stop(Normal())
        case Crashed(exception=Exception() as error):
            raise error
        case reason:
            actor.stop(reason if isinstance(reason, Crashed) else Killed())


class Timer:
    """A message that will be sent later, once or again and again."""

    __slots__ = ("_cell", "_deadline", "_interval", "_message", "_to", "_undelivered", "values")

    def __init__(self, cell: Cell, to: Cell, message: Any, delay: float, interval: float | None) -> None:
        self._cell = cell
        self._to = to
        self._message = message
        self._interval = interval
        self._deadline = cell.system.deadlines.at(trio.current_time() + delay, self._fire)
        self._undelivered = False
        self.values: Values = capture(cell.system.propagate)
        for table in (cell.timers, to.aimed if to is not cell else None):
            if table is not None:
                table[self] = None

    def cancel(self) -> float | None:
        """Stop it; return the seconds that were left, or None if there was nothing to stop (OTP I32).

        A message that was delivered already is not taken back.
        """
        if not self._deadline.cancel():
            return None
        self.forget()
        return max(0.0, self._deadline.at - trio.current_time())

    def drop(self) -> None:
        """Stop it because its actor ends, or the one that it is aimed at (OTP I32)."""
        self._deadline.cancel()
        self.forget()

    def forget(self) -> None:
        """Take it out of the tables of both actors."""
        for table in (self._cell.timers, self._to.aimed):
            if table is not None:
                table.pop(self, None)

    def _fire(self) -> None:
        if self._interval is None:
            self.forget()
            self._to.deliver(self._message, None, self._cell.label, self.values)
            return
        # Intervals are counted from when they were due, so that a busy loop does not make them drift; those
        # missed altogether are skipped, and a tick that still waits in the mailbox is not doubled.
        now = trio.current_time()
        missed = (now - self._deadline.at) // self._interval
        self._deadline = self._cell.system.deadlines.at(self._deadline.at + (missed + 1) * self._interval, self._fire)
        if not self._undelivered:
            self._undelivered = True
            self._to.put_entry(Tick(self, self._message))

    def delivered(self) -> None:
        """Note that the last tick has been taken out of the mailbox."""
        self._undelivered = False


class Tick:
    """A tick of a repeating timer in the mailbox; at most one of each timer waits, so it is never bounded."""

    __system__ = True

    __slots__ = ("message", "timer")

    def __init__(self, timer: Timer, message: Any) -> None:
        self.timer = timer
        self.message = message
