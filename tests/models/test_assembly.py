"""The assembly of answers from the many ways in which providers stream tool calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.conversation import ToolCall, Usage
from sapwood.models import ModelEvent, TextDelta, ToolCallDelta, ToolCallStarted
from sapwood.models._assembly import AnswerAssembly, parse_arguments


class Piece(TypedDict, total=False):
    """What one fragment of a call may hold."""

    index: int | None
    call_id: str
    name: str
    arguments: str


def make(taken: set[str] | None = None) -> AnswerAssembly:
    numbers: Iterator[int] = count(1)
    return AnswerAssembly(taken or set(), lambda: f"new_{next(numbers)}")


def assemble(pieces: list[Piece]) -> tuple[list[ModelEvent], tuple[ToolCall, ...]]:
    assembly = make()
    events = [event for piece in pieces for event in assembly.add_call_piece(**piece)]
    last, message = assembly.finish("end")
    return [*events, *last], message.tool_calls


WEATHER = ToolCall("id_1", "get_weather", {"city": "Rome"})
STREAMS: dict[str, list[Piece]] = {
    "id only on the first piece": [
        {"index": 0, "call_id": "id_1", "name": "get_weather"},
        {"index": 0, "arguments": '{"city": '},
        {"index": 0, "arguments": '"Rome"}'},
    ],
    "empty ids later": [
        {"index": 0, "call_id": "id_1", "name": "get_weather", "arguments": ""},
        {"index": 0, "call_id": "", "arguments": '{"city": "Rome"}'},
    ],
    "id on every piece": [
        {"index": 0, "call_id": "id_1", "name": "get_weather"},
        {"index": 0, "call_id": "id_1", "arguments": '{"city": '},
        {"index": 0, "call_id": "id_1", "arguments": '"Rome"}'},
    ],
    "id and name on every piece": [
        {"index": 0, "call_id": "id_1", "name": "get_weather", "arguments": '{"city": '},
        {"index": 0, "call_id": "id_1", "name": "get_weather", "arguments": '"Rome"}'},
    ],
    "a last piece that repeats everything": [
        {"index": 0, "call_id": "id_1", "name": "get_weather", "arguments": '{"city": '},
        {"index": 0, "arguments": '"Rome"}'},
        {"index": 0, "call_id": "id_1", "name": "get_weather", "arguments": '{"city":"Rome"}'},
    ],
    "no index at all": [
        {"call_id": "id_1", "name": "get_weather"},
        {"arguments": '{"city": '},
        {"arguments": '"Rome"}'},
    ],
    "ids but no index": [
        {"call_id": "id_1", "name": "get_weather"},
        {"call_id": "id_1", "arguments": '{"city": "Rome"}'},
    ],
    "name in two pieces": [
        {"index": 0, "call_id": "id_1", "name": "get_"},
        {"index": 0, "name": "weather"},
        {"index": 0, "arguments": '{"city": "Rome"}'},
    ],
    "id after the name": [
        {"index": 0, "name": "get_weather"},
        {"index": 0, "call_id": "id_1", "arguments": '{"city": "Rome"}'},
    ],
    "everything at once": [{"index": 0, "call_id": "id_1", "name": "get_weather", "arguments": '{"city": "Rome"}'}],
}


@pytest.mark.row("BR-65")
@pytest.mark.parametrize("pieces", STREAMS.values(), ids=STREAMS)
def test_a_streamed_call_equals_the_whole_one_whatever_way_it_is_streamed(pieces: list[Piece]) -> None:
    events, calls = assemble(pieces)

    assert calls == (WEATHER,)
    assert events[0] == ToolCallStarted("id_1", "get_weather")
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    assert json.loads("".join(delta.text for delta in deltas)) == WEATHER.arguments


@pytest.mark.row("BR-65")
def test_a_call_without_arguments_is_a_call_with_none() -> None:
    events, calls = assemble([{"index": 0, "call_id": "id_1", "name": "now", "arguments": ""}])

    assert calls == (ToolCall("id_1", "now"),)
    assert events == [ToolCallStarted("id_1", "now")]


@pytest.mark.row("BR-65")
@pytest.mark.parametrize("indexes", [(0, 1), (0, 0), (None, None), (3, 7)], ids=str)
def test_parallel_calls_are_kept_apart(indexes: tuple[int | None, int | None]) -> None:
    first, second = indexes

    _, calls = assemble(
        [
            {"index": first, "call_id": "id_1", "name": "add", "arguments": '{"a"'},
            {"index": first, "arguments": ": 1}"},
            {"index": second, "call_id": "id_2", "name": "add", "arguments": '{"a"'},
            {"index": second, "arguments": ": 1}"},
        ]
    )

    assert calls == (ToolCall("id_1", "add", {"a": 1}), ToolCall("id_2", "add", {"a": 1}))


def test_calls_whose_pieces_are_interleaved_are_kept_apart() -> None:
    _, calls = assemble(
        [
            {"index": 0, "call_id": "id_1", "name": "a"},
            {"index": 1, "call_id": "id_2", "name": "b"},
            {"index": 0, "arguments": '{"x": 1}'},
            {"index": 1, "arguments": '{"x": 2}'},
        ]
    )

    assert calls == (ToolCall("id_1", "a", {"x": 1}), ToolCall("id_2", "b", {"x": 2}))


def test_ids_that_are_missing_doubled_or_taken_are_replaced_at_the_start_of_the_call() -> None:
    assembly = make({"old"})
    events: list[ModelEvent] = []
    for index, call_id in enumerate(["old", "", "x", "x"]):
        events += assembly.add_call_piece(index=index, call_id=call_id, name="now", arguments="{}")
    last, message = assembly.finish("end")

    ids = [made.id for made in message.tool_calls]
    assert ids == ["new_1", "new_2", "x", "new_3"]
    assert [event.call_id for event in [*events, *last] if isinstance(event, ToolCallStarted)] == ids


@given(st.dictionaries(st.text(), st.one_of(st.integers(), st.text(), st.none(), st.lists(st.text()))), st.data())
def test_arguments_cut_anywhere_are_the_arguments(arguments: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(arguments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    edges = [0, *cuts, len(text)]
    pieces: list[Piece] = [{"index": 0, "call_id": "id_1", "name": "t"}]
    pieces += [Piece(index=0, arguments=text[a:b]) for a, b in pairwise(edges)]

    _, calls = assemble(pieces)

    assert calls == (ToolCall("id_1", "t", arguments),)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1',
        "[1]",
        "null",
        '"x"',
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": 1}}',
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",
    ],
    ids=lambda text: str(text)[:12],
)
def test_what_is_no_json_object_is_malformed_and_never_raises(text: str) -> None:
    assert parse_arguments(text) is None


def test_surrogates_in_arguments_are_joined_or_replaced() -> None:
    assert parse_arguments('{"a": "\\ud83d\\ude00 \\ud83d"}') == {"a": "\U0001f600 \ufffd"}


@pytest.mark.row("BR-31")
def test_a_character_that_is_cut_in_two_between_text_deltas_is_joined() -> None:
    assembly = make()
    events = [*assembly.add_text("a\ud83d"), *assembly.add_text("\ude00b\ud83d")]
    last, message = assembly.finish("length")

    assert [*events, *last] == [TextDelta("a"), TextDelta("\U0001f600b"), TextDelta("\ufffd")]
    assert message.text == "a\U0001f600b\ufffd"
    assert message.stop_reason == "length"


def test_the_natural_stop_reason_of_calls_is_tools_and_usage_is_passed_on() -> None:
    assembly = make()
    assembly.usage = Usage(5, 6, 1)
    assembly.add_call_piece(index=0, call_id="a", name="now")

    assert assembly.finish("end")[1].stop_reason == "tools"
    assert assembly.finish("end")[1].usage == Usage(5, 6, 1)
