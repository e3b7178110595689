"""Simulation: a whole trio run in which one seed gives one history."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple

import trio
import trio.testing

from sapwood.actors import SimulatedEnvironment

SCHEDULER = 0x7A4E_D5A1
"""Makes the scheduler's draws others than those of an environment with the same seed."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def simulate(
    seed: int,
    function: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
    instruments: tuple[trio.abc.Instrument, ...] = (),
) -> T:
    """Run an async function to its end under a virtual clock and a scheduler that the seed decides; return its result.

    Time jumps to whatever is waited for next, so nothing really sleeps. Ready tasks run in an order that is drawn
    from the seed, a new one at every scheduler pass: another seed is another interleaving. The history is the same in
    every process if the code takes randomness, ids and threads from a `SimulatedEnvironment` with the same seed,
    and nothing from outside.

    Args:
        seed: Seed of the scheduler.
        function: What to run.
        *args: Its arguments.
        instruments: Trio instruments that watch the run.
    """
    clock = trio.testing.MockClock(autojump_threshold=0)
    with _scheduled_by(SimulatedEnvironment(seed ^ SCHEDULER).random):
        return trio.run(function, *args, clock=clock, instruments=instruments)


@contextmanager
def _scheduled_by(source: random.Random) -> Generator[None]:
    # trio has no public switch for this; its own tests and Hypothesis's plugin for it set the same two names.
    from trio._core import _run

    inside: Any = _run
    before = inside._ALLOW_DETERMINISTIC_SCHEDULING, inside._r
    inside._ALLOW_DETERMINISTIC_SCHEDULING, inside._r = True, source
    try:
        yield
    finally:
        inside._ALLOW_DETERMINISTIC_SCHEDULING, inside._r = before
