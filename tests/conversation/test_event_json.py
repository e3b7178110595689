"""Stream events as JSON, and what the converter below it does with every record."""

from __future__ import annotations

import enum
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import plain_objects, values_of

from sapwood import conversation
from sapwood.actors import wire_of
from sapwood.conversation import (
    EVENT_VERSION,
    LOSS,
    AddMessage,
    AssistantMessage,
    Interrupt,
    InterruptRaised,
    Message,
    MessageCompleted,
    MetadataChanged,
    Operation,
    State,
    StatusChanged,
    StreamEvent,
    TextStreamed,
    Todo,
    TodosChanged,
    ToolCall,
    ToolFinished,
    ToolResult,
    UserMessage,
    _leaves,
    event_from_json,
    event_to_json,
    to_json,
)
from sapwood.conversation._converter import json_converter
from sapwood.errors import CodecError, FutureVersion

COMMON = ("agent-1", "run-1", 7, 1.5)
CALL = ToolCall("c1", "ls", {"path": "/", "deep": [{"x": 1}]})
EVENT = MessageCompleted(*COMMON, AssistantMessage("let me see", (CALL,), "m2", "tools"))
RAISED = InterruptRaised(*COMMON, Interrupt("c1", "approval", CALL))

RECORDS = sorted(
    {
        value
        for package in (conversation, conversation.journal)
        for value in vars(package).values()
        if inspect.isclass(value) and wire_of(value) is not None and value is not StreamEvent
    },
    key=lambda cls: cls.__qualname__,
)


def through_json(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False).encode())


# --- there and back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LOSS, ids=lambda kind: kind.__name__)
@settings(max_examples=30)
@given(data=st.data())
def test_every_kind_of_event_survives_json_unchanged(kind: type[StreamEvent], data: st.DataObject) -> None:
    event = data.draw(values_of(kind))

    back = event_from_json(through_json(event_to_json(event)))

    assert type(back) is kind
    assert back == event


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__qualname__)
@settings(max_examples=30)
@given(data=st.data())
def test_every_record_of_a_conversation_survives_json_unchanged(cls: Any, data: st.DataObject) -> None:
    record = data.draw(values_of(cls))

    assert json_converter().structure(through_json(json_converter().unstructure(record)), cls) == record


@pytest.mark.parametrize(("union", "key"), [(Message, "role"), (Operation, "type")])
@given(data=st.data())
def test_the_members_of_a_union_are_told_apart_by_their_tag(union: Any, key: str, data: st.DataObject) -> None:
    record = data.draw(values_of(union))

    written = through_json(json_converter().unstructure(record, unstructure_as=union))

    assert next(iter(written)) == key
    assert json_converter().structure(written, union) == record


def test_an_event_begins_with_version_and_type_and_has_all_its_fields() -> None:
    assert list(event_to_json(StatusChanged(*COMMON, "running")).items()) == [
        ("version", EVENT_VERSION),
        ("type", "stream.status_changed"),
        ("agent_id", "agent-1"),
        ("run_id", "run-1"),
        ("seq", 7),
        ("at", 1.5),
        ("status", "running"),
        ("detail", ""),
    ]


def test_a_message_has_its_role_also_where_only_one_kind_may_stand() -> None:
    written = event_to_json(ToolFinished(*COMMON, ToolResult("c1", "ls", "a.txt")))

    assert written["result"]["role"] == "tool"
    assert json_converter().unstructure(AddMessage(UserMessage("hi")))["message"]["role"] == "user"


@given(plain_objects)
def test_what_is_written_is_detached_from_the_event(values: dict[str, Any]) -> None:
    event = MetadataChanged(*COMMON, {"kept": values})

    event_to_json(event)["values"]["kept"]["added"] = 1

    assert event == MetadataChanged(*COMMON, {"kept": values})
    assert "added" not in values


@pytest.mark.row("BR-31")
def test_lone_surrogates_are_escaped_both_ways() -> None:
    written = event_to_json(TextStreamed(*COMMON, "half \ud83d"))

    assert written["text"] == "half \\ud83d"
    assert event_from_json({**written, "text": "half \ud83d"}) == TextStreamed(*COMMON, "half \\ud83d")


def test_a_whole_number_may_stand_for_a_number_and_becomes_one() -> None:
    event = event_from_json({**event_to_json(EVENT), "at": 2})

    assert (event.at, type(event.at)) == (2.0, float)


def test_a_name_that_is_an_enumeration_is_written_as_text() -> None:
    class Mine(enum.StrEnum):
        RUNNING = "running"

    written = event_to_json(StatusChanged(*COMMON, cast("Any", Mine.RUNNING), Mine.RUNNING))

    assert (type(written["status"]), type(written["detail"])) == (str, str)


def test_metadata_as_deep_as_an_operation_takes_it_can_be_written() -> None:
    deep: dict[str, Any] = {}
    for _ in range(98):
        deep = {"a": deep}
    event = MetadataChanged(*COMMON, conversation.PatchMetadata({"a": deep}).values)

    assert event_from_json(event_to_json(event)) == event


