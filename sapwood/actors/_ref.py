"""Refs: the only way from one actor to another."""

from __future__ import annotations

from threading import get_ident
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from trio.lowlevel import wait_task_rescheduled

from sapwood.actors._asks import DEFAULT_TIMEOUT, Ask, Failure, check_timeout
from sapwood.actors._cycles import BLOCKED, CURRENT, check_branch, check_cycle, stop_waiting, wait_for
from sapwood.actors._dispatch import check_result
from sapwood.actors._exits import Crashed, ExitReason, Normal, is_fatal
from sapwood.actors._inbox import BUSY, IDLE, priority_of
from sapwood.actors._introspection import Introspection
from sapwood.actors._messages import Priority, Request, check_message
from sapwood.errors import ActorDown, AskTimeout, InvalidMessage, SelfAsk

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell

T = TypeVar("T")

# Every so many asks that ran inside their caller, the caller gives way to others.
_YIELD_EVERY = 64


class Ref(Introspection):
    """A handle to one incarnation of an actor; made by the runtime only.

    It stays valid for ever: when the actor has ended, `tell` makes a dead letter and `ask` raises `ActorDown`. A
    restarted actor has a new ref; look its key up to get that (OTP B10). Refs may be used only in the thread of
    their runtime; other threads go through a `Portal`.
    """

    __slots__ = ("__weakref__", "_cell")

    _cell: Cell

    def __init__(self) -> None:
        raise InvalidMessage("a Ref is made by the runtime when it starts an actor; keep the one that start returned")

    @classmethod
    def _create(cls, cell: Cell) -> Ref:
        ref = cls.__new__(cls)
        ref._cell = cell
        return ref

    def __repr__(self) -> str:
        return f"<Ref {self._cell.label}{'' if self.alive else ' (down)'}>"

    @property
    def label(self) -> str:
        """The actor's name in logs and errors."""
        return self._cell.label

    @property
    def key(self) -> object:
        """The key under which it was registered, or None."""
        return self._cell.birth.key

    @property
    def alive(self) -> bool:
        """Whether it has not ended. True is out of date as soon as other code has run."""
        return self._cell.reason is None

    @property
    def exit_reason(self) -> ExitReason | None:
        """Why it ended, or None while it lives."""
        return self._cell.reason

    # --- messages ---------------------------------------------------------------------------------

    def tell(self, message: object, *, priority: Priority | None = None) -> None:
        """Send a message and go on at once; never blocks.

        Messages from one sender to one actor are handled in the order sent, as far as they have one priority
        (OTP I27). A message to an actor that has ended becomes a dead letter (OTP I11).

        Args:
            message: An instance of a class made with `@message`.
            priority: Its priority; None for that of its class.

        Raises:
            InvalidMessage: if it is not a message, or the priority is none.
            MailboxFull: if the actor's mailbox is bounded, full, and rejects.
            WrongThread: if called outside the runtime's thread.
        """
        cell = self._cell
        queue = cell.queue
        if (
            queue is None
            or priority is not None
            or type(message) not in cell.direct
            or get_ident() != cell.system.thread
        ):
            cell.put(message, priority)
            return
        queue.append(message)
        if cell.mode:
            cell.wake()

    async def send(self, message: object, *, priority: Priority | None = None) -> None:
        """Send a message, and wait for room if the mailbox is bounded and full, whatever its overflow policy.

        Returns once the message is queued, not when it is handled. Waiting senders get room first come, first
        served, before any later `tell`. One that is cancelled while it waits has sent nothing. To an actor that
        stops, or has ended, it is the same as `tell`.

        Raises:
            InvalidMessage: if it is not a message, or the priority is none.
            SelfAsk: if an actor would wait for room in its own mailbox, which nobody else can make.
            AskCycle: if the wait would close a circle of waiting actors.
            WrongThread: if called outside the runtime's thread.
        """
        cell = self._cell
        cell.system.check_thread(f"send to {cell.label}", "runtime.portal.call(ref.send, message)")
        check_message(message)
        lane = priority_of(message, priority)
        await trio.lowlevel.checkpoint()
        box = cell.full_box()
        if box is None:
            cell.deliver(message, lane, None, None)
            return
        caller = BLOCKED.get()
        if caller is cell:
            raise SelfAsk(cell.label, f"to take {type(message).__name__} into its own full mailbox")
        if caller is not None:
            check_cycle(caller, cell)
        wait_for(cell)
        try:
            await box.wait_room(cell.envelope(message), lane)
        finally:
            stop_waiting(caller, cell)

    async def ask(
        self, request: Request[T], *, timeout: float | None = DEFAULT_TIMEOUT, priority: Priority | None = None
    ) -> T:
        """Send a request and wait for its answer.

        A plain handler of an idle actor runs at once inside the calling task, as the actor: in its context, with
        its crash, and never while it does anything else.

        Args:
            request: An instance of a message class that derives from `Request[T]`.
            timeout: Seconds to wait; None waits for ever.
            priority: Its priority; None for that of its class.

        Raises:
            AskTimeout: if no answer came in time; the request may still be carried out (OTP I06).
            ActorDown: at once if the actor has ended (OTP I08), or as soon as it ends without answering (OTP I09).
            SelfAsk: if an actor asks itself (OTP I10).
            AskCycle: if the ask would close a circle of waiting actors.
            MailboxFull: if the actor's mailbox is bounded, full, and rejects.
            InvalidMessage: if it is not a request, or the priority is none.
            InvalidOption: if the time-out is no number of seconds.
            WrongThread: if called outside the runtime's thread.
        """
        cell = self._cell
        system = cell.system
        if get_ident() != system.thread:
            raise system.wrong_thread(f"ask {cell.label}", "runtime.portal.ask(ref, request)")
        if timeout != DEFAULT_TIMEOUT:
            check_timeout("ask", timeout)
        system.inline_asks = turn = system.inline_asks + 1
        if turn % _YIELD_EVERY:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        # From here to the end of the handler nothing else can run, so what is checked stays true.
        function = cell.inline.get(type(request))
        if function is None or cell.mode != IDLE or cell.control or priority is not None:
            # Written out rather than called: each coroutine between a caller and trio costs at both ends of a wait.
            check_message(request)
            if not isinstance(request, Request):
                raise not_a_request(request)
            ask = Ask(request, cell, timeout)
            begin_ask(ask, priority)
            if ask.ended:
                return ask.unwrap()  # type: ignore[no-any-return]  # as below
            ask.attach(trio.lowlevel.current_task())
            return await wait_task_rescheduled(ask.abort)  # type: ignore[no-any-return]  # the answer to an Ask
        cell.mode = BUSY
        cell.asked = request
        try:
            value: Any = cell.enter(function, cell.actor, request)
            if value is not None and value.__class__ is CoroutineType:
                check_result(cell, request, value)
        except BaseException as error:  # noqa: ASYNC103  # the actor's own task crashes with it, or raises it
            value = None
            note_crash(cell, error)
        cell.mode = IDLE
        cell.handled += 1
        if cell.control or cell.asked is not request:
            return await _finish(cell, request, timeout, value)  # type: ignore[no-any-return]  # the answer to an Ask
        cell.asked = None
        if cell.box:
            cell.wake()
        if type(value) is Failure:
            raise value.error
        return value  # type: ignore[no-any-return]  # what the handler of a Request[T] returns is a T

    # --- life -------------------------------------------------------------------------------------

    async def wait_stopped(self) -> ExitReason:
        """Wait until the actor has ended and its key is free; return why it ended.

        Raises:
            WrongThread: if called outside the runtime's thread.
        """
        cell = self._cell
        cell.system.check_thread(f"wait for {cell.label}", "runtime.portal.call(ref.wait_stopped)")
        # Noted before anything else can run, so that the one that ends cannot ask the one that waits meanwhile.
        caller = wait_for(cell)
        try:
            await trio.lowlevel.checkpoint()
            if cell.reason is None:
                await cell.wait_ended()
        finally:
            stop_waiting(caller, cell)
        assert cell.reason is not None
        return cell.reason

    async def stop(self, reason: ExitReason | None = None, *, timeout: float | None = None) -> None:
        """Ask the actor to stop when its turn comes, and wait until it has (OTP I20, I21).

        Messages that were sent before are handled first, later ones are not. `on_stop` runs.

        Args:
            reason: Its exit reason; None for `Normal()`.
            timeout: Seconds to wait; None waits for ever. The order to stop stands even if the wait ends.

        Raises:
            ActorDown: if it was dead already, or ended for another reason.
            AskTimeout: if it has not ended in time.
            SelfAsk: if an actor stops itself this way; it should call `self.stop()`.
            AskCycle: if an actor would wait for the end of its own supervisor, which waits for it; nothing was stopped.
        """
        cell = self._cell
        cell.system.check_thread(f"stop {cell.label}", "runtime.portal.call(ref.stop)")
        check_timeout("stop", timeout)
        reason = Normal() if reason is None else reason
        caller = BLOCKED.get()
        if caller is cell:
            raise SelfAsk(cell.label, "stop")
        check_branch(caller, (), cell)
        await trio.lowlevel.checkpoint()
        if cell.reason is not None:
            raise ActorDown(cell.label, cell.reason)
        cell.put_stop(reason)
        ended: ExitReason | None = None
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            ended = await self.wait_stopped()
        if ended is None:
            raise AskTimeout(cell.label, "stop", timeout or 0.0)
        if ended != reason:
            raise ActorDown(cell.label, ended)

    def kill(self) -> None:
        """End the actor at its next checkpoint, without running `on_stop`; cannot be trapped (OTP J05, Q02).

        Raises:
            WrongThread: if called outside the runtime's thread.
        """
        cell = self._cell
        cell.system.check_thread(f"kill {cell.label}", "runtime.portal.call(...) with a function that kills it")
        cell.kill()

    def exit(self, reason: ExitReason) -> None:
        """Send an exit signal, as a dying linked actor would (OTP J06).

        An actor that traps exits gets an `Exit` message; another one ends with `reason`, unless that is `Normal()`
        and comes from somebody else. From its own supervisor it is an order to stop (OTP J14).

        Raises:
            WrongThread: if called outside the runtime's thread.
        """
        cell = self._cell
        cell.system.check_thread(f"send an exit to {cell.label}", "runtime.portal.call(...) with a function that does")
        cell.signal_exit(CURRENT.get(), reason)


