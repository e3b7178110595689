"""Waits: which run waits for which conversation, so that no two ever wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import attrs
import trio

from sapwood.conversation import State
from sapwood.errors import ConversationCycle


@attrs.define(eq=False)
class Worker:
    """A task in which a conversation does its work: its run, a tool call, or polls of calls that go on elsewhere.

    Attributes:
        waits: Where its waits are noted.
        agent_id: The conversation.
        task: The task.
        in_thread: Whether the work is done in a thread, for which the task waits.
        over: Whether nobody waits for it any more; an abandoned thread may go on.
    """

    waits: Waits
    agent_id: str
    task: trio.lowlevel.Task
    in_thread: bool
    over: bool = False


@attrs.frozen(eq=False)
class Wait:
    """One wait of a worker for a conversation, until it is over."""

    waits: Waits
    agent_id: str
    worker: Worker | None
    table: dict[Wait, None]

    def end(self) -> None:
        """Note that it is over; it may be noted twice."""
        self.table.pop(self, None)


_WORKER: ContextVar[Worker | None] = ContextVar("sapwood_working_conversation", default=None)
"""For whose conversation the code here works, tasks included that were begun there and are elsewhere by now."""

_Node: TypeAlias = "tuple[Waits, str, bool]"
"""A conversation, and whether its end includes that of the sub-agents that work in its background."""


class Waits:
    """Knows the waits of all runs of one runtime; each is in the table as long as somebody really waits.

    That a run waits for its sub-agents is read off the journal, so it holds over restarts.

    Args:
        state: Returns a conversation as it is in memory; None if it is in none.
    """

    def __init__(self, state: Callable[[str], State | None]) -> None:
        self._state = state
        self._of_runs: dict[str, dict[Wait, None]] = {}

    @contextmanager
    def at_work(self, agent_id: str, *, in_thread: bool = False) -> Generator[None]:
        """Mark the present task, and those within it, as the work of a conversation.

        Args:
            agent_id: The conversation.
            in_thread: Whether the work is done in a thread, which reaches the runtime from outside.
        """
        worker = Worker(self, agent_id, trio.lowlevel.current_task(), in_thread)
        token = _WORKER.set(worker)
        try:
            yield
        finally:
            worker.over = True
            _WORKER.reset(token)

    @contextmanager
    def waiting(self, agent_id: str) -> Generator[Wait]:
        """Wait for a conversation within the block, or until the wait is ended; nobody else than runs is noted.

        Raises:
            ConversationCycle: if a run waits here, and the conversation waits for it already.
        """
        worker = _waiting_worker()
        if worker is None:
            yield Wait(self, agent_id, None, {})
            return
        self._check(worker, agent_id)
        of_runs = worker.waits._of_runs
        table = of_runs.setdefault(worker.agent_id, {})
        wait = Wait(self, agent_id, worker, table)
        table[wait] = None
        try:
            yield wait
        finally:
            wait.end()
            if not table and of_runs.get(worker.agent_id) is table:
                del of_runs[worker.agent_id]

    def _check(self, worker: Worker, agent_id: str) -> None:
        start: _Node = self, agent_id, False
        came_from: dict[_Node, _Node | None] = {start: None}
        open_nodes: list[_Node] = [start]
        while open_nodes:
            node = open_nodes.pop()
            if node[:2] == (worker.waits, worker.agent_id):
                raise ConversationCycle([worker.agent_id, *_path(came_from, node)])
            for following in node[0]._waited_for(node[1], whole=node[2]):
                if following not in came_from:
                    came_from[following] = node
                    open_nodes.append(following)

    def _waited_for(self, agent_id: str, *, whole: bool) -> Iterator[_Node]:
        for wait in self._of_runs.get(agent_id, ()):
            if wait.worker is not None and not wait.worker.over:
                yield wait.waits, wait.agent_id, False
        state = self._state(agent_id)
        if state is None:
            return
        calls = {each.call.id for each in state.pending}
        for each in state.sub_agents:
            if not each.outcome and (whole if each.background else each.id in calls):
                yield self, each.agent_id, True


def _path(came_from: dict[_Node, _Node | None], node: _Node) -> list[str]:
    path: list[str] = []
    at: _Node | None = node
    while at is not None:
        path.append(at[1])
        at = came_from[at]
    return path[::-1]


def _waiting_worker() -> Worker | None:
    """Return whose work cannot go on while the present task waits; None if no conversation's.

    Work waits for every task below its own, and for its thread, whatever that asks the runtime for. A task that was
    begun there in a nursery of somebody else is its own master.
    """
    worker = _WORKER.get()
    if worker is None or worker.over:
        return None
    if worker.in_thread:
        return worker
    task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
    root = trio.lowlevel.current_root_task()
    while task is not None and task is not worker.task:
        parent = task.parent_nursery.parent_task if task.parent_nursery is not None else None
        if parent is root and task.context.get(_WORKER) is worker:
            return worker  # trio runs what threads ask for in tasks of its own
        task = parent
    return None if task is None else worker
