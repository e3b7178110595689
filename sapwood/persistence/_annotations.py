"""Annotations as checks: what a field of a record may hold, without any coercion."""

from __future__ import annotations

import collections.abc
import types
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, cast, get_args, get_origin

import attrs

from sapwood.actors import wire_of
from sapwood.persistence._values import LEAVES, unstorable_zone

MAX_DEPTH = 100
"""Containers and records that may lie within one another; more is refused before it is written."""

CONTAINERS = (
    "None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset, datetime, date, Decimal or a record"
)


kind_of: Callable[[object], type[Any]] = type
"""The exact type of a value, which narrows nothing for type checkers."""


class Mismatch(Exception):
    """A value does not fit; the path to it grows at the front while the stack unwinds."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def below(self, segment: str) -> Mismatch:
        self.path = segment + self.path
        return self


@attrs.frozen
class Check:
    """What an annotation allows.

    Attributes:
        at_once: Types whose every value fits.
        fully: Called with any other value and the depth that is left; raises Mismatch unless the value fits.
    """

    at_once: frozenset[type]
    fully: Callable[[Any, int], None]

    def __call__(self, value: object, room: int) -> None:
        if type(value) not in self.at_once:
            self.fully(value, room)


CheckRecord = Callable[[Any, int], None]
"""Checks the fields of a record instance."""


def check_for(annotation: Any, check_record: CheckRecord | None) -> Check:
    """Build the check for one annotation.

    Args:
        annotation: A resolved annotation.
        check_record: Descends into records before writing. None after reading: there every part was checked
            when it was restored, so only what this annotation adds is looked at.
    """
    return _Builder(check_record).build(annotation)


def key_segment(key: object) -> str:
    """How a dictionary key looks in a path: `.x` or `[42]`."""
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{shown(key)}]"


def shown(value: object) -> str:
    """How a value looks in an error: at most 60 characters, and never a failure of its own."""
    try:
        whole = repr(value[:60] if isinstance(value, str | bytes) else value)
    except Exception:  # an int beyond Python's limit of digits, or a broken __repr__
        return f"a {type_name(value)}"
    return whole if len(whole) <= 60 else whole[:57] + "..."


def type_name(value: object) -> str:
    """How the type of a value is called in an error."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


@attrs.frozen
class _Builder:
    check_record: CheckRecord | None

    def build(self, annotation: Any) -> Check:
        annotation = _unwrapped(annotation)
        if annotation is Any or annotation is object or isinstance(annotation, TypeVar):
            return self.anything()
        if annotation in _LEAF_CHECKS:
            return _LEAF_CHECKS[annotation]
        origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
        if origin is Literal:
            return _literal(arguments)
        if origin is Union or origin is types.UnionType:
            return self.union(arguments)
        if origin is tuple and arguments[-1:] != (Ellipsis,) and annotation is not tuple:
            return self.fixed_tuple(arguments)
        if origin in _ITEMS:
            return self.items(_ITEMS[origin], arguments[:1])
        if origin in _MAPPINGS:
            return self.mapping(arguments)
        if isinstance(origin, type):
            return Check(frozenset(), self.record(cast("type[Any]", origin)))
        raise Mismatch(f"annotation {annotation!r} cannot be checked; use {CONTAINERS}")

    def anything(self) -> Check:
        if self.check_record is None:
            return Check(LEAVES, lambda value, room: None)
        return Check(LEAVES, self.check_anything)

    def check_anything(self, value: Any, room: int) -> None:
        kind = kind_of(value)
        if kind in LEAVES:
            return
        if room <= 0:
            raise _too_deep()
        if kind is dict:
            for key, item in value.items():
                try:
                    if type(key) not in LEAVES:
                        self.check_anything(key, room - 1)
                    if type(item) not in LEAVES:
                        self.check_anything(item, room - 1)
                except Mismatch as mismatch:
                    raise mismatch.below(key_segment(key)) from None
        elif kind is list or kind is tuple or kind is set or kind is frozenset:
            for index, item in enumerate(value):
                if type(item) not in LEAVES:
                    try:
                        self.check_anything(item, room - 1)
                    except Mismatch as mismatch:
                        raise mismatch.below(f"[{index}]") from None
        elif kind is datetime:
            _check_datetime(value, room)
        elif wire_of(kind) is not None and self.check_record is not None:
            self.check_record(value, room - 1)
        else:
            raise Mismatch(f"{type_name(value)} cannot be stored; use {CONTAINERS}")

    def union(self, arguments: tuple[Any, ...]) -> Check:
        checks = [self.build(argument) for argument in arguments]
        at_once = frozenset[type]().union(*(check.at_once for check in checks))

        def fully(value: Any, room: int) -> None:
            closest = Mismatch(f"expected one of {_names(arguments)}; got {type_name(value)}")
            for check in checks:
                try:
                    return check(value, room)
                except Mismatch as mismatch:
                    # A member that accepted the value itself and objects to something inside knows best.
                    if len(mismatch.path) > len(closest.path):
                        closest = mismatch
            raise closest

        return Check(at_once, fully)

    def fixed_tuple(self, arguments: tuple[Any, ...]) -> Check:
        checks = [self.build(argument) for argument in arguments]

        def fully(value: Any, room: int) -> None:
            if kind_of(value) is not tuple or len(value) != len(checks):
                raise _unexpected(f"a tuple of {len(checks)}", value)
            if room <= 0:
                raise _too_deep()
            for index, (check, item) in enumerate(zip(checks, value, strict=True)):
                try:
                    check(item, room - 1)
                except Mismatch as mismatch:
                    raise mismatch.below(f"[{index}]") from None

        return Check(frozenset(), fully)

    def items(self, kinds: tuple[type, ...], arguments: tuple[Any, ...]) -> Check:
        check = self.build(arguments[0] if arguments else Any)
        at_once, check_item = check.at_once, check.fully
        expected = " or ".join(kind.__name__ for kind in kinds)

        def fully(value: Any, room: int) -> None:
            if type(value) not in kinds:
                raise _unexpected(expected, value)
            if room <= 0:
                raise _too_deep()
            for index, item in enumerate(value):
                if type(item) not in at_once:
                    try:
                        check_item(item, room - 1)
                    except Mismatch as mismatch:
                        raise mismatch.below(f"[{index}]") from None

        return Check(frozenset(), fully)

    def mapping(self, arguments: tuple[Any, ...]) -> Check:
        check_key, check_item = (self.build(argument) for argument in arguments or (Any, Any))

        def fully(value: Any, room: int) -> None:
            if kind_of(value) is not dict:
                raise _unexpected("dict", value)
            if room <= 0:
                raise _too_deep()
            for key, item in value.items():
                try:
                    if type(key) not in check_key.at_once:
                        check_key.fully(key, room - 1)
                    if type(item) not in check_item.at_once:
                        check_item.fully(item, room - 1)
                except Mismatch as mismatch:
                    raise mismatch.below(key_segment(key)) from None

        return Check(frozenset(), fully)

    def record(self, kind: type[Any]) -> Callable[[Any, int], None]:
        check_record = self.check_record

        def fully(value: Any, room: int) -> None:
            if wire_of(kind_of(value)) is None or not isinstance(value, kind):
                wire = wire_of(kind)
                raise _unexpected(
                    f"a record of {kind.__qualname__}" if wire is None else f"record {wire.name!r}", value
                )
            if check_record is not None:
                if room <= 0:
                    raise _too_deep()
                check_record(value, room - 1)

        return fully


