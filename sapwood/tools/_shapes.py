"""Shapes: what a tool's argument may be, as JSON schema for the model and as a strict reader of what it wrote.

A reader converts nothing but what loses nothing: an integral float where an integer is due, an integer where a number
is due. It goes on after a problem, so that the model learns of all of them at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, cast

import attrs

_SHOWN_LIMIT = 80


class Shape(ABC):
    """One kind of value."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """What it is, in words that follow "expected"."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""

    @abstractmethod
    def read(self, value: Any, path: str, problems: list[str]) -> Any:
        """Return the value for the function; of no meaning if problems were appended."""

    def refuse(self, value: Any, path: str, problems: list[str]) -> None:
        """Append the problem that the value is not this shape."""
        problems.append(f"argument {path!r}: expected {self.expected}, got {show(value)}")


def show(value: Any) -> str:
    """Describe a JSON value in a few words: short ones as they are, long ones by their kind."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value) if len(value) <= _SHOWN_LIMIT else f"{value[:_SHOWN_LIMIT]!r}..."
        case list():
            return f"a list of {len(cast('list[object]', value))}"
        case dict():
            return "an object"
        case int():
            return str(value) if value.bit_length() <= _SHOWN_LIMIT else "a very large integer"
        case _:
            return repr(value)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that looks most like this one, or None if none does."""
    return next(iter(get_close_matches(name, list(names), n=1)), None)


@attrs.frozen
class Plain(Shape):
    """A shape that one JSON type describes.

    Attributes:
        kind: Its JSON type; empty for any value.
        words: What it is, in words.
        accept: Returns the value for the function, or raises ValueError.
    """

    kind: str
    words: str
    accept: Callable[[Any], Any]

    @property
    def expected(self) -> str:
        return self.words

    def schema(self) -> dict[str, Any]:
        return {"type": self.kind} if self.kind else {}

    def read(self, value: Any, path: str, problems: list[str]) -> Any:
        try:
            return self.accept(value)
        except ValueError:
            self.refuse(value, path, problems)
            return None


def _accept_integer(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise ValueError


def _accept_number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError
    try:
        number = float(value)
    except OverflowError:
        raise ValueError from None
    if not math.isfinite(number):
        raise ValueError
    return number


def _accept_exactly(kind: type) -> Callable[[Any], Any]:
    def accept(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError
        return value

    return accept


ANY = Plain("", "any value", lambda value: value)
INTEGER = Plain("integer", "an integer", _accept_integer)
NUMBER = Plain("number", "a finite number", _accept_number)
TEXT = Plain("string", "text", _accept_exactly(str))
BOOLEAN = Plain("boolean", "true or false", _accept_exactly(bool))
NULL = Plain("null", "null", _accept_exactly(type(None)))


_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@attrs.frozen
class Described(Shape):
    """Another shape with a description of its own."""

    inner: Shape
    description: str

    @property
    def expected(self) -> str:
        return self.inner.expected

    def schema(self) -> dict[str, Any]:
        return {**self.inner.schema(), "description": self.description}

    def read(self, value: Any, path: str, problems: list[str]) -> Any:
        return self.inner.read(value, path, problems)


@attrs.frozen
class ListOf(Shape):
    """A list of any length whose items have one shape."""

    item: Shape
    build: Callable[[list[Any]], Any] = list

    @property
    def expected(self) -> str:
        return f"a list (each item: {self.item.expected})"

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema()}

    def read(self, value: Any, path: str, problems: list[str]) -> Any:
        if not isinstance(value, list):
            self.refuse(value, path, problems)
            return None
        items = cast("list[Any]", value)
        return self.build([self.item.read(item, f"{path}[{index}]", problems) for index, item in enumerate(items)])


@attrs.frozen
class TupleOf(Shape):
    """A list of fixed length, with a shape for every place."""

    items: tuple[Shape, ...]

    @property
    def expected(self) -> str:
        return f"a list of {len(self.items)}"

    def schema(self) -> dict[str, Any]:
        size = len(self.items)
        places = [item.schema() for item in self.items]
        return {"type": "array", "prefixItems": places, "minItems": size, "maxItems": size}

    def read(self, value: Any, path: str, problems: list[str]) -> Any:
        if not isinstance(value, list) or len(cast("list[Any]", value)) != len(self.items):
            self.refuse(value, path, problems)
            return None
        pairs = zip(self.items, cast("list[Any]", value), strict=True)
        return tuple(shape.read(item, f"{path}[{index}]", problems) for index, (shape, item) in enumerate(pairs))


@attrs.frozen
class MapOf(Shape):
    """An object with any keys whose values have one shape."""

    item: Shape

    @property
    def expected(self) -> str:
        return f"an object (each value: {self.item.expected})"

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.item.schema()}

    def read(self, value: Any, path: str, problems: list[str]) -> Any:
        if not isinstance(value, dict):
            self.refuse(value, path, problems)
            return None
        entries = cast("dict[str, Any]", value).items()
        return {key: self.item.read(item, f"{path}.{key}", problems) for key, item in entries}


@attrs.frozen
class OneOf(Shape):
    """One of some plain values.

    Attributes:
        choices: Pairs of the JSON value and what the function gets for it.
    """

    choices: tuple[tuple[Any, Any], ...]

    @property
    def expected(self) -> str:
        return "one of " + ", ".join(show(written) for written, _ in self.choices)

    def schema(self) -> dict[str, Any]:
        values = [written for written, _ in self.choices]
        kinds = {_KINDS[type(value)] for value in values}
        return {"type": kinds.pop(), "enum": values} if len(kinds) == 1 else {"enum": values}

    def read(self, value: Any, path: str, problems: list[str]) -> Any:
        for written, meant in self.choices:
            # True equals 1 in Python, but not in JSON.
            if type(written) is type(value) and written == value:
                return meant
        self.refuse(value, path, problems)
        return None


@attrs.frozen
class Union(Shape):
    """Any of several shapes; the first that needs no conversion counts, else the first that fits."""

    members: tuple[Shape, ...]

    @property
    def expected(self) -> str:
        return " or ".join(member.expected for member in self.members)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [member.schema() for member in self.members]}

    def read(self, value: Any, path: str, problems: list[str]) -> Any:
        fits: list[Any] = []
        for member in self.members:
            found: list[str] = []
            read = member.read(value, path, found)
            if not found:
                fits.append(read)
        if fits:
            return next((read for read in fits if type(read) is type(value)), fits[0])
        self._explain(value, path, problems)
        return None

    def _explain(self, value: Any, path: str, problems: list[str]) -> None:
        # Where only one member can be meant, its own problems say more than "expected A or B".
        others = [member for member in self.members if member is not NULL]
        if len(others) == 1 and isinstance(value, (list, dict)):
            others[0].read(value, path, problems)
        else:
            self.refuse(value, path, problems)
