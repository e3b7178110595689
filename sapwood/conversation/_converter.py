"""Records as JSON: one strict converter for the record classes of a conversation.

Every key of a class must be there and no other, arrays stand for tuples, and no value becomes one of another kind;
only a whole number may stand for a number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_origin

import attrs

from sapwood.conversation._leaves import LEAVES, Hook, below, leaf_hook, name_hook, one_of, unexpected
from sapwood.conversation._tags import members_of, tag_of
from sapwood.errors import CodecError, InvalidOption

if TYPE_CHECKING:
    from cattrs import ClassValidationError, Converter


def _items(convert_item: Hook, accepted: type, expected: str, make: Hook) -> Hook:
    def convert(items: object, _: object = None) -> Any:
        if not isinstance(items, accepted):
            raise unexpected(expected, items)
        converted: list[Any] = []
        for index, item in enumerate(cast("list[Any]", items)):
            try:
                converted.append(convert_item(item))
            except CodecError as error:
                raise below(f"[{index}]", error) from None
        return make(converted)

    return convert


def _tuple_reader(kind: Any, converter: Converter) -> Hook:
    return _items(converter.get_structure_hook(get_args(kind)[0]), list, "an array", tuple)


def _tuple_writer(kind: Any, converter: Converter) -> Hook:
    return _items(converter.get_unstructure_hook(get_args(kind)[0]), tuple, "a tuple", list)


def _record_reader(cls: Any, converter: Converter) -> Hook:
    from cattrs import ClassValidationError
    from cattrs.gen import make_dict_structure_fn, override

    fields = attrs.fields(attrs.resolve_types(cls))
    # A class that judges a name by itself says more about it than a list of names does.
    judged = [field.name for field in fields if field.validator and get_origin(field.type) is Literal]
    overrides: dict[str, Any] = {name: override(struct_hook=leaf_hook(str)) for name in judged}
    make: Hook = make_dict_structure_fn(cls, converter, **overrides)
    tag = tag_of(cls)
    keys = (*tag, *(field.name for field in fields))

    def convert(raw: object, _: object = None) -> Any:
        if not isinstance(raw, dict):
            raise unexpected("an object", raw)
        given = cast("dict[Any, Any]", raw)
        for key in keys:
            if key not in given:
                raise CodecError(f".{key}", "expected a value; got none")
        for key, value in tag.items():
            if given[key] != value:
                raise below(f".{key}", one_of((value,), given[key]))
            given = {name: part for name, part in given.items() if name != key}
        try:
            return make(given, cls)
        except ClassValidationError as group:
            raise _first_problem(group, keys) from None

    return convert


def _first_problem(group: ClassValidationError, keys: tuple[str, ...]) -> CodecError:
    from cattrs import ForbiddenExtraKeysError

    noted, others = group.group_exceptions()
    error, path = (noted[0][0], f".{noted[0][1].name}") if noted else (others[0], "")
    match error:
        case CodecError():
            return below(path, error)
        case ForbiddenExtraKeysError():
            unknown = min(map(str, error.extra_fields))
            return CodecError(f".{unknown}", f"expected only {', '.join(keys)}; got an unknown key")
        case InvalidOption():
            return CodecError(path, str(error))
        case _:
            raise error


def _record_writer(cls: Any, converter: Converter) -> Hook:
    from cattrs.gen import make_dict_unstructure_fn

    fields = attrs.fields(attrs.resolve_types(cls))
    hooks = {field.name: converter.get_unstructure_hook(field.type) for field in fields}
    take_apart = make_dict_unstructure_fn(cls, converter)
    tag = tag_of(cls)

    def convert(value: object) -> dict[str, Any]:
        if type(value) is not cls:
            raise unexpected(cls.__qualname__, value)
        try:
            return {**tag, **take_apart(value)}
        except CodecError:
            # The generated function does not say which field it was at.
            for name, hook in hooks.items():
                try:
                    hook(getattr(value, name))
                except CodecError as error:
                    raise below(f".{name}", error) from None
            raise

    return convert


def _union_reader(kind: Any, converter: Converter) -> Hook:
    members = members_of(kind)
    (key,) = tag_of(members[0])
    hooks = {tag_of(member)[key]: converter.get_structure_hook(member) for member in members}

    def convert(raw: object, _: object = None) -> Any:
        name: object = cast("dict[Any, Any]", raw).get(key) if isinstance(raw, dict) else None
        hook = hooks.get(name) if isinstance(name, str) else None
        if hook is None:
            raise below(f".{key}", one_of(tuple(hooks), name))
        return hook(raw, kind)

    return convert


def _union_writer(kind: Any, converter: Converter) -> Hook:
    hooks = {member: converter.get_unstructure_hook(member) for member in members_of(kind)}
    names = ", ".join(member.__qualname__ for member in hooks)

    def convert(value: object) -> Any:
        hook = hooks.get(type(value))
        if hook is None:
            raise unexpected(f"one of {names}", value)
        return hook(value)

    return convert


_FACTORIES: tuple[tuple[Callable[[Any], bool], Hook, Hook], ...] = (
    (lambda kind: kind == dict[str, Any], leaf_hook, leaf_hook),
    (lambda kind: get_origin(kind) is Literal, name_hook, name_hook),
    (lambda kind: get_origin(kind) is tuple and get_args(kind)[1:] == (...,), _tuple_reader, _tuple_writer),
    (attrs.has, _record_reader, _record_writer),
    # The last is asked first: `StreamEvent` is a class and stands for all kinds of event.
    (lambda kind: bool(members_of(kind)), _union_reader, _union_writer),
)


@cache
def json_converter() -> Converter:
    """Return the converter. What it refuses it refuses with a CodecError, whose path begins below the value given."""
    # cattrs is imported at first use: a program that never writes JSON should not wait for it.
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True)
    for kind in LEAVES:
        if isinstance(kind, type):
            converter.register_structure_hook(kind, leaf_hook(kind))
            converter.register_unstructure_hook(kind, leaf_hook(kind))
    for matches, reader, writer in _FACTORIES:
        converter.register_structure_hook_factory(matches, reader)
        converter.register_unstructure_hook_factory(matches, writer)
    return converter
