"""Values as bytes: msgpack, extended so that every supported value comes back equal and of the same type (BR-29)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
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

Restore = Callable[[int, bytes], object]
Extend = Callable[[object], ExtType]


def pack(value: object, extend: Extend) -> bytes:
    """Pack a value; `extend` is asked for everything that msgpack itself does not know.

    A packer cannot be entered again while it packs, so every nested extension has one of its own.
    """
    return msgpack.Packer(default=extend, **_PACKER).pack(value)


def unpack(data: bytes, restore: Restore) -> Any:
    """Unpack what `pack` made; `restore` is called with code and bytes of every extension."""
    return msgpack.unpackb(data, ext_hook=restore, strict_map_key=False, unicode_errors="surrogatepass")


def extend_value(value: object, extend: Extend) -> ExtType:
    """Turn a value that msgpack does not know into an extension, or raise KeyError for an unsupported type."""
    code, dump, _ = _FORMS[type(value)]
    return ExtType(code, dump(value, extend))


def restore_value(code: int, data: bytes, restore: Restore) -> object:
    """Undo `extend_value`, or raise KeyError for an unknown code."""
    return _LOADERS[code](data, restore)


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


_FORMS: Mapping[type, tuple[int, Callable[[Any, Extend], bytes], Callable[[bytes, Restore], object]]] = {
    int: (2, _dump_int, lambda data, _: int.from_bytes(data, "big", signed=True)),  # beyond 64 bits only
    tuple: (3, lambda value, extend: pack(list(value), extend), lambda data, restore: tuple(unpack(data, restore))),
    set: (4, _dump_sorted, lambda data, restore: set(unpack(data, restore))),
    frozenset: (5, _dump_sorted, lambda data, restore: frozenset(unpack(data, restore))),
    datetime: (
        6,
        lambda value, extend: pack(_datetime_parts(value), extend),
        lambda data, restore: _datetime_from(unpack(data, restore)),
    ),
    date: (7, lambda value, _: value.isoformat().encode(), lambda data, _: date.fromisoformat(data.decode())),
    Decimal: (8, lambda value, _: str(value).encode(), lambda data, _: Decimal(data.decode())),
}
"""Type: its extension code for ever, how it is written, how it is read."""

_LOADERS = {code: load for code, _, load in _FORMS.values()}
