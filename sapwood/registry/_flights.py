"""Flights: starts under way, each shared by all who wait for the same key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from sapwood.actors import Ref
from sapwood.registry._keys import Key
from sapwood.registry._lookup import Running, Unavailable

Outcome: TypeAlias = Running[Ref] | Unavailable


class Flight:
    """One start under way. It runs in a task of its own, so that no caller who goes away takes it along."""

    __slots__ = ("done", "error", "outcome")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: Exception | None = None
        # What waiters get if the whole runtime is cancelled first.
        self.outcome: Outcome = Unavailable("draining")

    def result(self) -> Outcome:
        """Return the outcome, or raise the failure; the same ones for every caller (BR-08)."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.outcome


class Flights:
    """All starts under way; at most one for each key.

    Args:
        nursery: Where their tasks live.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._under_way: dict[Key, Flight] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def get(self, key: Key) -> Flight | None:
        """Return the flight of a key, or None."""
        return self._under_way.get(key)

    def launch(self, key: Key, start: Callable[[], Awaitable[Outcome]]) -> Flight:
        """Begin a flight for a key that has none."""
        flight = self._under_way[key] = Flight()
        self._nursery.start_soon(self._fly, key, flight, start, name=f"start {key!r}")
        return flight

    async def _fly(self, key: Key, flight: Flight, start: Callable[[], Awaitable[Outcome]]) -> None:
        try:
            flight.outcome = await start()
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            flight.error = error
        finally:
            # In one step, so that the next caller finds either the flight or what it led to.
            del self._under_way[key]
            flight.done.set()
