"""Pieces: payloads cut up, compressed and checked."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final, Literal, cast
from zlib import crc32

import attrs

from sapwood.errors import InvalidOption

PIECE: Final = 1024 * 1024
"""Most bytes of a payload that are stored, read and checked together."""

COMPRESS_ABOVE: Final = 100 * 1024
"""Bytes above which a piece is compressed if that makes it smaller (S0-040)."""

LEVEL: Final = 3

Encoding = Literal["raw", "zstd"]


class Damaged(Exception):  # never leaves the package
    """A piece cannot be what was stored."""


@attrs.frozen
class Piece:
    """Up to `PIECE` bytes of a payload, as stored.

    Attributes:
        encoding: Whether `data` is compressed.
        crc: CRC-32 of the uncompressed bytes.
        data: The stored bytes.
    """

    encoding: str
    crc: int
    data: bytes


def zstandard() -> Any:
    """Return the module `zstandard`, or None where it is not installed."""
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        return None


def pack_piece(data: bytes) -> Piece:
    """Make a piece of bytes."""
    crc = crc32(data)
    if len(data) > COMPRESS_ABOVE and (zstd := zstandard()) is not None:
        compressed: bytes = zstd.ZstdCompressor(level=LEVEL).compress(data)
        if len(compressed) < len(data):
            return Piece("zstd", crc, compressed)
    return Piece("raw", crc, data)


def unpack_piece(piece: Piece) -> bytes:
    """Return the bytes of a piece.

    Raises:
        Damaged: if they are not what was stored.
        MissingCompression: if they are compressed and `zstandard` is not installed.
    """
    data = piece.data if piece.encoding == "raw" else _decompressed(piece)
    if crc32(data) != piece.crc:
        raise Damaged("its checksum does not fit")
    return data


class MissingCompression(Exception):  # never leaves the package
    """A piece is compressed and `zstandard` is not installed."""


def _decompressed(piece: Piece) -> bytes:
    if piece.encoding != "zstd":
        raise Damaged(f"its encoding {piece.encoding!r:.40} is unknown")
    zstd = zstandard()
    if zstd is None:
        raise MissingCompression
    try:
        # The frame says how large it gets, and memory for that is taken before it is decompressed.
        size = zstd.frame_content_size(piece.data)
        if not 0 <= size <= PIECE:
            raise Damaged("it would decompress to more than a piece holds")
        data: bytes = zstd.ZstdDecompressor().decompress(piece.data)
    except zstd.ZstdError as error:
        raise Damaged(f"it cannot be decompressed ({error})") from error
    return data


def cut(data: bytes) -> list[bytes]:
    """Cut a payload into pieces; an empty one has one empty piece."""
    if len(data) <= PIECE:
        return [data]
    return [data[start : start + PIECE] for start in range(0, len(data), PIECE)]


class Cutter:
    """Cuts a stream of chunks of any size into pieces, all full but the last; an empty stream has one empty piece."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._empty = True

    def add(self, chunk: bytes) -> Iterator[bytes]:
        """Take a chunk and yield the pieces that are full.

        Raises:
            InvalidOption: if it is not bytes.
        """
        view = memoryview(as_bytes("chunks", chunk))
        while view:
            room = PIECE - len(self._waiting)
            self._waiting += view[:room]
            view = view[room:]
            if len(self._waiting) == PIECE:
                yield self._take()

    def rest(self) -> Iterator[bytes]:
        """Yield the last piece, if there is one."""
        if self._waiting or self._empty:
            yield self._take()

    def _take(self) -> bytes:
        piece, self._empty = bytes(self._waiting), False
        self._waiting.clear()
        return piece


def as_bytes(what: str, data: object) -> bytes:
    """Return bytes as they are, and a copy of what else holds bytes.

    Raises:
        InvalidOption: if it holds none.
    """
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(cast("bytearray", data))
    raise InvalidOption(f"{what}: expected bytes; got a {type(data).__name__}: encode it first")
