"""From a type annotation to the shape of an argument."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Required, cast, get_args, get_origin

import attrs

from sapwood.errors import InvalidTool
from sapwood.tools import _shapes as shapes
from sapwood.tools._context import ToolContext
from sapwood.tools._docstring import read_docstring
from sapwood.tools._objects import Field, ObjectOf, shown_default

ACCEPTED = (
    "str, int, float, bool, None, Any, list, tuple, dict with str keys, Literal, Enum, unions of these, "
    "attrs classes and TypedDicts"
)

_PLAIN: Mapping[Any, shapes.Shape] = {
    int: shapes.INTEGER,
    float: shapes.NUMBER,
    str: shapes.TEXT,
    bool: shapes.BOOLEAN,
    None: shapes.NULL,
    type(None): shapes.NULL,
    Any: shapes.ANY,
    object: shapes.ANY,
    list: shapes.ListOf(shapes.ANY),
    tuple: shapes.ListOf(shapes.ANY, tuple),
    dict: shapes.MapOf(shapes.ANY),
}


def shape_of(annotation: Any, where: str, inside: tuple[Any, ...] = ()) -> shapes.Shape:
    """Return the shape of values with this annotation.

    Args:
        annotation: A resolved annotation.
        where: What carries it, for errors.
        inside: Classes whose fields are being described, the outermost first.

    Raises:
        InvalidTool: if the annotation is none that a model's JSON can fill.
    """
    if annotation is ToolContext or not _is_hashable(annotation):
        raise refusal(annotation, where)
    if annotation in inside:
        raise InvalidTool(f"{where}: expected a type of finite depth; got {_name(annotation)} in itself: use dict")
    if isinstance(annotation, typing.NewType):
        return shape_of(annotation.__supertype__, where, inside)
    if type(annotation).__name__ == "TypeAliasType":  # `type X = ...`, from Python 3.12 on
        return shape_of(annotation.__value__, where, (*inside, annotation))
    origin = get_origin(annotation)
    if origin is not None:
        build = _GENERIC.get(origin)
        if build is None:
            raise refusal(annotation, where)
        return build(annotation, where, inside)
    if _is_subclass(annotation, enum.Enum):
        return _enum(annotation, where)
    plain = _PLAIN.get(annotation)
    if plain is not None:
        return plain
    # Typed dictionaries of `typing_extensions` are unknown to `typing.is_typeddict`.
    if _is_subclass(annotation, dict) and hasattr(annotation, "__total__"):
        return _typed_dict(annotation, where, (*inside, annotation))
    if _is_subclass(annotation, object) and attrs.has(annotation):
        return _attrs_class(annotation, where, (*inside, annotation))
    raise refusal(annotation, where)


def refusal(annotation: Any, where: str) -> InvalidTool:
    """Return the error for an annotation that no model can fill."""
    if annotation is ToolContext:
        return InvalidTool(f"{where}: expected a parameter of exactly ToolContext; got it inside another type")
    return InvalidTool(
        f"{where}: expected {ACCEPTED}; got {_name(annotation)}: take a str or a dict and convert it in the function"
    )


def _is_hashable(annotation: Any) -> bool:
    return isinstance(annotation, Hashable)


def _is_subclass(annotation: Any, cls: type[Any]) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, cls)


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def _annotated(annotation: Any, where: str, inside: tuple[Any, ...]) -> shapes.Shape:
    inner, *notes = get_args(annotation)
    shape = shape_of(inner, where, inside)
    text = next((note for note in notes if isinstance(note, str)), None)
    return shape if text is None else shapes.Described(shape, text)


def _union(annotation: Any, where: str, inside: tuple[Any, ...]) -> shapes.Shape:
    return shapes.Union(tuple(shape_of(member, where, inside) for member in get_args(annotation)))


def _literal(annotation: Any, where: str, inside: tuple[Any, ...]) -> shapes.Shape:
    return shapes.OneOf(tuple((_plain_value(value, where), value) for value in get_args(annotation)))


def _enum(cls: type[enum.Enum], where: str) -> shapes.Shape:
    return shapes.OneOf(tuple((_plain_value(member.value, where), member) for member in cls))


def _plain_value(value: Any, where: str) -> Any:
    if type(value) not in (str, int, float, bool, type(None)):
        raise InvalidTool(f"{where}: expected choices of text, numbers, booleans or None; got {value!r}")
    return value


def _list(annotation: Any, where: str, inside: tuple[Any, ...]) -> shapes.Shape:
    (item,) = get_args(annotation)
    return shapes.ListOf(shape_of(item, where, inside))


def _tuple(annotation: Any, where: str, inside: tuple[Any, ...]) -> shapes.Shape:
    items = get_args(annotation)
    if len(items) == 2 and items[1] is Ellipsis:
        return shapes.ListOf(shape_of(items[0], where, inside), tuple)
    return shapes.TupleOf(tuple(shape_of(item, where, inside) for item in items))


def _dict(annotation: Any, where: str, inside: tuple[Any, ...]) -> shapes.Shape:
    key, value = get_args(annotation)
    if key is not str:
        raise InvalidTool(f"{where}: expected a dict with str keys, as in JSON; got {_name(annotation)}")
    return shapes.MapOf(shape_of(value, where, inside))


_GENERIC: Mapping[Any, Callable[[Any, str, tuple[Any, ...]], shapes.Shape]] = {
    Annotated: _annotated,
    typing.Union: _union,
    types.UnionType: _union,
    Literal: _literal,
    list: _list,
    Sequence: _list,
    tuple: _tuple,
    dict: _dict,
    Mapping: _dict,
}


def hints_of(owner: Any, where: str) -> dict[str, Any]:
    """Return the resolved annotations of a function or class, `Annotated` kept.

    Raises:
        InvalidTool: if one of them names something that cannot be found.
    """
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except NameError as error:
        raise InvalidTool(
            f"{where}: expected annotations that can be resolved; got {error}: define or import {error.name} at module "
            f"level, outside `if TYPE_CHECKING`"
        ) from error
    except (TypeError, SyntaxError, AttributeError) as error:
        raise InvalidTool(f"{where}: expected annotations that can be resolved; got {error}") from error


def _typed_dict(cls: Any, where: str, inside: tuple[Any, ...]) -> shapes.Shape:
    hints = hints_of(cls, where)
    notes = read_docstring(cls.__doc__, hints).parameters
    fields: list[Field] = []
    for name, hint in hints.items():
        marker = get_origin(hint)
        required = name in cls.__required_keys__
        inner = hint
        # With postponed annotations `__required_keys__` does not see these two.
        if marker is Required or marker is NotRequired:
            required = marker is Required
            (inner,) = get_args(hint)
        shape = shape_of(inner, f"{where}, key {name!r} of {cls.__qualname__}", inside)
        fields.append(Field(name, shape, required, description=notes.get(name, "")))
    return ObjectOf(tuple(fields))


def _attrs_class(cls: type[Any], where: str, inside: tuple[Any, ...]) -> shapes.Shape:
    hints = hints_of(cls, where)
    own = [field for field in cast("tuple[attrs.Attribute[Any], ...]", attrs.fields(cls)) if field.init]
    notes = read_docstring(cls.__doc__, [field.name for field in own]).parameters
    fields: list[Field] = []
    for field in own:
        here = f"{where}, field {field.name!r} of {cls.__qualname__}"
        if field.name not in hints:
            raise InvalidTool(f"{here}: expected an annotation; got none")
        shape = shape_of(hints[field.name], here, inside)
        required = field.default is attrs.NOTHING
        default = () if required else shown_default(field.default)
        fields.append(Field(str(field.alias), shape, required, default, notes.get(field.name, "")))
    return ObjectOf(tuple(fields), lambda entries: cls(**entries))
