"""The JSON Schema of stream events and exports, for clients that are not written in Python."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import attrs

from sapwood.conversation._event_json import EVENT_VERSION
from sapwood.conversation._export import EXPORT_VERSION, Export
from sapwood.conversation._stream import LOSS, StreamEvent
from sapwood.conversation._tags import members_of, tag_of
from sapwood.errors import CodecError

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_VERSIONS: Mapping[Any, int] = {**dict.fromkeys(LOSS, EVENT_VERSION), Export: EXPORT_VERSION}

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
    properties |= {field.name: schema_of(field.type, defs) for field in attrs.fields(attrs.resolve_types(cls))}
    return {
        "type": "object",
        "description": _summary(cls),
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _summary(cls: type) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]
