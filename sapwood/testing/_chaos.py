"""Chaos: kills parts of a running tree at random moments, the same ones for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import attrs
import trio

from sapwood._runtime import Runtime
from sapwood.actors import Ref
from sapwood.errors import InvalidOption
from sapwood.supervision import TreeNode

Target: TypeAlias = Literal["registry", "watcher", "agents", "filesystems", "store", "supervisors"]

PLACES: Final[dict[str, tuple[tuple[tuple[str, ...], Literal["it", "children", "below"]], ...]]] = {
    "registry": ((("core", "registry"), "children"),),
    "watcher": ((("core", "registry-watcher"), "it"),),
    "agents": ((("core", "agents"), "below"),),
    "filesystems": ((("core", "filesystems"), "below"),),
    "store": ((("store",), "it"),),
    "supervisors": (
        (("core", "registry"), "it"),
        (("core", "agents"), "it"),
        (("core", "filesystems"), "it"),
    ),
}
"""Where the targets are: a path of labels below the root, and what is meant of the actor at its end."""


@attrs.frozen
class Kill:
    """One thing that was killed.

    Attributes:
        at: Seconds on the runtime's clock.
        target: What was asked for.
        actor: Label of the actor.
    """

    at: float
    target: str
    actor: str


class Chaos:
    """Kills parts of a runtime's tree, now or again and again, with randomness from its environment.

    Targets: `registry` (one partition of it), `watcher` (the registry's watcher), `agents` (any actor below the
    supervisor of agents), `filesystems` (any actor below theirs), `store`, and `supervisors` (that of the partitions,
    of the agents, or of the filesystems).

    Kills count against the restart intensity of the runtime (`open_runtime(restarts=, period=)`).

    Args:
        runtime: The runtime to shake.
        nursery: Where its tasks live.
    """

    def __init__(self, runtime: Runtime, nursery: trio.Nursery) -> None:
        self.kills: list[Kill] = []
        self._runtime = runtime
        self._nursery = nursery
        self._stopped = False

    def kill(self, target: Target) -> Ref | None:
        """Kill one actor of a kind, drawn at random; return it, or None if there is none at this moment.

        Raises:
            InvalidOption: if there is no such target.
        """
        _check(target)
        candidates = [node.ref for node in _find(self._runtime.tree(), target)]
        if not candidates:
            return None
        chosen = self._runtime.environment.random.choice(candidates)
        self.kills.append(Kill(self._runtime.environment.monotonic(), target, chosen.label))
        chosen.kill()
        return chosen

    def randomly(self, *, kill: Sequence[Target], every: tuple[float, float]) -> None:
        """Go on killing in the background until `stop`, or until the block is left.

        Args:
            kill: Kinds to choose from, each equally likely.
            every: Least and most seconds from one kill to the next.

        Raises:
            InvalidOption: if a target does not exist, or the seconds are no range above 0.
        """
        targets = tuple(kill)
        least, most = every
        if not targets or not 0 < least <= most:
            raise InvalidOption(f"expected targets and 0 < least <= most seconds; got kill={kill!r}, every={every!r}")
        for target in targets:
            _check(target)
        self._nursery.start_soon(self._go_on, targets, least, most)

    def stop(self) -> None:
        """Kill nothing any more."""
        self._stopped = True

    async def _go_on(self, targets: tuple[Target, ...], least: float, most: float) -> None:
        source = self._runtime.environment.random
        while True:
            await trio.sleep(source.uniform(least, most))
            if self._stopped or not self._runtime.root.alive:
                return
            self.kill(source.choice(targets))


def _check(target: str) -> None:
    if target not in PLACES:
        raise InvalidOption(f"chaos: expected a target out of {', '.join(PLACES)}; got {target!r}")


def _find(root: TreeNode, target: str) -> list[TreeNode]:
    found: list[TreeNode] = []
    for path, what in PLACES[target]:
        node = _at(root, path)
        if node is not None:
            found += {"it": [node], "children": list(node.children), "below": list(node.walk())[1:]}[what]
    return found


def _at(node: TreeNode, path: tuple[str, ...]) -> TreeNode | None:
    for label in path:
        below = next((child for child in node.children if child.label == label), None)
        if below is None:
            return None
        node = below
    return node
