"""The registry: who holds which key, and the honest answer where that is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal, TypeAlias

import attrs
import trio

from sapwood.actors import LookupUnavailable, Ref, Telemetry
from sapwood.errors import ActorDown, AlreadyRegistered, AlreadyStarted, InvalidOption, RegistryUnavailable
from sapwood.registry._keys import Key, check_key
from sapwood.registry._lookup import Lookup, NotRunning, Running, Unavailable, UnavailableReason
from sapwood.supervision import ChildSpec, start_child

PartitionState: TypeAlias = Literal["starting", "up", "recovering", "down"]

_REASONS: Final[dict[PartitionState, UnavailableReason]] = {
    "starting": "starting",
    "recovering": "recovering",
    "down": "registry_down",
}

_NOT_RUNNING: Final = NotRunning()


@attrs.frozen
class RegistryStatistics:
    """A snapshot of the registry.

    Attributes:
        partitions: State of each partition, in order: `starting`, `up`, `recovering` or `down`.
        keys: Keys held in partitions that are up.
        starting: Keys for which a `get_or_start` is under way.
        draining: Whether the runtime is stopping.
    """

    partitions: tuple[PartitionState, ...]
    keys: int
    starting: int
    draining: bool


class Slot:
    """The place of one partition: its present incarnation, and the table that this one owns.

    Invariant: an entry leaves `table` only when its actor ends, so what a dead incarnation leaves behind here are
    just those actors of its time that have not ended yet.
    """

    __slots__ = ("owner", "ready", "table")

    def __init__(self) -> None:
        self.owner: Ref | None = None
        self.table: dict[Key, Running[Ref]] = {}
        self.ready = False

    @property
    def state(self) -> PartitionState:
        if self.owner is None:
            return "starting"
        if not self.owner.alive:
            return "down"
        return "up" if self.ready else "recovering"


class Flight:
    """One start under way, and who waits for it."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: Exception | None = None


