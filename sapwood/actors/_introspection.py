"""Introspection: looking at an actor, and holding it still, while it runs (OTP group O)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import trio

from sapwood.actors._asks import DEFAULT_TIMEOUT, Ask, check_timeout
from sapwood.actors._burial import ancestors_of, format_state
from sapwood.actors._cycles import BLOCKED
from sapwood.actors._debug import DebugEvent, DebugFunction, Debugging
from sapwood.actors._messages import SystemCall
from sapwood.errors import ActorDown, InvalidOption, SelfAsk

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell
    from sapwood.actors._ref import Ref


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
        uptime: Seconds since it started; 0 if it has not, or has ended.
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
    uptime: float = 0.0


@attrs.frozen
class ActorInfo:
    """Who a live actor is, and what it is tied to (OTP O09).

    Attributes:
        label: How it is called in logs.
        key: Its registry key, or None.
        kind: Name of the class or function that made it.
        ancestors: Labels of the supervisors above it, nearest first.
        links: The actors linked to it.
        monitoring: The actors that it monitors.
        monitored_by: The actors that monitor it.
        waiting: Messages in its mailbox.
        trap_exits: Whether exits of linked actors come as messages.
    """

    label: str
    key: object
    kind: str
    ancestors: tuple[str, ...]
    links: tuple[Ref, ...]
    monitoring: tuple[Ref, ...]
    monitored_by: tuple[Ref, ...]
    waiting: int
    trap_exits: bool


@attrs.frozen
class ActorStatus:
    """What an actor says of itself, in its turn (OTP O06).

    Attributes:
        label: How it is called in logs.
        kind: Module and name of its class.
        parent: Label of its supervisor, or None.
        suspended: Whether it takes introspection only.
        debug: What is switched on: `log=10`, `function f`.
        state: Its state as its `format_state` shows it; if that fails, a note that it failed (OTP O07).
    """

    label: str
    kind: str
    parent: str | None
    suspended: bool
    debug: tuple[str, ...]
    state: str


class Introspection:
    """The part of `Ref` that looks inside.

    All but `statistics` and `info` wait their turn behind the current callback and earlier messages, also while the
    actor is suspended; `statistics` and `info` read memory at once, and so work while it is stuck (OTP O05, Q18).
    """

    __slots__ = ()

    _cell: Cell

    def statistics(self) -> ActorStatistics:
        """Return a snapshot of the actor's counters; a dead one has an empty one."""
        cell = self._cell
        running = cell.reason is None and cell.ran
        return ActorStatistics(
            label=cell.label,
            alive=cell.reason is None,
            phase=cell.phase.name.lower(),
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
            uptime=cell.system.environment.monotonic() - cell.started_at if running else 0.0,
        )

    def info(self) -> ActorInfo | None:
        """Return who the actor is and what it is tied to; None once it has ended (OTP O09)."""
        cell = self._cell
        if cell.reason is not None:
            return None
        return ActorInfo(
            label=cell.label,
            key=cell.key,
            kind=cell.birth.name,
            ancestors=ancestors_of(cell),
            links=tuple(linked.ref for linked in cell.links or ()),
            monitoring=tuple(monitor.target for monitor in cell.watching or ()),
            monitored_by=tuple(monitor.watcher.ref for monitor in cell.monitors or ()),
            waiting=len(cell.box or ()),
            trap_exits=cell.traps_exits,
        )

    async def get_state(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> dict[str, Any]:
        """Return a copy of the actor's attributes, taken in its turn (OTP O01, O05).

        Raises:
            ActorDown: if the actor has ended, or ends first.
            AskTimeout: if its turn does not come in time.
            SelfAsk: if an actor asks itself.
        """
        return await self._system_call(_get_state, timeout)  # type: ignore[no-any-return]  # the answer to an Ask

    async def get_status(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> ActorStatus:
        """Return what the actor says of itself; see `get_state` for what is raised (OTP O06, O07)."""
        return await self._system_call(_get_status, timeout)  # type: ignore[no-any-return]  # the answer to an Ask

    async def replace_state(
        self, function: Callable[[dict[str, Any]], dict[str, Any]], *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> dict[str, Any]:
        """Replace the actor's attributes by what `function` makes of them, in its turn; return the new ones.

        If the function raises, nothing is changed and the exception comes here (OTP O02).

        Raises:
            InvalidOption: if the function returns no dict; nothing is changed.
            ActorDown, AskTimeout, SelfAsk: see `get_state`.
        """

        def replace(cell: Cell) -> dict[str, Any]:
            assert cell.actor is not None
            return cell.actor.replace_state(function)

        return await self._system_call(replace, timeout)  # type: ignore[no-any-return]  # the answer to an Ask

    async def suspend(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Let the actor take nothing but introspection and stop requests; its messages wait in order (OTP O03, O04).

        Raises:
            ActorDown, AskTimeout, SelfAsk: see `get_state`.
        """
        await self._system_call(lambda cell: cell.suspend(), timeout)

    async def resume(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """End a suspension.

        Raises:
            ActorDown, AskTimeout, SelfAsk: see `get_state`.
        """
        await self._system_call(lambda cell: cell.resume(), timeout)

    # --- debugging --------------------------------------------------------------------------------

    async def start_log(self, size: int = 10, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Keep the last `size` debug events of the actor; a new size starts over (OTP O08).

        While any debugging is on, the actor's messages take a slower path, and an ask costs a task switch.

        Raises:
            InvalidOption: if `size` is no int >= 1.
            ActorDown, AskTimeout, SelfAsk: see `get_state`.
        """
        if type(size) is not int or size < 1:
            raise InvalidOption(f"start_log: expected a size >= 1; got {size!r}")

        def start(cell: Cell) -> None:
            _debugging(cell).log = deque(maxlen=size)
            _settle_debugging(cell)

        await self._system_call(start, timeout)

    async def get_log(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> tuple[DebugEvent, ...]:
        """Return the logged debug events, oldest first; none if the log is off.

        Raises:
            ActorDown, AskTimeout, SelfAsk: see `get_state`.
        """
        return await self._system_call(_get_log, timeout)  # type: ignore[no-any-return]  # the answer to an Ask

    async def stop_log(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Stop logging and drop what was logged.

        Raises:
            ActorDown, AskTimeout, SelfAsk: see `get_state`.
        """

        def stop(cell: Cell) -> None:
            _debugging(cell).log = None
            _settle_debugging(cell)

        await self._system_call(stop, timeout)

    async def trace(self, function: DebugFunction, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Call a function with every debug event, in the actor's turn (OTP O08).

        It must not block. When it raises, or returns `DONE`, it is removed, and the actor goes on.

        Raises:
            ActorDown, AskTimeout, SelfAsk: see `get_state`.
        """

        def add(cell: Cell) -> None:
            _debugging(cell).functions.append(function)
            _settle_debugging(cell)

        await self._system_call(add, timeout)

    async def untrace(self, function: DebugFunction, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Remove a function given to `trace`; one that is not there is no error.

        Raises:
            ActorDown, AskTimeout, SelfAsk: see `get_state`.
        """

        def remove(cell: Cell) -> None:
            functions = _debugging(cell).functions
            if function in functions:
                functions.remove(function)
            _settle_debugging(cell)

        await self._system_call(remove, timeout)

    async def _system_call(self, function: Callable[[Cell], Any], timeout: float | None) -> Any:
        cell = self._cell
        cell.system.check_thread(f"look into {cell.label}", "runtime.portal.call(ref.get_state)")
        check_timeout("introspection", timeout)
        if BLOCKED.get() is cell:
            raise SelfAsk(cell.label, "introspection")
        await trio.lowlevel.checkpoint()
        if cell.reason is not None:
            raise ActorDown(cell.label, cell.reason)
        ask = Ask(function, cell, timeout)
        cell.put_entry(SystemCall(function, ask))
        return await ask.wait()


def _get_state(cell: Cell) -> dict[str, Any]:
    assert cell.actor is not None
    return cell.actor.get_state()


def _get_status(cell: Cell) -> ActorStatus:
    kind = type(cell.actor)
    return ActorStatus(
        label=cell.label,
        kind=f"{kind.__module__}.{kind.__qualname__}",
        parent=cell.parent_label,
        suspended=cell.suspended,
        debug=cell.debug.options() if cell.debug is not None else (),
        state=format_state(cell),
    )


def _get_log(cell: Cell) -> tuple[DebugEvent, ...]:
    return tuple(cell.debug.log or ()) if cell.debug is not None else ()


def _debugging(cell: Cell) -> Debugging:
    if cell.debug is None:
        cell.debug = Debugging()
    return cell.debug


def _settle_debugging(cell: Cell) -> None:
    if cell.debug is not None and not cell.debug.active:
        cell.debug = None
    cell.choose_paths()
