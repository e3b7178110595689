"""Objects: the shape of a class, a typed dictionary or a whole signature."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import attrs

from sapwood.tools._shapes import Shape, nearest


@attrs.frozen
class Field:
    """One entry of an object.

    Attributes:
        name: Its key.
        shape: Its shape.
        required: Whether it must be given.
        default: Its default as JSON, alone in a tuple; empty if there is none to show.
        description: What it means; empty if nobody said.
    """

    name: str
    shape: Shape
    required: bool = True
    default: tuple[Any, ...] = ()
    description: str = ""

    def schema(self) -> dict[str, Any]:
        schema = self.shape.schema()
        if self.description:
            schema.setdefault("description", self.description)
        if self.default:
            (schema["default"],) = self.default
        return schema


@attrs.frozen
class ObjectOf(Shape):
    """An object with known keys and no others.

    Attributes:
        fields: Its entries, in order.
        build: Makes the function's value from the given entries; what it raises becomes a problem.
    """

    fields: tuple[Field, ...]
    build: Callable[[dict[str, Any]], Any] = dict

    @property
    def expected(self) -> str:
        return "an object with " + (", ".join(field.name for field in self.fields) or "no keys")

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {field.name: field.schema() for field in self.fields},
            "required": [field.name for field in self.fields if field.required],
            "additionalProperties": False,
        }

    def read(self, value: Any, path: str, problems: list[str]) -> Any:
        if not isinstance(value, dict):
            self.refuse(value, path, problems)
            return None
        given = cast("dict[str, Any]", value)
        known = {field.name: field for field in self.fields}
        before = len(problems)
        missing = [each for each in known if known[each].required and each not in given]
        problems += [
            f"argument {_join(path, each)!r}: missing, expected {known[each].shape.expected}" for each in missing
        ]
        problems += [_unknown(_join(path, key), key, list(known)) for key in given if key not in known]
        read = {
            key: known[key].shape.read(item, _join(path, key), problems) for key, item in given.items() if key in known
        }
        if len(problems) > before:
            return None
        try:
            return self.build(read)
        except MemoryError:
            raise
        except Exception as error:  # a validator of the tool's own class may raise anything
            problems.append(f"argument {path!r}: {error}")
            return None


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _unknown(path: str, key: str, known: Sequence[str]) -> str:
    near = nearest(key, known)
    hint = f"did you mean {near!r}?" if near else "expected only " + (", ".join(map(repr, known)) or "no arguments")
    return f"argument {path!r}: unknown, {hint}"


def shown_default(value: Any) -> tuple[Any, ...]:
    """Return a default value as JSON shows it, alone in a tuple; nothing if it cannot."""
    written = value.value if isinstance(value, enum.Enum) else value
    try:
        return (json.loads(json.dumps(written, allow_nan=False)),)
    except (TypeError, ValueError, RecursionError):
        return ()
