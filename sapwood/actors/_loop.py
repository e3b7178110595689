"""The loop of an actor's task: start, take messages one at a time, wind down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

import trio

from sapwood.actors._asks import Ask
from sapwood.actors._cell import Cell
from sapwood.actors._contexts import Values, run_in
from sapwood.actors._dispatch import NEEDS_SCOPE, check_plain, check_result, take, take_ask
from sapwood.actors._exits import Killed, contain, is_cancellation, take_crash
from sapwood.actors._idle import ON_IDLE
from sapwood.actors._inbox import AWAITING, BUSY, IDLE, NOTHING, PARKED, Phase

# How long one actor may go on before others get a turn: a slice of processor time, which is cut when more than so many
# actors are busy, but not below the price of a task switch or two, on a clock that is read every few messages; and a
# number of messages, where the clock stands still.
SLICE: Final = 100e-6
SHARERS: Final = 5
LEAST: Final = 15e-6
MESSAGES: Final = 256
CLOCK_EVERY: Final = 8


async def run(cell: Cell) -> None:
    """Be the task of an actor from its start, or from its first message, to its end.

    Ordinary exceptions never leave this function; `KeyboardInterrupt`, `SystemExit`, `MemoryError` and trio's
    internal errors do, and end the run (OTP Q10, Q21).
    """
    cell.enter_task()
    cell.system.busy += 1
    try:
        with Containment(cell) as containment:
            if cell.phase == Phase.STARTING or cell.supervises:
                await _scoped(cell)
            elif not await _live(cell):
                # A cancel scope costs memory and time, so it is opened only when something can block inside it.
                await _scoped(cell)
            await _end_tasks(cell)
        if containment.left:
            # The shield is bounded by what the nursery around it waits for anyway: these tasks, which are cancelled.
            with trio.CancelScope(shield=True):
                await _end_tasks(cell)
            if containment.rest is not None:
                raise containment.rest
    finally:
        cell.bury()


class Containment:
    """Keeps what leaves an actor's code: a crash becomes its exit reason, a cancellation waits for its tasks to end.

    Attributes:
        left: Whether anything was kept.
        rest: What is to be raised once the actor's tasks have ended.
    """

    __slots__ = ("_cell", "left", "rest")

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self.left = False
        self.rest: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None:
            return False
        crash, self.rest = take_crash(error)
        if self.rest is not None and not is_cancellation(self.rest):
            return False
        # Where nothing crashed nobody asked this actor to end: its supervisor was killed around it, perhaps while it
        # wound down (BR-01).
        self._cell.leaving = crash or Killed()
        self.left = True
        return True


async def _scoped(cell: Cell) -> None:
    with trio.CancelScope() as cell.scope:
        if cell.abrupt:
            cell.scope.cancel()
        actor = cell.actor
        if actor is not None and cell.supervises:
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


async def _live(cell: Cell) -> bool:
    """Live as far as possible; False if a cancel scope is needed to go on."""
    if cell.phase == Phase.STARTING and cell.leaving is None:
        await _start(cell)
    if cell.leaving is None:
        leaving = await _loop(cell)
        if leaving is NEEDS_SCOPE:
            return False
        cell.leaving = leaving
    if cell.ran and cell.reason is None:
        return await _wind_down(cell)
    return True


async def _start(cell: Cell) -> None:
    assert cell.actor is not None
    try:
        result: Any = cell.actor.on_start()
        if type(cell.actor).__kind__.starts_slowly:
            result = await awaiting(cell, result)
        cell.settle(result)
    except Exception as error:
        cell.fail_start(error)
    if cell.system.propagate:
        cell.enter_task()
    if cell.phase == Phase.RUNNING:
        cell.release_starter()


async def _wind_down(cell: Cell) -> bool:
    actor = cell.actor
    assert actor is not None
    kind = type(actor).__kind__
    if kind.has_on_stop and not cell.abrupt:
        if kind.stops_slowly and cell.scope is None:
            return False
        cell.phase = Phase.STOPPING
        cell.queue = None
        try:
            await _call_hook(cell, actor.on_stop, (cell.leaving,), slow=kind.stops_slowly)
        except Exception as error:
            cell.leaving = contain(error)
    cell.phase = Phase.STOPPING
    cell.queue = None
    return True


async def _end_tasks(cell: Cell) -> None:
    cell.phase = Phase.STOPPING if cell.reason is None else Phase.DEAD
    cell.queue = None
    while cell.tasks:
        # Again at each end and each start of one: a task that ends may begin another.
        for task in tuple(cell.tasks):
            task.cancel()
        cell.mode = PARKED
        cell.system.busy -= 1
        await trio.lowlevel.wait_task_rescheduled(cell.abort_park)


async def awaiting(cell: Cell, callback: Awaitable[Any]) -> Any:
    """Await an async callback; meanwhile the actor counts as waiting, not as busy."""
    cell.mode = AWAITING
    cell.system.busy -= 1
    try:
        return await callback
    finally:
        if cell.reason is None:
            cell.mode = BUSY
            cell.system.busy += 1


# --- the loop -------------------------------------------------------------------------------------


async def _loop(cell: Cell) -> Any:  # noqa: C901, PLR0912  # the hot path, where each call costs
    """Take messages until the actor is to leave; return its exit reason, or NEEDS_SCOPE."""
    actor = cell.actor
    plain = cell.plain
    system = cell.system
    stopwatch = system.environment.stopwatch
    count = 0
    end = 0.0
    while True:
        if cell.control:
            leaving = await _heed(cell)
            if leaving is not None:
                return leaving
            plain = cell.plain
        box = cell.calls if cell.suspended else cell.box
        if not box:
            if cell.idle is not None and not cell.suspended and cell.idle.is_due():
                cell.continuation = (ON_IDLE, None)
                cell.control = True
                continue
            cell.mode = PARKED if cell.suspended else IDLE
            system.busy -= 1
            await trio.lowlevel.wait_task_rescheduled(cell.abort_park)
            count = 0
            continue
        if cell.high_water or len(box) >= cell.mark:
            cell.watch_length()
        if count == 0:
            end = stopwatch() + (SLICE if system.busy <= SHARERS else max(SLICE * SHARERS / system.busy, LEAST))
        begun = count
        try:
            while box:
                entry: object = box.popleft()
                cell.current = entry
                function = plain.get(type(entry))
                if function is not None:
                    result = function(actor, entry)
                    if result is not None:
                        check_result(cell, entry, result)
                else:
                    slow = take_ask(cell, entry) if type(entry) is Ask else take(cell, entry)
                    if slow is NEEDS_SCOPE:
                        cell.put_back(entry)
                        return NEEDS_SCOPE
                    if slow is not None:
                        cell.handled += count - begun
                        begun = count
                        await awaiting(cell, slow)
                count += 1
                if cell.control or (not count % CLOCK_EVERY and (count >= MESSAGES or stopwatch() > end)):
                    break
        except Exception as error:
            return contain(error)
        finally:
            cell.handled += count - begun
        cell.current = None
        if (count >= MESSAGES or stopwatch() > end) if cell.control else box:
            count = 0
            await trio.lowlevel.checkpoint()


async def _heed(cell: Cell) -> Any:
    """See to what comes before the next message; return an exit reason or NEEDS_SCOPE if the actor must leave."""
    while cell.control:
        cell.control = False
        if cell.fatal is not None:
            raise cell.fatal
        leaving = cell.requested or cell.crash or cell.stopping
        if leaving is None and cell.continuation is not NOTHING and not cell.suspended:
            leaving = await _continue(cell)
            if cell.continuation is not NOTHING and leaving is None:
                # A chain of continuations lets others run between its links.
                await trio.lowlevel.checkpoint()
        if leaving is not None:
            return leaving
    return None


async def _continue(cell: Cell) -> Any:
    """Run a continuation; return a crash, NEEDS_SCOPE or None."""
    actor = cell.actor
    assert actor is not None
    kind = type(actor).__kind__
    token, values = cell.continuation
    slow = kind.idles_slowly if token is ON_IDLE else kind.continues_slowly
    if slow and cell.scope is None:
        cell.control = True
        return NEEDS_SCOPE
    cell.continuation = NOTHING
    cell.current = None
    try:
        if token is ON_IDLE:
            await _call_hook(cell, actor.on_idle, (), slow=slow, values=values)
        else:
            await _call_hook(cell, actor.on_continue, (token,), slow=slow, values=values)
    except Exception as error:
        return contain(error)
    return None


async def _call_hook(
    cell: Cell, hook: Callable[..., Any], args: tuple[Any, ...], *, slow: bool, values: Values | None = None
) -> None:
    context = cell.context_for(values) if cell.system.propagate else None
    result = hook(*args) if context is None else context.run(hook, *args)
    if slow:
        await awaiting(cell, result if context is None else run_in(context, result))
    else:
        check_plain(cell, hook.__name__, result)
