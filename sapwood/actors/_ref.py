"""Refs: the only way from one actor to another."""

from __future__ import annotations

from threading import get_ident
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from sapwood.actors._asks import BLOCKED, Ask, Failure, check_branch
from sapwood.actors._exits import Crashed, ExitReason, Normal
from sapwood.actors._messages import Priority, Request, SystemCall, check_message
from sapwood.errors import ActorDown, AskTimeout, InvalidMessage, SelfAsk

if TYPE_CHECKING:
    from collections.abc import Callable

    from sapwood.actors._cell import Cell

T = TypeVar("T")

# Every so many asks that ran inside their caller, the caller gives way to others.
_YIELD_EVERY = 64


@attrs.frozen
class ActorStatistics:
    """A snapshot of one actor.

    Attributes:
        label: How it is called in logs.
        alive: Whether it has not ended.
        phase: `starting`, `running`, `stopping` or `dead`.
        waiting: Messages in its mailbox.
        handled: Messages it has handled.
        suspended: Whether it takes introspection only.
        tasks: Tasks that it owns.
        timers: Timers that it has set.
        monitors: Monitors that others have on it.
        monitoring: Monitors that it has on others.
        links: Linked actors.
        pending_replies: Requests that it took and has not answered.
        incarnation: How often its supervisor has started it, from 1.
    """

    label: str
    alive: bool
    phase: str
    waiting: int
    handled: int
    suspended: bool
    tasks: int
    timers: int
    monitors: int
    monitoring: int
    links: int
    pending_replies: int
    incarnation: int


