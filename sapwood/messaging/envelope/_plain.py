"""Records as plain JSON: what JSON lacks is written as an object with one `@` key, so that all comes back as it was."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast

import attrs

from sapwood.actors import class_of, wire_of
from sapwood.errors import CodecError
from sapwood.persistence import encode, upcast

DEPTH_LIMIT: Final = 100

TAGS: Final[Mapping[type, str]] = {tuple: "@tuple", set: "@set", frozenset: "@frozenset"}

AS_THEY_ARE: Final = frozenset({type(None), bool, int, str})

kind_of: Callable[[object], type[Any]] = type
"""The exact type of a value, which narrows nothing for type checkers."""


def record_to_plain(value: object) -> dict[str, Any]:
    """Return a record as JSON: `{"type": wire name, "version": n, "fields": {…}}`.

    A tuple is `{"@tuple": […]}`, bytes are `{"@bytes": base64}`, and so on for every value that a record may hold.

    Raises:
        CodecError: if a field does not fit its annotation or cannot be written; its path says which.
    """
    encode(value)
    return _record(value)


def record_from_plain(data: object, path: str = "payload") -> Any:
    """Return the record that `record_to_plain` wrote, upgraded to the version that its class has now.

    Strict: unknown keys and fields, unknown types and wrong primitives are refused; the argument is not changed.

    Raises:
        FutureVersion: if the record is newer than its class.
        CodecError: if anything else is wrong; its path says where.
    """
    value = _rebuild(data, path, DEPTH_LIMIT)
    try:
        encode(value)
    except CodecError as error:
        wire = wire_of(kind_of(value))
        inside = error.path.removeprefix(wire.name) if wire is not None else ""
        raise CodecError(path + inside, error.problem) from None
    return value


# --- writing --------------------------------------------------------------------------------------


def _record(value: object) -> dict[str, Any]:
    wire = wire_of(kind_of(value))
    assert wire is not None
    names = [field.name for field in attrs.fields(kind_of(value))]
    return {
        "type": wire.name,
        "version": wire.version,
        "fields": {name: _plain(getattr(value, name)) for name in names},
    }


def _plain(value: Any) -> Any:
    kind = kind_of(value)
    if kind in AS_THEY_ARE:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"@float": repr(value)}
    if kind is list:
        return [_plain(item) for item in value]
    if kind is dict:
        if all(type(key) is str and not key.startswith("@") for key in value):
            return {key: _plain(item) for key, item in value.items()}
        pairs = sorted(value.items(), key=lambda pair: repr(pair[0]))
        return {"@map": [[_plain(key), _plain(item)] for key, item in pairs]}
    if kind in TAGS:
        items = value if kind is tuple else sorted(value, key=repr)
        return {TAGS[kind]: [_plain(item) for item in items]}
    if kind in _WRITE:
        tag, write = _WRITE[kind]
        return {tag: write(value)}
    return {"@record": _record(value)}


def _write_datetime(value: datetime) -> str:
    zone: str | None = getattr(value.tzinfo, "key", None)
    return value.isoformat() if zone is None else f"{value.isoformat()} {zone}"


_WRITE: Final[Mapping[type, tuple[str, Callable[[Any], str]]]] = {
    bytes: ("@bytes", lambda value: base64.b64encode(value).decode()),
    datetime: ("@datetime", _write_datetime),
    date: ("@date", lambda value: value.isoformat()),
    Decimal: ("@decimal", str),
}


# --- reading --------------------------------------------------------------------------------------


def _rebuild(data: object, path: str, room: int) -> Any:
    _check_room(path, room)
    if type(data) is not dict:
        raise CodecError(path, f"expected an object with type, version and fields; got {kind_of(data).__name__}")
    given = cast("dict[Any, Any]", data)
    if set(given) != {"type", "version", "fields"}:
        raise CodecError(path, f"expected the keys type, version and fields; got {', '.join(map(repr, given))}")
    name, version, raw = given["type"], given["version"], given["fields"]
    cls = class_of(name) if isinstance(name, str) else None
    wire = wire_of(cls) if cls is not None else None
    if cls is None or wire is None:
        raise CodecError(f"{path}.type", f"no class has the wire name {name!r}; import the module that declares it")
    if type(version) is not int or version < 1:
        raise CodecError(f"{path}.version", f"expected a whole number from 1; got {version!r}")
    if type(raw) is not dict:
        raise CodecError(f"{path}.fields", f"expected an object; got {kind_of(raw).__name__}")
    fields: dict[Any, Any] = {
        key: _value(item, f"{path}.{key}", room - 1) for key, item in cast("dict[Any, Any]", raw).items()
    }
    return _make(cls, upcast(wire, version, fields, path), path)


def _make(cls: type[Any], fields: dict[Any, Any], path: str) -> Any:
    known = {field.name: field.alias or field.name for field in attrs.fields(cls)}
    unknown = [key for key in fields if key not in known]
    if unknown:
        raise CodecError(
            path, f"expected only {', '.join(known) or 'no fields'}; got unknown {', '.join(map(repr, unknown))}"
        )
    missing = [field.name for field in attrs.fields(cls) if field.default is attrs.NOTHING and field.name not in fields]
    if missing:
        raise CodecError(f"{path}.{missing[0]}", "is missing and has no default")
    try:
        return cls(**{known[name]: value for name, value in fields.items()})
    except Exception as error:
        raise CodecError(path, f"its class refused the fields: {error!r}") from error


def _value(data: Any, path: str, room: int) -> Any:
    _check_room(path, room)
    kind = kind_of(data)
    if kind in AS_THEY_ARE or kind is float:
        return data
    if kind is list:
        return [_value(item, f"{path}[{index}]", room - 1) for index, item in enumerate(data)]
    if kind is dict:
        tags = [key for key in data if not isinstance(key, str) or key.startswith("@")]
        if not tags:
            return {key: _value(item, f"{path}.{key}", room - 1) for key, item in data.items()}
        if len(data) == 1 and tags[0] in _READ:
            return _tagged(tags[0], data[tags[0]], path, room)
        raise CodecError(path, f"expected one of the keys {', '.join(_READ)}; got {', '.join(map(repr, data))}")
    raise CodecError(path, f"expected JSON; got {kind.__qualname__}")


def _tagged(tag: str, data: Any, path: str, room: int) -> Any:
    if tag == "@record":
        return _rebuild(data, path, room - 1)
    accepted, read = _READ[tag]
    if type(data) is not accepted:
        raise CodecError(path, f"expected {accepted.__name__} in {tag}; got {kind_of(data).__qualname__}")
    try:
        if accepted is list:
            return read(_value(data, path, room - 1))
        return read(data)
    except (TypeError, ValueError, InvalidOperation, KeyError, binascii.Error) as error:
        raise CodecError(path, f"{tag} cannot be read: {error}") from None


def _read_datetime(text: str) -> datetime:
    stamp, _, zone = text.partition(" ")
    when = datetime.fromisoformat(stamp)
    if zone:
        from zoneinfo import ZoneInfo

        # The offset says which of two equal wall times it was.
        here = when.replace(tzinfo=ZoneInfo(zone))
        return here if here.utcoffset() == when.utcoffset() else here.replace(fold=1)
    return when


def _read_float(text: str) -> float:
    if text not in {"nan", "inf", "-inf"}:
        raise ValueError(f"expected nan, inf or -inf; got {text!r}")
    return float(text)


def _read_map(items: list[Any]) -> dict[Any, Any]:
    return {key: item for key, item in items}  # noqa: C416  # each item must be a pair


_READ: Final[Mapping[str, tuple[type, Callable[[Any], Any]]]] = {
    "@tuple": (list, tuple),
    "@set": (list, set),
    "@frozenset": (list, frozenset),
    "@map": (list, _read_map),
    "@float": (str, _read_float),
    "@bytes": (str, lambda text: base64.b64decode(text, validate=True)),
    "@datetime": (str, _read_datetime),
    "@date": (str, date.fromisoformat),
    "@decimal": (str, Decimal),
    "@record": (dict, dict),
}
"""Tag: the JSON type that may stand under it, and how it is read."""


def _check_room(path: str, room: int) -> None:
    if room <= 0:
        raise CodecError(path, f"nested deeper than {DEPTH_LIMIT} levels")
