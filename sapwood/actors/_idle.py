"""Idle time-outs: `on_idle` after a while without messages (OTP I24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from sapwood.actors._inbox import IDLE

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell
    from sapwood.actors._deadlines import Deadline


INFINITY: Final = float("inf")


class OnIdle:
    """The continuation that stands for an idle time-out."""


ON_IDLE: Final = OnIdle()


class IdleTimeout:
    """When the actor has been idle for too long: once in each while without messages.

    Counts from the moment at which the mailbox was empty and the last message handled. Introspection counts as no
    activity; a message that comes at the very moment goes first, also with a time-out of 0.
    """

    __slots__ = ("_cell", "_deadline", "_due", "_handled", "_seconds")

    def __init__(self, cell: Cell, seconds: float) -> None:
        self._cell = cell
        self._seconds = seconds
        self._due = 0.0
        self._handled: int | None = None
        self._deadline: Deadline | None = None

    def is_due(self) -> bool:
        """Say whether `on_idle` is to run now; called each time the actor finds its mailbox empty."""
        cell = self._cell
        now = trio.current_time()
        if self._handled != cell.handled:
            self._handled = cell.handled
            self._due = now + self._seconds
            self.cancel()
            self._deadline = cell.system.deadlines.at(self._due, self._fire)
        elif self._deadline is None and now >= self._due:
            self._due = INFINITY
            return True
        return False

    def cancel(self) -> None:
        """Forget the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _fire(self) -> None:
        self._deadline = None
        if self._cell.mode == IDLE and not self._cell.box:
            self._cell.wake()