_ITEMS: dict[Any, tuple[type, ...]] = {
    list: (list,),
    tuple: (tuple,),
    set: (set,),
    frozenset: (frozenset,),
    collections.abc.Sequence: (tuple, list),
    collections.abc.Set: (frozenset, set),
}
"""Annotated type of items: types that a value may have."""

_MAPPINGS = (dict, collections.abc.Mapping)


def _unwrapped(annotation: Any) -> Any:
    while True:
        if isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        else:
            return annotation


def _only(kinds: frozenset[type], expected: str) -> Check:
    def fully(value: Any, room: int) -> None:
        raise _unexpected(expected, value)

    return Check(kinds, fully)


def _literal(allowed: tuple[Any, ...]) -> Check:
    # 1 == True and 1 == 1.0, so the type belongs to the comparison.
    pairs: set[tuple[type, Any]] = {(type(value), value) for value in allowed}

    def fully(value: Any, room: int) -> None:
        if type(value) not in LEAVES or (type(value), value) not in pairs:
            raise Mismatch(f"expected one of {', '.join(map(repr, allowed))}; got {type_name(value)} {shown(value)}")

    return Check(frozenset(), fully)


def _unexpected(expected: str, value: object) -> Mismatch:
    detail = f" {shown(value)}" if type(value) in LEAVES and value is not None else ""
    return Mismatch(f"expected {expected}; got {type_name(value)}{detail}")


def _too_deep() -> Mismatch:
    return Mismatch(f"nested deeper than {MAX_DEPTH} levels, or contains itself")


def _names(arguments: tuple[Any, ...]) -> str:
    return ", ".join(getattr(argument, "__qualname__", str(argument)) for argument in arguments)


def _check_datetime(value: Any, room: int) -> None:
    if type(value) is not datetime:
        raise _unexpected("datetime", value)
    if unstorable_zone(value.tzinfo):
        raise Mismatch(
            f"time zone {shown(value.tzinfo)} cannot be stored; use datetime.timezone or zoneinfo.ZoneInfo(key)"
        )


_LEAF_CHECKS: dict[Any, Check] = {
    None: _only(frozenset({type(None)}), "None"),
    datetime: Check(frozenset(), _check_datetime),
    # An int is a float to type checkers; it stays an int.
    float: _only(frozenset({float, int}), "float"),
    **{kind: _only(frozenset({kind}), kind.__name__) for kind in LEAVES if kind is not float},
}
"""Annotation without parts: its check."""
