"""Bulkheads: so many calls at once to one target, and so many that wait."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import trio

from sapwood.errors import BulkheadFull, InvalidOption


@attrs.frozen
class BulkheadPolicy:
    """Bounds of the calls to one target.

    Attributes:
        max_concurrent: Calls that run at once, from 1.
        max_waiting: Calls that wait for their turn, from 0; one more is refused.

    Raises:
        InvalidOption: if a value is out of its range.
    """

    max_concurrent: int = 16
    max_waiting: int = 64

    def __attrs_post_init__(self) -> None:
        for option, least in (("max_concurrent", 1), ("max_waiting", 0)):
            value = getattr(self, option)
            if not isinstance(value, int) or value < least:
                raise InvalidOption(f"BulkheadPolicy {option}: expected a whole number from {least}; got {value!r}")


class Bulkhead:
    """Keeps a slow target from taking all that its callers have: `async with bulkhead.slot(): ...`.

    Waiting callers get their turn first come, first served; one that is cancelled while it waits gives up its place.

    Args:
        name: The target, for errors.
        policy: The bounds; None for the defaults.
    """

    def __init__(self, name: str, policy: BulkheadPolicy | None = None) -> None:
        self.name = name
        self.policy = policy if policy is not None else BulkheadPolicy()
        self.refused = 0
        self._limit = trio.Semaphore(self.policy.max_concurrent, max_value=self.policy.max_concurrent)

    @property
    def running(self) -> int:
        """Calls that have a slot."""
        return self.policy.max_concurrent - self._limit.value

    @property
    def waiting(self) -> int:
        """Calls that wait for one."""
        return self._limit.statistics().tasks_waiting

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """Wait for a slot, and give it back at the end of the block.

        Raises:
            BulkheadFull: at once, if as many calls wait as may.
        """
        if not self._limit.value and self.waiting >= self.policy.max_waiting:
            self.refused += 1
            raise BulkheadFull(self.name, self.policy.max_concurrent, self.policy.max_waiting)
        await self._limit.acquire()
        try:
            yield
        finally:
            self._limit.release()
