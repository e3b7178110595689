"""The supervision tree as data, for people and tools to look at."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from sapwood.actors import ActorSystem, Cell, Ref
from sapwood.supervision._base import BaseSupervisor


@attrs.frozen
class TreeNode:
    """One actor and what it supervises.

    Read straight from memory, without asking anybody, so it is right at one moment and works while actors are busy
    or stuck (OTP Q18).

    Attributes:
        label: The actor's name in logs.
        kind: Name of its class.
        key: Its registry key, or None.
        ref: Its ref.
        phase: `starting`, `running` or `stopping`.
        supervises: Whether it is a supervisor.
        waiting: Messages in its mailbox.
        incarnation: How often it has been started, from 1.
        children: What it supervises, in start order.
    """

    label: str
    kind: str
    key: object
    ref: Ref
    phase: str
    supervises: bool
    waiting: int
    incarnation: int
    children: tuple[TreeNode, ...]

    def walk(self) -> Iterator[TreeNode]:
        """Yield this node and all below it, each before what it supervises."""
        yield self
        for child in self.children:
            yield from child.walk()

    def render(self) -> str:
        """Draw the tree as text, one line for each actor."""
        return "\n".join(self._lines("", ""))

    def _lines(self, first: str, rest: str) -> Iterator[str]:
        restarts = f" · started {self.incarnation} times" if self.incarnation > 1 else ""
        waiting = f" · {self.waiting} waiting" if self.waiting else ""
        phase = f" · {self.phase}" if self.phase != "running" else ""
        yield f"{first}{self.label}{phase}{restarts}{waiting}"
        for index, child in enumerate(self.children):
            last = index == len(self.children) - 1
            yield from child._lines(rest + ("└── " if last else "├── "), rest + ("    " if last else "│   "))


def supervision_tree(system: ActorSystem, root: Ref) -> TreeNode:
    """Return the tree below an actor."""
    below: dict[Cell | None, list[Cell]] = {}
    for cell in system.actors:
        below.setdefault(cell.parent, []).append(cell)
    return _node(root._cell, below)


def _node(cell: Cell, below: dict[Cell | None, list[Cell]]) -> TreeNode:
    statistics = cell.ref.statistics()
    children = below.get(cell, [])
    actor = cell.actor
    if isinstance(actor, BaseSupervisor):
        # A restarted child keeps its place among its siblings.
        place = {child: index for index, child in enumerate(actor.cells())}
        children = sorted(children, key=lambda child: place.get(child, len(place)))
    return TreeNode(
        label=cell.label,
        kind=cell.birth.name,
        key=cell.birth.key,
        ref=cell.ref,
        phase=statistics.phase,
        supervises=cell.nursery is not None,
        waiting=statistics.waiting,
        incarnation=cell.incarnation,
        children=tuple(_node(child, below) for child in children),
    )
