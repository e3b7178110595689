"""What a reference store must do, whatever it is built on."""

from __future__ import annotations

from collections.abc import AsyncIterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs

from sapwood.references._reader import ReferenceReader
from sapwood.references._reference import Lease, Reference, ReferenceInfo, ReferenceType
from sapwood.references._retention import STORE_DEFAULT


@attrs.frozen
class Collected:
    """What a collection freed.

    Attributes:
        references: References that nobody held any more.
        evicted: References that were kept, and had to go because the store was above its limits.
        leases: Leases that had expired.
        uploads: Streams whose writer died before their end.
        stored_bytes: Bytes freed, as stored.
    """

    references: int = 0
    evicted: int = 0
    leases: int = 0
    uploads: int = 0
    stored_bytes: int = 0

    def __add__(self, other: Collected) -> Collected:
        return Collected(
            self.references + other.references,
            self.evicted + other.evicted,
            self.leases + other.leases,
            self.uploads + other.uploads,
            self.stored_bytes + other.stored_bytes,
        )


@attrs.frozen
class ReferenceStatistics:
    """What a store holds, and what was done through this object (S0-015).

    Attributes:
        store: What the store is called.
        references: References stored, those included that the next collection will free.
        bytes: Their sizes, uncompressed.
        stored_bytes: Bytes that they take up.
        leases: Leases, those included that have expired since the last collection.
        quarantined: References that were found damaged.
        stores: Calls of `store` and `store_stream` that succeeded.
        deduplicated: How many of them found their bytes already there.
        resolves: Payloads handed out.
        collections: Collections that succeeded.
        failed_collections: Collections that found the store unavailable.
        collected: References freed by them.
        evicted: References evicted because the store was above its limits.
        compression: `zstd`; or `unavailable` where the package is not installed, and everything is stored as it is.
        listener_failure: What the listener raised, so that it was removed; empty if it did not.
    """

    store: str
    references: int
    bytes: int
    stored_bytes: int
    leases: int
    quarantined: int
    stores: int
    deduplicated: int
    resolves: int
    collections: int
    failed_collections: int
    collected: int
    evicted: int
    compression: str
    listener_failure: str


class ReferenceStore(Protocol):
    """Keeps bytes under their SHA-256, for as long as somebody holds them or their time lasts.

    Every call may raise `ReferenceUnavailable`, which never means that a reference is not there, and
    `InvalidOption` for what is no reference or option; both change nothing. All calls are checkpoints.

    Calls may run at once with each other and with collections: each takes effect whole at one moment, so what was just
    stored or is held is never collected (S0-032, BR-47).
    """

    @property
    def name(self) -> str:
        """What errors call the store."""
        ...

    async def open(self) -> None:
        """Make ready, before the first call; opening an open store does nothing."""
        ...

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
        """Store bytes, once however often they are stored, and return their reference when they are durable.

        Bytes that are already there keep the creation time, type and content type of their first `store` in the
        store's own lists; the returned reference has the type and content type given here.

        Args:
            data: The bytes.
            type: Kind of payload.
            content_type: How to read the bytes.
            ttl: Seconds to keep it though nobody holds it; None: for ever. By default the store's own. Keeping it
                is never cut short by a later `store` of the same bytes.
            owner: Instead of keeping it for `ttl`, hold it for this owner from the start.
            lease_for: Seconds of that lease; None: until it is released.
        """
        ...

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
        """Store bytes of any length in constant memory; as `store` otherwise.

        Until the last chunk is stored there is nothing to resolve. If `chunks` raises or the call is cancelled, what
        was stored is dropped; if the process dies, by a collection an hour later. An async generator is closed.
        """
        ...

    async def resolve(self, reference: Reference | str) -> bytes:
        """Return the bytes, checked against their id (S0-021).

        Raises:
            ReferenceNotFound: if the store does not have them.
            ReferenceCorrupt: if they are damaged; from then on they are in quarantine.
        """
        ...

    def resolve_stream(self, reference: Reference | str) -> AbstractAsyncContextManager[ReferenceReader]:
        """Read bytes of any length in constant memory, chunk by chunk.

        ```python
        async with store.resolve_stream(reference) as reader:
            async for chunk in reader: ...
        ```

        The reference is held by a lease of its own until the block is left. Each chunk is checked before it is handed
        out, and the whole against the id at the end.

        Raises:
            ReferenceNotFound: if the store does not have it.
            ReferenceCorrupt: if it is damaged; from then on it is in quarantine.
        """
        ...

    async def acquire(self, reference: Reference | str, owner: str, *, lease_for: float | None = None) -> Lease:
        """Hold a reference for an owner, or renew that owner's lease.

        Args:
            reference: The reference.
            owner: Who holds it: an agent, a message, a session. Separate holds have separate names.
            lease_for: Seconds after which the lease ends by itself, so that an owner who dies holds nothing for
                ever; None: until it is released.

        Raises:
            ReferenceNotFound: if the store does not have it.
        """
        ...

    async def release(self, reference: Reference | str, owner: str) -> bool:
        """End an owner's lease; return False if it had none, or not any more."""
        ...

    async def release_all(self, owner: str) -> int:
        """End all leases of an owner, such as one that died; return how many there were."""
        ...

    async def delete(self, reference: Reference | str) -> bool:
        """Delete a reference that nobody holds, also one in quarantine; return False if it was not there.

        Raises:
            ReferenceInUse: if somebody holds it (C1, C3).
        """
        ...

    async def list(self) -> tuple[Reference, ...]:
        """Return all references that are there, those in quarantine too, by id (S0-017)."""
        ...

    async def describe(self, reference: Reference | str) -> ReferenceInfo:
        """Return all that is known of a reference.

        Raises:
            ReferenceNotFound: if the store does not have it.
        """
        ...

    async def collect(self) -> Collected:
        """Free what nobody holds and whose time is over, then evict down to the limits (S0-014)."""
        ...

    async def stats(self) -> ReferenceStatistics:
        """Return what the store holds and has done."""
        ...

    async def close(self) -> None:
        """Refuse all further calls with `ReferenceUnavailable`; closing twice does nothing (S0-018)."""
        ...
