"""A reference store in a Redis server."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast, final

import trio

from sapwood.actors import Environment, single_exceptions_bare
from sapwood.errors import InvalidOption, MissingExtra, ReferenceUnavailable
from sapwood.references import _redis_scripts as scripts
from sapwood.references._metrics import ReferenceListener
from sapwood.references._pieces import Piece
from sapwood.references._protocol import Collected
from sapwood.references._reference import Lease, Reference, ReferenceInfo
from sapwood.references._retention import Hold, Retention, finite
from sapwood.references._shelf import BATCH, UPLOAD_IDLE, Item, Totals
from sapwood.references._shelved import ShelvedStore

if TYPE_CHECKING:
    from coredis import Redis

ENCODINGS: Final = {"raw": b"r", "zstd": b"z"}
NAMES: Final = {letter: name for name, letter in ENCODINGS.items()}


@final
class RedisReferenceStore(ShelvedStore):
    """Keeps references in a Redis server, for agents on several machines (S0-038). Needs the extra `redis`.

    Each call is one script, which the server runs alone; `open_redis_store` makes the connection. What is stored is as
    durable as the server is set up to be: `appendonly yes` with `appendfsync always` loses nothing in a crash.
    Clocks of the machines must agree to within the shortest lease.

    Args:
        client: A `coredis.Redis` inside its `async with`, with a `NoRetryPolicy` and without `decode_responses`;
            closing the store leaves it open.
        environment: Door to time and ids.
        name: What errors and metrics call it.
        prefix: Beginning of all keys; stores with different prefixes know nothing of each other.
        ttl: See `Retention`; by default one day.
        max_idle: See `Retention`.
        max_bytes: See `Retention`.
        max_references: See `Retention`.
        listener: Told of every call, at once; it must be quick and must not block.

    Raises:
        InvalidOption: if an option is out of its range.
        MissingExtra: if coredis is not installed.
    """

    def __init__(
        self,
        client: Redis[bytes],
        environment: Environment,
        *,
        name: str = "redis",
        prefix: str = "sapwood:references:",
        ttl: float | None = 86_400.0,
        max_idle: float | None = None,
        max_bytes: int | None = None,
        max_references: int | None = None,
        listener: ReferenceListener | None = None,
    ) -> None:
        if client.decode_responses:
            raise InvalidOption("client: expected a client that returns bytes; got one with decode_responses=True")
        retention = Retention(ttl, max_idle, max_bytes, max_references)
        super().__init__(RedisShelf(name, client, prefix, environment, retention), environment, retention, listener)


@asynccontextmanager
async def open_redis_store(
    url: str,
    environment: Environment,
    *,
    prefix: str = "sapwood:references:",
    ttl: float | None = 86_400.0,
    max_idle: float | None = None,
    max_bytes: int | None = None,
    max_references: int | None = None,
    listener: ReferenceListener | None = None,
    timeout: float = 5.0,
) -> AsyncGenerator[RedisReferenceStore]:
    """Connect to a Redis server for the length of an `async with` block. Needs the extra `redis`.

    A server that is down does not fail the opening: the calls say so, and succeed when it is up again. Nothing is sent
    twice by itself, for a call whose answer was lost may have been carried out; `store` may be repeated safely.

    Args:
        url: Address, such as `redis://localhost:6379/0`; errors show it without its password.
        environment: Door to time and ids.
        prefix: See `RedisReferenceStore`.
        ttl: See `Retention`; by default one day.
        max_idle: See `Retention`.
        max_bytes: See `Retention`.
        max_references: See `Retention`.
        listener: See `RedisReferenceStore`.
        timeout: Seconds to wait for a connection, and for an answer.

    Raises:
        InvalidOption: if the URL or an option cannot be used.
        MissingExtra: if coredis is not installed.
    """
    try:
        from coredis import Redis
        from coredis.retry import NoRetryPolicy
    except ImportError:
        raise MissingExtra("RedisReferenceStore", "coredis", "redis") from None
    try:
        client: Redis[bytes] = Redis.from_url(
            url, retry_policy=NoRetryPolicy(), stream_timeout=timeout, connect_timeout=timeout, verify_version=False
        )
    except ValueError as error:
        raise InvalidOption(f"url: expected one such as 'redis://localhost:6379/0'; got {_shown(url)!r}") from error
    store = RedisReferenceStore(
        client,
        environment,
        name=_shown(url),
        prefix=prefix,
        ttl=ttl,
        max_idle=max_idle,
        max_bytes=max_bytes,
        max_references=max_references,
        listener=listener,
    )
    with single_exceptions_bare():
        async with client:
            try:
                yield store
            finally:
                with trio.CancelScope(shield=True):
                    await store.close()  # one checkpoint


class RedisShelf:
    """See `Shelf`."""

    def __init__(
        self, name: str, client: Redis[bytes], prefix: str, environment: Environment, retention: Retention
    ) -> None:
        try:
            from coredis import exceptions
        except ImportError:
            raise MissingExtra("RedisReferenceStore", "coredis", "redis") from None
        self.name = name
        self._failures = (exceptions.RedisError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)
        self._environment = environment
        self._retention = retention
        self._prefix = prefix
        self._script: dict[str, Any] = {
            text: client.register_script(scripts.PRELUDE + text)
            for text in (
                scripts.PUT + scripts.COMMIT,
                *(scripts.COMMIT, scripts.BEGIN, scripts.EXTEND, scripts.DISCARD, scripts.FETCH, scripts.ACQUIRE),
                *(scripts.RELEASE, scripts.DELETE, scripts.QUARANTINE, scripts.LIST, scripts.DESCRIBE),
                *(scripts.TOTALS, scripts.COLLECT, scripts.COLLECT_REST),
            )
        }
        self._client = client

    async def open(self) -> None:
        await self._run(scripts.TOTALS)

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()

    async def put(self, item: Item, pieces: Sequence[Piece], hold: Hold) -> Item:
        if len(pieces) == 1:
            found = await self._run(scripts.PUT + scripts.COMMIT, *_terms(item, hold), _packed(pieces[0]))
            return _item(item.reference.id, found)
        try:
            await self.begin(item.blob)
            for number, piece in enumerate(pieces):
                await self.extend(item.blob, number, piece)
            there = await self.commit(item, hold)
        except BaseException:
            with trio.move_on_after(5, shield=True):
                await self._forget(item.blob)
            raise
        if there is None:
            raise ReferenceUnavailable(self.name, "the payload took too long to store; store it again")
        return there

    async def begin(self, blob: str) -> None:
        await self._run(scripts.BEGIN, blob)

    async def extend(self, blob: str, number: int, piece: Piece) -> bool:
        return bool(await self._run(scripts.EXTEND, blob, number, _packed(piece)))

    async def commit(self, item: Item, hold: Hold) -> Item | None:
        found = await self._run(scripts.COMMIT, *_terms(item, hold))
        return None if found is None else _item(item.reference.id, found)

    async def discard(self, blob: str) -> None:
        await self._run(scripts.DISCARD, blob)

    async def fetch(self, id: str) -> tuple[Item, Sequence[Piece]] | None:
        found = await self._run(scripts.FETCH, id)
        if found is None:
            return None
        item, pieces = found
        return _item(id, item), [_unpacked(piece) for piece in pieces]

    async def piece(self, item: Item, number: int) -> Piece | None:
        try:
            data = await self._client.hget(f"{self._prefix}blob:{item.blob}", str(number))
        except self._failures as error:
            raise self._unavailable(error) from error
        return None if data is None else _unpacked(data)

    async def acquire(self, id: str, owner: str, expires: float) -> Item | None:
        found = await self._run(scripts.ACQUIRE, id, owner, _text(expires))
        return None if found is None else _item(id, found)

    async def release(self, id: str, owner: str) -> bool:
        return bool(await self._run(scripts.RELEASE, owner, id))

    async def release_all(self, owner: str) -> int:
        return int(await self._run(scripts.RELEASE, owner, ""))

    async def delete(self, id: str) -> bool | tuple[Lease, ...]:
        found = await self._run(scripts.DELETE, id)
        return False if found is None else _leases(id, found) or True

    async def quarantine(self, id: str, blob: str, reason: str) -> None:
        await self._run(scripts.QUARANTINE, id, blob, reason)

    async def list(self) -> tuple[Reference, ...]:
        references: list[Reference] = []
        after = "-"
        while after:
            last, looked, rows = await self._run(scripts.LIST, after, BATCH)
            references += [_item(id.decode(), item).reference for id, item in rows]
            after = f"({last.decode()}" if looked == BATCH else ""
        return tuple(references)

    async def describe(self, id: str) -> ReferenceInfo | None:
        found = await self._run(scripts.DESCRIBE, id)
        if found is None:
            return None
        item, leases, (kept_until, accessed, resolves) = _item(id, found[0]), found[1], found[2]
        return ReferenceInfo(
            item.reference,
            _leases(id, leases),
            finite(float(kept_until)),
            float(accessed),
            int(resolves),
            item.stored_size,
            item.corrupt,
        )

    async def totals(self) -> Totals:
        return Totals(*(int(value or 0) for value in await self._run(scripts.TOTALS)))

    async def collect(self) -> Collected:
        collected = Collected()
        after = "-"
        while after:
            last, looked, references, freed, leases = await self._run(scripts.COLLECT, after, BATCH)
            collected += Collected(references, leases=leases, stored_bytes=freed)
            after = f"({last.decode()}" if looked == BATCH else ""
        before = _text(self._environment.wall() - UPLOAD_IDLE)
        uploads, evicted, freed = await self._run(scripts.COLLECT_REST, before)
        return collected + Collected(evicted=evicted, uploads=uploads, stored_bytes=freed)

    async def _run(self, script: str, *args: str | int | bytes) -> Any:
        now, retention = self._environment.wall(), self._retention
        common = (
            self._prefix,
            _text(now),
            _text(retention.idle_before(now)),
            retention.max_references or "",
            retention.max_bytes or "",
        )
        try:
            return await self._script[script](keys=[], args=[*common, *args])
        except self._failures as error:
            raise self._unavailable(error) from error

    async def _forget(self, blob: str) -> None:
        try:
            await self.discard(blob)
        except ReferenceUnavailable:
            return  # a collection drops it

    def _unavailable(self, error: BaseException) -> ReferenceUnavailable:
        return ReferenceUnavailable(self.name, str(error) or type(error).__name__)


def _terms(item: Item, hold: Hold) -> tuple[str | int, ...]:
    reference = item.reference
    return (
        *(reference.id, _text(hold.kept_until), hold.owner or "", _text(hold.expires), item.blob),
        *(reference.type, reference.content_type, reference.size, item.pieces, item.stored_size),
    )


def _item(id: str, found: Sequence[bytes]) -> Item:
    type_, content_type, size, created, blob, pieces, stored_size, corrupt = found
    reference = Reference(id, type_.decode(), content_type.decode(), int(size), float(created))
    reason = cast("bytes | None", corrupt)
    return Item(reference, blob.decode(), int(pieces), int(stored_size), None if reason is None else reason.decode())


def _leases(id: str, found: Sequence[bytes]) -> tuple[Lease, ...]:
    pairs = zip(found[::2], found[1::2], strict=True)
    leases = [Lease(id, owner.decode(), finite(float(expires))) for owner, expires in pairs]
    return tuple(sorted(leases, key=lambda lease: lease.owner))


def _packed(piece: Piece) -> bytes:
    return ENCODINGS[piece.encoding] + piece.crc.to_bytes(4) + piece.data


def _unpacked(stored: bytes) -> Piece:
    letter = stored[:1]
    return Piece(NAMES.get(letter, repr(letter)), int.from_bytes(stored[1:5]), stored[5:])


def _text(moment: float) -> str:
    """Return a moment with all its digits, as Redis and Lua read it."""
    return repr(moment) if math.isfinite(moment) else f"{'-' if moment < 0 else '+'}inf"


def _shown(url: str) -> str:
    before, at, after = url.rpartition("@")
    return f"{before.partition('://')[0]}://...{at}{after}" if at else url
