"""The actor that owns the table of a directory, and loses it when it dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sapwood.actors import Actor, Down, Exit, ExitReason, Monitor, Normal, Ref, Shutdown, handle
from sapwood.registry._registrations import Registration, Table

V = TypeVar("V")


class DirectoryOwner(Actor, Generic[V]):
    """Owns one table for as long as it lives; linked to every actor that stands in it (OTP K17).

    Its methods are called by actors that register themselves, its handlers only clean up behind them.
    """

    trap_exits = True

    def __init__(self, attach: Callable[[DirectoryOwner[V]], None]) -> None:
        self._attach = attach
        self._monitors: dict[Ref, Monitor] = {}
        self.table = Table[V]()

    def on_start(self) -> None:
        self._attach(self)

    def enter(self, registration: Registration[V]) -> None:
        """Enter a registration; with the first one of an actor comes the link."""
        ref = registration.ref
        if ref not in self._monitors:
            self._monitors[ref] = self.monitor(ref)
            self.link(ref)
        self.table.add(registration)

    def remove(self, registration: Registration[V]) -> None:
        """Remove a registration; with the last one of an actor goes the link."""
        ref = registration.ref
        if self.table.discard(registration):
            self.demonitor(self._monitors.pop(ref), flush=True)
            self.unlink(ref, flush=True)

    def replace(self, old: Registration[V], new: Registration[V]) -> None:
        """Put a registration of the same actor in the place of another."""
        self.table.add(new)
        self.table.discard(old)

    @handle
    def actor_ended(self, message: Down) -> None:
        self._monitors.pop(message.ref, None)
        self.table.drop(message.ref)

    @handle
    def link_ended(self, message: Exit) -> None:
        """Do nothing: the monitor tells the same, and the end of others does not concern a directory."""

    def on_stop(self, reason: ExitReason) -> None:
        # Links carry every end but a normal one; the table is lost with that as well.
        if isinstance(reason, Normal):
            for ref in self.table.holders:
                self.unlink(ref)
                ref.exit(Shutdown("directory_down"))

    def format_state(self) -> str:
        return f"actors={len(self._monitors)}"
