"""Rules: when a value that was read is something that somebody has to know."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from sapwood.errors import DuplicateName, InvalidOption
from sapwood.messaging.monitoring._metrics import METRICS, Reading

Severity: TypeAlias = Literal["info", "warning", "critical"]

SEVERITIES: Final[tuple[str, ...]] = get_args(Severity)

CLEARING: Final = 0.8
"""Share of an upper limit at which its alert clears, unless the rule says otherwise; for a lower limit, its inverse."""


@attrs.frozen
class Rule:
    """A limit for a metric (S2-048).

    The alert fires when the value has been beyond the limit at every look for `for_seconds`, and stays until the
    value comes to `clear_at`. In between nothing changes, so a value that swings around its limit fires once. Each
    subject, that is each queue, bus or participant, has an alert of its own.

    Attributes:
        name: Unique among the rules of a monitor.
        metric: One of `METRICS`.
        above: The alert fires above this value.
        below: The alert fires below this value; exactly one of the two is given.
        for_seconds: Seconds that this must last; 0 fires at the first look.
        severity: `info`, `warning` or `critical`; passed on, it changes nothing here.
        clear_at: Value at which the alert clears: at or below it with `above`, at or above it with `below`. None for
            80 % of `above`, or 125 % of `below`.
        on: Pattern of the subjects, as of a file name: `queue:orders`, `bus:*`.

    Raises:
        InvalidOption: naming what cannot work, and the metrics that there are.
    """

    name: str
    metric: str
    above: float | None = attrs.field(default=None, kw_only=True)
    below: float | None = attrs.field(default=None, kw_only=True)
    for_seconds: float = attrs.field(default=0.0, kw_only=True)
    severity: Severity = attrs.field(default="warning", kw_only=True)
    clear_at: float | None = attrs.field(default=None, kw_only=True)
    on: str = attrs.field(default="*", kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidOption(f"rule name: expected text that is not empty; got {self.name!r}")
        if self.metric not in METRICS:
            raise InvalidOption(f"rule {self.name!r}: {_no_metric(self.metric)}")
        if (self.above is None) is (self.below is None):
            given = f"above={self.above!r} and below={self.below!r}"
            raise InvalidOption(f"rule {self.name!r}: expected exactly one of above= and below=; got {given}")
        for field in ("above", "below", "clear_at"):
            value: Any = getattr(self, field)
            if value is not None and not _is_number(value):
                raise InvalidOption(f"rule {self.name!r}: expected a finite number for {field}; got {value!r}")
        if not _is_number(self.for_seconds) or self.for_seconds < 0:
            raise InvalidOption(f"rule {self.name!r}: expected for_seconds >= 0; got {self.for_seconds!r}")
        if self.severity not in SEVERITIES:
            expected = " or ".join(map(repr, SEVERITIES))
            raise InvalidOption(f"rule {self.name!r}: expected severity {expected}; got {self.severity!r}")
        if not isinstance(self.on, str) or not self.on:
            raise InvalidOption(f"rule {self.name!r}: expected on= to be a pattern such as 'queue:*'; got {self.on!r}")
        if self.breaks(self.clears_at):
            side = "at or below above" if self.above is not None else "at or above below"
            raise InvalidOption(f"rule {self.name!r}: expected clear_at {side}={self.limit:g}; got {self.clear_at!r}")

    @property
    def limit(self) -> float:
        """The value beyond which it fires."""
        limit = self.above if self.above is not None else self.below
        assert limit is not None
        return limit

    @property
    def clears_at(self) -> float:
        """The value at which it clears."""
        if self.clear_at is not None:
            return self.clear_at
        # A limit below zero would move away from the clearing value if it were shrunk.
        room = abs(self.limit) * (1 - CLEARING if self.above is not None else 1 / CLEARING - 1)
        return self.limit - room if self.above is not None else self.limit + room

    def looks_at(self, reading: Reading) -> bool:
        """Say whether a reading is one of this rule's."""
        return reading.metric == self.metric and fnmatchcase(reading.subject, self.on)

    def breaks(self, value: float) -> bool:
        """Say whether a value is beyond the limit."""
        return value > self.limit if self.above is not None else value < self.limit

    def clears(self, value: float) -> bool:
        """Say whether a value ends an alert."""
        return value <= self.clears_at if self.above is not None else value >= self.clears_at


def check_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules of a monitor.

    Raises:
        InvalidOption: if one is no rule.
        DuplicateName: if two have one name.
    """
    checked: dict[str, Rule] = {}
    for rule in rules:
        if not isinstance(rule, Rule):
            raise InvalidOption(f"Monitor: expected rules like Rule('deep', 'depth', above=100); got {rule!r}")
        if rule.name in checked:
            raise DuplicateName("rule", rule.name, checked[rule.name])
        checked[rule.name] = rule
    return tuple(checked.values())


def _no_metric(metric: object) -> str:
    near = difflib.get_close_matches(str(metric), METRICS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"expected a metric that exists: {', '.join(METRICS)}; got {metric!r}{hint}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


BUILT_IN_RULES: Final[tuple[Rule, ...]] = (
    Rule("many dead letters", "dead_letters", above=50, severity="critical"),
    Rule("dead letter waits", "oldest_dead_letter_seconds", above=300),
    Rule("deep queue", "depth", above=100),
    Rule("consumer lags", "consumer_lag", above=100, for_seconds=60),
    Rule("many errors", "error_rate", above=0.20, severity="critical"),
    Rule("full mailbox", "mailbox", above=10_000),
    Rule("no consumers", "unserved", above=0, for_seconds=60, severity="critical"),
    Rule("cannot be read", "unreadable", above=0, for_seconds=60),
)
"""The rules of a monitor that is given none (S2-048, S3-111)."""
