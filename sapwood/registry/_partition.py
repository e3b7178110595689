"""The actors of the registry: partitions that own the tables, and the watcher that dies with any of them."""

from __future__ import annotations

from sapwood.actors import Actor, Down, ExitReason, Shutdown, handle
from sapwood.registry._registry import Registry
from sapwood.supervision import ChildSpec, child, supervisor


class Partition(Actor):
    """Owns one table of the registry, for as long as it lives."""

    def __init__(self, registry: Registry, index: int) -> None:
        self._registry = registry
        self._index = index

    def on_start(self) -> None:
        self._registry.attach(self._index, self.ref)

    def format_state(self) -> str:
        return f"index={self._index}"


class RegistryWatcher(Actor):
    """Dies when a partition dies, so that `rest_for_one` takes down everything that was registered (S4-052, S4-053).

    Its start is the proof that recovery waits for: its supervisor has ended all that comes after it.
    """

    trap_exits = True

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.kept = 0

    async def on_start(self) -> None:
        await self._registry.wait_attached()
        for owner in self._registry.owners():
            self.monitor(owner)
        self.kept = self._registry.recovered()

    @handle
    def partition_died(self, message: Down) -> None:
        self.stop(Shutdown("registry_down"))

    def on_stop(self, reason: ExitReason) -> None:
        """Nothing to clean up; an orderly shutdown stops the watcher before the partitions (S4-055)."""


def registry_children(registry: Registry, partitions: int, *, restarts: int, period: float) -> list[ChildSpec]:
    """Return the specs of the registry's part of the tree: the partitions' supervisor, then the watcher.

    Put them first in a `rest_for_one` supervisor; all that registers keys comes after them.

    Args:
        registry: The registry.
        partitions: Its number of partitions.
        restarts: Intensity of the partitions' supervisor.
        period: Its window, in seconds.
    """
    parts = [child(Partition, registry, index, id=f"partition-{index}") for index in range(partitions)]
    return [
        supervisor(parts, strategy="one_for_one", id="registry", restarts=restarts, period=period),
        child(RegistryWatcher, registry, id="registry-watcher", start_timeout=5.0),
    ]
