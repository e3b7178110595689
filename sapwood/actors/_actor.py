"""The actor: what users derive from."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs

from sapwood.actors._asks import Ask, Reply
from sapwood.actors._birth import StartResult
from sapwood.actors._contexts import capture
from sapwood.actors._cycles import BLOCKED
from sapwood.actors._exits import ExitReason, Normal, is_fatal
from sapwood.actors._handlers import Dispatch, build_dispatch
from sapwood.actors._idle import IdleTimeout
from sapwood.actors._inbox import Phase
from sapwood.actors._mailbox import MailboxOptions
from sapwood.actors._messages import Down, Exit, Monitor, check_message
from sapwood.actors._tasks import TaskRef, Timer
from sapwood.errors import ActorDown, InvalidOption, NotRunningInside

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell
    from sapwood.actors._environment import Environment
    from sapwood.actors._ref import Ref

SHOWN: Final = 80
"""Characters of each attribute's repr that are shown."""


@attrs.frozen
class Kind:
    """What the kernel must know of an actor class before it runs one."""

    supervises: bool = False
    waits_to_start: bool = False
    starts_slowly: bool = False
    has_on_stop: bool = False
    stops_slowly: bool = False
    continues_slowly: bool = False
    idles_slowly: bool = False


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

    __dispatch__: ClassVar[Dispatch] = Dispatch()
    __kind__: ClassVar[Kind] = Kind()
    __supervises__: ClassVar[bool] = False

    _cell: Cell

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__dispatch__ = build_dispatch(cls)
        slow = inspect.iscoroutinefunction
        cls.__kind__ = Kind(
            supervises=cls.__supervises__,
            waits_to_start=cls.__supervises__ or slow(cls.on_start),
            starts_slowly=slow(cls.on_start),
            has_on_stop=cls.on_stop is not Actor.on_stop,
            stops_slowly=slow(cls.on_stop),
            continues_slowly=slow(cls.on_continue),
            idles_slowly=slow(cls.on_idle),
        )

    # --- hooks ------------------------------------------------------------------------------------

    def on_start(self) -> StartResult | Awaitable[StartResult]:
        """Prepare; runs once, before the first message, with the key claimed already (OTP K01).

        The starter waits for it. An exception makes the start fail. Default: nothing.
        """
        return None

    def on_continue(self, token: Any) -> Awaitable[None] | None:
        """Go on with what `Continue(token)` or `continue_with(token)` asked for, before queued messages (OTP I22)."""
        return None

    def on_idle(self) -> Awaitable[None] | None:
        """Called when nothing has arrived for the time given to `set_idle_timeout` (OTP I24)."""
        return None

    def on_unhandled(self, message: Any) -> None:
        """Take a message that has no handler. Default: it becomes a dead letter, and the actor goes on (OTP I25)."""
        self._inside("on_unhandled").unhandled(message)

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
        """Describe the state for reports; override it to leave secrets out. Default: short reprs of the attributes."""
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
        """End after the current callback, with `reason` or `Normal()`; its reply is sent last (OTP I14).

        `on_stop` runs; messages that wait become dead letters. In `on_start` it makes the start fail (OTP I03).
        """
        cell = self._living("stop")
        cell.stopping = Normal() if reason is None else reason
        cell.queue = None
        cell.control = True
        cell.wake()

    def continue_with(self, token: Any = None) -> None:
        """Call `on_continue(token)` right after the current callback, before any queued message (OTP I22)."""
        cell = self._living("continue_with")
        cell.continuation = (token, capture(cell.system.propagate))
        cell.control = True
        cell.wake()

    def reply_later(self) -> Reply[Any]:
        """Take over the reply to the request being handled; call the result with the answer when it is known.

        What the handler returns is then ignored. If the actor ends first, the caller gets its exit reason (OTP I15).
        Where no request is being handled, or its reply was taken over already, the result answers nobody.

        Raises:
            NotRunningInside: in a task started with `start_task`, which handles no request.
        """
        cell = self._living("reply_later")
        if BLOCKED.get() is not cell:
            raise NotRunningInside(
                f"{cell.label}.reply_later: expected a handler of a request; got a task beside it. Call it in the "
                "handler, and hand the result to the task"
            )
        asked, cell.asked = cell.asked, None
        if asked is None:
            return Reply(None)
        if not isinstance(asked, Ask):
            # Its caller runs this handler, and will find the ask here.
            asked = cell.taken = Ask(asked, cell)
        if cell.owed is None:
            cell.owed = {}
        cell.owed[asked] = None
        return Reply(asked)

    def monitor(self, ref: Ref) -> Monitor:
        """Watch another actor: exactly one `Down` will come, at once if it is dead already (OTP J10, J11)."""
        cell = self._living("monitor")
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
        cell = self._living("demonitor")
        if monitor.watcher is not cell:
            raise InvalidOption(f"demonitor: expected a monitor that {cell.label} made; got {monitor!r}")
        if cell.watching is not None:
            cell.watching.pop(monitor, None)
        target = monitor.target._cell
        if target.monitors is not None:
            target.monitors.pop(monitor, None)
        if flush:
            cell.extract(lambda entry: isinstance(entry, Down) and entry.monitor is monitor)

    def link(self, ref: Ref) -> None:
        """Tie this actor's life to another's, both ways; repeating it changes nothing (OTP J01).

        Linking to an actor that has ended gives one that traps exits an `Exit` whose reason is None (OTP J07).

        Raises:
            ActorDown: if it has ended, and this actor does not trap exits.
        """
        cell = self._living("link")
        other = ref._cell
        if other is cell:
            return
        if other.reason is not None:
            if not cell.traps_exits:
                raise ActorDown(other.label, other.reason)
            cell.signal_exit(other, None)
            return
        for one, two in ((cell, other), (other, cell)):
            if one.links is None:
                one.links = {}
            one.links[two] = None

    def unlink(self, ref: Ref, *, flush: bool = False) -> None:
        """Remove a link; with `flush`, an `Exit` that waits in the mailbox is taken out as well (OTP J08)."""
        cell = self._living("unlink")
        other = ref._cell
        for one, two in ((cell, other), (other, cell)):
            if one.links is not None:
                one.links.pop(two, None)
        if flush:
            cell.extract(lambda entry: isinstance(entry, Exit) and entry.ref is ref)

    def send_after(self, delay: float, message: object, to: Ref | None = None) -> Timer:
        """Send a message once, `delay` seconds from now, to this actor or another (OTP I32).

        The timer ends with this actor, and with the one that it is aimed at. A message for which a bounded mailbox
        has no room becomes a dead letter.
        """
        return self._timer("send_after", delay, None, message, to)

    def send_every(self, interval: float, message: object, to: Ref | None = None) -> Timer:
        """Send a message every `interval` seconds; at most one that was not taken yet waits in the mailbox.

        Ticks are counted from when they were due, so they do not drift; those that a busy loop missed are left out.
        """
        if not interval > 0:
            raise InvalidOption(f"send_every: expected an interval > 0 s; got {interval!r}")
        return self._timer("send_every", interval, interval, message, to)

    def _timer(self, name: str, delay: float, interval: float | None, message: object, to: Ref | None) -> Timer:
        cell = self._living(name)
        check_message(message)
        if not delay >= 0:
            raise InvalidOption(f"{name}: expected a delay >= 0 s; got {delay!r}")
        target = to._cell if to is not None else cell
        if cell.timers is None:
            cell.timers = {}
        if target is not cell and target.aimed is None:
            target.aimed = {}
        timer = Timer(cell, target, message, delay, interval)
        if target.reason is not None:
            timer.drop()
            target.aimed = None
        return timer

    def set_idle_timeout(self, seconds: float | None) -> None:
        """Have `on_idle` called when nothing arrives for so many seconds; None switches that off (OTP I24).

        It is called once in each while without messages; to be called again, set it again in `on_idle`. While it is
        on, an ask costs this actor a task switch.
        """
        cell = self._living("set_idle_timeout")
        if seconds is not None and not seconds >= 0:
            raise InvalidOption(f"set_idle_timeout: expected None or seconds >= 0; got {seconds!r}")
        if cell.idle is not None:
            cell.idle.cancel()
        cell.idle = IdleTimeout(cell, seconds) if seconds is not None else None
        cell.choose_paths()
        cell.wake()

    def start_task(self, function: Callable[..., Awaitable[Any]], *args: Any, name: str | None = None) -> TaskRef:
        """Run an async function beside this actor; its end comes as one `TaskDone` message.

        The task is cancelled, and waited for, before this actor's end is announced; one that is started while the
        actor ends is cancelled as soon as it begins. It may ask this actor, whose messages go on meanwhile.
        """
        cell = self._living("start_task")
        nursery = cell.nursery or (cell.parent.nursery if cell.parent is not None else None) or cell.system.nursery
        task = TaskRef(cell, name or str(getattr(function, "__name__", repr(function))))
        if cell.tasks is None:
            cell.tasks = {}
        cell.tasks[task] = None
        nursery.start_soon(task.run, function, args, name=f"{cell.label}: {task.name}")
        if cell.phase == Phase.STOPPING:
            cell.wake()
        return task

    def _living(self, what: str) -> Cell:
        cell = self._inside(what)
        if cell.reason is not None:
            # Code of a detached actor may go on, but it can start nothing (OTP Q03).
            raise NotRunningInside(f"{cell.label}.{what}: expected a live actor; this one has ended or was detached")
        return cell

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
    shown: list[str] = []
    for name, value in values.items():
        try:
            text = repr(value)
        except Exception as error:
            if is_fatal(error):
                raise
            text = f"<repr failed: {type(error).__name__}>"
        shown.append(f"{name}={text if len(text) <= SHOWN else text[: SHOWN - 3] + '...'}")
    return ", ".join(shown)