# --- what cannot be read -----------------------------------------------------------------------------

Change = Callable[[dict[str, Any]], object]


def fits(error: CodecError, message: str) -> bool:
    """Say whether an error has this path, and this as a part of its problem."""
    path, _, problem = message.partition(": ")
    return error.path == path and problem in error.problem and str(error) == f"{error.path}: {error.problem}"


def changed(event: StreamEvent, change: Change) -> dict[str, Any]:
    data: dict[str, Any] = through_json(event_to_json(event))
    change(data)
    return data


BREAKS: dict[str, tuple[StreamEvent, Change, str]] = {
    "no version": (EVENT, lambda data: data.pop("version"), "event.version: expected a value; got none"),
    "true as version": (
        EVENT,
        lambda data: data.update(version=True),
        "event.version: expected a whole number; got bool",
    ),
    "an old version": (EVENT, lambda data: data.update(version=0), "event.version: expected 1; got 0"),
    "no type": (EVENT, lambda data: data.pop("type"), "event.type: expected one of stream.text_streamed, "),
    "an unknown type": (EVENT, lambda data: data.update(type="stream.x"), "event.type: got 'stream.x'"),
    "a list as type": (EVENT, lambda data: data.update(type=[]), "event.type: got []"),
    "a missing key": (EVENT, lambda data: data.pop("seq"), "event.seq: expected a value; got none"),
    "a missing key with a default": (
        EVENT,
        lambda data: data["message"].pop("stop_reason"),
        "message.stop_reason: expected a value; got none",
    ),
    "an unknown key": (
        EVENT,
        lambda data: data.update(colour="red"),
        "event.colour: expected only type, agent_id, run_id, seq, at, message; got an unknown key",
    ),
    "an unknown key that is no text": (EVENT, lambda data: cast("Any", data).update({1: 2}), "event.1: expected only"),
    "an unknown key inside": (
        EVENT,
        lambda data: data["message"]["tool_calls"][0].update(colour="red"),
        "message.tool_calls[0].colour: expected only id, name, arguments, malformed; got an unknown key",
    ),
    "text for a whole number": (
        EVENT,
        lambda data: data.update(seq="7"),
        "event.seq: expected a whole number; got str",
    ),
    "true for a whole number": (
        EVENT,
        lambda data: data.update(seq=True),
        "event.seq: expected a whole number; got bool",
    ),
    "a fraction for a whole number": (
        EVENT,
        lambda data: data.update(seq=7.0),
        "event.seq: expected a whole number; got float",
    ),
    "a number for text": (EVENT, lambda data: data.update(run_id=1), "event.run_id: expected text; got int"),
    "null for text": (EVENT, lambda data: data.update(run_id=None), "event.run_id: expected text; got NoneType"),
    "true for a number": (EVENT, lambda data: data.update(at=True), "event.at: expected a number; got bool"),
    "no finite number": (
        EVENT,
        lambda data: data.update(at=float("nan")),
        "event.at: expected a finite number; got nan",
    ),
    "a number beyond all floats": (
        EVENT,
        lambda data: data.update(at=10**400),
        "event.at: expected a finite number; got inf",
    ),
    "one for true": (
        ToolFinished(*COMMON, ToolResult("c1", "ls", "")),
        lambda data: data["result"].update(is_error=1),
        "result.is_error: expected true or false; got int",
    ),
    "text for an array": (
        EVENT,
        lambda data: data["message"].update(tool_calls="c1"),
        "message.tool_calls: expected an array; got str",
    ),
    "an object for an array": (
        EVENT,
        lambda data: data["message"].update(tool_calls={}),
        "message.tool_calls: expected an array; got dict",
    ),
    "an array for a message": (
        EVENT,
        lambda data: data.update(message=[]),
        "message.role: expected one of user, assistant, tool; got None",
    ),
    "another role": (
        ToolFinished(*COMMON, ToolResult("c1", "ls", "")),
        lambda data: data["result"].update(role="user"),
        "result.role: expected one of tool; got 'user'",
    ),
    "text for a call": (
        EVENT,
        lambda data: data["message"].update(tool_calls=["c1"]),
        "message.tool_calls[0]: expected an object; got str",
    ),
    "an argument that is no JSON": (
        EVENT,
        lambda data: data["message"]["tool_calls"][0]["arguments"]["deep"][0].update(x=b""),
        "message.tool_calls[0].arguments.deep[0].x: expected a JSON-like value; got bytes",
    ),
    "an array for arguments": (
        EVENT,
        lambda data: data["message"]["tool_calls"][0].update(arguments=[]),
        "message.tool_calls[0].arguments: expected an object; got list",
    ),
    "an unknown name": (
        StatusChanged(*COMMON, "running"),
        lambda data: data.update(status="busy"),
        "event.status: expected one of idle, running, interrupted, paused, waiting, error, stopped; got 'busy'",
    ),
    "an unknown name in an array": (
        RAISED,
        lambda data: data["interrupt"]["allowed"].append("maybe"),
        "interrupt.allowed[4]: expected one of approve, edit, reject, escalate, answer; got 'maybe'",
    ),
    "a verdict that its class refuses": (
        RAISED,
        lambda data: data["interrupt"].update(kind="halt"),
        "event.interrupt: interrupt of kind halt: expected verdicts from none; got 'approve'",
    ),
    "a kind that its class refuses": (
        RAISED,
        lambda data: data["interrupt"].update(kind="x"),
        "event.interrupt: interrupt kind: expected one of approval, question, reconcile, halt; got 'x'",
    ),
    "text where nothing may stand as well": (
        RAISED,
        lambda data: data["interrupt"].update(expires_at="never"),
        "interrupt.expires_at: expected a number; got str",
    ),
    "a to-do without words": (
        TodosChanged(*COMMON, (Todo(1, "plan"), Todo(2, "do"))),
        lambda data: data["todos"][1].update(content=" "),
        "todos[1]: todo 2: expected text as content; got ' '",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_an_event_that_cannot_be_read_exactly_is_refused_with_the_path_of_the_first_problem(name: str) -> None:
    event, change, message = BREAKS[name]

    with pytest.raises(CodecError) as caught:
        event_from_json(changed(event, change))

    assert fits(caught.value, message)


def test_of_several_problems_the_first_in_the_order_of_the_fields_is_named() -> None:
    data = changed(EVENT, lambda data: data.update(colour="red", at="now", seq="7"))

    with pytest.raises(CodecError) as caught:
        event_from_json(data)

    assert str(caught.value) == "event.seq: expected a whole number; got str"


@pytest.mark.parametrize("data", [None, [], "text", 7])
def test_what_is_no_object_is_no_event(data: object) -> None:
    with pytest.raises(CodecError, match="event: expected an object; got"):
        event_from_json(data)


def test_an_event_of_a_newer_version_is_refused_whatever_it_holds() -> None:
    with pytest.raises(FutureVersion, match="event"):
        event_from_json({"version": EVENT_VERSION + 1, "type": "stream.unheard_of", "more": 1})


def test_a_refused_event_is_left_as_it_was() -> None:
    data = changed(EVENT, lambda data: data.update(seq="7"))
    before = through_json(data)

    with pytest.raises(CodecError):
        event_from_json(data)

    assert data == before


def test_a_failure_that_is_not_the_datas_fault_is_no_codec_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> str:
        raise MemoryError

    data = event_to_json(EVENT)
    monkeypatch.setattr(_leaves, "clean_text", fail)

    with pytest.raises(MemoryError):
        event_from_json(data)


# --- what cannot be written --------------------------------------------------------------------------


def wrong(value: object) -> Any:
    return value


UNWRITABLE: dict[str, tuple[object, str]] = {
    "no event": (UserMessage("hi"), "event: expected one of TextStreamed, "),
    "the common part alone": (StreamEvent(*COMMON), "event: got StreamEvent"),
    "a field of another kind": (TextStreamed(*COMMON, wrong(None)), "event.text: expected text; got NoneType"),
    "no finite number": (TextStreamed("a", "r", 1, float("inf"), "x"), "event.at: expected a finite number; got inf"),
    "an argument that is no JSON": (
        MessageCompleted(*COMMON, AssistantMessage("", (CALL, ToolCall("c2", "ls", {"a": [object()]})))),
        "message.tool_calls[1].arguments.a[0]: expected a JSON-like value; got object",
    ),
    "no message": (MessageCompleted(*COMMON, wrong("hi")), "event.message: expected one of UserMessage, "),
    "no call": (
        MessageCompleted(*COMMON, AssistantMessage("", (wrong("c1"),))),
        "message.tool_calls[0]: expected ToolCall; got str",
    ),
    "a list of to-dos": (TodosChanged(*COMMON, wrong([])), "event.todos: expected a tuple; got list"),
    "an unknown name": (StatusChanged(*COMMON, wrong("busy")), "event.status: expected one of idle, "),
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_an_event_that_could_not_be_read_again_is_not_written(name: str) -> None:
    value, message = UNWRITABLE[name]

    with pytest.raises(CodecError) as caught:
        event_to_json(wrong(value))

    assert fits(caught.value, message)


def test_an_export_says_which_part_of_a_conversation_cannot_be_written() -> None:
    state = State(messages=(UserMessage("hi"), AssistantMessage("", (ToolCall("c1", "ls", {"x": float("nan")}),))))

    with pytest.raises(CodecError) as caught:
        to_json(state)

    assert caught.value.path == "messages[1].tool_calls[0].arguments.x"


# --- cost --------------------------------------------------------------------------------------------


def test_cattrs_is_imported_only_when_json_is_written_or_read() -> None:
    source = (
        "import sys, sapwood.conversation as c\n"
        "before = 'cattrs' in sys.modules\n"
        "c.to_json(c.State())\n"
        "print(before, 'cattrs' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "True"]


def test_no_event_has_a_field_that_its_json_form_needs_for_itself() -> None:
    fields = {field.name for kind in LOSS for field in attrs.fields(cast("Any", kind))}

    assert fields.isdisjoint({"version", "type"})
