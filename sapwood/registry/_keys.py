"""Registry keys: typed tuples, compared by type and value."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from sapwood.errors import InvalidKey

Key: TypeAlias = tuple[Any, ...]
"""A tuple that begins with its kind: `("agent", "conversation-1")`, `("files", "user", 1)` (S4-042)."""

_PLAIN: Final = frozenset({str, int, bytes})


def check_key(key: object) -> Key:
    """Return the key if it is one.

    Parts may be `str`, `int`, `bytes` and tuples of these. Others are refused, because Python holds `1`, `1.0`
    and `True` for equal, and two different keys must never be taken for one (OTP K06).

    Raises:
        InvalidKey: saying which part cannot be used, and what to write instead.
    """
    if type(key) is not tuple or not key or type(key[0]) is not str:
        raise InvalidKey(key, 'a tuple that begins with its kind, such as ("agent", "conversation-1")')
    for part in key:
        if type(part) not in _PLAIN:
            _check_part(key, part)
    return key


def _check_part(key: Key, part: object) -> None:
    if type(part) is tuple:
        for inner in part:
            _check_part(key, inner)
    elif type(part) not in _PLAIN:
        raise InvalidKey(key, f"parts of type str, int, bytes or tuple; {part!r} is a {type(part).__name__}")
