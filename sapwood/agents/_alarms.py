"""Alarms: the moments at which a conversation needs its server although nobody asks anything."""

from __future__ import annotations

from sapwood.actors import Actor, Timer, message
from sapwood.agents._log import Log


@message("agent.alarm")
class Alarm:
    """A time has come: somebody has not decided, or work that goes on elsewhere is to be asked about."""


class Alarms:
    """One timer, for whatever comes next.

    Times are by the wall clock, since they must hold over restarts; if that jumps, an alarm that comes too early finds
    nothing to do and is set again.

    Args:
        actor: Who gets the alarm.
        log: The conversation.
    """

    def __init__(self, actor: Actor, log: Log) -> None:
        self._actor = actor
        self._log = log
        self._timer: Timer | None = None

    @property
    def waiting(self) -> bool:
        """Whether there is something to wait for."""
        return self._timer is not None

    def set(self, *, interrupts: bool, polls: bool) -> None:
        """Set the timer anew.

        Args:
            interrupts: Whether to wake up for interrupts whose time is up.
            polls: Whether to wake up for calls that go on elsewhere.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        times: list[float] = []
        if interrupts:
            times += [
                each.expires_at
                for each in self._log.state.undecided
                if each.expires_at is not None and each.on_expiry != "queue" and not each.path
            ]
        if polls:
            times += [each.deferral.next_at for each in self._log.state.deferred if each.deferral is not None]
        if times:
            delay = max(0.0, min(times) - self._actor.environment.wall())
            self._timer = self._actor.send_after(delay, Alarm())
