"""Locks by key: one task at a time for each key, first come, first served."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from sapwood.errors import InvalidOption
from sapwood.registry._keys import Key


class KeyLocks:
    """One lock for each key that somebody holds or waits for; nothing is kept for other keys.

    Invariant: a lock leaves the table only when nobody holds it, and then nobody waits for it either.
    """

    def __init__(self) -> None:
        self._locks: dict[Key, trio.Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: Key) -> AsyncGenerator[None]:
        """Hold the lock of a key; a task that is cancelled while it waits has left the queue.

        Raises:
            InvalidOption: if this task holds it already.
        """
        lock = self._locks.setdefault(key, trio.Lock())
        if lock.statistics().owner is trio.lowlevel.current_task():
            raise InvalidOption(
                f"lock {key!r}: expected a key whose lock this task does not hold; it holds this one already and "
                "would wait for itself. Enter it once, around everything"
            )
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._locks.pop(key, None)
