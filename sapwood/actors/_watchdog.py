"""The watchdog: names what holds the loop up, since trio cannot interrupt it (OTP Q01)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from sapwood.actors._telemetry import LoopHeldUp
from sapwood.errors import InvalidOption

if TYPE_CHECKING:
    from sapwood.actors._system import ActorSystem


class Watchdog(trio.abc.Instrument):
    """Times every step of every task in the run, and tells of those that took too long."""

    def __init__(self, system: ActorSystem, limit: float) -> None:
        self._system = system
        self._limit = limit
        self._stopwatch = system.environment.stopwatch
        self._began = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Note when the step begins."""
        self._began = self._stopwatch()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Tell of the step if it took too long."""
        seconds = self._stopwatch() - self._began
        if seconds > self._limit:
            self._system.telemetry.tell(LoopHeldUp(task.name, seconds))


@contextmanager
def watch_loop(system: ActorSystem, limit: float = 0.1) -> Generator[None]:
    """Tell `LoopHeldUp` whenever a task goes on for more than `limit` seconds without a checkpoint.

    The event comes when the step has ended; nothing can interrupt it. A handler that runs inside its caller counts
    for the caller's task. Watching costs every step of the run about a microsecond.

    Args:
        system: Whose telemetry is told.
        limit: Seconds.

    Raises:
        InvalidOption: if the limit is no number of seconds > 0.
    """
    if not limit > 0:
        raise InvalidOption(f"watch_loop: expected a limit > 0 s; got {limit!r}")
    watchdog = Watchdog(system, limit)
    trio.lowlevel.add_instrument(watchdog)
    try:
        yield
    finally:
        trio.lowlevel.remove_instrument(watchdog)
