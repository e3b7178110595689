"""Rules: what is refused, and how a value that swings becomes alerts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.errors import DuplicateName, InvalidOption
from sapwood.messaging.monitoring import BUILT_IN_RULES, METRICS, AlertChange, Monitor, Reading, Rule
from sapwood.messaging.monitoring._alerts import Alerts


def run(rule: Rule, values: list[float | None], *, step: float = 1.0) -> list[tuple[float, str]]:
    """Feed one value a second; None for a look at which it could not be read. Return when what was told."""
    alerts = Alerts([rule])
    told: list[tuple[float, str]] = []
    for number, value in enumerate(values):
        now = number * step
        readings = [] if value is None else [Reading("depth", "queue", "orders", value)]
        unreadable = [("queue", "orders")] if value is None else []
        told += [(now, change.status) for change in alerts.look(readings, unreadable, now, now)]
    return told


@pytest.mark.row("S2-048")
@pytest.mark.parametrize(
    ("rule", "values", "told"),
    [
        (Rule("r", "depth", above=10), [10, 11, 12, 8.1, 8], [(1, "fired"), (4, "cleared")]),
        (Rule("r", "depth", above=10), [11, 9, 11, 9, 11], [(0, "fired")]),
        (
            Rule("r", "depth", above=10, clear_at=10),
            [11, 10, 11, 10],
            [(0, "fired"), (1, "cleared"), (2, "fired"), (3, "cleared")],
        ),
        (Rule("r", "depth", above=10, for_seconds=3), [11, 11, 11, 11, 11], [(3, "fired")]),
        (Rule("r", "depth", above=10, for_seconds=3), [11, 11, 9, 11, 11, 11], []),
        (Rule("r", "depth", below=4), [4, 3, 4.9, 5], [(1, "fired"), (3, "cleared")]),
        (Rule("r", "depth", above=0), [0, 1, 0], [(1, "fired"), (2, "cleared")]),
        (Rule("r", "depth", above=-10), [-11, -9, -11, -12], [(1, "fired"), (3, "cleared")]),
        (Rule("r", "depth", above=10, on="queue:other*"), [11, 11], []),
        (Rule("r", "depth", above=10, on="queue:ord*"), [11], [(0, "fired")]),
    ],
    ids=lambda value: "" if isinstance(value, list) else f"{value.limit:g} for {value.for_seconds:g} {value.on[:8]}",
)
def test_an_alert_fires_once_when_it_has_lasted_and_clears_once_at_the_clearing_value(
    rule: Rule, values: list[float | None], told: list[tuple[float, str]]
) -> None:
    assert run(rule, values) == told


def test_a_value_that_cannot_be_read_neither_fires_nor_clears_and_is_said_to_be_unknown() -> None:
    alerts = Alerts([Rule("r", "depth", above=10)])
    fired = alerts.look([Reading("depth", "queue", "a", 11.0)], [], 0.0, 100.0)
    assert [change.status for change in fired] == ["fired"]
    assert alerts.look([], [("queue", "a")], 1.0, 101.0) == []
    (alert,) = alerts.all()
    assert (alert.state, alert.known, alert.since) == ("firing", False, 100.0)
    assert run(Rule("r", "depth", above=10, for_seconds=3), [11, None, None, None, 11]) == [(4, "fired")]


def test_an_alert_about_something_that_is_gone_is_cleared_with_that_reason() -> None:
    alerts = Alerts([Rule("r", "depth", above=10), Rule("slow", "depth", above=10, for_seconds=9)])
    alerts.look([Reading("depth", "queue", "a/b", 11.0)], [], 0.0, 0.0)
    (change,) = alerts.look([], [("queue", "a")], 1.0, 1.0)
    assert (change.status, change.alert.rule, change.reason) == ("cleared", "r", "there is no such value any more")
    assert alerts.all() == ()


def test_each_subject_has_an_alert_of_its_own_with_firing_ones_first() -> None:
    alerts = Alerts([Rule("r", "consumer_lag", above=5), Rule("slow", "depth", above=5, for_seconds=9)])
    readings = [
        Reading("depth", "bus", "main", 9.0),
        *(Reading("consumer_lag", "bus", "main", float(lag), name) for name, lag in (("bob", 9), ("eve", 4))),
        Reading("consumer_lag", "queue", "orders", 6.0),
    ]
    alerts.look(readings, [], 0.0, 0.0)
    assert [(one.subject, one.state) for one in alerts.all()] == [
        ("bus:main/bob", "firing"),
        ("queue:orders", "firing"),
        ("bus:main", "pending"),
    ]


@given(
    values=st.lists(st.floats(-20, 20), max_size=40),
    limit=st.floats(-10, 10),
    lasting=st.integers(0, 4),
    upper=st.booleans(),
)
def test_whatever_the_values_are_changes_alternate_and_fit_the_limits(
    values: list[float], limit: float, lasting: int, *, upper: bool
) -> None:
    side: dict[str, Any] = {"above": limit} if upper else {"below": limit}
    rule = Rule("r", "depth", for_seconds=lasting, **side)
    alerts = Alerts([rule])
    told: list[AlertChange] = []
    for now, value in enumerate(values):
        for change in alerts.look([Reading("depth", "queue", "q", value)], [], float(now), float(now)):
            told.append(change)
            if change.status == "fired":
                assert all(rule.breaks(each) for each in values[now - lasting : now + 1])
                assert now >= lasting
            else:
                assert rule.clears(value)
    assert [change.status for change in told] == (["fired", "cleared"] * len(told))[: len(told)]


@pytest.mark.row("S2-048")
@pytest.mark.parametrize(
    ("wrong", "explained"),
    [
        ({"metric": "dead_leters", "above": 1}, "did you mean 'dead_letters'?"),
        ({"metric": "cpu", "above": 1}, "expected a metric that exists: depth, consumer_lag"),
        ({}, "exactly one of above= and below="),
        ({"above": 1, "below": 2}, "exactly one of above= and below=; got above=1 and below=2"),
        ({"above": float("nan")}, "finite number for above; got nan"),
        ({"above": True}, "finite number for above; got True"),
        ({"above": 1, "for_seconds": -1}, "for_seconds >= 0; got -1"),
        ({"above": 1, "severity": "bad"}, "'info' or 'warning' or 'critical'; got 'bad'"),
        ({"above": 10, "clear_at": 11}, "clear_at at or below above=10; got 11"),
        ({"below": 10, "clear_at": 9}, "clear_at at or above below=10; got 9"),
        ({"above": 1, "on": ""}, "a pattern such as 'queue:*'; got ''"),
        ({"name": "", "above": 1}, "rule name: expected text that is not empty"),
    ],
    ids=str,
)
def test_a_rule_that_cannot_work_is_refused_with_what_to_write_instead(wrong: dict[str, Any], explained: str) -> None:
    given_options: dict[str, Any] = {"name": "mine", "metric": "depth", **wrong}
    with pytest.raises(InvalidOption) as refused:
        Rule(given_options.pop("name"), given_options.pop("metric"), **given_options)
    assert explained in str(refused.value)


def test_an_unknown_metric_is_answered_with_the_names_of_all_that_exist() -> None:
    with pytest.raises(InvalidOption) as refused:
        Rule("mine", "cpu", above=1)
    assert all(name in str(refused.value) for name in METRICS)


def test_a_monitor_refuses_two_rules_of_one_name_and_what_is_no_rule_or_notifier() -> None:
    no_rule: Any = {"metric": "depth"}
    no_notifier: Any = "pager@example.org"
    with pytest.raises(DuplicateName, match="deep"):
        Monitor([Rule("deep", "depth", above=1), Rule("deep", "mailbox", above=1)])
    with pytest.raises(InvalidOption, match="expected rules like Rule"):
        Monitor([no_rule])
    with pytest.raises(InvalidOption, match="functions of one AlertChange"):
        Monitor(notifiers=[no_notifier])
    with pytest.raises(InvalidOption, match="interval: expected seconds > 0"):
        Monitor(interval=0)


@pytest.mark.row("S2-048")
def test_the_built_in_rules_are_those_of_the_specification() -> None:
    rules = {rule.metric: (rule.above, rule.for_seconds) for rule in BUILT_IN_RULES}
    assert rules == {
        "dead_letters": (50, 0),
        "oldest_dead_letter_seconds": (300, 0),
        "depth": (100, 0),
        "consumer_lag": (100, 60),
        "error_rate": (0.20, 0),
        "mailbox": (10_000, 0),
        "unserved": (0, 60),
        "unreadable": (0, 60),
    }
