"""What a kind of store has to keep, and how it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from sapwood.references._pieces import Piece
from sapwood.references._protocol import Collected
from sapwood.references._reference import Lease, Reference, ReferenceInfo
from sapwood.references._retention import Hold


@attrs.frozen
class Item:
    """A payload as it is kept.

    Attributes:
        reference: What stands for it.
        blob: Name of its bytes: another one each time they are stored anew.
        pieces: How many pieces they have.
        stored_size: Bytes that these take up.
        corrupt: Why it is in quarantine, or None.
    """

    reference: Reference
    blob: str
    pieces: int
    stored_size: int
    corrupt: str | None = None


@attrs.frozen
class Totals:
    """How much a shelf keeps; the fields are those of `ReferenceStatistics`."""

    references: int = 0
    bytes: int = 0
    stored_bytes: int = 0
    leases: int = 0
    quarantined: int = 0


class Shelf(Protocol):
    """Keeps items, their pieces and leases. Each call takes effect at one moment, or raises and changes nothing.

    An item is alive while it is in quarantine, somebody holds it, or it is kept and not idle. One that is not alive
    is treated as absent by every call. Moments are wall-clock times of the callers' environment.
    """

    name: str

    async def open(self) -> None:
        """Make ready; called once, before anything else."""
        ...

    async def close(self) -> None:
        """Release what belongs to the shelf."""
        ...

    async def put(self, item: Item, pieces: Sequence[Piece], hold: Hold) -> Item:
        """Keep an item, or add the hold to the one that is there alive and whole; return the one that is there."""
        ...

    async def begin(self, blob: str) -> None:
        """Begin an upload."""
        ...

    async def extend(self, blob: str, number: int, piece: Piece) -> bool:
        """Add a piece to an upload; return False if there is no such upload any more."""
        ...

    async def commit(self, item: Item, hold: Hold) -> Item | None:
        """End an upload as `put` does with all its pieces; return None if there is no such upload any more."""
        ...

    async def discard(self, blob: str) -> None:
        """Drop an upload; one that is not there is no error."""
        ...

    async def fetch(self, id: str) -> tuple[Item, Sequence[Piece]] | None:
        """Return an item with all its pieces, and note that it was used; without pieces if it is in quarantine."""
        ...

    async def piece(self, item: Item, number: int) -> Piece | None:
        """Return one piece, or None if it or the item is not there."""
        ...

    async def acquire(self, id: str, owner: str, expires: float) -> Item | None:
        """Set an owner's lease and note that the item was used; return the item, or None if it is not alive."""
        ...

    async def release(self, id: str, owner: str) -> bool:
        """End a lease; return whether there was one that had not expired."""
        ...

    async def release_all(self, owner: str) -> int:
        """End all leases of an owner; return how many had not expired."""
        ...

    async def delete(self, id: str) -> bool | tuple[Lease, ...]:
        """Delete an item unless it is held; return whether it was there, or who holds it."""
        ...

    async def quarantine(self, id: str, blob: str, reason: str) -> None:
        """Mark an item as damaged, if it still has these bytes."""
        ...

    async def list(self) -> tuple[Reference, ...]:
        """Return what is alive, by id."""
        ...

    async def describe(self, id: str) -> ReferenceInfo | None:
        """Return all that is known of an item, or None if it is not alive."""
        ...

    async def totals(self) -> Totals:
        """Return how much is kept, what is no longer alive included."""
        ...

    async def collect(self) -> Collected:
        """Remove what is not alive, expired leases and uploads idle for `UPLOAD_IDLE`; then evict to the limits."""
        ...


UPLOAD_IDLE = 3600.0
"""Seconds without a piece after which an upload is taken for one whose writer died."""

BATCH = 256
"""Items that a collection looks at in one go."""
