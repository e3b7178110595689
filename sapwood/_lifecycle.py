"""The life of a runtime: started behind a shield, stopped in order, ended at any price."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from sapwood._signals import EXIT_CODE_BASE, SignalWatch
from sapwood.actors import ActorSystem, ChildStuck, Environment, ExitReason, open_system
from sapwood.errors import ActorDown, SapwoodError

if TYPE_CHECKING:
    from sapwood._runtime import Runtime

logger = logging.getLogger("sapwood")

STUCK_AFTER: Final = 5.0
"""Seconds after the hard stop before what still runs is named."""

ABORT_EVERY: Final = 0.05
"""Seconds between looks for children that are still starting while the runtime stops already."""


class Tree:
    """The task that holds the tree inside a shield, with its stop button outside.

    trio cancels everything below a scope at once, and an orderly stop goes one child at a time. So the tree runs in
    a shielded scope, and whatever ends the block around it presses `stop`; when the budget is spent the shield's own
    scope is cancelled (OTP Q09).

    Args:
        environment: Door to the world outside.
        make: Makes the runtime, once the actor system is there.
        budget: Seconds for the whole orderly stop.
        body: Scope of the block; cancelled when the root supervisor gives up.

    Attributes:
        failed: Why the root supervisor gave up, if it did.
        watch: The signals, which may ask for an end at any price.
    """

    def __init__(
        self, environment: Environment, make: Callable[[ActorSystem], Runtime], budget: float, body: trio.CancelScope
    ) -> None:
        self.environment = environment
        self.failed: ExitReason | None = None
        self.watch: SignalWatch | None = None
        self._make = make
        self._budget = budget
        self._body = body
        self._runtime: Runtime | None = None
        self._error: Exception | None = None
        self._shield = trio.CancelScope(shield=True)
        self._made = trio.Event()
        self._started = trio.Event()
        self._stop = trio.Event()
        self._stopped = trio.Event()

    async def run(self) -> None:
        """Start the tree and hold it until `stop`."""
        try:
            with self._shield:
                async with open_system(self.environment) as system:
                    await self._live(system)
        finally:
            for event in (self._made, self._started, self._stopped):
                event.set()

    async def _live(self, system: ActorSystem) -> None:
        runtime = self._runtime = self._make(system)
        system.registrar = runtime.registry
        self._made.set()
        root = await runtime.start_root()
        try:
            await runtime.start_children()
        except SapwoodError as error:
            self._error = error
        system.nursery.start_soon(self._watch_root, runtime)
        self._started.set()
        await self._stop.wait()
        if root.alive:
            with suppress(ActorDown):  # it gave up at the same moment
                await root.stop()
        runtime.end_stop()

    async def _watch_root(self, runtime: Runtime) -> None:
        reason = await runtime.root.wait_stopped()
        if not self._stop.is_set():
            self.failed = reason
            runtime.begin_stop()
            self._body.cancel()

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

    async def stop(self) -> None:
        """Stop the tree in order, within the total budget; goes on although the caller is cancelled."""
        self._stop.set()
        with trio.CancelScope(shield=True):
            with trio.move_on_after(self._budget):
                await self._abort_starts()
                await self._stopped.wait()
            self.cancel()
            with trio.move_on_after(STUCK_AFTER):
                await self._stopped.wait()
            if not self._stopped.is_set():
                self._give_up()
            await self._stopped.wait()

    async def _abort_starts(self) -> None:
        await self._made.wait()
        if self._runtime is None:
            return
        self._runtime.begin_stop()
        while not self._started.is_set():
            self._runtime.abort_starts()
            with trio.move_on_after(ABORT_EVERY):
                await self._started.wait()

    def _give_up(self) -> None:
        """Name what does not even end when it is cancelled; end the process if that is what a signal asked for."""
        assert self._runtime is not None
        for cell in tuple(self._runtime.system.actors):
            logger.critical("%s hangs in its cleanup and cannot be ended", cell.label)
            self._runtime.telemetry.tell(ChildStuck("runtime", cell.label, STUCK_AFTER))
        if self.watch is not None and self.watch.first is not None:
            self.environment.exit_process(EXIT_CODE_BASE + self.watch.first)

    def cancel(self) -> None:
        """Cancel what is left of the tree, all at once."""
        self._shield.cancel()


def includes_cancelled(error: BaseException) -> bool:
    """Say whether an exception is a cancellation, or a group with one in it."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(trio.Cancelled) is not None
    return isinstance(error, trio.Cancelled)


def only_cancelled(group: BaseExceptionGroup[BaseException]) -> bool:
    """Say whether a group holds nothing but cancellations."""
    return group.split(trio.Cancelled)[1] is None
