"""The two written forms of an envelope, JSON and msgpack; both strict, both validated when written and when read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

import attrs

from sapwood.errors import CodecError, FutureVersion, InvalidEnvelope, MessageTooLarge
from sapwood.messaging.envelope._envelope import NANOSECONDS, Envelope
from sapwood.messaging.envelope._plain import record_from_plain, record_to_plain
from sapwood.persistence import decode, encode

FORMAT_VERSION: Final = 1
"""Version of the JSON form, raised when a field changes its meaning."""

SIZE_GUIDANCE: Final = 1024 * 1024
"""Bytes that a message should stay below; larger payloads belong in a reference store (S2-006)."""

_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})Z")


# --- JSON -----------------------------------------------------------------------------------------


def to_dict(envelope: Envelope[Any]) -> dict[str, Any]:
    """Return the JSON form: every field, times as ISO 8601 in UTC, the payload with its type and version (S2-004).

    Raises:
        CodecError: if a field of the payload does not fit its annotation.
    """
    return {
        "version": FORMAT_VERSION,
        **{name: write(getattr(envelope, name)) for name, (write, _) in _FIELDS.items()},
    }


def from_dict(data: Mapping[str, Any]) -> Envelope[Any]:
    """Return the envelope that `to_dict` wrote; the argument is not changed (S2-004, C16).

    Strict: unknown and missing fields, unknown kinds and types, and wrong primitives are refused (S1-003).

    Raises:
        InvalidEnvelope: if a field of the envelope is wrong; it says which, what was expected, and what was got.
        CodecError: if the payload is wrong; its path says where.
        FutureVersion: if the form, or the payload's class, is newer than this code.
    """
    if not isinstance(data, Mapping):
        raise InvalidEnvelope("envelope", "an object", data)
    version = data.get("version")
    if type(version) is not int or version < 1:
        raise InvalidEnvelope("version", f"the version of the form, {FORMAT_VERSION}", version)
    if version > FORMAT_VERSION:
        raise FutureVersion("the JSON form of an envelope", version, FORMAT_VERSION)
    unknown = [name for name in data if name != "version" and name not in _FIELDS]
    if unknown:
        raise InvalidEnvelope(str(unknown[0]), f"only version, {', '.join(_FIELDS)}", "an unknown field")
    for name in _FIELDS:
        if name not in data:
            raise InvalidEnvelope(name, "a value", "none at all")
    read = {name: read(data[name]) for name, (_, read) in _FIELDS.items()}
    return Envelope(**read)


def to_json(envelope: Envelope[Any]) -> str:
    """Return the JSON form as text, keys sorted, so that equal envelopes have equal text (S1-010).

    Raises:
        CodecError: see `to_dict`.
    """
    return json.dumps(to_dict(envelope), sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_json(text: str | bytes) -> Envelope[Any]:
    """Return the envelope that `to_json` wrote; see `from_dict`.

    Raises:
        InvalidEnvelope: also if the text is no JSON, or names a field twice.
        CodecError, FutureVersion: see `from_dict`.
    """
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidEnvelope("envelope", "JSON", f"{type(error).__name__}: {error}") from None
    return from_dict(data)


def checksum(envelope: Envelope[Any]) -> str:
    """Return the first 16 hex digits of the SHA-256 of the JSON text; finds accidents, not attackers (S1-012)."""
    return hashlib.sha256(to_json(envelope).encode()).hexdigest()[:16]


# --- msgpack --------------------------------------------------------------------------------------


def to_bytes(envelope: Envelope[Any]) -> bytes:
    """Return the msgpack form, that of the store.

    Raises:
        CodecError: if a field of the payload does not fit its annotation.
    """
    return encode(envelope)


def from_bytes(data: bytes) -> Envelope[Any]:
    """Return the envelope that `to_bytes` wrote, its payload upgraded to the version that its class has now.

    Raises:
        CodecError: if the bytes are no envelope, or anything in them is wrong.
        FutureVersion: if the envelope or its payload is newer than this code.
    """
    value = decode(data)
    if not isinstance(value, Envelope):
        raise CodecError("envelope", f"the bytes hold a {type(value).__name__}")
    return cast("Envelope[Any]", value)


def size_of(envelope: Envelope[Any]) -> int:
    """Return the size of the msgpack form in bytes."""
    return len(encode(envelope))


def check_size(envelope: Envelope[Any], limit: int) -> int:
    """Return the size of a message in bytes (S2-006).

    Raises:
        MessageTooLarge: if it is above the limit.
        CodecError: if its payload does not fit its schema.
    """
    size = size_of(envelope)
    if size > limit:
        raise MessageTooLarge(envelope.message_id, size, limit)
    return size


# --- fields ---------------------------------------------------------------------------------------


def _write_time(value: int | None) -> str | None:
    if value is None:
        return None
    seconds, rest = divmod(value, NANOSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _read_time(field: str, *, required: bool) -> Callable[[object], int | None]:
    def read(value: object) -> int | None:
        if value is None and not required:
            return None
        match = _STAMP.fullmatch(value) if isinstance(value, str) else None
        try:
            when = datetime.fromisoformat(f"{match[1]}+00:00") if match else None
        except ValueError:
            when = None
        if when is None or match is None:
            raise InvalidEnvelope(field, "a time such as 2026-01-31T09:30:00.000000000Z", value)
        return int(when.timestamp()) * NANOSECONDS + int(match[2])

    return read


def _read_headers(value: object) -> dict[str, Any]:
    if type(value) is not dict:
        raise InvalidEnvelope("headers", "an object", value)
    return cast("dict[str, Any]", value)


def _as_it_is(value: Any) -> Any:
    return value


_FIELDS: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    **{
        field.name: (_as_it_is, _as_it_is)
        for field in attrs.fields(cast("Any", Envelope))
        if field.name != "header_pairs"
    },
    "created_at": (_write_time, _read_time("created_at", required=True)),
    "deadline": (_write_time, _read_time("deadline", required=False)),
    "headers": (dict, _read_headers),
    "payload": (record_to_plain, record_from_plain),
}
"""Field of the JSON form: how it is written and read. `Envelope` itself checks what needs no change of form."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} stands twice in one object")
        found[name] = value
    return found


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")
