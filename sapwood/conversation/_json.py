"""JSON-like values: what metadata and results may hold, copied so that nobody else can change them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from sapwood.errors import CodecError

DEPTH_LIMIT = 100


def clean_text(text: str) -> str:
    r"""Return the text with every lone surrogate written as its escape, such as `\ud83d` (BR-31).

    No file, database or provider takes a lone surrogate; text without one is returned as it is.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def copy_json(value: Any, path: str = "value") -> Any:
    """Return a deep copy of a JSON-like value: None, bool, int, finite float, str, list or dict with str keys.

    Tuples become lists, subclasses of the plain types become the plain types, lone surrogates are escaped.

    Raises:
        CodecError: if a part is anything else, is nested deeper than 100 levels, or contains itself; its path says
            which part.
    """
    return _copy(value, path, DEPTH_LIMIT)


def _copy(value: object, path: str, depth: int) -> Any:
    if depth == 0:
        raise CodecError(path, f"expected at most {DEPTH_LIMIT} levels; got more, or a value that contains itself")
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            if not math.isfinite(value):
                raise CodecError(path, f"expected a finite number; got {value!r}: write None or text instead")
            return float(value)
        case str():
            return clean_text(str.__str__(value))
        case list() | tuple():
            items = cast("list[object]", value)
            return [_copy(item, f"{path}[{index}]", depth - 1) for index, item in enumerate(items)]
        case Mapping():
            mapping = cast("Mapping[object, object]", value)
            return {_key(key, path): _copy(item, f"{path}.{key}", depth - 1) for key, item in mapping.items()}
        case _:
            got = type(value).__qualname__
            raise CodecError(path, f"expected a JSON-like value; got {got}: convert it to text or a dict")


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise CodecError(path, f"expected text as key; got {key!r}: write {str(key)!r} instead")
    return clean_text(str.__str__(key))
