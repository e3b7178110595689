"""Everything a reference store does that does not depend on where it keeps things."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import attrs
import trio

from sapwood.actors import Environment
from sapwood.errors import (
    InvalidOption,
    MissingExtra,
    ReferenceCorrupt,
    ReferenceInUse,
    ReferenceNotFound,
    ReferenceUnavailable,
)
from sapwood.references._metrics import Outcome, ReferenceListener, ReferenceOperation
from sapwood.references._pieces import Cutter, Damaged, MissingCompression, Piece, as_bytes, zstandard
from sapwood.references._protocol import Collected, ReferenceStatistics
from sapwood.references._reader import ReferenceReader
from sapwood.references._reference import (
    Lease,
    Reference,
    ReferenceInfo,
    ReferenceType,
    checked_text,
    checked_type,
    id_of,
)
from sapwood.references._retention import STORE_DEFAULT, Hold, Retention, check_seconds, finite, moment
from sapwood.references._shelf import Item, Shelf
from sapwood.references._transfers import READING_LEASE, Reading, Upload, digest_and_pieces, joined, off_loop

OUTCOMES: Final[dict[type[BaseException], Outcome]] = {
    ReferenceNotFound: "not_found",
    ReferenceUnavailable: "unavailable",
    ReferenceCorrupt: "corrupt",
    ReferenceInUse: "in_use",
    trio.Cancelled: "cancelled",
}


@attrs.define
class _Counts:
    stores: int = 0
    deduplicated: int = 0
    resolves: int = 0
    collections: int = 0
    failed_collections: int = 0
    collected: int = 0
    evicted: int = 0


@attrs.define
class _Measured:
    bytes: int = 0


class ShelvedStore:
    """A `ReferenceStore` on a shelf; the stores of this package derive from it and choose the shelf."""

    def __init__(
        self, shelf: Shelf, environment: Environment, retention: Retention, listener: ReferenceListener | None
    ) -> None:
        self.retention = retention
        self.listener = listener
        self._shelf = shelf
        self._environment = environment
        self._off_loop = off_loop(environment)
        self._counts = _Counts()
        self._listener_failure = ""
        self._closed = False

    @property
    def name(self) -> str:
        """What errors call the store."""
        return self._shelf.name

    async def open(self) -> None:
        """See `ReferenceStore.open`."""
        await self._check_open()
        with self._told("open"):
            await self._shelf.open()

    async def store(
        self,
        data: bytes,
        *,
        type: str = ReferenceType.BLOB,  # noqa: A002
        content_type: str = "application/octet-stream",
        ttl: float | None = STORE_DEFAULT,
        owner: str | None = None,
        lease_for: float | None = None,
    ) -> Reference:
        """See `ReferenceStore.store`."""
        data = as_bytes("data", data)
        kind, content = checked_type(type), checked_text("content_type", content_type)
        hold = self._hold(ttl, owner, lease_for)
        await self._check_open()
        with self._told("store") as measured:
            measured.bytes = len(data)
            digest, pieces = await self._off_loop(len(data), digest_and_pieces, data)
            item = self._item(digest, len(data), kind, content, pieces)
            return self._stored(item, await self._shelf.put(item, pieces, hold))

    async def store_stream(
        self,
        chunks: AsyncIterable[bytes],
        *,
        type: str = ReferenceType.BLOB,  # noqa: A002
        content_type: str = "application/octet-stream",
        ttl: float | None = STORE_DEFAULT,
        owner: str | None = None,
        lease_for: float | None = None,
    ) -> Reference:
        """See `ReferenceStore.store_stream`."""
        kind, content = checked_type(type), checked_text("content_type", content_type)
        self._hold(ttl, owner, lease_for)
        if not hasattr(chunks, "__aiter__"):
            raise InvalidOption(f"chunks: expected an async iterable of bytes; got {chunks!r:.80}")
        await self._check_open()
        with self._told("store_stream") as measured:
            upload = Upload(self._shelf, self._environment.new_id(), self._off_loop)
            try:
                await self._shelf.begin(upload.blob)
                cutter = Cutter()
                async for chunk in chunks:
                    for data in cutter.add(chunk):
                        await upload.add(data)
                for data in cutter.rest():
                    await upload.add(data)
                measured.bytes = upload.size
                reference = Reference(upload.hash.hexdigest(), kind, content, upload.size, self._environment.wall())
                item = Item(reference, upload.blob, upload.count, upload.stored_size)
                # Its time begins now, however long the stream took.
                there = await self._shelf.commit(item, self._hold(ttl, owner, lease_for))
            except BaseException:
                with trio.move_on_after(5, shield=True):
                    await upload.forget()
                raise
            finally:
                if isinstance(chunks, AsyncGenerator):
                    with trio.move_on_after(5, shield=True):
                        await chunks.aclose()
            if there is None:
                raise upload.lost()
            return self._stored(item, there)

    async def resolve(self, reference: Reference | str) -> bytes:
        """See `ReferenceStore.resolve`."""
        id = id_of(reference)
        await self._check_open()
        with self._told("resolve") as measured:
            found = await self._shelf.fetch(id)
            if found is None:
                raise ReferenceNotFound(self.name, id)
            item, pieces = found
            self._check_whole(item)
            size = item.reference.size
            try:
                with self._compression():
                    data = await self._off_loop(size, joined, item, pieces)
            except Damaged as damage:
                raise await self._quarantine(item, str(damage)) from damage
            measured.bytes = size
            self._counts.resolves += 1
            return data

    @asynccontextmanager
    async def resolve_stream(self, reference: Reference | str) -> AsyncGenerator[ReferenceReader]:
        """See `ReferenceStore.resolve_stream`."""
        id, owner = id_of(reference), self._environment.new_id("reader-")
        await self._check_open()
        with self._told("resolve_stream") as measured:
            until = self._environment.wall() + READING_LEASE
            item = await self._shelf.acquire(id, owner, until)
            if item is None:
                raise ReferenceNotFound(self.name, id)
            measured.bytes = item.reference.size
        reading = Reading(self._shelf, self._environment, item, owner, until)

        async def read() -> bytes:
            await self._check_open()
            try:
                with self._compression():
                    return await reading.next()
            except Damaged as damage:
                raise await self._quarantine(item, str(damage)) from damage

        try:
            self._check_whole(item)
            self._counts.resolves += 1
            yield ReferenceReader(item.reference, read)
        finally:
            with trio.move_on_after(5, shield=True):
                await reading.let_go()

    async def acquire(self, reference: Reference | str, owner: str, *, lease_for: float | None = None) -> Lease:
        """See `ReferenceStore.acquire`."""
        id, owner = id_of(reference), checked_text("owner", owner)
        check_seconds("lease_for", lease_for)
        await self._check_open()
        with self._told("acquire"):
            expires = moment(self._environment.wall(), lease_for)
            if await self._shelf.acquire(id, owner, expires) is None:
                raise ReferenceNotFound(self.name, id)
            return Lease(id, owner, finite(expires))

    async def release(self, reference: Reference | str, owner: str) -> bool:
        """See `ReferenceStore.release`."""
        id, owner = id_of(reference), checked_text("owner", owner)
        await self._check_open()
        with self._told("release"):
            return await self._shelf.release(id, owner)

    async def release_all(self, owner: str) -> int:
        """See `ReferenceStore.release_all`."""
        owner = checked_text("owner", owner)
        await self._check_open()
        with self._told("release_all"):
            return await self._shelf.release_all(owner)

    async def delete(self, reference: Reference | str) -> bool:
        """See `ReferenceStore.delete`."""
        id = id_of(reference)
        await self._check_open()
        with self._told("delete"):
            found = await self._shelf.delete(id)
            if isinstance(found, tuple):
                raise ReferenceInUse(self.name, id, [lease.owner for lease in found])
            return found

    async def list(self) -> tuple[Reference, ...]:
        """See `ReferenceStore.list`."""
        await self._check_open()
        with self._told("list"):
            return await self._shelf.list()

    async def describe(self, reference: Reference | str) -> ReferenceInfo:
        """See `ReferenceStore.describe`."""
        id = id_of(reference)
        await self._check_open()
        with self._told("describe"):
            found = await self._shelf.describe(id)
            if found is None:
                raise ReferenceNotFound(self.name, id)
            return found

    async def collect(self) -> Collected:
        """See `ReferenceStore.collect`."""
        await self._check_open()
        with self._told("collect") as measured:
            try:
                collected = await self._shelf.collect()
            except ReferenceUnavailable:
                self._counts.failed_collections += 1
                raise
            measured.bytes = collected.stored_bytes
            self._counts.collections += 1
            self._counts.collected += collected.references
            self._counts.evicted += collected.evicted
            return collected

    async def stats(self) -> ReferenceStatistics:
        """See `ReferenceStore.stats`."""
        await self._check_open()
        with self._told("stats"):
            totals = await self._shelf.totals()
            return ReferenceStatistics(
                store=self.name,
                compression="unavailable" if zstandard() is None else "zstd",
                listener_failure=self._listener_failure,
                **attrs.asdict(totals),
                **attrs.asdict(self._counts),
            )

    async def close(self) -> None:
        """See `ReferenceStore.close`."""
        if self._closed:
            await trio.lowlevel.checkpoint()
            return
        self._closed = True
        with self._told("close"):
            await self._shelf.close()

    async def _quarantine(self, item: Item, reason: str) -> ReferenceCorrupt:
        error = ReferenceCorrupt(self.name, item.reference.id, reason)
        try:
            await self._shelf.quarantine(item.reference.id, item.blob, reason)
        except ReferenceUnavailable as failure:
            error.add_note(f"it could not be marked: {failure}")
        self._tell(ReferenceOperation(self.name, "quarantine", "corrupt", item.reference.size, 0.0))
        return error

    def _hold(self, ttl: float | None, owner: str | None, lease_for: float | None) -> Hold:
        now = self._environment.wall()
        if owner is not None:
            check_seconds("lease_for", lease_for)
            if ttl is not STORE_DEFAULT:
                raise InvalidOption("ttl: expected either an owner with its lease_for, or a ttl; got both")
            return Hold(0.0, checked_text("owner", owner), moment(now, lease_for))
        if lease_for is not None:
            raise InvalidOption(f"lease_for: expected an owner whose lease this is; got {lease_for!r} without one")
        seconds = self.retention.ttl if ttl is STORE_DEFAULT else ttl
        check_seconds("ttl", seconds)
        return Hold(moment(now, seconds))

    def _item(self, digest: str, size: int, kind: str, content_type: str, pieces: Sequence[Piece]) -> Item:
        reference = Reference(digest, kind, content_type, size, self._environment.wall())
        stored_size = sum(len(piece.data) for piece in pieces)
        return Item(reference, self._environment.new_id(), len(pieces), stored_size)

    def _stored(self, wanted: Item, there: Item) -> Reference:
        self._counts.stores += 1
        if there.blob != wanted.blob:
            self._counts.deduplicated += 1
        reference = wanted.reference
        return Reference(reference.id, reference.type, reference.content_type, reference.size, there.reference.created)

    def _check_whole(self, item: Item) -> None:
        if item.corrupt is not None:
            raise ReferenceCorrupt(self.name, item.reference.id, item.corrupt)

    @contextmanager
    def _compression(self) -> Generator[None]:
        try:
            yield
        except MissingCompression:
            raise MissingExtra("a reference that another process compressed", "zstandard", "zstd") from None

    async def _check_open(self) -> None:
        if self._closed:
            await trio.lowlevel.checkpoint()
            raise ReferenceUnavailable(self.name, "it is closed; open it again")

    @contextmanager
    def _told(self, operation: str) -> Generator[_Measured]:
        measured = _Measured()
        begin = self._environment.stopwatch()
        outcome: Outcome = "ok"
        try:
            yield measured
        except BaseException as error:
            outcome = OUTCOMES.get(type(error), "error")
            raise
        finally:
            if self.listener is not None:
                seconds = self._environment.stopwatch() - begin
                self._tell(ReferenceOperation(self.name, operation, outcome, measured.bytes, seconds))

    def _tell(self, event: ReferenceOperation) -> None:
        listener = self.listener
        if listener is None:
            return
        try:
            listener(event)
        except MemoryError:
            raise
        except Exception as error:
            # As with the kernel's telemetry: what watches may never harm what it watches.
            self.listener = None
            self._listener_failure = f"{type(error).__name__}: {error}"
