"""The codec: records to bytes and back, strictly, by wire name and version."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, cast

import attrs
from msgpack import ExtType

from sapwood.actors import Wire, class_of, wire_of
from sapwood.errors import CodecError, FutureVersion, PersistenceError
from sapwood.persistence._annotations import MAX_DEPTH, Check, Mismatch, check_for, key_segment, kind_of, type_name
from sapwood.persistence._values import RECORD, Unpacker, extend_value, pack


def encode(value: object) -> bytes:
    """Encode a record, with the records and values inside it.

    Every record carries its wire name and version. Nothing is coerced: a field holds what its annotation says,
    or the call fails. Where the annotation is `Any`, these values may stand: None, bool, int of any size, float,
    str, bytes, list, tuple, dict, set, frozenset, datetime, date, Decimal, records (BR-29, BR-31).

    Raises:
        CodecError: if a value does not fit its annotation or cannot be stored; `path` leads to it.
    """
    wire = wire_of(type(value))
    if wire is None:
        raise CodecError(type_name(value), "only instances of classes declared with @record can be stored")
    try:
        _plan_of(type(value)).check_instance(value, MAX_DEPTH)
        return pack(value, _extend)
    except Mismatch as mismatch:
        raise CodecError(wire.name + mismatch.path, mismatch.problem) from None
    except RecursionError:
        raise CodecError(wire.name, "nested too deeply, or contains itself") from None


def decode(data: bytes) -> Any:
    """Decode what `encode` made, upgraded to the versions that the classes have now.

    Upcasters run version by version on a record's own fields; records inside it are decoded and upgraded
    before it. A missing field takes its default; an unknown field is an error.

    Raises:
        FutureVersion: if a record is newer than its class; it is not looked at further.
        CodecError: if the bytes are no record, its wire name is unknown, or a field does not fit; `path` says where.
    """
    try:
        value = _as_records.unpack(data)
    except FutureVersion:
        raise
    except CodecError as error:
        # The fast way restores from the inside out and knows no whole path; the slow way finds it.
        raise _located(data) or error from error.__cause__
    except MemoryError:
        raise
    except Exception as error:
        raise CodecError("record", f"cannot be read: {error!r}") from error
    if wire_of(kind_of(value)) is None:
        raise CodecError("record", f"the bytes hold a bare {type_name(value)}, not a record")
    return value


def describe(data: bytes) -> Any:
    """Return what the bytes of a record hold, without its class: records become dicts with a `@record` entry.

    For people who inspect a store; nothing is checked or upgraded.

    Raises:
        CodecError: if the bytes are damaged.
    """
    try:
        return _plainly(_as_raw.unpack(data))
    except MemoryError:
        raise
    except Exception as error:
        raise CodecError("record", f"cannot be read: {error!r}") from error


# --- plans: what is known of a class, worked out once ------------------------------------------------


@attrs.frozen
class _Plan:
    """How instances of one record class are checked, taken apart and made."""

    cls: type
    wire: Wire
    names: tuple[str, ...]
    aliases: tuple[str, ...]
    required: frozenset[str]
    before_writing: tuple[Check, ...]
    after_reading: tuple[Check, ...]
    values_of: Callable[[Any], tuple[Any, ...]]

    def check_instance(self, instance: object, room: int) -> None:
        for name, check, value in zip(self.names, self.before_writing, self.values_of(instance), strict=True):
            if type(value) not in check.at_once:
                try:
                    check.fully(value, room)
                except Mismatch as mismatch:
                    raise mismatch.below(f".{name}") from None

    def make(self, fields: dict[str, Any], path: str) -> Any:
        arguments: dict[str, Any] = {}
        for name, alias, check in zip(self.names, self.aliases, self.after_reading, strict=True):
            if name in fields:
                value = arguments[alias] = fields[name]
                if type(value) not in check.at_once:
                    try:
                        check.fully(value, MAX_DEPTH)
                    except Mismatch as mismatch:
                        raise CodecError(f"{path}.{name}{mismatch.path}", mismatch.problem) from None
            elif name in self.required:
                raise CodecError(f"{path}.{name}", "is missing and has no default")
        if len(arguments) != len(fields):
            extra = sorted(map(repr, fields.keys() - set(self.names)))
            raise CodecError(path, f"has unknown fields {', '.join(extra)}; it was changed without a new version")
        try:
            return self.cls(**arguments)
        except Exception as error:
            raise CodecError(path, f"its class refused the fields: {error!r}") from error


_plans: dict[type, _Plan] = {}


def _plan_of(cls: type) -> _Plan:
    plan = _plans.get(cls)
    if plan is None:
        plan = _plans[cls] = _make_plan(cls)
    return plan


def _make_plan(cls: Any) -> _Plan:
    wire = wire_of(cls)
    assert wire is not None
    try:
        attrs.resolve_types(cls, include_extras=True)
    except (NameError, TypeError) as error:
        raise CodecError(
            wire.name, f"annotations cannot be resolved ({error}); import their types at module level"
        ) from error
    before: list[Check] = []
    after: list[Check] = []
    fields = attrs.fields(cls)
    for field in fields:
        path = f"{wire.name}.{field.name}"
        if not field.init:
            raise CodecError(
                path, "is not an argument of the constructor, so it could not be restored; make it a property"
            )
        annotation = Any if field.type is None else field.type
        try:
            before.append(check_for(annotation, _check_record))
            after.append(check_for(annotation, None))
        except Mismatch as mismatch:
            raise CodecError(path, mismatch.problem) from None
    names = tuple(field.name for field in fields)
    return _Plan(
        cls=cls,
        wire=wire,
        names=names,
        aliases=tuple(field.alias or field.name for field in fields),
        required=frozenset(field.name for field in fields if field.default is attrs.NOTHING),
        before_writing=tuple(before),
        after_reading=tuple(after),
        values_of=_getter(names),
    )


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda instance: tuple(getattr(instance, name) for name in names)


def _check_record(instance: object, room: int) -> None:
    _plan_of(type(instance)).check_instance(instance, room)


# --- writing and reading ----------------------------------------------------------------------------


def _extend(value: object) -> ExtType:
    plan = _plans.get(type(value))
    if plan is None:
        return extend_value(value, _extend)
    fields = dict(zip(plan.names, plan.values_of(value), strict=True))
    return ExtType(RECORD, pack([plan.wire.name, plan.wire.version, fields], _extend))


def _make(name: str, version: int, fields: dict[str, Any], path: str = "") -> Any:
    path = path or name
    cls = class_of(name)
    if cls is None:
        raise CodecError(path, f"no class has the wire name {name!r}; import the module that declares it")
    plan = _plan_of(cls)
    if version != plan.wire.version:
        fields = upcast(plan.wire, version, fields, path)
    return plan.make(fields, path)


def upcast(wire: Wire, version: int, fields: dict[str, Any], path: str) -> dict[str, Any]:
    """Bring the fields of a record from an older version to the present one.

    Raises:
        FutureVersion: if a newer version wrote it.
        CodecError: if an upcaster fails; `path` says where in the whole.
    """
    if version > wire.version:
        raise FutureVersion(wire.name, version, wire.version)
    for step in range(version, wire.version):
        try:
            fields = wire.upcasters[step](dict(fields))
        except PersistenceError:
            raise
        except Exception as error:
            raise CodecError(path, f"its upcaster from version {step} failed: {error!r}") from error
    return fields


_as_records = Unpacker(_make)


# --- the slow way: from the outside in, with a path ------------------------------------------------


@attrs.frozen(eq=False)
class _Raw:
    name: str
    version: int
    fields: dict[str, Any]


_as_raw = Unpacker(_Raw)


def _located(data: bytes) -> CodecError | None:
    try:
        _rebuild(_as_raw.unpack(data))
    except CodecError as error:
        return error
    return None


def _rebuild(value: Any, path: str = "") -> Any:
    kind = kind_of(value)
    if kind is _Raw:
        path = path or value.name
        fields = {name: _rebuild(item, f"{path}.{name}") for name, item in value.fields.items()}
        return _make(value.name, value.version, fields, path)
    if kind is dict:
        return {_rebuild(key, path): _rebuild(item, path + key_segment(key)) for key, item in value.items()}
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        return cast("Any", kind)(_rebuild(item, f"{path}[{index}]") for index, item in enumerate(value))
    return value


def _plainly(value: Any) -> Any:
    kind = kind_of(value)
    if kind is _Raw:
        return {
            "@record": f"{value.name}/{value.version}",
            **{name: _plainly(item) for name, item in value.fields.items()},
        }
    if kind is dict:
        return {_plainly(key) if type(key) is not _Raw else repr(key): _plainly(item) for key, item in value.items()}
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        return [_plainly(item) for item in value]
    return value
