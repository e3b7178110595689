"""The actors of the local registry: partitions that own its tables, and the watcher that dies with any of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import attrs

from sapwood.actors import Actor, Cell, Down, Ref, Shutdown, handle, notice


class Tables(Protocol):
    """What these actors need of the backend."""

    def attach(self, index: int, owner: Cell) -> None:
        """Let an incarnation of a partition own its table."""
        ...

    def owners(self) -> Iterator[Ref]:
        """Yield the live partitions."""
        ...

    def recovered(self, watcher: Ref) -> int:
        """End all recoveries."""
        ...


class Partition(Actor):
    """Owns one table of the registry for as long as it lives, and takes it into its grave."""

    def __init__(self, tables: Tables, index: int) -> None:
        self._tables = tables
        self._index = index

    def on_start(self) -> None:
        self._tables.attach(self._index, self._cell)

    def format_state(self) -> str:
        return f"index={self._index}"


@notice
@attrs.frozen(eq=False)
class Watch:
    """Tells the watcher of a partition that came after it."""

    partition: Ref


class RegistryWatcher(Actor):
    """Dies when a partition dies, so that `rest_for_one` takes down everything that was registered (S4-052, S4-053).

    Its start is the proof that recovery waits for: its supervisor has ended all that comes after it. The start is
    one step, in which nothing else can happen; a partition that is not back yet is watched when it comes. An orderly
    shutdown stops the watcher before the partitions (S4-055).
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.kept = 0

    def on_start(self) -> None:
        for partition in self._tables.owners():
            self.monitor(partition)
        self.kept = self._tables.recovered(self.ref)

    @staticmethod
    def watch(watcher: Ref, partition: Ref) -> None:
        """Have a partition watched that has just come up; one that is dead by then counts as a death."""
        watcher._cell.put_entry(Watch(partition))

    @handle
    def partition_came(self, message: Watch) -> None:
        self.monitor(message.partition)

    @handle
    def partition_died(self, message: Down) -> None:
        self.stop(Shutdown("registry_down"))

    def format_state(self) -> str:
        return f"kept={self.kept}"
