"""The text that Prometheus reads, made of a snapshot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sapwood.messaging.monitoring._metrics import METRICS, Reading
from sapwood.messaging.monitoring._snapshot import Snapshot

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of what `prometheus_text` returns."""

PREFIX: Final = "sapwood_"


def prometheus_text(snapshot: Snapshot) -> str:
    r"""Return a snapshot in the text format 0.0.4 of Prometheus; UTF-8, ending with a line end.

    Each metric of `METRICS` is `sapwood_NAME` with the labels `kind` and, if there are, `name` and `part`. Each alert
    is `sapwood_alert{rule, subject, severity, state}`, with value 1. A source that could not be read has no values but
    `sapwood_unreadable` 1. `sapwood_snapshot_timestamp_seconds` tells how old all of this is.
    """
    by_metric: dict[str, list[Reading]] = {}
    for reading in snapshot.readings:
        by_metric.setdefault(reading.metric, []).append(reading)
    lines: list[str] = []
    for name, metric in METRICS.items():
        if name in by_metric:
            samples = ((_labels_of(one), one.value) for one in by_metric[name])
            lines += _family(name, metric.kind, metric.meaning, samples)
    alerts = (
        ({"rule": one.rule, "subject": one.subject, "severity": one.severity, "state": one.state}, 1.0)
        for one in snapshot.alerts
    )
    lines += _family("alert", "gauge", "Alerts that are pending or firing", alerts)
    failures = float(snapshot.notifier_failures)
    lines += _family("notifier_failures_total", "counter", "Notifications that were not taken", [({}, failures)])
    lines += _family(
        "snapshot_timestamp_seconds", "gauge", "When this was read, in seconds since 1970 UTC", [({}, snapshot.at)]
    )
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, meaning: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {meaning}"
    yield f"# TYPE {PREFIX}{name} {kind}"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{PREFIX}{name}{'{' + inside + '}' if inside else ''} {_number(value)}"


def _labels_of(reading: Reading) -> dict[str, str]:
    labels = {"kind": reading.kind, "name": reading.name, "part": reading.part}
    return {label: text for label, text in labels.items() if text}


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