class Registry:
    """Local registry of N partitions; each partition actor owns one table and takes it into its grave.

    A partition that comes back after a death answers `Unavailable("recovering")` until the watcher says that
    everything that was registered in its former life is gone (`recovered`). What lives on outside the reach of the
    watcher's supervisor keeps its key. So no key ever has two live holders, and a live holder is never reported as
    not running (design, section 5).

    All methods must be called in the runtime's thread. Lookups and claims read the tables directly, with no task
    switch.

    Args:
        telemetry: Told of lookups that cannot be answered.
        partitions: Number of partitions.
    """

    def __init__(self, telemetry: Telemetry, partitions: int = 4) -> None:
        if type(partitions) is not int or partitions < 1:
            raise InvalidOption(f"partitions: expected an int >= 1; got {partitions!r}")
        self._telemetry = telemetry
        self._slots = tuple(Slot() for _ in range(partitions))
        self._flights: dict[Key, Flight] = {}
        self._draining = False
        self._changed = trio.Event()
        self.home: Callable[[], Ref | None] = lambda: None

    # --- lookups ----------------------------------------------------------------------------------

    def lookup_nowait(self, key: Key) -> Lookup[Ref]:
        """Say what runs under a key, at once.

        Raises:
            InvalidKey: if `key` is no typed tuple.
        """
        slots = self._slots
        check_key(key)
        slot = slots[hash(key) % len(slots)]
        owner = slot.owner
        if slot.ready and owner is not None and owner.alive and not self._draining:
            return slot.table.get(key, _NOT_RUNNING)
        unavailable = Unavailable("draining" if self._draining else _REASONS[slot.state])
        self._telemetry.tell(LookupUnavailable(key, unavailable.reason))
        return unavailable

    async def lookup(self, key: Key) -> Lookup[Ref]:
        """Say what runs under a key; the form that a cluster registry shares.

        Raises:
            InvalidKey: if `key` is no typed tuple.
        """
        await trio.lowlevel.checkpoint()
        return self.lookup_nowait(key)

    def running(self, kind: str | None = None) -> dict[Key, Ref]:
        """Return all live actors with a key, or those whose key begins with `kind` (S4-043).

        Raises:
            RegistryUnavailable: if any partition cannot tell; an incomplete list would look like "nothing there"
                (S4-046).
        """
        for slot in self._slots:
            if self._draining or slot.state != "up":
                raise RegistryUnavailable("list what runs", "draining" if self._draining else _REASONS[slot.state])
        return {
            key: entry.ref for slot in self._slots for key, entry in slot.table.items() if kind is None or key[0] == kind
        }

    def statistics(self) -> RegistryStatistics:
        """Return a snapshot of the registry; never raises."""
        return RegistryStatistics(
            partitions=tuple(slot.state for slot in self._slots),
            keys=sum(len(slot.table) for slot in self._slots if slot.state == "up"),
            starting=len(self._flights),
            draining=self._draining,
        )

    @property
    def available(self) -> bool:
        """Whether every partition can answer."""
        return not self._draining and all(slot.state == "up" for slot in self._slots)

    # --- starting ---------------------------------------------------------------------------------

    async def get_or_start(self, key: Key, spec: ChildSpec, *, under: Ref | None = None) -> Running[Ref] | Unavailable:
        """Return the actor that holds a key, starting it from `spec` if nothing runs; once under concurrent calls.

        All callers that wait for one start get its outcome, its failure included (BR-08). If the caller that
        started it is cancelled, the start goes on.

        Args:
            key: The key; it replaces the one in `spec`.
            spec: How to start it.
            under: The dynamic supervisor to start it under; None for the registry's home, the supervisor of agents.

        Raises:
            ChildFailed: if it fails to start; nothing of it is left.
            InvalidKey: if `key` is no typed tuple.
        """
        check_key(key)
        while True:
            await trio.lowlevel.checkpoint()
            found = self.lookup_nowait(key)
            if not isinstance(found, NotRunning):
                return found
            flight = self._flights.get(key)
            if flight is None:
                return await self._start(key, spec, under)
            await flight.done.wait()
            if flight.error is not None:
                raise flight.error

    async def _start(self, key: Key, spec: ChildSpec, under: Ref | None) -> Running[Ref] | Unavailable:
        supervisor = under if under is not None else self.home()
        if supervisor is None or not supervisor.alive:
            return Unavailable("draining" if self._draining else "recovering")
        flight = self._flights[key] = Flight()
        try:
            ref = await start_child(supervisor, attrs.evolve(spec, birth=attrs.evolve(spec.birth, key=key)))
        except AlreadyStarted as taken:
            return Running(taken.ref)
        except RegistryUnavailable as unavailable:
            return _unavailable(unavailable.reason)
        except ActorDown:
            return Unavailable("draining" if self._draining else "recovering")
        except Exception as error:
            flight.error = error
            raise
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
            flight.done.set()
        if ref is None:
            raise InvalidOption(f"get_or_start({key!r}): expected a child that runs; its on_start returned Ignore()")
        return Running(ref)

    # --- for the kernel ---------------------------------------------------------------------------

    def claim(self, key: object, ref: Ref) -> None:
        """Give a key to an actor that is about to be made (OTP K01).

        Raises:
            AlreadyRegistered: if another live actor holds it.
            RegistryUnavailable: if the partition cannot tell.
            InvalidKey: if it is no typed tuple.
        """
        checked = check_key(key)
        slot = self._slot(checked)
        if self._draining or slot.state != "up":
            reason = "draining" if self._draining else _REASONS[slot.state]
            raise RegistryUnavailable(f"register {checked!r}", reason)
        holder = slot.table.setdefault(checked, Running(ref))
        if holder.ref is not ref:
            raise AlreadyRegistered(checked, holder.ref)

    def release(self, key: object, ref: Ref) -> None:
        """Take a key back from an actor that ends; never raises, in whatever state the partition is."""
        checked = check_key(key)
        table = self._slot(checked).table
        holder = table.get(checked)
        if holder is not None and holder.ref is ref:
            del table[checked]

    # --- for partitions, watcher and runtime ------------------------------------------------------

    def attach(self, index: int, owner: Ref) -> None:
        """Let a new incarnation of a partition own its table; after the first one it is recovering."""
        slot = self._slots[index]
        slot.ready = slot.owner is None
        slot.owner = owner
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def owners(self) -> Iterator[Ref]:
        """Yield the live owner of each partition that has one."""
        for slot in self._slots:
            if slot.owner is not None and slot.owner.alive:
                yield slot.owner

    async def wait_attached(self) -> None:
        """Wait until every partition has a live owner."""
        while sum(1 for _ in self.owners()) < len(self._slots):
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    def recovered(self) -> int:
        """End the recovery of all partitions with a live owner; return how many actors kept their keys.

        To be called only when everything that the watcher's supervisor started after the watcher has ended.
        """
        kept = 0
        for slot in self._slots:
            if slot.state == "recovering":
                slot.ready = True
                kept += len(slot.table)
        return kept

    def drain(self) -> None:
        """Answer `Unavailable("draining")` from now on, until the end (S4-056, BR-07)."""
        self._draining = True

    def _slot(self, key: Key) -> Slot:
        return self._slots[hash(key) % len(self._slots)]


def _unavailable(reason: str) -> Unavailable:
    known: dict[str, UnavailableReason] = {
        "starting": "starting",
        "draining": "draining",
        "registry_down": "registry_down",
        "recovering": "recovering",
    }
    return Unavailable(known.get(reason, "unreachable"))
