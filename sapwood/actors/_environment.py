"""The environment: the only door to time, randomness, ids, threads and process exit."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Environment(Protocol):
    """What the runtime may know of the world outside. Two implementations: the real world and a simulated one."""

    random: random.Random
    """Source of all randomness."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; all timeouts and intervals use it (OTP D09, BR-77)."""
        ...

    def wall(self) -> float:
        """Seconds since 1970 UTC; for display and calendars only, may jump."""
        ...

    def stopwatch(self) -> float:
        """Seconds on a high-resolution clock for sharing out processor time; constant where time is simulated."""
        ...

    def new_id(self, prefix: str = "") -> str:
        """Return a new unique id: `prefix` followed by 32 hex digits."""
        ...

    async def in_thread(self, function: Callable[[*Ts], T], *args: *Ts, abandon_on_cancel: bool = False) -> T:
        """Run a blocking function without blocking the loop.

        With `abandon_on_cancel` a cancelled caller leaves at once and the thread ends by itself later;
        without it the caller waits for the thread.
        """
        ...

    def exit_process(self, code: int) -> None:
        """End the process at once, without cleanup."""
        ...


class RealEnvironment:
    """The real world: trio's clock, the system's randomness, real threads."""

    def __init__(self) -> None:
        self.random = random.Random()

    def monotonic(self) -> float:
        return trio.current_time()

    def wall(self) -> float:
        return time.time()

    stopwatch = staticmethod(time.perf_counter)  # the loop of every actor calls it

    def new_id(self, prefix: str = "") -> str:
        return prefix + uuid.uuid4().hex

    async def in_thread(self, function: Callable[[*Ts], T], *args: *Ts, abandon_on_cancel: bool = False) -> T:
        return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=abandon_on_cancel)

    def exit_process(self, code: int) -> None:
        os._exit(code)


class SimulatedEnvironment:
    """A seeded world: repeatable randomness and ids, a wall clock that follows the virtual one, no threads.

    Run it under trio's `MockClock` and deterministic scheduling (`sapwood.testing`); then one seed gives one
    history. Blocking functions run inline, between two checkpoints.

    Args:
        seed: Seed of `random` and of the ids.
        epoch: Wall-clock time at the start, in seconds since 1970 UTC.
    """

    def __init__(self, seed: int = 0, *, epoch: float = 1_700_000_000.0) -> None:
        self.random = random.Random(seed)
        self.epoch = epoch
        self._ids = random.Random(seed ^ 0x5A9)
        self.exit_code: int | None = None

    def monotonic(self) -> float:
        return trio.current_time()

    def wall(self) -> float:
        return self.epoch + trio.current_time()

    def stopwatch(self) -> float:
        return 0.0

    def new_id(self, prefix: str = "") -> str:
        return f"{prefix}{self._ids.getrandbits(128):032x}"

    async def in_thread(self, function: Callable[[*Ts], T], *args: *Ts, abandon_on_cancel: bool = False) -> T:
        await trio.lowlevel.checkpoint()
        result = function(*args)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return result

    def exit_process(self, code: int) -> None:
        self.exit_code = code
