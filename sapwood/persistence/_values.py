"""Values as bytes: msgpack, extended so that every supported value comes back equal and of the same type (BR-29)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import msgpack
from msgpack import ExtType

RECORD = 1
"""Extension code of a record: a packed `[wire name, version, {field: value}]`."""

LEAVES: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes, date, Decimal})
"""Types whose every value can be stored as it is."""

# Lone surrogates are text that the store must keep (BR-31); plain UTF-8 would refuse them. The default buffer of
# 256 KiB would cost more than the packing of a usual record.
_PACKER: dict[str, Any] = {"strict_types": True, "unicode_errors": "surrogatepass", "buf_size": 512}
_UNPACKER: dict[str, Any] = {"strict_map_key": False, "unicode_errors": "surrogatepass"}

MAX_NESTING = 110
"""Extensions within one another that are read; the checks before writing let fewer through."""

_ON_STACK = 6
"""Nested extensions that are read the fast way, which takes 40 KiB of the thread's stack for each."""

Extend = Callable[[object], ExtType]


def pack(value: object, extend: Extend) -> bytes:
    """Pack a value; `extend` is asked for everything that msgpack itself does not know.

    A packer cannot be entered again while it packs, so every nested extension has one of its own.
    """
    return msgpack.Packer(default=extend, **_PACKER).pack(value)


def extend_value(value: object, extend: Extend) -> ExtType:
    """Turn a value that msgpack does not know into an extension, or raise KeyError for an unsupported type."""
    code, dump = _DUMP[type(value)]
    return ExtType(code, dump(value, extend))


class Unpacker:
    """Unpacks what `pack` made.

    Args:
        restore_record: Makes a record of wire name, version and unpacked fields.
    """

    def __init__(self, restore_record: Callable[[str, int, dict[str, Any]], object]) -> None:
        self._restore_record = restore_record
        self._hooks = [partial(self._restore, depth) for depth in range(1, MAX_NESTING + 1)]

    def unpack(self, data: bytes, depth: int = 0) -> Any:
        """Unpack bytes that lie so many extensions deep.

        Raises:
            Exception: of whatever kind, if the bytes are damaged.
        """
        if depth >= MAX_NESTING:
            raise ValueError(f"nested deeper than {MAX_NESTING} levels")
        if depth < _ON_STACK:
            return msgpack.unpackb(data, ext_hook=self._hooks[depth], **_UNPACKER)
        size = len(data)
        unpacker = msgpack.Unpacker(
            ext_hook=self._hooks[depth], read_size=max(size, 1), max_buffer_size=size, **_UNPACKER
        )
        unpacker.feed(data)
        value = unpacker.unpack()
        if unpacker.tell() != size:
            raise ValueError("bytes are left over")
        return value

    def _restore(self, depth: int, code: int, data: bytes) -> object:
        if code == RECORD:
            return self._restore_record(*self.unpack(data, depth))
        load = _LOAD_PACKED.get(code)
        if load is not None:
            return load(self.unpack(data, depth))
        return _LOAD_BYTES[code](data)


def unstorable_zone(zone: tzinfo | None) -> bool:
    """Return whether a time zone cannot be stored: neither none, nor a fixed offset, nor a `ZoneInfo` with a key."""
    if zone is None or type(zone) is timezone:
        return False
    key: str | None = zone.key if type(zone) is ZoneInfo else None
    return key is None


def _datetime_parts(value: datetime) -> list[object]:
    clock = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, value.fold]
    zone = value.tzinfo
    if zone is None:
        return [*clock, None]
    if type(zone) is ZoneInfo:
        return [*clock, zone.key]
    offset = zone.utcoffset(None)
    assert offset is not None
    name = zone.tzname(None)
    plain = name == timezone(offset).tzname(None)
    return [*clock, [offset // timedelta(microseconds=1), None if plain else name]]


def _datetime_from(parts: list[Any]) -> datetime:
    *clock, fold, stored = parts
    zone: tzinfo | None
    if stored is None:
        zone = None
    elif isinstance(stored, str):
        zone = ZoneInfo(stored)
    else:
        offset, name = timedelta(microseconds=stored[0]), stored[1]
        zone = timezone(offset) if name is None else timezone(offset, name)
    year, month, day, hour, minute, second, microsecond = clock
    return datetime(year, month, day, hour, minute, second, microsecond, zone, fold=fold)


def _dump_int(value: int, _: Extend) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _dump_sorted(value: AbstractSet[Any], extend: Extend) -> bytes:
    # Sorted by their bytes, so that equal sets have equal records whatever the hash seed.
    return pack(sorted(value, key=lambda item: pack(item, extend)), extend)


_DUMP: Mapping[type, tuple[int, Callable[[Any, Extend], bytes]]] = {
    int: (2, _dump_int),  # beyond 64 bits; msgpack knows the others
    tuple: (3, lambda value, extend: pack(list(value), extend)),
    set: (4, _dump_sorted),
    frozenset: (5, _dump_sorted),
    datetime: (6, lambda value, extend: pack(_datetime_parts(value), extend)),
    date: (7, lambda value, _: value.isoformat().encode()),
    Decimal: (8, lambda value, _: str(value).encode()),
}
"""Type: its extension code for ever, and how it is written."""

_LOAD_PACKED: Mapping[int, Callable[[Any], object]] = {3: tuple, 4: set, 5: frozenset, 6: _datetime_from}
"""Extension code: how it is read from what was packed inside it."""

_LOAD_BYTES: Mapping[int, Callable[[bytes], object]] = {
    2: lambda data: int.from_bytes(data, "big", signed=True),
    7: lambda data: date.fromisoformat(data.decode()),
    8: lambda data: Decimal(data.decode()),
}
"""Extension code: how it is read from its bytes."""
