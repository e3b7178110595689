"""Asks: one waiting caller and its answer."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import trio
from trio.lowlevel import Task, reschedule, wait_task_rescheduled

from sapwood.actors._cycles import CURRENT, stop_waiting, wait_for
from sapwood.actors._exits import cut_loose
from sapwood.errors import AskTimeout, InvalidOption

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell
    from sapwood.actors._contexts import Values

T = TypeVar("T")

DEFAULT_TIMEOUT: Final = 5.0
"""Seconds that an ask waits if not told otherwise (OTP I06)."""

Listener: TypeAlias = "Callable[[Ask], None]"


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

    An ask is made for every call, so it is also what stands in the heap of deadlines, and the outcome that its waiting
    task unwraps; trio asks no more of an outcome than that.
    """

    __slots__ = (
        "caller", "ended", "error", "pending", "request", "sender", "target", "timeout", "value", "values", "waiter",
    )  # fmt: skip

    def __init__(self, request: Any, target: Cell, timeout: float | None = None) -> None:
        self.request: Any = request
        self.target = target
        self.timeout = timeout
        self.sender = CURRENT.get()
        self.values: Values | None = None
        self.ended = False
        # How it ended, until somebody has taken that.
        self.value: Any = None
        self.error: Exception | None = None
        self.waiter: trio.lowlevel.Task | Listener | None = None
        self.caller: Cell | None = None
        # Whether it stands in the heap of deadlines.
        self.pending = False

    def answer(self, value: Any) -> bool:
        """End it with a value, or the error of a `Failure`; say whether the caller still waited (OTP I13)."""
        if self.ended:
            self.target.system.late_replies += 1
            return False
        if type(value) is Failure:
            self.error = value.error
        else:
            self.value = value
        self._end()
        return True

    def fail(self, error: Exception) -> bool:
        """End it with an exception; say whether the caller still waited."""
        if self.ended:
            return False
        self.error = error
        self._end()
        return True

    def unwrap(self) -> Any:
        """Return the answer, or raise what the ask ended with; once."""
        error, self.error = self.error, None
        if self.target.current is not self and type(error) is not AskTimeout:
            # Nobody will handle the request any more. It may stand in the heap a while longer, which must not keep
            # what it carries alive (BR-79).
            self.request = None
        if error is not None:
            try:
                raise error
            finally:
                del error
        value, self.value = self.value, None
        return value

    async def wait(self) -> Any:
        """Wait in the caller's task for the end of this ask.

        Raises:
            AskTimeout: if the time-out passes first.
            Exception: what the ask was failed with.
        """
        if self.ended:
            return self.unwrap()
        self.attach(trio.lowlevel.current_task())
        return await wait_task_rescheduled(self.abort)

    def attach(self, waiter: trio.lowlevel.Task | Listener) -> None:
        """Tell the end of this ask, which comes later, to a task that goes to sleep now, or to a function."""
        self.waiter = waiter
        if self.sender is not None:
            self.caller = wait_for(self.target)
        if self.timeout is not None:
            self.pending = True
            deadlines = self.target.system.deadlines
            deadlines.add(deadlines.clock.current_time() + self.timeout, self)

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

    def fire(self) -> None:
        """End it because its time is over."""
        self.pending = False
        self.fail(AskTimeout(self.target.label, type(self.request).__name__, self.timeout or 0.0))

    def abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        """End it because the task that waits is cancelled."""
        self.abandon()
        return trio.lowlevel.Abort.SUCCEEDED

    def _end(self) -> None:
        self.ended = True
        self._settle()
        waiter, self.waiter = self.waiter, None
        if type(waiter) is Task:
            reschedule(waiter, self)  # type: ignore[arg-type]  # as good as an outcome, see above
        elif waiter is not None:
            waiter(self)

    def _settle(self) -> None:
        if self.pending:
            self.pending = False
            self.target.system.deadlines.forget()
        if self.caller is not None:
            stop_waiting(self.caller, self.target)
            self.caller = None
        if self.target.owed:
            self.target.owed.pop(self, None)


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

    @property
    def waits(self) -> bool:
        """Whether the caller still waits; False once it was answered, gave up, or its time was over."""
        return self._ask is not None and not self._ask.ended

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
