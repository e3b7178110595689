"""A reference store in an SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar, final

from sapwood.actors import Environment
from sapwood.errors import InvalidOption, PersistenceError, ReferenceUnavailable
from sapwood.persistence import StoreEngine
from sapwood.references import _sqlite_tables as tables
from sapwood.references._metrics import ReferenceListener
from sapwood.references._pieces import Piece
from sapwood.references._protocol import Collected
from sapwood.references._reference import Lease, Reference, ReferenceInfo
from sapwood.references._retention import Hold, Retention
from sapwood.references._shelf import Item, Totals
from sapwood.references._shelved import ShelvedStore
from sapwood.references._sqlite_tables import ALIVE, REFERENCES_SCHEMA, Moment

T = TypeVar("T")

MOST_TOUCHES = 256
"""References whose use is noted in memory before it is written without waiting for another write."""


@final
class SQLiteReferenceStore(ShelvedStore):
    """Keeps references in a store of `sapwood.persistence`, where they survive the process (S0-010 to S0-012).

    Each call is one transaction, durable when it returns; calls that wait at the same time share a commit. Several
    objects and processes may use one file. Await `open` first, or take `open_reference_store`.

    When a reference was used last is written with the next change, or at once when a quarter of `max_idle` has
    passed since it was written.

    Args:
        store: An open store; closing this leaves it open.
        environment: Door to time and ids.
        ttl: See `Retention`; by default 7 days.
        max_idle: See `Retention`.
        max_bytes: See `Retention`.
        max_references: See `Retention`.
        cache_size: KiB of SQLite's page cache for each connection; None for its own default (S0-045).
        listener: Told of every call, at once; it must be quick and must not block.

    Raises:
        InvalidOption: if an option is out of its range.
    """

    def __init__(
        self,
        store: StoreEngine,
        environment: Environment,
        *,
        ttl: float | None = 7 * 86_400.0,
        max_idle: float | None = None,
        max_bytes: int | None = None,
        max_references: int | None = None,
        cache_size: int | None = None,
        listener: ReferenceListener | None = None,
    ) -> None:
        if cache_size is not None and (type(cache_size) is not int or cache_size < 1):
            raise InvalidOption(f"cache_size: expected None or an int >= 1, in KiB; got {cache_size!r}")
        retention = Retention(ttl, max_idle, max_bytes, max_references)
        super().__init__(SQLiteShelf(store, environment, retention, cache_size), environment, retention, listener)


class SQLiteShelf:
    """See `Shelf`."""

    def __init__(
        self, store: StoreEngine, environment: Environment, retention: Retention, cache_size: int | None
    ) -> None:
        self.name = store.name
        self._store = store
        self._environment = environment
        self._retention = retention
        self._cache = None if cache_size is None else f"PRAGMA cache_size = -{cache_size}"
        self._used: dict[str, tuple[float, int]] = {}

    async def open(self) -> None:
        with self._translated():
            await self._store.migrate(REFERENCES_SCHEMA)

    async def close(self) -> None:
        if self._used:
            await self._write(_nothing)

    async def put(self, item: Item, pieces: Sequence[Piece], hold: Hold) -> Item:
        at = self._now()
        return await self._write(lambda db: tables.merge(db, item, pieces, hold, at))

    async def begin(self, blob: str) -> None:
        now = self._environment.wall()
        await self._write(lambda db: db.execute("INSERT INTO reference_uploads VALUES (?, ?)", (blob, now)).rowcount)

    async def extend(self, blob: str, number: int, piece: Piece) -> bool:
        now = self._environment.wall()
        return await self._write(lambda db: tables.extend(db, blob, number, piece, now))

    async def commit(self, item: Item, hold: Hold) -> Item | None:
        at = self._now()

        def finish(db: sqlite3.Connection) -> Item | None:
            if db.execute("DELETE FROM reference_uploads WHERE blob = ?", (item.blob,)).rowcount != 1:
                return None
            return tables.put(db, item, hold, at)

        return await self._write(finish)

    async def discard(self, blob: str) -> None:
        def drop(db: sqlite3.Connection) -> None:
            if db.execute("DELETE FROM reference_uploads WHERE blob = ?", (blob,)).rowcount:
                tables.drop_pieces(db, [blob])

        await self._write(drop)

    async def fetch(self, id: str) -> tuple[Item, Sequence[Piece]] | None:
        at = self._now()

        def select(db: sqlite3.Connection) -> tuple[Item, float, list[Piece]] | None:
            item = tables.find(db, id, at)
            if item is None:
                return None
            (accessed,) = db.execute("SELECT accessed FROM reference_items WHERE id = ?", (id,)).fetchone()
            return item, accessed, [] if item.corrupt is not None else tables.pieces_of(db, item.blob)

        found = await self._read(select)
        if found is None and id in self._used:
            await self._write(_nothing)
            found = await self._read(select)
        if found is None:
            return None
        item, accessed, pieces = found
        await self._touch(id, at.now, accessed)
        return item, pieces

    async def piece(self, item: Item, number: int) -> Piece | None:
        def select(db: sqlite3.Connection) -> Piece | None:
            row = db.execute(
                "SELECT encoding, crc, data FROM reference_pieces WHERE blob = ? AND number = ?", (item.blob, number)
            ).fetchone()
            return None if row is None else Piece(*row)

        return await self._read(select)

    async def acquire(self, id: str, owner: str, expires: float) -> Item | None:
        at = self._now()

        def hold(db: sqlite3.Connection) -> Item | None:
            item = tables.find(db, id, at)
            if item is not None:
                tables.set_lease(db, Lease(id, owner, expires))
                tables.touch(db, {id: (at.now, 0)})
            return item

        return await self._write(hold)

    async def release(self, id: str, owner: str) -> bool:
        return bool(await self._end_leases("id = ? AND owner = ?", id, owner))

    async def release_all(self, owner: str) -> int:
        return await self._end_leases("owner = ?", owner)

    async def delete(self, id: str) -> bool | tuple[Lease, ...]:
        at = self._now()

        def drop(db: sqlite3.Connection) -> bool | tuple[Lease, ...]:
            if tables.find(db, id, at) is None:
                return False
            if leases := tables.leases_of(db, id, at.now):
                return leases
            tables.remove(db, [id])
            return True

        return await self._write(drop)

    async def quarantine(self, id: str, blob: str, reason: str) -> None:
        statement = "UPDATE reference_items SET corrupt = ? WHERE id = ? AND blob = ?"
        await self._write(lambda db: db.execute(statement, (reason, id, blob)).rowcount)

    async def list(self) -> tuple[Reference, ...]:
        if self._used:
            await self._write(_nothing)
        at = self._now()
        query = f"SELECT {tables.ITEM} FROM reference_items AS i WHERE {ALIVE} ORDER BY id"  # noqa: S608  # constants only
        return await self._read(
            lambda db: tuple(tables.item_of(row).reference for row in db.execute(query, at.bound()))
        )

    async def describe(self, id: str) -> ReferenceInfo | None:
        at = self._now()
        if id in self._used:
            return await self._write(lambda db: tables.describe(db, id, at))
        return await self._read(lambda db: tables.describe(db, id, at))

    async def totals(self) -> Totals:
        return await self._read(tables.totals)

    async def collect(self) -> Collected:
        collected = await self._write(partial(tables.drop_ended, at=self._now()))
        after: str | None = ""
        while after is not None:
            after, more = await self._write(partial(tables.collect_batch, after=after, at=self._now()))
            collected += more
        return collected + await self._write(partial(tables.evict, stored=None, at=self._now()))

    async def _end_leases(self, condition: str, *values: str) -> int:
        now = self._environment.wall()
        statement = f"DELETE FROM reference_leases WHERE {condition} RETURNING expires"  # noqa: S608  # constants only
        return await self._write(
            lambda db: sum(expires > now for (expires,) in db.execute(statement, values).fetchall())
        )

    async def _touch(self, id: str, now: float, written: float) -> None:
        _, times = self._used.get(id, (now, 0))
        self._used[id] = (now, times + 1)
        idle = self._retention.max_idle
        if len(self._used) >= MOST_TOUCHES or (idle is not None and now - written > idle / 4):
            await self._write(_nothing)

    def _now(self) -> Moment:
        return Moment(self._environment.wall(), self._retention)

    async def _read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        def run(db: sqlite3.Connection) -> T:
            self._tune(db)
            return operation(db)

        with self._translated():
            return await self._store.read(run)

    async def _write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        used, self._used = self._used, {}

        def run(db: sqlite3.Connection) -> T:
            self._tune(db)
            tables.touch(db, used)
            return operation(db)

        try:
            with self._translated():
                return await self._store.write(run)
        except BaseException:
            for id, (accessed, times) in used.items():
                later, more = self._used.get(id, (accessed, 0))
                self._used[id] = (max(accessed, later), times + more)
            raise

    def _tune(self, db: sqlite3.Connection) -> None:
        # Of each connection, and SQLite remembers it: setting it again costs about a microsecond.
        if self._cache is not None:
            db.execute(self._cache)

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except PersistenceError as error:
            raise ReferenceUnavailable(self.name, str(error)) from error


def _nothing(_db: sqlite3.Connection) -> None:
    """Write what is waiting to be written."""