def begin_ask(ask: Ask, priority: Priority | None) -> None:
    """Queue a request, or say why not; afterwards somebody must wait for the ask.

    Raises:
        SelfAsk, AskCycle, ActorDown, MailboxFull, InvalidMessage: see `Ref.ask`; the ask is not queued then.
    """
    cell = ask.target
    caller = BLOCKED.get()
    if caller is cell:
        raise SelfAsk(cell.label, type(ask.request).__name__)
    if cell.reason is not None:
        raise ActorDown(cell.label, cell.reason)
    if caller is not None:
        check_cycle(caller, cell)
    queue = cell.queue
    if queue is None or priority_of(ask.request, priority) is not Priority.NORMAL:
        cell.put_ask(ask, priority)
        return
    queue.append(ask)
    if cell.mode:
        cell.wake()


def note_crash(cell: Cell, error: BaseException) -> None:
    """Have an actor's task crash with what its handler raised in a caller, or end the run with it (OTP Q21)."""
    if is_fatal(error):
        cell.fatal = error
    else:
        cell.crash = Crashed.of(error)
    cell.control = True


async def _finish(cell: Cell, request: Any, timeout: float | None, value: Any) -> Any:
    """End an ask whose handler ran in the caller and did more than answer."""
    crashed = cell.crash is not None or cell.fatal is not None
    ask: Ask | None = None
    if cell.asked is not request:
        # It took the reply for later.
        ask, cell.taken = cell.taken, None
        assert ask is not None
        ask.timeout = timeout
    elif crashed or cell.stopping is not None:
        # The end of the actor answers, after it has wound down (OTP I09, I14).
        ask = Ask(request, cell, timeout)
        cell.asked = ask if crashed else None
        cell.held_reply = None if crashed else (ask, value)
    else:
        cell.asked = None
    if crashed:
        cell.current = ask
    if cell.control or cell.box:
        cell.wake()
    if ask is not None:
        return await ask.wait()
    if type(value) is Failure:
        raise value.error
    return value


def not_a_request(message: object) -> InvalidMessage:
    """Build the error for an ask with a message that wants no answer."""
    name = type(message).__name__
    return InvalidMessage(f"expected a request; got {name}: write   class {name}(Request[int])   or use tell")
