"""A reference store in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import final

import attrs
import trio

from sapwood.actors import Environment
from sapwood.references._metrics import ReferenceListener
from sapwood.references._pieces import Piece
from sapwood.references._protocol import Collected
from sapwood.references._reference import Lease, Reference, ReferenceInfo
from sapwood.references._retention import Hold, Retention, finite
from sapwood.references._shelf import BATCH, UPLOAD_IDLE, Item, Totals
from sapwood.references._shelved import ShelvedStore


@final
class MemoryReferenceStore(ShelvedStore):
    """Keeps references in this process, until it ends (S0-008).

    Nothing survives the process, and nothing is shared with another one (S0-046).

    Args:
        environment: Door to time and ids.
        name: What errors and metrics call it.
        ttl: See `Retention`; by default 10 minutes.
        max_idle: See `Retention`.
        max_bytes: See `Retention`.
        max_references: See `Retention`.
        listener: Told of every call, at once; it must be quick and must not block.

    Raises:
        InvalidOption: if an option is out of its range.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        name: str = "memory",
        ttl: float | None = 600.0,
        max_idle: float | None = None,
        max_bytes: int | None = None,
        max_references: int | None = None,
        listener: ReferenceListener | None = None,
    ) -> None:
        retention = Retention(ttl, max_idle, max_bytes, max_references)
        super().__init__(MemoryShelf(name, environment, retention), environment, retention, listener)


@attrs.define(eq=False)
class _Entry:
    item: Item
    pieces: Sequence[Piece]
    kept_until: float
    accessed: float
    resolves: int = 0
    leases: dict[str, float] = attrs.field(factory=dict[str, float])


@attrs.define(eq=False)
class _Stream:
    touched: float
    pieces: list[Piece] = attrs.field(factory=list[Piece])


