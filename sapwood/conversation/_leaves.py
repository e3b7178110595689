"""Leaves of JSON: checks of values that have no parts of their own kind. Each works both ways, reading and writing."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, get_args

from sapwood.conversation._json import clean_text, copy_json
from sapwood.errors import CodecError

Hook = Callable[..., Any]
"""Checks a value and returns its other form; the converter also passes the annotation when it reads."""


def below(segment: str, error: CodecError) -> CodecError:
    """Return the error as it is called one level further up."""
    return CodecError(segment + error.path, error.problem)


def unexpected(expected: str, value: object) -> CodecError:
    """Return the error for a value of another kind."""
    return CodecError("", f"expected {expected}; got {type(value).__qualname__}")


def one_of(names: tuple[str, ...], value: object) -> CodecError:
    """Return the error for a value that is none of the names."""
    return CodecError("", f"expected one of {', '.join(names)}; got {reprlib.repr(value)}")


def _text(value: str) -> str:
    return clean_text(str.__str__(value))


def _finite(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond all floats
        number = math.inf
    if not math.isfinite(number):
        raise CodecError("", f"expected a finite number; got {number}")
    return number


def _copy(value: object) -> Any:
    return copy_json(value, "")


LEAVES: Mapping[Any, tuple[Any, str, Hook]] = {
    str: (str, "text", _text),
    int: (int, "a whole number", int),
    float: (int | float, "a number", _finite),
    bool: (bool, "true or false", bool),
    dict[str, Any]: (Mapping, "an object", _copy),
}
"""For every annotation: the classes that may stand there, how they are called, and what makes the other form."""


def leaf_hook(annotation: Any) -> Hook:
    """Return the hook for an annotation in `LEAVES`. `True` is no number; lone surrogates are escaped (BR-31)."""
    accepted, expected, finish = LEAVES[annotation]

    def convert(value: object, _: object = None) -> Any:
        if not isinstance(value, accepted) or isinstance(value, bool) is not (annotation is bool):
            raise unexpected(expected, value)
        return finish(value)

    return convert


def name_hook(annotation: Any) -> Hook:
    """Return the hook for a `Literal` of names."""
    names: tuple[str, ...] = get_args(annotation)

    def convert(value: object, _: object = None) -> str:
        if not isinstance(value, str) or value not in names:
            raise one_of(names, value)
        return str.__str__(value)

    return convert
