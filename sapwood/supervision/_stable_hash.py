"""A hash that is the same in every process and for every version of Python."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any, cast

from sapwood.errors import InvalidOption


def stable_hash(key: object) -> int:
    """Return a hash of a key, from 0 to 2**64 - 1, that does not change between processes.

    Python salts the hash of `str`, and holds `1`, `1.0` and `True` for equal; here types count, so these three
    are different keys (OTP M02, K06).

    Args:
        key: None, a bool, int, float, str or bytes, or a tuple of these.

    Raises:
        InvalidOption: if it is anything else.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in _encode(key):
        digest.update(part)
    return int.from_bytes(digest.digest(), "big")


def _encode(key: object) -> Iterator[bytes]:
    match key:
        case None:
            yield b"n"
        case bool():
            yield b"b1" if key else b"b0"
        case int():
            yield _sized(b"i", b"%d" % key)
        case float():
            yield b"f" + struct.pack(">d", key)
        case str():
            yield _sized(b"s", key.encode("utf-8", "surrogatepass"))
        case bytes():
            yield _sized(b"y", key)
        case tuple():
            parts = cast("tuple[Any, ...]", key)
            yield b"t%d:" % len(parts)
            for part in parts:
                yield from _encode(part)
        case _:
            raise InvalidOption(f"stable_hash: expected None, bool, int, float, str, bytes or a tuple; got {key!r}")


def _sized(tag: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(content), content)
