"""Queues in memory: the same store engine, on a database that ends with the block, without threads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, TypeVarTuple

import trio

from sapwood.actors import Environment
from sapwood.persistence import Store, open_store

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class InlineEnvironment:
    """An environment whose blocking functions run in the loop's own thread, between two checkpoints.

    Right for a database in memory, where a thread hop costs more than the work.
    """

    def __init__(self, environment: Environment) -> None:
        self.random = environment.random
        self._environment = environment

    def monotonic(self) -> float:
        """See `Environment.monotonic`."""
        return self._environment.monotonic()

    def wall(self) -> float:
        """See `Environment.wall`."""
        return self._environment.wall()

    def stopwatch(self) -> float:
        """See `Environment.stopwatch`."""
        return self._environment.stopwatch()

    def new_id(self, prefix: str = "") -> str:
        """See `Environment.new_id`."""
        return self._environment.new_id(prefix)

    def exit_process(self, code: int) -> None:
        """See `Environment.exit_process`."""
        self._environment.exit_process(code)

    async def in_thread(self, function: Callable[[*Ts], T], *args: *Ts, abandon_on_cancel: bool = False) -> T:
        """Run a function here."""
        await trio.lowlevel.checkpoint()
        result = function(*args)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return result


@asynccontextmanager
async def open_memory_store(environment: Environment) -> AsyncGenerator[Store]:
    """Open a store in memory for the length of an `async with` block: queues on it do all that they do on a file.

    What they hold ends with the block. Everything else is the same, for it is the same code; it runs without a thread.

    Args:
        environment: Source of time, randomness and ids.
    """
    async with open_store(":memory:", InlineEnvironment(environment)) as store:
        yield store
