"""Registry keys: typed tuples, compared by type and value."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast
from zlib import crc32

from sapwood.errors import InvalidKey

Key: TypeAlias = tuple[Any, ...]
"""A tuple that begins with its kind: `("agent", "conversation-1")`, `("files", "user", 1)` (S4-042)."""

PLAIN: Final = frozenset({str, int, bytes})


def check_key(key: object) -> Key:
    """Return the key if it is one.

    Parts may be `str`, `int`, `bytes` and tuples of these. Others are refused, because Python holds `1`, `1.0`
    and `True` for equal, and two different keys must never be taken for one (OTP K06).

    Raises:
        InvalidKey: saying which part cannot be used, and what to write instead.
    """
    parts = cast("Key", key)
    if type(parts) is not tuple or not parts or type(parts[0]) is not str:
        raise InvalidKey(key, 'a tuple that begins with its kind, such as ("agent", "conversation-1")')
    _check_parts(parts, parts)
    return parts


def _check_parts(key: Key, parts: Key) -> None:
    for part in parts:
        if type(part) is tuple:
            _check_parts(key, cast("Key", part))
        elif type(part) not in PLAIN:
            raise InvalidKey(key, f"parts of type str, int, bytes or tuple; {part!r} is of type {type(part).__name__}")


def partition_of(key: Key, partitions: int) -> int:
    """Return the number of the partition that a key belongs to: the same one in every process (OTP M02).

    Python's own hash of text differs from process to process, and one seed would not give one history then.
    """
    return _digest(key, 0) % partitions


def _digest(parts: Key, start: int) -> int:
    for part in parts:
        if type(part) is str:
            start = crc32(part.encode("utf-8", "surrogatepass"), crc32(b"s", start))
        elif type(part) is bytes:
            start = crc32(part, crc32(b"b", start))
        elif type(part) is int:
            start = crc32(part.to_bytes(part.bit_length() // 8 + 1, "little", signed=True), crc32(b"i", start))
        else:
            start = _digest(part, crc32(b"(", start))
    return crc32(b")", start)
