"""Alerts: which rules are broken, since when, and what has changed since the last look."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from sapwood.actors import record
from sapwood.conversation import evolve
from sapwood.messaging.monitoring._metrics import Reading
from sapwood.messaging.monitoring._rules import Rule

AlertState: TypeAlias = Literal["pending", "firing"]

BACK: Final = "the value is back"
GONE: Final = "there is no such value any more"


@record("monitoring.alert")
class Alert:
    """A rule that is broken for one subject.

    Attributes:
        rule: Name of the rule.
        metric: What it looks at.
        subject: Of whom, see `Reading.subject`.
        severity: As the rule has it.
        state: `pending` while the value is beyond the limit, but not yet for long enough; then `firing`.
        value: The last value that was read.
        limit: The limit of the rule.
        since: Wall clock when the value went beyond it, in seconds since 1970 UTC.
        detail: What the reading says beside its value.
        known: False if the last look could not read the value; the alert stays as it was.
    """

    rule: str
    metric: str
    subject: str
    severity: str
    state: AlertState
    value: float
    limit: float
    since: float
    detail: str = ""
    known: bool = True


@record("monitoring.alert_change")
class AlertChange:
    """An alert has begun or ended; each is told once.

    Attributes:
        status: `fired` or `cleared`.
        alert: The alert; for one that has ended, with the value that ended it.
        at: Wall clock, in seconds since 1970 UTC.
        reason: Why it ended; empty for one that fired.
    """

    status: Literal["fired", "cleared"]
    alert: Alert
    at: float
    reason: str = ""


@attrs.define(eq=False)
class _Track:
    alert: Alert
    source: tuple[str, str]
    began: float


class Alerts:
    """Follows each rule for each subject, from look to look.

    Args:
        rules: The rules.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._tracks: dict[tuple[str, str], _Track] = {}

    def all(self) -> tuple[Alert, ...]:
        """Return the alerts that there are, firing ones first, oldest first among them."""
        alerts = [track.alert for track in self._tracks.values()]
        return tuple(sorted(alerts, key=lambda alert: (alert.state != "firing", alert.since)))

    def look(
        self, readings: Iterable[Reading], unreadable: Collection[tuple[str, str]], now: float, wall: float
    ) -> list[AlertChange]:
        """Take in what was read at one moment, and return what has changed.

        Args:
            readings: All values.
            unreadable: Kind and name of what could not be read, so that its values are not among them.
            now: Monotonic clock; how long something lasts is measured on it.
            wall: Wall clock.
        """
        changes: list[AlertChange] = []
        seen: set[tuple[str, str]] = set()
        for reading in readings:
            for rule in self._rules:
                if rule.looks_at(reading):
                    seen.add((rule.name, reading.subject))
                    changes += self._follow(rule, reading, now, wall)
        for key, track in list(self._tracks.items()):
            if key in seen:
                continue
            alert = track.alert
            if track.source in unreadable:
                track.alert = evolve(alert, known=False)
                continue
            del self._tracks[key]
            if alert.state == "firing":
                changes.append(AlertChange("cleared", alert, wall, GONE))
        return changes

    def _follow(self, rule: Rule, reading: Reading, now: float, wall: float) -> list[AlertChange]:
        key, value = (rule.name, reading.subject), reading.value
        track = self._tracks.get(key)
        if track is None:
            if not rule.breaks(value):
                return []
            alert = Alert(
                rule.name, rule.metric, reading.subject, rule.severity, "pending", value, float(rule.limit), wall
            )
            track = self._tracks[key] = _Track(alert, (reading.kind, reading.name), now)
        track.alert = evolve(track.alert, value=value, detail=reading.detail, known=True)
        if track.alert.state == "firing":
            if not rule.clears(value):
                return []
            del self._tracks[key]
            return [AlertChange("cleared", track.alert, wall, BACK)]
        if not rule.breaks(value):
            del self._tracks[key]
        # Looks come at times that are sums of intervals, which a rounding error must not move by a whole interval.
        elif now - track.began >= rule.for_seconds - 1e-6:
            track.alert = evolve(track.alert, state="firing")
            return [AlertChange("fired", track.alert, wall)]
        return []