class MemoryShelf:
    """See `Shelf`. Between its checkpoint and its return no call gives way, so each takes effect at one moment."""

    def __init__(self, name: str, environment: Environment, retention: Retention) -> None:
        self.name = name
        self._environment = environment
        self._retention = retention
        self._entries: dict[str, _Entry] = {}  # least recently used first
        self._streams: dict[str, _Stream] = {}
        self._bytes = 0
        self._stored = 0

    async def open(self) -> None:
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self._entries.clear()
        self._streams.clear()
        self._bytes = self._stored = 0

    async def put(self, item: Item, pieces: Sequence[Piece], hold: Hold) -> Item:
        await trio.lowlevel.checkpoint()
        return self._put(item, pieces, hold)

    async def begin(self, blob: str) -> None:
        await trio.lowlevel.checkpoint()
        self._streams[blob] = _Stream(self._environment.wall())

    async def extend(self, blob: str, number: int, piece: Piece) -> bool:
        await trio.lowlevel.checkpoint()
        stream = self._streams.get(blob)
        if stream is None:
            return False
        stream.touched = self._environment.wall()
        stream.pieces.append(piece)
        return True

    async def commit(self, item: Item, hold: Hold) -> Item | None:
        await trio.lowlevel.checkpoint()
        stream = self._streams.pop(item.blob, None)
        return None if stream is None else self._put(item, stream.pieces, hold)

    async def discard(self, blob: str) -> None:
        await trio.lowlevel.checkpoint()
        self._streams.pop(blob, None)

    async def fetch(self, id: str) -> tuple[Item, Sequence[Piece]] | None:
        await trio.lowlevel.checkpoint()
        entry = self._alive(id)
        if entry is None:
            return None
        self._touch(id, entry)
        entry.resolves += 1
        return entry.item, entry.pieces

    async def piece(self, item: Item, number: int) -> Piece | None:
        await trio.lowlevel.checkpoint()
        entry = self._entries.get(item.reference.id)
        if entry is None or entry.item.blob != item.blob or number >= len(entry.pieces):
            return None
        return entry.pieces[number]

    async def acquire(self, id: str, owner: str, expires: float) -> Item | None:
        await trio.lowlevel.checkpoint()
        entry = self._alive(id)
        if entry is None:
            return None
        self._touch(id, entry)
        entry.leases[owner] = expires
        return entry.item

    async def release(self, id: str, owner: str) -> bool:
        await trio.lowlevel.checkpoint()
        entry = self._entries.get(id)
        return entry is not None and entry.leases.pop(owner, -math.inf) > self._environment.wall()

    async def release_all(self, owner: str) -> int:
        await trio.lowlevel.checkpoint()
        now = self._environment.wall()
        return sum(entry.leases.pop(owner, -math.inf) > now for entry in self._entries.values())

    async def delete(self, id: str) -> bool | tuple[Lease, ...]:
        await trio.lowlevel.checkpoint()
        entry = self._alive(id)
        if entry is None:
            return False
        if leases := self._leases(entry):
            return leases
        self._drop(id)
        return True

    async def quarantine(self, id: str, blob: str, reason: str) -> None:
        await trio.lowlevel.checkpoint()
        entry = self._entries.get(id)
        if entry is not None and entry.item.blob == blob:
            entry.item = attrs.evolve(entry.item, corrupt=reason)

    async def list(self) -> tuple[Reference, ...]:
        await trio.lowlevel.checkpoint()
        alive = [entry.item.reference for id, entry in self._entries.items() if self._alive(id)]
        return tuple(sorted(alive, key=lambda reference: reference.id))

    async def describe(self, id: str) -> ReferenceInfo | None:
        await trio.lowlevel.checkpoint()
        entry = self._alive(id)
        if entry is None:
            return None
        item = entry.item
        return ReferenceInfo(
            item.reference,
            self._leases(entry),
            finite(entry.kept_until),
            entry.accessed,
            entry.resolves,
            item.stored_size,
            item.corrupt,
        )

    async def totals(self) -> Totals:
        await trio.lowlevel.checkpoint()
        entries = self._entries.values()
        return Totals(
            len(entries),
            self._bytes,
            self._stored,
            sum(len(entry.leases) for entry in entries),
            sum(entry.item.corrupt is not None for entry in entries),
        )

    async def collect(self) -> Collected:
        collected = Collected()
        ids = iter(tuple(self._entries))
        while batch := tuple(islice(ids, BATCH)):
            await trio.lowlevel.checkpoint()
            collected += self._collect(batch)
        await trio.lowlevel.checkpoint()
        before = self._environment.wall() - UPLOAD_IDLE
        idle = [blob for blob, stream in self._streams.items() if stream.touched <= before]
        for blob in idle:
            del self._streams[blob]
        return collected + Collected(uploads=len(idle)) + self._evict(None)

    def _put(self, item: Item, pieces: Sequence[Piece], hold: Hold) -> Item:
        id = item.reference.id
        now = self._environment.wall()
        entry = self._alive(id)
        if entry is None or entry.item.corrupt is not None:
            leases = {} if entry is None else entry.leases
            kept_until = hold.kept_until if entry is None else max(entry.kept_until, hold.kept_until)
            self._drop(id)
            entry = self._entries[id] = _Entry(item, pieces, kept_until, now, leases=leases)
            self._bytes += item.reference.size
            self._stored += item.stored_size
        else:
            entry.kept_until = max(entry.kept_until, hold.kept_until)
            self._touch(id, entry)
        if hold.owner is not None:
            entry.leases[hold.owner] = hold.expires
        self._evict(id)
        return entry.item

    def _alive(self, id: str) -> _Entry | None:
        entry = self._entries.get(id)
        if entry is None:
            return None
        now = self._environment.wall()
        kept = entry.kept_until > now and entry.accessed > self._retention.idle_before(now)
        return entry if kept or entry.item.corrupt is not None or self._leases(entry) else None

    def _leases(self, entry: _Entry) -> tuple[Lease, ...]:
        if not entry.leases:
            return ()
        now, id = self._environment.wall(), entry.item.reference.id
        return tuple(
            Lease(id, owner, finite(expires)) for owner, expires in sorted(entry.leases.items()) if expires > now
        )

    def _touch(self, id: str, entry: _Entry) -> None:
        entry.accessed = self._environment.wall()
        self._entries[id] = self._entries.pop(id)

    def _drop(self, id: str) -> int:
        entry = self._entries.pop(id, None)
        if entry is None:
            return 0
        self._bytes -= entry.item.reference.size
        self._stored -= entry.item.stored_size
        return entry.item.stored_size

    def _collect(self, ids: Sequence[str]) -> Collected:
        now = self._environment.wall()
        leases = references = freed = 0
        for id in ids:
            entry = self._entries.get(id)
            if entry is None:
                continue
            ended = [owner for owner, expires in entry.leases.items() if expires <= now]
            for owner in ended:
                del entry.leases[owner]
            leases += len(ended)
            if self._alive(id) is None:
                freed += self._drop(id)
                references += 1
        return Collected(references, 0, leases, 0, freed)

    def _evict(self, stored: str | None) -> Collected:
        evicted = freed = 0
        while self._retention.exceeded(len(self._entries), self._stored):
            free = (id for id, entry in self._entries.items() if id != stored and self._evictable(entry))
            victim = next(free, None)
            if victim is None:
                break
            freed += self._drop(victim)
            evicted += 1
        return Collected(evicted=evicted, stored_bytes=freed)

    def _evictable(self, entry: _Entry) -> bool:
        return entry.item.corrupt is None and not self._leases(entry)
