"""Export and import of a conversation as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.conversation import (
    AssistantMessage,
    State,
    Todo,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    from_json,
    to_json,
)
from sapwood.errors import CodecError, FutureVersion

CONVERSATION = State(
    messages=(
        UserMessage("hello", "m1"),
        AssistantMessage("let me see", (ToolCall("c1", "ls", {"path": "/"}),), "m2", "tools", Usage(9, 3, 1)),
        ToolResult("c1", "ls", "Error: no", is_error=True, id="m3"),
        AssistantMessage("", (ToolCall("c2", "ls", {}, malformed='{"a'),), "m4"),
    ),
    todos=(Todo(1, "plan", "in_progress"),),
    metadata={"conversation_title": "Files", "filesystem_files": {"a.txt": "x"}},
)

text = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(ToolCall, st.uuids().map(str), text, st.dictionaries(text, plain, max_size=2), text)
usages = st.builds(Usage, *[st.integers(0, 10**9)] * 3)
states = st.builds(
    State,
    messages=st.lists(
        st.builds(UserMessage, text, text)
        | st.builds(AssistantMessage, text, st.lists(calls, max_size=2).map(tuple), text, text, usages),
        max_size=4,
    ).map(tuple),
    todos=st.builds(Todo, st.integers(0, 9), st.just("do")).map(lambda todo: (todo,)),
    metadata=st.dictionaries(text, plain, max_size=3),
)


@given(states)
def test_a_conversation_survives_export_json_and_import_unchanged(state: State) -> None:
    assert from_json(json.loads(json.dumps(to_json(state)))) == state


@pytest.mark.row("S4-033")
def test_the_export_has_the_keys_messages_todos_and_metadata() -> None:
    exported = to_json(CONVERSATION)

    assert set(exported) == {"version", "messages", "todos", "metadata"}
    assert exported["metadata"] == {"conversation_title": "Files", "filesystem_files": {"a.txt": "x"}}
    assert [message["role"] for message in exported["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert from_json(json.loads(json.dumps(exported))) == CONVERSATION


def test_an_export_is_detached_from_the_conversation() -> None:
    state = State(metadata={"files": {"a": 1}})

    to_json(state)["metadata"]["files"]["b"] = 2

    assert state.metadata == {"files": {"a": 1}}


Change = Callable[[dict[str, Any]], object]

BREAKS: dict[str, tuple[Change, str]] = {
    "missing key": (lambda data: data.pop("todos"), "export.todos"),
    "unknown key": (lambda data: data["messages"][0].update(colour="red"), "messages[0].colour"),
    "wrong type": (
        lambda data: data["messages"][1]["usage"].update(input_tokens="9"),
        "messages[1].usage.input_tokens",
    ),
    "true is no number": (lambda data: data["todos"][0].update(id=True), "todos[0].id"),
    "unknown role": (lambda data: data["messages"][0].update(role="system"), "messages[0].role"),
    "a todo out of range": (lambda data: data["todos"][0].update(status="done"), "todos[0]"),
    "a todo twice": (lambda data: data["todos"].append(data["todos"][0]), "todos[1]"),
    "an argument that is no JSON": (
        lambda data: data["messages"][1]["tool_calls"][0]["arguments"].update(path=float("nan")),
        "messages[1].tool_calls[0].arguments.path",
    ),
    "an orphan result": (lambda data: data["messages"].pop(1), "messages[1]"),
    "an unknown version": (lambda data: data.update(version=0), "export.version"),
    "a message that is no object": (lambda data: data["messages"].append("hi"), "messages[4].role"),
}


@pytest.mark.parametrize("name", list(BREAKS))
def test_an_import_refuses_what_it_cannot_read_exactly_and_says_where(name: str) -> None:
    data = to_json(CONVERSATION)
    change, path = BREAKS[name]
    change(data)

    with pytest.raises(CodecError) as caught:
        from_json(data)

    assert caught.value.path == path


def test_an_import_of_something_else_than_an_object_is_refused() -> None:
    with pytest.raises(CodecError, match="export: expected an object; got list"):
        from_json([])


def test_an_export_of_a_newer_version_is_refused() -> None:
    with pytest.raises(FutureVersion):
        from_json({**to_json(CONVERSATION), "version": 2})
