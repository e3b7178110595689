"""The snapshot: everything that one look has found."""

from __future__ import annotations

from sapwood.actors import record
from sapwood.messaging.monitoring._alerts import Alert
from sapwood.messaging.monitoring._metrics import Reading


@record("monitoring.busy_actor")
class BusyActor:
    """One of the actors with the most messages waiting, or the most restarts.

    Attributes:
        label: Its name in logs.
        waiting: Messages in its mailbox.
        incarnation: How often it has been started, from 1.
    """

    label: str
    waiting: int
    incarnation: int


@record("monitoring.unreadable")
class Unreadable:
    """A bus or queue whose figures could not be read, so nothing is known of it.

    Attributes:
        kind: `bus` or `queue`.
        name: Its name.
        problem: Why.
    """

    kind: str
    name: str
    problem: str


@record("monitoring.snapshot")
class Snapshot:
    """What a monitor found at one moment.

    Attributes:
        at: Wall clock, in seconds since 1970 UTC.
        readings: All values, see `METRICS`; none of a source that is among `unreadable`, but for that metric.
        unreadable: What could not be read.
        alerts: Pending and firing alerts, firing ones first.
        busiest: At most 10 actors with waiting messages or restarts, the fullest mailboxes first.
        notifier_failures: Notifications that a notifier did not take, since the monitor first ran.
    """

    at: float
    readings: tuple[Reading, ...]
    unreadable: tuple[Unreadable, ...] = ()
    alerts: tuple[Alert, ...] = ()
    busiest: tuple[BusyActor, ...] = ()
    notifier_failures: int = 0

    def value(self, metric: str, subject: str) -> float | None:
        """Return one value, or None if it was not read: that is not zero."""
        found = (one.value for one in self.readings if one.metric == metric and one.subject == subject)
        return next(found, None)
