"""Stop signals: how a tool that runs learns that its run is being cancelled."""

from __future__ import annotations

import trio


class StopSignal:
    """Says that a run is being cancelled, before its tools are cut off, so that they can end in good order.

    `asked` may be read from any thread; the rest belongs to the thread of the runtime.

    Attributes:
        asked: Whether to stop.
        reason: Why; empty while nobody has asked.
    """

    def __init__(self) -> None:
        self.asked = False
        self.reason = ""
        self._event = trio.Event()

    def ask(self, reason: str = "") -> None:
        """Ask everybody who looks to stop."""
        self.asked, self.reason = True, reason
        self._event.set()

    def clear(self) -> None:
        """Forget that anybody asked, for another run."""
        self.asked, self.reason = False, ""
        self._event = trio.Event()

    async def wait(self) -> None:
        """Wait until somebody asks."""
        await self._event.wait()
