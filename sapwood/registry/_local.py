"""The local backend: one table, of which each partition answers for its share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import trio

from sapwood.actors import Cell, Ref
from sapwood.errors import ActorDown, AlreadyRegistered, InvalidKey, InvalidOption, RegistryUnavailable
from sapwood.registry._backend import BackendStatistics, Holder, PartitionState
from sapwood.registry._keys import PLAIN, Key, check_key, partition_of
from sapwood.registry._lookup import Lookup, NotRunning, Running, Unavailable, UnavailableReason
from sapwood.registry._partition import Partition, RegistryWatcher
from sapwood.supervision import ChildSpec, child, supervisor

# Why a partition in this state cannot tell; one that is up can.
REASONS: Final[dict[PartitionState, UnavailableReason]] = {
    "starting": "starting",
    "down": "registry_down",
    "recovering": "recovering",
}

NOT_RUNNING: Final = NotRunning()


class Slot:
    """The place of one partition.

    | state      | `owner`             | leaves it when                                      |
    |------------|---------------------|-----------------------------------------------------|
    | starting   | none yet            | the first owner attaches → up                       |
    | up         | lives, `ready`      | the owner ends → down                               |
    | down       | ended               | an owner attaches → recovering, or up if `settled`  |
    | recovering | lives, not `ready`  | the watcher starts → up; the owner ends → down      |

    `settled`: the watcher has started while the partition was down, so that nothing it had registered is left for
    the next owner to wait for.
    """

    __slots__ = ("index", "owner", "ready", "settled")

    def __init__(self, index: int) -> None:
        self.index = index
        self.owner: Cell | None = None
        self.ready = False
        self.settled = False

    @property
    def state(self) -> PartitionState:
        if self.owner is None:
            return "starting"
        if self.owner.reason is not None:
            return "down"
        return "up" if self.ready else "recovering"


class Entry:
    """One holder of a key, and the owner in whose table it stands.

    Invariants: an entry is made when the key is claimed and goes when the holder ends, whatever befalls the
    partition. Its `owner` is the one that granted the claim, until a later one takes it over at the end of a
    recovery; so an entry whose owner has ended stands in a table that is lost, and answers nothing.
    """

    __slots__ = ("owner", "running", "slot", "text")

    def __init__(self, key: Key, running: Running[Ref], slot: Slot, owner: Cell) -> None:
        self.text = {*map(type, key)} == {str}
        self.running = running
        self.slot = slot
        self.owner = owner


class LocalBackend:
    """Registry of one process: N partitions, each of which loses its part of the table when it dies.

    A partition that comes back after a death answers `Unavailable("recovering")` until everything that was
    registered in its former life is gone from the watcher's supervisor (`recovered`). Holders outside that
    supervisor live on and keep their keys. So no key ever has two live holders, and a live holder is never
    reported as not running.

    Args:
        partitions: Number of partitions.

    Raises:
        InvalidOption: if it is not an int of at least 1.
    """

    def __init__(self, partitions: int = 4) -> None:
        if type(partitions) is not int or partitions < 1:
            raise InvalidOption(f"partitions: expected an int >= 1; got {partitions!r}")
        self._slots = tuple(Slot(index) for index in range(partitions))
        self._table: dict[Key, Entry] = {}
        self.table: Mapping[Key, Holder] = self._table
        self._watcher: Ref | None = None

    # --- answers ----------------------------------------------------------------------------------

    def lookup_nowait(self, key: Key) -> Lookup[Ref]:
        if type(key) is not tuple:
            check_key(key)
        for part in key:
            if type(part) not in PLAIN:
                check_key(key)
                break
        entry = self._table.get(key)
        if entry is not None and entry.owner.reason is None:
            return entry.running
        check_key(key)
        for slot in self._slots:
            if not slot.ready or slot.owner is None or slot.owner.reason is not None:
                state = self._slot(key).state
                return NOT_RUNNING if state == "up" else Unavailable(REASONS[state])
        return NOT_RUNNING  # whichever partition it belongs to: all of them are up

    async def lookup(self, key: Key) -> Lookup[Ref]:
        await trio.lowlevel.checkpoint()
        return self.lookup_nowait(key)

    def running(self) -> dict[Key, Ref]:
        for slot in self._slots:
            if slot.state != "up":
                raise RegistryUnavailable("list what runs", REASONS[slot.state])
        return {key: entry.running.ref for key, entry in self._table.items()}

    def statistics(self) -> BackendStatistics:
        keys = sum(1 for entry in self._table.values() if entry.owner.reason is None)
        return BackendStatistics(tuple(slot.state for slot in self._slots), keys)

    @property
    def available(self) -> bool:
        return all(slot.state == "up" for slot in self._slots)

    # --- claims -----------------------------------------------------------------------------------

    def claim(self, key: Key, ref: Ref) -> None:
        slot = self._slot(check_key(key))
        if ref.key != key:
            raise InvalidKey(key, f"the key that {ref.label} was started with")
        if not ref.alive:
            raise ActorDown(ref.label, ref.exit_reason)
        state = slot.state
        owner = slot.owner
        if state != "up" or owner is None:
            raise RegistryUnavailable(f"register {key!r}", REASONS[state])
        entry = self._table.get(key)
        if entry is not None:
            raise AlreadyRegistered(key, entry.running.ref)
        self._table[key] = Entry(key, Running(ref), slot, owner)

    def release(self, key: Key, ref: Ref) -> None:
        entry = self._table.get(key)
        if entry is not None and entry.running.ref is ref and not ref.alive:
            del self._table[key]

    # --- partitions and watcher -------------------------------------------------------------------

    def attach(self, index: int, owner: Cell) -> None:
        """Let a new incarnation of a partition own its slot, and the watcher know of it."""
        slot = self._slots[index]
        fresh = slot.owner is None or slot.settled
        slot.owner = owner
        slot.settled = False
        slot.ready = False
        if fresh:
            self._take_over(slot)
        if self._watcher is not None:
            RegistryWatcher.watch(self._watcher, owner.ref)

    def owners(self) -> Iterator[Ref]:
        """Yield the live owner of each partition that has one."""
        for slot in self._slots:
            if slot.owner is not None and slot.owner.reason is None:
                yield slot.owner.ref

    def recovered(self, watcher: Ref) -> int:
        """End the recovery of all partitions; return how many holders keep their keys beyond it.

        The watcher calls it when it starts, for then, and only then, its supervisor has ended everything that
        stands after the watcher. A partition that is down at that moment need not recover when it is back: it
        grants no claim before that.
        """
        self._watcher = watcher
        kept = 0
        for slot in self._slots:
            if slot.state == "recovering":
                kept += self._take_over(slot)
            elif slot.state == "down":
                slot.settled = True
        return kept

    def _take_over(self, slot: Slot) -> int:
        """Let the owner of a slot answer, for the holders that are left from before too; return their number."""
        assert slot.owner is not None
        slot.ready = True
        left = [entry for entry in self._table.values() if entry.slot is slot]
        for entry in left:
            entry.owner = slot.owner
        return len(left)

    def _slot(self, key: Key) -> Slot:
        return self._slots[partition_of(key, len(self._slots))]

    # --- tree -------------------------------------------------------------------------------------

    def children(self, *, restarts: int, period: float) -> list[ChildSpec]:
        parts = [child(Partition, self, index, id=f"partition-{index}") for index in range(len(self._slots))]
        return [
            supervisor(parts, strategy="one_for_one", id="registry", restarts=restarts, period=period),
            child(RegistryWatcher, self, id="registry-watcher"),
        ]
