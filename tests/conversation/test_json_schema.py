"""The JSON Schema of events and exports."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import values_of

from sapwood.actors import wire_of
from sapwood.conversation import (
    LOSS,
    Message,
    State,
    StreamEvent,
    Todo,
    event_to_json,
    json_schema,
    to_json,
)
from sapwood.conversation._json_schema import schema_of
from sapwood.errors import CodecError

SCHEMA = json_schema()
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def accepts(schema: dict[str, Any], data: Any) -> bool:
    """Say whether a schema accepts data. Knows the keywords that the project's schemas use, and no other."""
    assert schema.keys() <= {"$schema", "$defs", "title", "description"} | CHECKS.keys()
    if "properties" in schema and not isinstance(data, dict):
        return False
    return all(CHECKS[keyword](schema, data) for keyword in schema if keyword in CHECKS)


def resolve(reference: str) -> dict[str, Any]:
    prefix, _, name = reference.rpartition("/")
    assert prefix == "#/$defs"
    definition: dict[str, Any] = SCHEMA["$defs"][name]
    return definition


def is_type(name: str, data: Any) -> bool:
    return isinstance(data, TYPES[name]) and isinstance(data, bool) is (name == "boolean")


CHECKS: dict[str, Callable[[dict[str, Any], Any], bool]] = {
    "$ref": lambda schema, data: accepts(resolve(schema["$ref"]), data),
    "type": lambda schema, data: is_type(schema["type"], data),
    "const": lambda schema, data: type(data) is type(schema["const"]) and bool(data == schema["const"]),
    "enum": lambda schema, data: isinstance(data, str) and data in schema["enum"],
    "oneOf": lambda schema, data: [accepts(each, data) for each in schema["oneOf"]].count(True) == 1,
    "anyOf": lambda schema, data: any(accepts(each, data) for each in schema["anyOf"]),
    "items": lambda schema, data: not isinstance(data, list) or all(accepts(schema["items"], item) for item in data),
    "properties": lambda schema, data: all(
        accepts(part, data[key]) for key, part in schema["properties"].items() if key in data
    ),
    "required": lambda schema, data: data.keys() >= set(schema["required"]),
    "additionalProperties": lambda schema, data: data.keys() <= schema["properties"].keys(),
}


def objects_in(data: Any) -> Iterator[dict[str, Any]]:
    """All objects whose keys the schema lists: those of records, not those inside metadata or arguments."""
    if isinstance(data, dict):
        yield data
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, part in parts:
        if key not in ("arguments", "data", "details", "limits", "metadata", "values"):
            yield from objects_in(part)


def check(written: dict[str, Any]) -> None:
    assert accepts(SCHEMA, written)
    for number, each in enumerate(objects_in(written)):
        for key in ("colour", *each):
            spoiled = copy.deepcopy(written)
            target = list(objects_in(spoiled))[number]
            if key in target:
                del target[key]
            else:
                target[key] = "red"
            assert not accepts(SCHEMA, spoiled), (key, spoiled)


@pytest.mark.parametrize("kind", LOSS, ids=lambda kind: kind.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_the_schema_accepts_every_event_and_neither_unknown_nor_missing_keys(
    kind: type[StreamEvent], data: st.DataObject
) -> None:
    check(event_to_json(data.draw(values_of(kind))))


@settings(max_examples=20)
@given(
    st.builds(
        State,
        messages=st.lists(values_of(Message), max_size=3).map(tuple),
        todos=st.lists(values_of(Todo), max_size=2).map(tuple),
        metadata=values_of(dict[str, Any]),
    )
)
def test_the_schema_accepts_every_export_and_neither_unknown_nor_missing_keys(state: State) -> None:
    check(to_json(state))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": True},
        {"type": "stream.gap"},
        {"seq": "7"},
        {"seq": True},
        {"at": None},
        {"status": "x"},
    ],
)
def test_the_schema_refuses_values_that_the_reader_refuses(change: dict[str, Any]) -> None:
    event = {
        "version": 1,
        "type": "stream.status_changed",
        "agent_id": "a",
        "run_id": "",
        "seq": 7,
        "at": 1.5,
        "status": "idle",
        "detail": "",
    }

    assert accepts(SCHEMA, event)
    assert not accepts(SCHEMA, {**event, **change})


def test_the_schema_names_every_kind_of_event_once_and_can_be_sent() -> None:
    union = SCHEMA["$defs"]["StreamEvent"]["oneOf"]
    kinds = [SCHEMA["$defs"][each["$ref"].rpartition("/")[2]] for each in union]

    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert [kind["properties"]["type"]["const"] for kind in kinds] == [
        wire.name for kind in LOSS if (wire := wire_of(kind))
    ]
    assert all(definition["description"] for definition in SCHEMA["$defs"].values())
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_a_schema_is_the_callers_own() -> None:
    json_schema()["$defs"].clear()

    assert json_schema() == SCHEMA


@pytest.mark.parametrize("annotation", [Any, object, bytes, set[str], tuple[int, str], int | str, dict[str, int]])
def test_an_annotation_without_a_json_form_is_refused(annotation: Any) -> None:
    with pytest.raises(CodecError, match="has no JSON form"):
        schema_of(annotation, {})