class Ref:
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
        if queue is None or priority is not None or type(message) not in cell.direct or get_ident() != cell.system.thread:
            cell.put(message, priority)
            return
        queue.append(message)
        if cell.mode:
            cell.wake()

    async def send(self, message: object, *, priority: Priority | None = None) -> None:
        """Send a message, and wait for room if the mailbox is bounded and full.

        Returns once the message is queued, not when it is handled. Waiting senders get room first come, first
        served. To an actor that has ended it is the same as `tell`.

        Raises:
            InvalidMessage: if it is not a message.
            WrongThread: if called outside the runtime's thread.
        """
        cell = self._cell
        check_message(message)
        await trio.lowlevel.checkpoint()
        while cell.reason is None and not isinstance(cell.box, None.__class__) and getattr(cell.box, "full", False):
            await cell.box.wait_room()  # type: ignore[union-attr]  # only the full mailbox has `full`
        cell.put(message, priority)

    async def ask(self, request: Request[T], *, timeout: float | None = 5.0, priority: Priority | None = None) -> T:
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
            InvalidMessage: if it is not a request.
            WrongThread: if called outside the runtime's thread.
        """
        cell = self._cell
        system = cell.system
        if get_ident() != system.thread:
            raise system.wrong_thread(f"ask {cell.label}", "runtime.portal.ask(ref, request)")
        system.inline_asks = turn = system.inline_asks + 1
        if turn % _YIELD_EVERY:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        # From here to the end of the handler nothing else can run, so what is checked stays true.
        function = cell.plain.get(type(request))
        if function is None or cell.mode != 1 or cell.control or priority is not None or cell.idle_timeout is not None:
            return await self._ask_slowly(request, timeout, priority)
        if not isinstance(request, Request):
            raise not_a_request(request)
        task = cell.task
        assert task is not None
        cell.mode = 0
        cell.asked = ask = Ask(request, cell, trio.lowlevel.current_task(), timeout)
        try:
            value: Any = task.context.run(function, cell.actor, request)
            if type(value) is CoroutineType:
                value.close()
                raise coroutine_answer(cell, request)  # noqa: TRY301  # the callee's crash, like any other
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            cell.crash = Crashed.of(error)
            cell.control = True
            cell.current = ask
        cell.mode = 1
        cell.handled += 1
        if cell.control:
            cell.wake()
            if cell.asked is ask and (cell.stopping or cell.requested) is not None:
                # The actor winds down first and answers then (OTP I14).
                cell.asked = None
                cell.held_reply = (ask, value)
        elif cell.box:
            cell.wake()
        if cell.asked is ask and cell.crash is None:
            cell.asked = ask.task = None
            if type(value) is Failure:
                raise value.error
            return value  # type: ignore[no-any-return]
        return await ask.wait()  # type: ignore[no-any-return]

    async def _ask_slowly(self, request: Request[T], timeout: float | None, priority: Priority | None) -> T:
        cell = self._cell
        check_message(request)
        if not isinstance(request, Request):
            raise not_a_request(request)
        if BLOCKED.get() is cell:
            raise SelfAsk(cell.label, type(request).__name__)
        if cell.reason is not None:
            raise ActorDown(cell.label, cell.reason)
        ask = Ask(request, cell, trio.lowlevel.current_task(), timeout)
        cell.put_ask(ask, priority)
        return await ask.wait()  # type: ignore[no-any-return]

    # --- life -------------------------------------------------------------------------------------

    async def wait_stopped(self) -> ExitReason:
        """Wait until the actor has ended and its key is free; return why it ended."""
        cell = self._cell
        await trio.lowlevel.checkpoint()
        if cell.reason is None:
            task = trio.lowlevel.current_task()
            if cell.waiters is None:
                cell.waiters = {}
            cell.waiters[task] = None

            def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
                if cell.waiters is not None:
                    cell.waiters.pop(task, None)
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
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
        """End the actor at its next checkpoint, without running `on_stop`; cannot be trapped (OTP J05, Q02)."""
        self._cell.kill()

    def exit(self, reason: ExitReason) -> None:
        """Send an exit signal, as a dying linked actor would (OTP J06).

        An actor that traps exits gets an `Exit` message; another one ends with `reason`, unless that is `Normal()`.
        """
        caller = BLOCKED.get()
        self._cell.signal_exit(caller if caller is not None else self._cell, reason)

    # --- introspection ----------------------------------------------------------------------------

    def statistics(self) -> ActorStatistics:
        """Return a snapshot of the actor's counters; a dead one has an empty one."""
        cell = self._cell
        return ActorStatistics(
            label=cell.label,
            alive=cell.reason is None,
            phase="dead" if cell.reason is not None else cell.phase.name.lower(),
            waiting=len(cell.box or ()) + len(cell.calls or ()),
            handled=cell.handled,
            suspended=cell.suspended,
            tasks=len(cell.tasks or ()),
            timers=len(cell.timers or ()),
            monitors=len(cell.monitors or ()),
            monitoring=len(cell.watching or ()),
            links=len(cell.links or ()),
            pending_replies=len(cell.owed or ()),
            incarnation=cell.incarnation,
        )

    async def get_state(self, *, timeout: float = 5.0) -> dict[str, Any]:
        """Return a copy of the actor's attributes, taken in its turn (OTP O01, O05).

        Raises:
            ActorDown: if the actor has ended, or ends first.
            AskTimeout: if its turn does not come in time.
        """
        return await self._system_call(lambda cell: cell.actor.get_state(), timeout)  # type: ignore[no-any-return]

    async def replace_state(
        self, function: Callable[[dict[str, Any]], dict[str, Any]], *, timeout: float = 5.0
    ) -> dict[str, Any]:
        """Replace the actor's attributes by what `function` makes of them, in its turn; return the new ones.

        If the function raises, nothing is changed and the exception comes here (OTP O02).
        """
        return await self._system_call(lambda cell: cell.actor.replace_state(function), timeout)  # type: ignore[no-any-return]

    async def suspend(self, *, timeout: float = 5.0) -> None:
        """Let the actor take nothing but introspection and stop requests; its messages wait in order (OTP O03, O04)."""
        await self._system_call(lambda cell: cell.suspend(), timeout)

    async def resume(self, *, timeout: float = 5.0) -> None:
        """End a suspension."""
        await self._system_call(lambda cell: cell.resume(), timeout)

    async def _system_call(self, function: Callable[[Any], Any], timeout: float) -> Any:
        cell = self._cell
        if BLOCKED.get() is cell:
            raise SelfAsk(cell.label, "introspection")
        await trio.lowlevel.checkpoint()
        if cell.reason is not None:
            raise ActorDown(cell.label, cell.reason)
        ask = Ask(function, cell, trio.lowlevel.current_task(), timeout)
        cell.put_entry(SystemCall(function, ask))
        return await ask.wait()


def coroutine_answer(cell: Cell, request: object) -> InvalidMessage:
    """Build the error for a plain handler that returned a coroutine, which would never run."""
    return InvalidMessage(
        f"handler for {type(request).__name__} of {cell.label}: a plain method returned a coroutine; write async def"
    )


def not_a_request(message: object) -> InvalidMessage:
    """Build the error for an ask with a message that wants no answer."""
    name = type(message).__name__
    return InvalidMessage(f"expected a request; got {name}: write   class {name}(Request[int])   or use tell")

