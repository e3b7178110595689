"""The JSON Schema of stream events and exports, for clients that are not written in Python."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import attrs

from sapwood.conversation._archive import ARCHIVE_VERSION, Archive
from sapwood.conversation._commands import WIRE_VERSION, Command, CommandOutcome
from sapwood.conversation._event_json import EVENT_VERSION
from sapwood.conversation._export import EXPORT_VERSION, Export
from sapwood.conversation._snapshot import Snapshot
from sapwood.conversation._stream import LOSS, StreamEvent
from sapwood.conversation._tags import members_of, tag_of
from sapwood.errors import CodecError

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_OPTIONAL: frozenset[Any] = frozenset(get_args(Command))
"""Classes whose fields may be left out if they have a default."""

_VERSIONS: Mapping[Any, int] = {
    **dict.fromkeys(LOSS, EVENT_VERSION),
    **dict.fromkeys((*get_args(Command), *get_args(CommandOutcome), Snapshot), WIRE_VERSION),
    Export: EXPORT_VERSION,
    Archive: ARCHIVE_VERSION,
}

_LEAVES: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    dict[str, Any]: {"type": "object"},
    NoneType: {"type": "null"},
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what `event_to_json` and `to_json` write, made from the classes themselves.

    A document is an event or an export; a client that expects only one of them refers to `#/$defs/StreamEvent` or
    `#/$defs/Export`. What a class checks beyond the types of its fields, such as the length of a to-do, is not in it.
    """
    defs: dict[str, Any] = {}
    defs["StreamEvent"] = {"description": _summary(StreamEvent), **schema_of(StreamEvent, defs)}
    return {
        "$schema": DIALECT,
        "title": "Stream events and exports of a conversation",
        "oneOf": [{"$ref": "#/$defs/StreamEvent"}, schema_of(Export, defs)],
        "$defs": dict(sorted(defs.items())),
    }


def wire_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of everything between a client and a conversation, in both directions.

    `#/$defs/Command` is what a client sends; `CommandOutcome`, `StreamEvent` and `Snapshot` are what it receives, and
    `Archive` is what it may keep. What a class checks beyond the types of its fields is not in it.
    """
    defs: dict[str, Any] = {}
    defs["StreamEvent"] = {"description": _summary(StreamEvent), **schema_of(StreamEvent, defs)}
    defs["Command"] = {"description": "What a client may ask.", **schema_of(Command, defs)}
    defs["CommandOutcome"] = {"description": "What it is answered.", **schema_of(CommandOutcome, defs)}
    kinds = [schema_of(Snapshot, defs), schema_of(Archive, defs)]
    return {
        "$schema": DIALECT,
        "title": "What clients and conversations say to one another",
        "oneOf": [*({"$ref": f"#/$defs/{name}"} for name in ("Command", "CommandOutcome", "StreamEvent")), *kinds],
        "$defs": dict(sorted(defs.items())),
    }


def schema_of(kind: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an annotation.

    Args:
        kind: A resolved annotation.
        defs: Takes the schema of every class in it, under the name of the class.

    Raises:
        CodecError: if values of this annotation have no JSON form.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if members := members_of(kind):
        return {"oneOf": [schema_of(member, defs) for member in members]}
    if kind in _LEAVES:
        return dict(_LEAVES[kind])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple and arguments[1:] == (...,):
        return {"type": "array", "items": schema_of(arguments[0], defs)}
    if NoneType in arguments:
        return {"anyOf": [schema_of(argument, defs) for argument in arguments]}
    if attrs.has(kind):
        if kind.__name__ not in defs:
            defs[kind.__name__] = _object_schema(kind, defs)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    raise CodecError(str(kind), f"has no JSON form; expected a record, a tuple of one kind, or one of {list(_LEAVES)}")


def _object_schema(cls: Any, defs: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {"version": {"const": _VERSIONS[cls]}} if cls in _VERSIONS else {}
    properties |= {key: {"const": value} for key, value in tag_of(cls).items()}
    fields = attrs.fields(attrs.resolve_types(cls))
    properties |= {field.name: schema_of(field.type, defs) for field in fields}
    optional = {field.name for field in fields if cls in _OPTIONAL and field.default is not attrs.NOTHING}
    return {
        "type": "object",
        "description": _summary(cls),
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _summary(cls: type) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]
