"""Payloads on their way into a shelf and out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final, Protocol, TypeVar, TypeVarTuple

import trio

from sapwood.actors import Environment
from sapwood.errors import ReferenceNotFound, ReferenceUnavailable
from sapwood.references._pieces import Damaged, Piece, cut, pack_piece, unpack_piece
from sapwood.references._shelf import UPLOAD_IDLE, Item, Shelf

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

READING_LEASE: Final = 600.0
"""Seconds for which a reader holds what it reads; renewed at half that time."""

INLINE: Final = 128 * 1024
"""Bytes above which hashing and compressing are done in a thread, so that they hold nobody up."""


class OffLoop(Protocol):
    """Runs a function on so many bytes where it holds nobody up."""

    async def __call__(self, size: int, function: Callable[[*Ts], T], *args: *Ts) -> T: ...


def off_loop(environment: Environment) -> OffLoop:
    """Return a function that calls others at once for few bytes, and in a thread for many."""

    async def call(size: int, function: Callable[[*Ts], T], *args: *Ts) -> T:
        if size <= INLINE:
            return function(*args)
        return await environment.in_thread(function, *args)

    return call


def digest_and_pieces(data: bytes) -> tuple[str, list[Piece]]:
    """Return the id of a payload and what is stored of it."""
    return sha256(data).hexdigest(), [pack_piece(part) for part in cut(data)]


def joined(item: Item, pieces: Sequence[Piece]) -> bytes:
    """Put a payload together.

    Raises:
        Damaged: if it is not what its id says.
    """
    if len(pieces) != item.pieces:
        raise Damaged(f"{item.pieces - len(pieces)} of its {item.pieces} pieces are missing")
    parts = [unpack_piece(piece) for piece in pieces]
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    if len(data) != item.reference.size or sha256(data).hexdigest() != item.reference.id:
        raise Damaged("its bytes do not have its hash")
    return data


class Upload:
    """A stream on its way into a shelf."""

    def __init__(self, shelf: Shelf, blob: str, run: OffLoop) -> None:
        self.blob = blob
        self.hash = sha256()
        self.size = 0
        self.stored_size = 0
        self.count = 0
        self._shelf = shelf
        self._run = run

    async def add(self, data: bytes) -> None:
        """Store the next piece.

        Raises:
            ReferenceUnavailable: if the store has dropped the upload.
        """
        piece = await self._run(len(data), self._hashed, data)
        if not await self._shelf.extend(self.blob, self.count, piece):
            raise self.lost()
        self.size += len(data)
        self.stored_size += len(piece.data)
        self.count += 1

    def lost(self) -> ReferenceUnavailable:
        """Return the error for an upload that the store has dropped."""
        reason = f"the stream brought nothing for {UPLOAD_IDLE:g} s and was dropped; store it again"
        return ReferenceUnavailable(self._shelf.name, reason)

    async def forget(self) -> None:
        """Drop what was stored of it."""
        try:
            await self._shelf.discard(self.blob)
        except ReferenceUnavailable:
            return  # a collection drops it

    def _hashed(self, data: bytes) -> Piece:
        self.hash.update(data)
        return pack_piece(data)


class Reading:
    """A payload that is read piece by piece, under a lease."""

    def __init__(self, shelf: Shelf, environment: Environment, item: Item, owner: str, until: float) -> None:
        self._shelf = shelf
        self._environment = environment
        self._item = item
        self._owner = owner
        self._until = until
        self._run = off_loop(environment)
        self._next = 0
        self._hash = sha256()
        self._size = 0

    async def next(self) -> bytes:
        """Return the next chunk, or empty bytes when all were read and have the hash.

        Raises:
            Damaged: if they are not what was stored.
            ReferenceNotFound: if the lease ended and the reference is gone.
        """
        if self._next < self._item.pieces:
            data = await self._piece(self._next)
            self._next += 1
            self._hash.update(data)
            self._size += len(data)
            if data:
                return data
        else:
            await trio.lowlevel.checkpoint()
        reference = self._item.reference
        if self._size != reference.size or self._hash.hexdigest() != reference.id:
            raise Damaged("its bytes do not have its hash")
        return b""

    async def let_go(self) -> None:
        """Give up the lease."""
        try:
            await self._shelf.release(self._item.reference.id, self._owner)
        except ReferenceUnavailable:
            return  # the lease ends by itself

    async def _piece(self, number: int) -> bytes:
        id = self._item.reference.id
        now = self._environment.wall()
        if now > self._until - READING_LEASE / 2:
            self._until = now + READING_LEASE
            if await self._shelf.acquire(id, self._owner, self._until) is None:
                raise ReferenceNotFound(self._shelf.name, id)
        piece = await self._shelf.piece(self._item, number)
        if piece is None:
            raise Damaged(f"piece {number + 1} of its {self._item.pieces} pieces is missing")
        return await self._run(len(piece.data), unpack_piece, piece)
