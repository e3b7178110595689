"""Whether a store answers, shared by its parts."""

from __future__ import annotations

from typing import Literal

import attrs
import trio

from sapwood.errors import StoreUnavailable

StoreState = Literal["open", "closing", "closed", "failed"]


@attrs.define(eq=False)
class StoreStatus:
    """State of one store, and the error of whoever calls it when it no longer answers."""

    name: str
    state: StoreState = "open"
    why: str = "is closed"

    def unavailable(self) -> StoreUnavailable:
        """Return the error for a call that came too late."""
        return StoreUnavailable(self.name, self.why)

    async def check(self) -> None:
        """Refuse a call that came too late, after a checkpoint as every call makes one.

        Raises:
            StoreUnavailable: unless the store is open.
        """
        if self.state != "open":
            await trio.lowlevel.checkpoint()
            raise self.unavailable()
