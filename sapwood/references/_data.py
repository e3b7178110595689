"""Data as bytes and back: JSON, records, or bytes as they are."""

from __future__ import annotations

import json
import math
from typing import Any, Final, cast

from sapwood.actors import wire_of
from sapwood.errors import CodecError
from sapwood.persistence import decode, encode

JSON: Final = "application/json"
RECORD: Final = "application/vnd.sapwood.record"
BYTES: Final = "application/octet-stream"

LEAVES: Final = (str, int, bool, type(None))


def encode_data(data: object) -> tuple[bytes, str]:
    """Return data as bytes, and their content type.

    Bytes stay as they are, records go through the codec of `sapwood.persistence`, and all else must be JSON: None,
    bool, int, finite float, str, and lists and dicts with str keys of these. Nothing is coerced, so what comes out
    is equal to what went in.

    Raises:
        CodecError: naming the part that is none of these.
    """
    if isinstance(data, bytes):
        return data, BYTES
    if wire_of(type(data)) is not None:
        return encode(data), RECORD
    try:
        _check(data, "data")
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode(), JSON
    except RecursionError:
        raise CodecError("data", "nested too deeply, or contains itself") from None
    except ValueError as error:
        raise CodecError("data", str(error)) from error


def decode_data(data: bytes, content_type: str) -> Any:
    """Return what was encoded.

    Raises:
        CodecError: if the bytes are not what the content type says, or that is unknown.
        FutureVersion: if newer code wrote a record.
    """
    if content_type == JSON:
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CodecError("data", f"is not JSON: {error}") from error
    if content_type == RECORD:
        return decode(data)
    if content_type == BYTES:
        return data
    raise CodecError("data", f"content type {content_type!r} is unknown; resolve the reference to get its bytes")


def _check(value: object, path: str) -> None:
    kind = type(value)
    if kind in LEAVES:
        return
    if kind is dict:
        for key, part in cast("dict[object, object]", value).items():
            if type(key) is not str:
                raise CodecError(path, f"expected str keys, as JSON has no others; got {key!r:.80}")
            if type(part) not in LEAVES:
                _check(part, f"{path}[{key!r}]")
    elif kind is list:
        for index, part in enumerate(cast("list[object]", value)):
            if type(part) not in LEAVES:
                _check(part, f"{path}[{index}]")
    elif kind is not float:
        raise CodecError(
            path, f"expected JSON, a @record or bytes; got a {kind.__qualname__}: JSON would not bring it back the same"
        )
    elif not math.isfinite(cast("float", value)):
        raise CodecError(path, f"expected a finite float, as JSON has no other; got {value!r}")
