"""The life of a runtime: started behind a shield, stopped in order, ended at any price."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from sapwood._signals import EXIT_CODE_BASE, SignalWatch
from sapwood.actors import ActorSystem, ChildStuck, Environment, ExitReason, open_system
from sapwood.errors import ActorDown, RuntimeFailed

if TYPE_CHECKING:
    from sapwood._runtime import Runtime

logger = logging.getLogger("sapwood")

STUCK_AFTER: Final = 5.0
"""Seconds after the hard stop before what still runs is named."""

ABORT_EVERY: Final = 0.05
"""Seconds between looks for children that are still starting while the runtime stops already."""


class Tree:
    """The tasks that hold the tree inside a shield, with its stop button outside.

    trio cancels everything below a scope at once, and an orderly stop goes one child at a time. So the tree runs in
    a shielded scope, and whatever ends the block around it presses `stop`; when the budget is spent the shield's own
    scope is cancelled (OTP Q09).

    Args:
        environment: Door to the world outside.
        make: Makes the runtime, once the actor system is there.
        budget: Seconds for the whole orderly stop.
        block: Scope of the block; cancelled at the first signal, and when the root supervisor gives up.
        propagate: Context variables whose values travel with messages.

    Attributes:
        signals: The signals that may end the block and the tree.
    """

    def __init__(
        self,
        environment: Environment,
        make: Callable[[ActorSystem], Runtime],
        budget: float,
        block: trio.CancelScope,
        propagate: Sequence[ContextVar[Any]] = (),
    ) -> None:
        self.signals = SignalWatch(environment, on_first=block.cancel, on_second=self.cancel)
        self._environment = environment
        self._propagate = propagate
        self._make = make
        self._budget = budget
        self._block = block
        self._runtime: Runtime | None = None
        self._error: Exception | None = None
        self._failed: ExitReason | None = None
        self._shield = trio.CancelScope(shield=True)
        self._made = trio.Event()
        self._started = trio.Event()
        self._stop = trio.Event()
        self._stopped = trio.Event()

    def tasks(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """Return the tasks to run beside the block; all end after `stop`, and none sooner."""
        return self._run, self._bound, self.signals.run

    async def wait_started(self) -> Runtime:
        """Wait until everything runs.

        Raises:
            Exception: whatever kept it from starting.
        """
        await self._started.wait()
        if self._error is not None:
            raise self._error
        assert self._runtime is not None
        return self._runtime

    def stop(self) -> None:
        """Have the tree stopped in order, within the budget."""
        if self._runtime is not None:
            self._runtime.begin_stop()
        self._stop.set()

    def cancel(self) -> None:
        """Cancel what is left of the tree, all at once."""
        self._shield.cancel()

    def raise_outcome(self, failure: BaseException | None) -> None:
        """End as the block and the tree ended: what the block raised comes first, then a signal, then the tree."""
        if failure is not None:
            raise failure
        if self.signals.first is not None:
            raise SystemExit(EXIT_CODE_BASE + self.signals.first)
        if self._failed is not None:
            raise RuntimeFailed(self._failed)

    # --- holding the tree -------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            with self._shield:
                async with open_system(self._environment, propagate=self._propagate) as system:
                    await self._live(system)
        finally:
            if self._runtime is not None:
                self._runtime.end_stop()
            for event in (self._made, self._started, self._stopped):
                event.set()

    async def _live(self, system: ActorSystem) -> None:
        runtime = self._runtime = self._make(system)
        system.registrar = runtime.registry
        self._made.set()
        root = await runtime.start_root()
        try:
            await runtime.start_children()
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            self._error = error
        system.nursery.start_soon(self._watch_root, runtime)
        self._started.set()
        await self._stop.wait()
        if root.alive:
            with suppress(ActorDown):  # it gives up at the same moment
                await root.stop()
        await runtime.sessions.close_models()

    async def _watch_root(self, runtime: Runtime) -> None:
        reason = await runtime.root.wait_stopped()
        if not self._stop.is_set():
            self._failed = reason
            runtime.begin_stop()
            self._block.cancel()

    # --- bounding the stop ------------------------------------------------------------------------

    async def _bound(self) -> None:
        # Shielded, for it must go on when the block is cancelled; it ends soon after the tree has ended.
        with trio.CancelScope(shield=True):
            await self._stop.wait()
            with trio.move_on_after(self._budget):
                await self._abort_starts()
                await self._stopped.wait()
            self.cancel()
            with trio.move_on_after(STUCK_AFTER):
                await self._stopped.wait()
            if not self._stopped.is_set():
                self._give_up()
            await self._stopped.wait()
            self.signals.close()

    async def _abort_starts(self) -> None:
        await self._made.wait()
        while self._runtime is not None and not self._started.is_set():
            self._runtime.begin_stop()
            self._runtime.abort_starts()
            with trio.move_on_after(ABORT_EVERY):
                await self._started.wait()

    def _give_up(self) -> None:
        """Name what does not even end when it is cancelled; end the process if that is what a signal asked for."""
        if self._runtime is not None:
            cells = tuple(self._runtime.system.actors)
            waiting = {cell.parent for cell in cells}
            for cell in [cell for cell in cells if cell not in waiting]:
                logger.critical("%s hangs in its cleanup and cannot be ended", cell.label)
                self._runtime.telemetry.tell(ChildStuck("runtime", cell.label, STUCK_AFTER))
        if self.signals.first is not None:
            self._environment.exit_process(EXIT_CODE_BASE + self.signals.first)


def includes_cancelled(error: BaseException) -> bool:
    """Say whether an exception is a cancellation, or a group with one in it."""
    inside = members(error)
    return any(map(includes_cancelled, inside)) if inside else isinstance(error, trio.Cancelled)


def only_cancelled(error: BaseException) -> bool:
    """Say whether an exception is nothing but cancellation."""
    inside = members(error)
    return all(map(only_cancelled, inside)) if inside else isinstance(error, trio.Cancelled)


def bare(error: BaseException) -> BaseException:
    """Take the only exception out of all the groups that nurseries made of it."""
    while (inner := only_member(error)) is not error:
        error = inner
    return error


def only_member(error: BaseException) -> BaseException:
    """Return the only member of a group; anything else as it is."""
    inside = members(error)
    return inside[0] if len(inside) == 1 else error


def members(error: BaseException) -> tuple[BaseException, ...]:
    """Return the members of a group; of anything else, none."""
    group = cast("BaseExceptionGroup[BaseException]", error)
    return group.exceptions if isinstance(error, BaseExceptionGroup) else ()
