"""`sapwood inspect`: what a store file holds, as text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sapwood.console._terminal import arguments_line, count, moment, one_line
from sapwood.errors import SapwoodError
from sapwood.persistence import AgentRow, QuarantineRow, RecordSummary, StoreSummary, read_summary

DEFAULT_TAIL: Final = 10

SHOWN: Final = frozenset({"agents", "journal", "snapshots", "quarantine", "transcript", "running_trees"})
"""Tables whose rows are shown, or of no interest by themselves; of the others it is told how many rows they have."""


def inspect_lines(path: Path, *, agent: str | None = None, tail: int = DEFAULT_TAIL, width: int = 0) -> list[str]:
    """Describe a store file, one line for each agent, event and unreadable record. Blocks; changes nothing.

    Args:
        path: The file.
        agent: Only this agent; None for all.
        tail: Last events to show of each agent.
        width: Columns to cut lines to; 0 for no limit.

    Raises:
        SapwoodError: if there is no such agent.
        StoreUnavailable, StoreCorrupt, FutureVersion: if the file cannot be read.
    """
    summary = read_summary(path, tail=tail)
    agents = _chosen(summary, agent)
    lines = [*_head(summary), *(line for row in agents for line in _agent(row, summary.tails[row.agent_id]))]
    lines += [_quarantined(row) for row in summary.quarantine if agent is None or row.agent_id == agent]
    return [line[: width - 1] + "…" if width and len(line) > width else line for line in lines]


def _chosen(summary: StoreSummary, agent: str | None) -> Sequence[AgentRow]:
    if agent is None:
        return summary.agents
    chosen = [row for row in summary.agents if row.agent_id == agent]
    if not chosen:
        ids = [row.agent_id for row in summary.agents]
        near = difflib.get_close_matches(agent, ids, n=1)
        known = f"did you mean {near[0]!r}?" if near else f"it holds {', '.join(map(repr, ids[:5])) or 'none'}"
        raise SapwoodError(f"{summary.name} holds no agent {agent!r}; {known}")
    return chosen


def _head(summary: StoreSummary) -> Iterator[str]:
    unreadable = count(len(summary.quarantine), "record")
    yield f"{one_line(summary.name)}: {count(len(summary.agents), 'agent')}, {unreadable} in quarantine"
    steps = ", ".join(f"{name} {len(applied)}" for name, applied in sorted(summary.migrations.items()))
    yield f"schema steps: {one_line(steps)}"
    others = [f"{rows} in {one_line(table)}" for table, rows in summary.rows.items() if table not in SHOWN]
    if others:
        yield f"other rows: {', '.join(others)}"


def _agent(row: AgentRow, tail: Sequence[RecordSummary]) -> Iterator[str]:
    snapshot = "no snapshot" if row.snapshot_seq is None else f"snapshot at {row.snapshot_seq}"
    yield ""
    yield (
        f"{one_line(row.agent_id)}  epoch {row.epoch} · event {row.seq} · {snapshot} · {holder(row)}"
        f" · {moment(row.at)} UTC"
    )
    for record in tail:
        yield f"  {record.seq:>6}  e{record.epoch}  {moment(record.at)}  {record.kind:<22} {_content(record)}".rstrip()


def holder(row: AgentRow) -> str:
    """Say who has a conversation, as far as its store knows."""
    if row.released:
        return "given up cleanly"
    return f"held by {one_line(row.owner)}, or by nobody if that has crashed"


def _content(record: RecordSummary) -> str:
    if record.problem is not None:
        return f"UNREADABLE: {one_line(record.problem)}"
    return arguments_line(record.content)


def _quarantined(row: QuarantineRow) -> str:
    where = f"{row.source} {row.seq} of {one_line(row.agent_id)}"
    what = f"{one_line(row.kind)}, {count(len(row.record), 'byte')}"
    return f"quarantine  {moment(row.at)}  {where} ({what}): {one_line(row.reason)}"
