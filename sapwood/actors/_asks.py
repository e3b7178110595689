"""Asks: one waiting caller and its answer."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import outcome
import trio

from sapwood.actors._cycles import CURRENT, stop_waiting, wait_for
from sapwood.actors._exits import cut_loose
from sapwood.errors import AskTimeout, InvalidOption

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell
    from sapwood.actors._contexts import Values
    from sapwood.actors._deadlines import Deadline

T = TypeVar("T")

Listener: TypeAlias = Callable[[outcome.Outcome[Any]], None]

DEFAULT_TIMEOUT: Final = 5.0
"""Seconds that an ask waits if not told otherwise (OTP I06)."""


class Failure:
    """Returned by a handler in place of an answer: the ask raises `error` in its caller, and the actor goes on.

    The error is cut loose from its traceback, so that the caller keeps no variable of the actor alive (BR-79).
    """

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        cut_loose(error)
        self.error = error


class Ask:
    """A request in a mailbox, with the one that waits for its answer.

    Exactly one of answer, failure, time-out and cancellation ends it; what comes later is counted and dropped
    (OTP I07, I13). Invariants: `ended` never becomes False again, and nothing is left in any table once it is True.
    """

    __slots__ = ("caller", "deadline", "ended", "request", "result", "sender", "target", "timeout", "values", "waiter")

    def __init__(self, request: Any, target: Cell, timeout: float | None = None) -> None:
        self.request = request
        self.target = target
        self.timeout = timeout
        self.sender = CURRENT.get()
        self.values: Values | None = None
        self.ended = False
        # An answer that comes before anybody waits is kept in `result`.
        self.result: outcome.Outcome[Any] | None = None
        self.waiter: trio.lowlevel.Task | Listener | None = None
        self.caller: Cell | None = None
        self.deadline: Deadline | None = None

    def answer(self, value: Any) -> bool:
        """End it with a value, or the error of a `Failure`; say whether the caller still waited (OTP I13)."""
        if self.ended:
            self.target.system.late_replies += 1
            return False
        self._end(outcome.Error(value.error) if type(value) is Failure else outcome.Value(value))
        return True

    def fail(self, error: Exception) -> bool:
        """End it with an exception; say whether the caller still waited."""
        if self.ended:
            return False
        self._end(outcome.Error(error))
        return True

    async def wait(self) -> Any:
        """Wait in the caller's task for the end of this ask.

        Raises:
            AskTimeout: if the time-out passes first.
            Exception: what the ask was failed with.
        """
        if self.result is not None:
            return self.result.unwrap()
        self.attach(trio.lowlevel.current_task())
        return await trio.lowlevel.wait_task_rescheduled(self._abort)

    def attach(self, waiter: trio.lowlevel.Task | Listener) -> None:
        """Tell the end of this ask, which comes later, to a task that goes to sleep now, or to a function."""
        self.waiter = waiter
        if self.sender is not None:
            self.caller = wait_for(self.target)
        if self.timeout is not None:
            deadlines = self.target.system.deadlines
            self.deadline = deadlines.at(trio.current_time() + self.timeout, self._expire)

    @property
    def sender_label(self) -> str | None:
        """Label of the actor that asks; None if it is asked from outside of actors."""
        return self.sender.label if self.sender is not None else None

    def abandon(self) -> None:
        """End it because nobody waits any more."""
        if not self.ended:
            self.ended = True
            self._settle()
            self.waiter = None

    def _end(self, result: outcome.Outcome[Any]) -> None:
        self.ended = True
        self._settle()
        waiter, self.waiter = self.waiter, None
        if isinstance(waiter, trio.lowlevel.Task):
            trio.lowlevel.reschedule(waiter, result)
        elif waiter is None:
            self.result = result
        else:
            waiter(result)

    def _settle(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
        if self.caller is not None:
            stop_waiting(self.caller, self.target)
            self.caller = None
        if self.target.owed:
            self.target.owed.pop(self, None)

    def _expire(self) -> None:
        self.fail(AskTimeout(self.target.label, type(self.request).__name__, self.timeout or 0.0))

    def _abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        self.abandon()
        return trio.lowlevel.Abort.SUCCEEDED


class Reply(Generic[T]):
    """The right to answer one request later, from any callback or actor that holds it (OTP I12)."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask

    def __call__(self, value: T) -> bool:
        """Answer the caller; say whether it still waited. A second answer is dropped (OTP I13).

        Raises:
            WrongThread: if called outside the runtime's thread.
        """
        ask = self._checked()
        return ask is not None and ask.answer(value)

    def fail(self, error: Exception) -> bool:
        """Make the caller's ask raise `error`; say whether it still waited.

        Raises:
            WrongThread: if called outside the runtime's thread.
        """
        ask = self._checked()
        return ask is not None and ask.answer(Failure(error))

    def _checked(self) -> Ask | None:
        ask = self._ask
        if ask is not None and get_ident() != ask.target.system.thread:
            raise ask.target.system.wrong_thread("reply", "runtime.portal.call(...) with a function that replies")
        return ask


def check_timeout(what: str, timeout: float | None) -> None:
    """Refuse a time-out that is no number of seconds.

    Raises:
        InvalidOption: naming what was got.
    """
    if timeout is not None and (not isinstance(timeout, int | float) or not timeout >= 0):
        raise InvalidOption(f"{what}: expected timeout=None or seconds >= 0; got {timeout!r}")
