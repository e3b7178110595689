"""The actor: what users derive from."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import attrs

from sapwood.actors._asks import Reply
from sapwood.actors._exits import ExitReason, Normal
from sapwood.actors._handlers import Dispatch, build_dispatch
from sapwood.actors._mailbox import MailboxOptions
from sapwood.actors._messages import Down, Exit, Monitor, check_message
from sapwood.actors._tasks import TaskRef, Timer
from sapwood.errors import InvalidOption, NotRunningInside

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell
    from sapwood.actors._environment import Environment
    from sapwood.actors._ref import Ref


@attrs.frozen
class Continue:
    """Returned by `on_start`: start is done, and `on_continue(token)` runs before any message (OTP I22, I23)."""

    token: Any = None


@attrs.frozen
class Ignore:
    """Returned by `on_start`: there is nothing to run; not an error (OTP I04)."""


@attrs.frozen
class Refuse:
    """Returned by `on_start`: starting failed for an expected reason; no crash is reported (OTP I03)."""

    reason: str


@attrs.frozen
class Started:
    """Returned by `on_start`: start is done, and `info` goes to the caller of `start_child`, unchanged (OTP A14).

    Attributes:
        info: Anything; nobody else looks at it, and a restart drops it.
        then: What `on_start` would have returned otherwise.
    """

    info: Any
    then: Continue | None = None


@attrs.frozen
class Kind:
    """What the kernel must know of an actor class before it runs one."""

    supervises: bool
    waits_to_start: bool
    has_on_stop: bool
    stops_slowly: bool
    continues_slowly: bool


StartResult: TypeAlias = Started | Continue | Ignore | Refuse | None
"""What `on_start` may return."""


class Actor:
    """State that only its own handlers touch, one message at a time.

    Derive, keep state in attributes set in `__init__`, and mark handlers with `@handle`. `__init__` takes the
    arguments of the child spec and runs anew at every restart (OTP B09).

    Hooks, all optional, plain or async:
        `on_start` before the first message; `on_continue` when it was asked for; `on_idle` after an idle time-out;
        `on_unhandled` (plain only) for messages without a handler; `on_stop` before an orderly or crashing end.

    Class attributes:
        trap_exits: True: exits of linked actors and stop requests of the supervisor come in turn, as messages.
            False: they end the actor at once (OTP J02, E03). None, the default: stop requests come in turn if
            the class has an `on_stop`, and exits of linked actors end it. May be set on the instance too.
        mailbox: How the mailbox behaves when it fills up; None for an unbounded one.
    """

    __slots__ = ("__dict__", "__weakref__", "_cell")

    trap_exits: bool | None = None
    mailbox: ClassVar[MailboxOptions | None] = None

    __dispatch__: ClassVar[Dispatch] = Dispatch({}, {}, frozenset())
    __kind__: ClassVar[Kind] = Kind(False, False, False, False, False)
    __supervises__: ClassVar[bool] = False

    _cell: Cell

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__dispatch__ = build_dispatch(cls)
        slow = inspect.iscoroutinefunction
        cls.__kind__ = Kind(
            supervises=cls.__supervises__,
            waits_to_start=cls.__supervises__ or slow(cls.on_start),
            has_on_stop=cls.on_stop is not Actor.on_stop,
            stops_slowly=slow(cls.on_stop),
            continues_slowly=slow(cls.on_continue) or slow(cls.on_idle),
        )

    # --- hooks ------------------------------------------------------------------------------------

    def on_start(self) -> StartResult | Awaitable[StartResult]:
        """Prepare; runs once, before the first message, with the key claimed already (OTP K01).

        The starter waits for it. An exception makes the start fail. Default: nothing.
        """
        return None

    def on_continue(self, token: Any) -> Awaitable[None] | None:
        """Go on with what `Continue(token)` or `continue_with(token)` asked for, before any queued message (OTP I22)."""
        return None

    def on_idle(self) -> Awaitable[None] | None:
        """Called when nothing has arrived for the time given to `set_idle_timeout` (OTP I24)."""
        return None

    def on_unhandled(self, message: Any) -> None:
        """Take a message that has no handler. Default: it becomes a dead letter, and the actor goes on (OTP I25)."""
        self._cell.dead_letter(message, None, "unhandled")

    def on_stop(self, reason: ExitReason) -> Awaitable[None] | None:
        """Clean up before the end; not called when the actor is killed or never started (OTP I16, I17).

        The supervisor's shutdown time-out bounds it. If it raises, that is the exit reason (OTP I19). Tasks that
        the actor owns still run and are cancelled afterwards.
        """
        return None

    async def _stop_children(self) -> None:
        """End what this actor supervises; the kernel calls it last of all, also when the start failed."""

    def get_state(self) -> dict[str, Any]:
        """Return what `Ref.get_state` shows. Default: a copy of the attributes."""
        return dict(vars(self))

    def replace_state(self, function: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Carry out `Ref.replace_state`. Default: replaces the attributes."""
        new = function(self.get_state())
        if not isinstance(new, dict):
            raise InvalidOption(f"replace_state: expected the function to return a dict of attributes; got {new!r}")
        self.__dict__.clear()
        self.__dict__.update(new)
        return self.get_state()

    def format_state(self) -> str:
        """Describe the state for crash reports. Override it to leave secrets out. Default: short reprs of attributes."""
        return short_repr(vars(self))

    # --- for use inside handlers ------------------------------------------------------------------

    @property
    def ref(self) -> Ref:
        """This actor's own ref."""
        return self._inside("ref").ref

    @property
    def environment(self) -> Environment:
        """Time, randomness, ids and threads."""
        return self._inside("environment").system.environment

    def stop(self, reason: ExitReason | None = None) -> None:
        """End after the current callback, with `reason` or `Normal()`; its reply is sent last (OTP I14)."""
        cell = self._inside("stop")
        cell.stopping = Normal() if reason is None else reason
        cell.control = True
        cell.queue = None

    def continue_with(self, token: Any = None) -> None:
        """Call `on_continue(token)` right after the current callback, before any queued message (OTP I22)."""
        cell = self._inside("continue_with")
        cell.continuation = token
        cell.control = True

    def reply_later(self) -> Reply[Any]:
        """Take over the reply to the request being handled; call the result with the answer when it is known.

        What the handler returns is then ignored. If the actor ends first, the caller gets its exit reason (OTP I15).
        """
        cell = self._inside("reply_later")
        ask, cell.asked = cell.asked, None
        if ask is not None:
            if cell.owed is None:
                cell.owed = set()
            cell.owed.add(ask)
        return Reply(ask)

    def monitor(self, ref: Ref) -> Monitor:
        """Watch another actor: exactly one `Down` will come, at once if it is dead already (OTP J10, J11)."""
        cell = self._inside("monitor")
        target = ref._cell
        monitor = Monitor(ref, cell)
        if cell.watching is None:
            cell.watching = {}
        cell.watching[monitor] = None
        if target.reason is not None:
            cell.deliver_down(Down(monitor, ref, None))
        else:
            if target.monitors is None:
                target.monitors = {}
            target.monitors[monitor] = None
        return monitor

    def demonitor(self, monitor: Monitor, *, flush: bool = False) -> None:
        """Stop watching; with `flush`, a `Down` that waits in the mailbox is taken out as well (OTP J12)."""
        cell = self._inside("demonitor")
        if cell.watching is not None:
            cell.watching.pop(monitor, None)
        target = monitor.target._cell
        if target.monitors is not None:
            target.monitors.pop(monitor, None)
        if flush:
            cell.extract(lambda entry: isinstance(entry, Down) and entry.monitor is monitor)

    def link(self, ref: Ref) -> None:
        """Tie this actor's life to another's, both ways; repeating it changes nothing (OTP J01, J07)."""
        cell = self._inside("link")
        other = ref._cell
        if other.reason is not None:
            cell.signal_exit(other, other.reason)
            return
        for one, two in ((cell, other), (other, cell)):
            if one.links is None:
                one.links = {}
            one.links[two] = None

    def unlink(self, ref: Ref, *, flush: bool = False) -> None:
        """Remove a link; with `flush`, an `Exit` that waits in the mailbox is taken out as well (OTP J08)."""
        cell = self._inside("unlink")
        other = ref._cell
        for one, two in ((cell, other), (other, cell)):
            if one.links is not None:
                one.links.pop(two, None)
        if flush:
            cell.extract(lambda entry: isinstance(entry, Exit) and entry.ref is ref)

    def send_after(self, delay: float, message: object, to: Ref | None = None) -> Timer:
        """Send a message once, `delay` seconds from now, to this actor or another; ends with this actor (OTP I32)."""
        return self._timer("send_after", delay, None, message, to)

    def send_every(self, interval: float, message: object, to: Ref | None = None) -> Timer:
        """Send a message every `interval` seconds; at most one that was not taken yet waits in the mailbox."""
        if not interval > 0:
            raise InvalidOption(f"send_every: expected an interval > 0 s; got {interval!r}")
        return self._timer("send_every", interval, interval, message, to)

    def _timer(self, name: str, delay: float, interval: float | None, message: object, to: Ref | None) -> Timer:
        cell = self._inside(name)
        check_message(message)
        if not delay >= 0:
            raise InvalidOption(f"{name}: expected a delay >= 0 s; got {delay!r}")
        timer = Timer(cell, to._cell if to is not None else cell, message, delay, interval)
        if cell.timers is None:
            cell.timers = set()
        cell.timers.add(timer)
        return timer

    def set_idle_timeout(self, seconds: float | None) -> None:
        """Have `on_idle` called whenever nothing arrives for so many seconds; None switches that off."""
        cell = self._inside("set_idle_timeout")
        if seconds is not None and not seconds >= 0:
            raise InvalidOption(f"set_idle_timeout: expected None or seconds >= 0; got {seconds!r}")
        cell.idle_timeout = seconds
        if cell.idle is not None:
            cell.idle.cancel()
            cell.idle = None

    def start_task(self, function: Callable[..., Awaitable[Any]], *args: Any, name: str | None = None) -> TaskRef:
        """Run an async function beside this actor; its end comes as one `TaskDone` message.

        The task is cancelled, and waited for, when the actor ends. It may ask this actor, whose messages go on.
        """
        cell = self._inside("start_task")
        nursery = cell.nursery or (cell.parent.nursery if cell.parent is not None else None) or cell.system.nursery
        task = TaskRef(cell, name or getattr(function, "__name__", repr(function)))
        if cell.tasks is None:
            cell.tasks = {}
        cell.tasks[task] = None
        nursery.start_soon(task.run, function, args, name=f"{cell.label}: {task.name}")
        return task

    def _inside(self, what: str) -> Cell:
        try:
            return self._cell
        except AttributeError:
            raise NotRunningInside(
                f"{type(self).__name__}.{what}: expected an actor started by a runtime; this one was made directly. "
                f"Start it with runtime.spawn({type(self).__name__}, ...)"
            ) from None


def short_repr(values: dict[str, Any]) -> str:
    """Show attributes in one line, each value cut to 80 characters; a value whose repr fails is named as such."""
    shown = []
    for name, value in values.items():
        try:
            text = repr(value)
        except Exception as error:
            text = f"<repr failed: {type(error).__name__}>"
        shown.append(f"{name}={text if len(text) <= 80 else text[:77] + '...'}")
    return ", ".join(shown)

