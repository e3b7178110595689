"""Tasks that an actor owns: they run beside it, end with it, and report back by message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from sapwood.actors._asks import BLOCKED
from sapwood.actors._exits import Crashed, ExitReason, Killed, Normal
from sapwood.actors._messages import TaskDone

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell


class TaskRef:
    """One task of one actor. Only its actor should use this."""

    __slots__ = ("_cancelled", "_cell", "_done", "_scope", "name")

    def __init__(self, cell: Cell, name: str) -> None:
        self._cell = cell
        self._scope = trio.CancelScope()
        self._cancelled = False
        self._done = False
        self.name = name

    def __repr__(self) -> str:
        return f"<TaskRef {self.name} of {self._cell.label}{' (ended)' if self._done else ''}>"

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._done

    def cancel(self) -> None:
        """Cancel the task; its `TaskDone` comes with reason `Killed` once it has really ended."""
        self._cancelled = True
        self._scope.cancel()

    async def run(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        """Run the function in a task of the supervisor's nursery; no ordinary exception leaves it."""
        BLOCKED.set(None)
        value: Any = None
        reason: ExitReason = Killed()
        try:
            with self._scope:
                try:
                    value = await function(*args)
                    reason = Normal()
                except (MemoryError, trio.TrioInternalError):
                    raise
                except Exception as error:
                    reason = Crashed.of(error)
        finally:
            self._done = True
            self._cell.task_ended(self, TaskDone(self, value, reason))


class Timer:
    """A message that will be sent later, once or again and again."""

    __slots__ = ("_cell", "_deadline", "_interval", "_message", "_to", "_undelivered")

    def __init__(self, cell: Cell, to: Cell, message: Any, delay: float, interval: float | None) -> None:
        self._cell = cell
        self._to = to
        self._message = message
        self._interval = interval
        self._deadline = cell.system.deadlines.at(trio.current_time() + delay, self._fire)
        self._undelivered = False

    def cancel(self) -> float | None:
        """Stop it; return the seconds that were left, or None if there was nothing to stop (OTP I32).

        A message that was delivered already is not taken back.
        """
        if not self._deadline.cancel():
            return None
        if self._cell.timers is not None:
            self._cell.timers.discard(self)
        return max(0.0, self._deadline.at - trio.current_time())

    def drop(self) -> None:
        """Stop it because its actor ends."""
        self._deadline.cancel()

    def _fire(self) -> None:
        if self._interval is None:
            if self._cell.timers is not None:
                self._cell.timers.discard(self)
            self._to.put(self._message, None)
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

