"""The Prometheus text: whatever names hold, the text stays one that can be read back."""

from __future__ import annotations

import re

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood.messaging.monitoring import METRICS, Alert, Reading, Rule, Snapshot, prometheus_text
from tests.messaging.monitoring.kit import Note, Pager, seen, watched

SAMPLE = re.compile(r'([a-z_0-9]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-z]+)="((?:[^"\\\n]|\\["\\n])*)"')
UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Samples = list[tuple[str, dict[str, str], float]]


def parsed(text: str) -> Samples:
    """Read the text format back; fail on any line that is none of it."""
    assert text.endswith("\n")
    samples: Samples = []
    family = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            family = line.split()[2]
            continue
        if line.startswith("# TYPE "):
            assert line.split()[2:] in ([family, "gauge"], [family, "counter"])
            assert line.endswith("counter") is family.endswith("_total")
            continue
        found = SAMPLE.fullmatch(line)
        assert found is not None, line
        assert found[1] == family
        labels = {
            name: re.sub(r"\\.", lambda escape: UNESCAPED[escape[0]], value)
            for name, value in LABEL.findall(found[2] or "")
        }
        samples.append((family, labels, float(found[3])))
    return samples


texts = st.text(st.characters(codec="utf-8"), max_size=8)
readings = st.builds(
    Reading,
    st.sampled_from(list(METRICS)),
    st.sampled_from(["bus", "queue"]),
    texts.filter(bool),
    st.floats(),
    texts,
)


@given(st.lists(readings, max_size=6), texts)
def test_any_name_and_value_comes_back_from_the_text_as_it_was(found: list[Reading], rule: str) -> None:
    alert = Alert(rule, "depth", "bus:bus", "warning", "firing", 1.0, 0.0, 0.0)
    samples = parsed(prometheus_text(Snapshot(5.25, tuple(found), alerts=(alert,))))
    expected = [
        (f"sapwood_{one.metric}", {"kind": one.kind, "name": one.name, **({"part": one.part} if one.part else {})})
        for metric in METRICS
        for one in found
        if one.metric == metric
    ]
    assert [(name, labels) for name, labels, _ in samples[:-3]] == expected
    values = [value for _, _, value in samples[:-3]]
    sent = [one.value for metric in METRICS for one in found if one.metric == metric]
    assert list(map(repr, map(abs, values))) == list(map(repr, map(abs, sent)))
    assert [(labels.get("rule"), value) for _, labels, value in samples[-3:]] == [(rule, 1.0), (None, 0), (None, 5.25)]


@pytest.mark.row("S2-047")
async def test_a_running_tree_is_told_with_its_alerts_and_each_family_is_explained_once(
    autojump_clock: MockClock,
) -> None:
    async with watched([Rule("letters", "dead_letters", above=0, severity="critical")], Pager()) as (runtime, monitor):
        runtime.bus.client("alice").send_nowait("nobody", Note("x"))
        await trio.sleep(1)
        text = prometheus_text(seen(monitor))
    samples = parsed(text)
    assert ("sapwood_dead_letters", {"kind": "bus", "name": "bus"}, 1.0) in samples
    assert ("sapwood_sent_total", {"kind": "bus", "name": "bus"}, 1.0) in samples
    assert (
        "sapwood_alert",
        {"rule": "letters", "subject": "bus:bus", "severity": "critical", "state": "firing"},
        1.0,
    ) in samples
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
