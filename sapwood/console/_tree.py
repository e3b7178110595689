"""`sapwood tree`: the trees of running runtimes and the stored conversations, as text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sapwood.console._inspect import holder
from sapwood.console._stored import RunningTree, StoredAgent, read_stored
from sapwood.console._terminal import count, one_line, printable
from sapwood.console._transcript import interrupt_line, todo_lines

SILENT_AFTER: Final = 3
"""Reports that a runtime may miss before it counts as silent."""


def tree_lines(path: Path, now: float) -> list[str]:
    """Describe the runtimes that have published their tree in a store, and its conversations. Blocks.

    Args:
        path: The store file.
        now: Wall clock, in seconds since 1970 UTC.

    Raises:
        StoreUnavailable, StoreCorrupt, FutureVersion: if the file cannot be read.
    """
    stored = read_stored(path)
    lines = [line for tree in stored.trees for line in _running(tree, now)]
    if not stored.trees:
        lines.append(f"{one_line(str(path))}: no runtime publishes its tree here")
    lines += ["", f"stored conversations: {len(stored.agents)}"]
    for index, agent in enumerate(stored.agents):
        last = index == len(stored.agents) - 1
        head, *rest = _agent(agent)
        lines.append(f"{'└── ' if last else '├── '}{head}")
        lines += [f"{'    ' if last else '│   '}{line}" for line in rest]
    return lines


def _running(tree: RunningTree, now: float) -> Iterator[str]:
    age = max(0.0, now - tree.at)
    if age > tree.every * SILENT_AFTER + 1:
        state = f"silent for {age:.0f} s, so it has probably crashed; this was its tree"
    else:
        state = f"as it was {age:.1f} s ago"
    yield f"runtime of process {tree.pid}, {state}:"
    for line in tree.tree.splitlines():
        yield f"  {printable(line)}"


def _agent(agent: StoredAgent) -> Iterator[str]:
    row, state = agent.row, agent.state
    name = one_line(row.agent_id)
    if state is None:
        yield f"{name} · UNREADABLE: {one_line(agent.problem)} · epoch {row.epoch}"
        return
    yield (
        f"{name} · {state.status} · agent {one_line(state.agent)} · {count(len(state.messages), 'message')}"
        f" · epoch {row.epoch} · event {row.seq} · {holder(row)}"
    )
    if state.error:
        yield f"the last run failed: {one_line(state.error)}"
    for interrupt in state.undecided:
        yield interrupt_line(interrupt)
    yield from todo_lines(state.todos)
