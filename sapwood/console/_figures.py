"""Snapshots of monitors as a store file holds them, and as tables of text."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from sapwood.console._terminal import one_line
from sapwood.errors import StoreCorrupt, StoreUnavailable
from sapwood.messaging.monitoring import Alert, Snapshot
from sapwood.persistence import decode, read_summary

SILENT_AFTER: Final = 3
"""Looks that a monitor may miss before it counts as silent."""

LONGEST_NAME: Final = 48


@attrs.frozen
class Published:
    """The snapshot that a monitor has published in its store; see `sapwood.messaging.monitoring.Monitor`.

    Attributes:
        monitor: Its id.
        pid: Its process.
        every: Seconds between two looks.
        snapshot: What the last one found.
    """

    monitor: str
    pid: int
    every: float
    snapshot: Snapshot


@attrs.frozen
class Table:
    """A table of text; the first column is aligned left, the others right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> Iterator[str]:
        """Yield the table as plain lines."""
        widths = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]
        yield self.title
        for row in (self.columns, *self.rows):
            cells = [f"{cell:{'<' if place == 0 else '>'}{widths[place]}}" for place, cell in enumerate(row)]
            yield "  " + "  ".join(cells).rstrip()


def read_published(path: Path) -> tuple[Published, ...]:
    """Read the snapshots in a store file, newest first; the file may be in use. Blocks; changes nothing.

    Raises:
        StoreUnavailable: if there is no file, or it cannot be read.
        StoreCorrupt: if it is no store, or damaged.
        FutureVersion, CodecError: if a newer Sapwood wrote it.
    """
    read_summary(path, tail=0)
    # As `read_summary` does: without a write-ahead log nobody has the file open, and SQLite needs no files beside it.
    wal = path.with_name(path.name + "-wal")
    mode = "mode=ro" if wal.exists() else "mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)
        try:
            known = connection.execute(
                "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'monitoring_snapshots'"
            )
            if known.fetchone() is None:
                return ()
            rows = connection.execute(
                "SELECT monitor, pid, every, snapshot FROM monitoring_snapshots ORDER BY at DESC"
            ).fetchall()
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(str(path), f"cannot be read now ({error}); try again in a moment") from error
    except sqlite3.DatabaseError as error:
        raise StoreCorrupt(str(path), str(error)) from error
    return tuple(Published(monitor, pid, every, decode(data)) for monitor, pid, every, data in rows)


def headline(published: Published, now: float) -> str:
    """Say whose snapshot it is and how old, at a wall-clock time."""
    age = max(0.0, now - published.snapshot.at)
    if age > published.every * SILENT_AFTER + 1:
        state = f"silent for {age:.0f} s, so it has probably crashed; these were its figures"
    else:
        state = f"as it was {age:.1f} s ago"
    return f"runtime of process {published.pid}, {state}"


def tables_of(snapshot: Snapshot, now: float) -> Iterator[Table]:
    """Yield the tables of a snapshot: alerts, actors, buses, participants, queues. Empty ones are left out."""
    if snapshot.alerts:
        rows = tuple(_alert_row(alert, now) for alert in snapshot.alerts)
        yield Table("alerts", ("rule", "of", "state", "value", "limit", "since"), rows)
    totals = ("actors", "supervisors", "mailboxes", "mailbox", "restarts_total", "unhandled_total")
    cells = tuple(_cell(snapshot, metric, "actors") for metric in totals)
    yield Table(
        "tree", ("", "actors", "supervisors", "waiting", "fullest", "restarts", "unhandled"), (("all", *cells),)
    )
    if snapshot.busiest:
        busiest = tuple((_name(one.label), str(one.waiting), str(one.incarnation - 1)) for one in snapshot.busiest)
        yield Table("busiest actors", ("", "waiting", "restarts"), busiest)
    for kind, columns in _SOURCES.items():
        found = tuple(
            (_name(name), *(_cell(snapshot, metric, f"{kind}:{name}") for metric, _ in columns))
            for name in _names(snapshot, kind)
        )
        if found:
            yield Table(f"{kind}s" if kind == "queue" else "buses", ("", *(title for _, title in columns)), found)
    lags = [one for one in snapshot.readings if one.metric == "consumer_lag" and one.part]
    if lags:
        rows = tuple((_name(f"{one.name}/{one.part}"), f"{one.value:g}") for one in lags)
        yield Table("participants", ("", "waiting"), rows)


_SOURCES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "bus": (
        ("depth", "waiting"),
        ("sent_per_second", "sent/s"),
        ("received_per_second", "handled/s"),
        ("processing_p95_seconds", "handling s"),
        ("delivery_p95_seconds", "delivery s"),
        ("error_rate", "errors"),
        ("dead_letters", "dead letters"),
        ("oldest_dead_letter_seconds", "oldest s"),
    ),
    "queue": (
        ("depth", "depth"),
        ("in_flight", "in flight"),
        ("consumer_lag", "lag"),
        ("unserved", "unserved"),
        ("sent_per_second", "appended/s"),
        ("received_per_second", "acked/s"),
        ("error_rate", "errors"),
        ("dead_letters", "dead letters"),
        ("oldest_dead_letter_seconds", "oldest s"),
    ),
}
"""Kind of source: its columns, as metric and title."""

_FORMATS: Final[dict[str, Callable[[float], str]]] = {
    "error_rate": "{:.1%}".format,
    "processing_p95_seconds": "{:.3f}".format,
    "delivery_p95_seconds": "{:.3f}".format,
    "sent_per_second": "{:.2f}".format,
    "received_per_second": "{:.2f}".format,
    "oldest_dead_letter_seconds": "{:.0f}".format,
}


def _cell(snapshot: Snapshot, metric: str, subject: str) -> str:
    value = snapshot.value(metric, subject)
    # What was not read is no zero.
    return "?" if value is None else _FORMATS.get(metric, "{:g}".format)(value)


def _names(snapshot: Snapshot, kind: str) -> Sequence[str]:
    return [one.name for one in snapshot.readings if one.metric == "unreadable" and one.kind == kind]


def _alert_row(alert: Alert, now: float) -> tuple[str, ...]:
    state = alert.state.upper() if alert.state == "firing" else alert.state
    known = "" if alert.known else " (not known now)"
    value = f"{alert.value:g}{known}"
    since = f"{max(0.0, now - alert.since):.0f} s"
    return (f"{alert.severity}: {_name(alert.rule)}", _name(alert.subject), state, value, f"{alert.limit:g}", since)


def _name(text: str) -> str:
    return one_line(text, LONGEST_NAME)
