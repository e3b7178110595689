"""The loop of an actor's task: start, take messages one at a time, wind down."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable
from typing import Any, Final

import trio

from sapwood.actors._asks import Ask
from sapwood.actors._cell import NOTHING, Cell, Mode, Phase
from sapwood.actors._exits import Crashed, Killed
from sapwood.actors._mailbox import Envelope, Mailbox
from sapwood.actors._messages import Stop, SystemCall
from sapwood.actors._ref import coroutine_answer
from sapwood.actors._tasks import Tick
from sapwood.actors._telemetry import MailboxHighWater
from sapwood.errors import InvalidMessage, UnhandledRequest

# How long one actor may go on before others get a turn: a slice of processor time shared by all busy actors, read
# every few messages, and a number of messages where the clock stands still.
SLICE: Final = 100e-6
ALL_SLICES: Final = 500e-6
MESSAGES: Final = 256
CLOCK_EVERY: Final = 8

NEEDS_SCOPE: Final[Any] = object()

# What ends the run instead of one actor (OTP Q21).
FATAL: Final = (MemoryError, trio.TrioInternalError)


async def run(cell: Cell) -> None:
    """Be the task of an actor from its start, or from its first message, to its end.

    Ordinary exceptions never leave this function; `KeyboardInterrupt`, `SystemExit`, `MemoryError` and trio's
    internal errors do, and end the run (OTP Q10, Q21).
    """
    cell.task = trio.lowlevel.current_task()
    cell.system.busy += 1
    try:
        try:
            actor = cell.actor
            if cell.phase == Phase.STARTING or (actor is not None and type(actor).__kind__.supervises):
                await _scoped(cell)
            elif not await _live(cell):
                # A cancel scope costs memory and time, so it is opened only when something can block inside it.
                await _scoped(cell)
        except trio.Cancelled:
            # Nobody asked this actor to end: its supervisor was killed around it, perhaps while it wound down (BR-01).
            cell.leaving = Killed()
            raise
        except FATAL:
            raise
        except Exception as error:
            if isinstance(error, ExceptionGroup) and error.subgroup(FATAL) is not None:
                raise
            cell.leaving = Crashed.of(error)
        cell.phase = Phase.STOPPING
        cell.queue = None
        await _end_tasks(cell)
    finally:
        cell.bury()


async def _scoped(cell: Cell) -> None:
    with trio.CancelScope() as cell.scope:
        if cell.requested is not None and cell.abrupt:
            cell.scope.cancel()
        actor = cell.actor
        if actor is not None and type(actor).__kind__.supervises:
            async with trio.open_nursery() as cell.nursery:
                await _live(cell)
                await _end_tasks(cell)
                # Whatever a subclass did in its hooks, no child outlives its supervisor.
                if not cell.abrupt:
                    await actor._stop_children()
                if cell.leaked and cell.reason is None:
                    # Only detached actors are left in the nursery: the end is announced without waiting for them.
                    cell.detach(cell.leaving)
        else:
            await _live(cell)


async def _end_tasks(cell: Cell) -> None:
    for task in tuple(cell.tasks or ()):
        task.cancel()
    while cell.tasks:
        await _park(cell, Mode.PARKED)


async def _live(cell: Cell) -> bool:
    """Live as far as possible; False if a cancel scope is needed to go on."""
    actor = cell.actor
    assert actor is not None
    if cell.phase == Phase.STARTING:
        await _start(cell)
    if cell.leaving is None:
        leaving = await _loop(cell)
        if leaving is NEEDS_SCOPE:
            return False
        cell.leaving = leaving
    if cell.ran:
        if type(actor).__kind__.stops_slowly and cell.scope is None:
            return False
        await _wind_down(cell)
    return True


async def _start(cell: Cell) -> None:
    assert cell.actor is not None
    try:
        result: Any = cell.actor.on_start()
        if inspect.isawaitable(result):
            result = await result
        cell.settle(result)
    except (MemoryError, trio.TrioInternalError):
        raise
    except Exception as error:
        cell.fail_start(error)
    if cell.phase == Phase.RUNNING:
        cell.release_starter()


async def _wind_down(cell: Cell) -> None:
    actor = cell.actor
    assert actor is not None
    cell.phase = Phase.STOPPING
    cell.queue = None
    if type(actor).__kind__.has_on_stop and not cell.abrupt:
        assert cell.leaving is not None
        try:
            result: Any = actor.on_stop(cell.leaving)
            if inspect.isawaitable(result):
                await result
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            cell.leaving = Crashed.of(error)


async def _park(cell: Cell, mode: Mode) -> None:
    cell.mode = mode
    cell.system.busy -= 1

    def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
        cell.mode = Mode.BUSY
        cell.system.busy += 1
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)


async def _loop(cell: Cell) -> Any:
    """Take messages until the actor is to leave; return its exit reason, or NEEDS_SCOPE."""
    actor = cell.actor
    plain = cell.plain
    stopwatch = cell.system.environment.stopwatch
    while True:
        if cell.control:
            cell.control = False
            leaving = cell.requested or cell.crash or cell.stopping
            if leaving is not None:
                return leaving
            if cell.continuation is not NOTHING and not cell.suspended:
                if type(actor).__kind__.continues_slowly and cell.scope is None:
                    cell.control = True
                    return NEEDS_SCOPE
                crash = await _continue(cell)
                if crash is not None:
                    return crash
                continue
        box = cell.calls if cell.suspended else cell.box
        if not box:
            if cell.idle_timeout is not None:
                _start_idle(cell)
            await _park(cell, Mode.PARKED if cell.suspended else Mode.IDLE)
            continue
        if len(box) >= 1_000:
            _watch_length(cell, len(box))
        count = 0
        end = 0.0
        try:
            while box:
                entry = box.popleft()
                cell.current = entry
                function = plain.get(type(entry))
                if function is not None:
                    result = function(actor, entry)
                    if result is not None:
                        check_result(cell, entry, result)
                else:
                    slow = _take(cell, entry)
                    if slow is not None:
                        if slow is NEEDS_SCOPE:
                            _put_back(cell, entry)
                            return NEEDS_SCOPE
                        await slow
                count += 1
                if cell.control:
                    break
                if not count % CLOCK_EVERY:
                    now = stopwatch()
                    if end == 0.0:
                        end = now + min(SLICE, ALL_SLICES / cell.system.busy)
                    if now > end or count >= MESSAGES:
                        break
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            return Crashed.of(error)
        finally:
            cell.handled += count
        cell.current = None
        if box and not cell.control:
            await trio.lowlevel.checkpoint()


def _take(cell: Cell, entry: Any) -> Awaitable[Any] | None:
    """Handle an entry that is not a message with a plain handler; return what must be awaited, if anything."""
    kind = type(entry)
    if kind is Ask:
        return _answer(cell, entry)
    if kind is Envelope:
        entry = entry.message
        kind = type(entry)
    elif kind is Tick:
        entry.timer.delivered()
        entry = entry.message
        kind = type(entry)
    elif kind is Stop:
        cell.stopping = entry.reason
        cell.control = True
        return None
    elif kind is SystemCall:
        _system_call(cell, entry)
        return None
    cell.current = entry
    function = find_plain(cell, kind)
    if function is not None:
        check_result(cell, entry, function(cell.actor, entry))
        return None
    function = find_slow(cell, kind)
    if function is not None:
        return NEEDS_SCOPE if cell.scope is None else function(cell.actor, entry)  # type: ignore[no-any-return]
    assert cell.actor is not None
    result: Any = cell.actor.on_unhandled(entry)
    if inspect.isawaitable(result):
        raise InvalidMessage(f"on_unhandled of {cell.label}: expected a plain method; got an async one")
    return None


def _answer(cell: Cell, ask: Ask) -> Awaitable[Any] | None:
    request = ask.request
    function = find_plain(cell, type(request))
    if function is not None:
        cell.asked = ask
        reply(cell, ask, function(cell.actor, request))
        return None
    function = find_slow(cell, type(request))
    if function is None:
        cell.asked = ask
        raise UnhandledRequest(f"{cell.label} has no handler for {type(request).__name__}; write one marked @handle")
    if cell.scope is None:
        return NEEDS_SCOPE  # type: ignore[no-any-return]
    cell.asked = ask
    return _answer_slowly(cell, ask, function)


async def _answer_slowly(cell: Cell, ask: Ask, function: Any) -> None:
    reply(cell, ask, await function(cell.actor, ask.request))


def reply(cell: Cell, ask: Ask, value: Any) -> None:
    """Answer with what the handler returned, unless it took the reply for later or the actor is about to stop."""
    if cell.asked is not ask:
        return
    if value is not None:
        check_result(cell, ask.request, value)
    cell.asked = None
    if cell.stopping is not None:
        # The actor winds down first and answers then (OTP I14).
        cell.held_reply = (ask, value)
    else:
        ask.answer(value)


def find_plain(cell: Cell, kind: type) -> Any:
    """Find the plain handler of a message type, its base classes included."""
    return _find(cell, kind, cell.plain)


def find_slow(cell: Cell, kind: type) -> Any:
    """Find the async handler of a message type, its base classes included."""
    assert cell.dispatch is not None
    return _find(cell, kind, cell.dispatch.slow)


def _find(cell: Cell, kind: type, table: dict[type, Any]) -> Any:
    function = table.get(kind)
    if function is None:
        assert cell.dispatch is not None
        for base in kind.__mro__:
            if base in cell.dispatch.plain or base in cell.dispatch.slow:
                function = table.get(base)
                if function is not None:
                    table[kind] = function
                break
    return function


async def _continue(cell: Cell) -> Crashed | None:
    actor = cell.actor
    assert actor is not None
    token, cell.continuation = cell.continuation, NOTHING
    cell.current = None
    try:
        result: Any = actor.on_idle() if token is IDLE else actor.on_continue(token)
        if inspect.isawaitable(result):
            await result
    except (MemoryError, trio.TrioInternalError):
        raise
    except Exception as error:
        return Crashed.of(error)
    if cell.continuation is not NOTHING:
        await trio.lowlevel.checkpoint()
    return None


def _system_call(cell: Cell, call: SystemCall) -> None:
    cell.handled -= 1
    if call.ask.task is None:
        return
    try:
        value = call.function(cell)
    except Exception as error:
        call.ask.fail(error)
    else:
        call.ask.answer(value)


def check_result(cell: Cell, message: Any, result: Any) -> None:
    """Refuse a coroutine from a plain handler, which would never run.

    Raises:
        InvalidMessage: naming the handler and what to write.
    """
    if inspect.iscoroutine(result):
        result.close()
        raise coroutine_answer(cell, message)


def _put_back(cell: Cell, entry: Any) -> None:
    if isinstance(cell.box, Mailbox):
        cell.box.put_back(entry)
    elif isinstance(cell.box, deque):
        cell.box.appendleft(entry)


def _watch_length(cell: Cell, length: int) -> None:
    mark = cell.options.high_water if cell.options is not None else 10_000
    if not cell.high_water and length >= mark:
        cell.high_water = True
        cell.system.telemetry.tell(MailboxHighWater(cell.label, length))
    elif cell.high_water and length < mark // 2:
        cell.high_water = False


def _start_idle(cell: Cell) -> None:
    assert cell.idle_timeout is not None
    if cell.idle is not None:
        if cell.idle.pending and cell.idle_mark == cell.handled:
            return  # only introspection happened since, and that does not count as activity (OTP I24)
        cell.idle.cancel()

    def fire() -> None:
        # A message that came at the same moment goes first.
        if cell.mode and not cell.suspended and not cell.box:
            cell.continuation = IDLE
            cell.control = True
            cell.wake()

    cell.idle_mark = cell.handled
    cell.idle = cell.system.deadlines.at(trio.current_time() + cell.idle_timeout, fire)


class Idle:
    """The continuation that stands for an idle time-out."""


IDLE: Final = Idle()
