"""From what a tool returned to the text that the model reads."""

from __future__ import annotations

import enum
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.actors import SimulatedEnvironment
from sapwood.conversation import AddMessage, Operation, PatchMetadata, State, ToolCall, UserMessage
from sapwood.errors import InvalidTool
from sapwood.tools import Toolbox, ToolContext, ToolOutcome, ToolOutput, tool


class Colour(enum.Enum):
    RED = "red"


@attrs.frozen
class Point:
    x: int
    y: float


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


async def outcome_of(value: Any, limit: int = 100_000) -> ToolOutcome:
    @tool
    def give() -> Any:
        return value

    context = ToolContext("agent", "run", "c1", "idem_1", State(), {}, SimulatedEnvironment())
    return await Toolbox([give], text_limit=limit).invoke(ToolCall("c1", "give"), context)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, "done"),
        (True, "true"),
        (7, "7"),
        ({"a": [1, 2.5, None]}, '{"a": [1, 2.5, null]}'),
        ((1, "é"), '[1, "é"]'),
        (Point(1, 2.0), '{"x": 1, "y": 2.0}'),
        ([Colour.RED], '["red"]'),
        ({1: "a", Colour.RED: "b"}, '{"1": "a", "red": "b"}'),
        ([date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)], '["2026-01-02", "2026-01-02T00:00:00+00:00"]'),
        ([Decimal("1.10"), PurePosixPath("/a")], '["1.10", "/a"]'),
        (UUID(int=0), '"00000000-0000-0000-0000-000000000000"'),
        ({"x"}, '["x"]'),
        ([float("nan"), float("inf"), float("-inf")], '["nan", "inf", "-inf"]'),
        (b"bytes", "bytes"),
        (b"\xff\x00", "[binary data, 2 bytes, not shown]"),
        ({"raw": bytearray(b"\xff")}, '{"raw": "[binary data, 1 bytes, not shown]"}'),
        ("ok \ud83d", "ok \\ud83d"),
        (["\ud83d"], '["\\ud83d"]'),
        (ToolOutput("text"), "text"),
        (ToolOutput(), "done"),
    ],
)
async def test_a_value_becomes_this_text(value: Any, text: str) -> None:
    outcome = await outcome_of(value)

    assert outcome.result.content == text
    assert not outcome.result.is_error
    outcome.result.content.encode()


async def test_an_integer_with_too_many_digits_is_written_in_hexadecimal() -> None:
    outcome = await outcome_of([10**5000])

    assert json.loads(outcome.result.content) == [hex(10**5000)]


@pytest.mark.parametrize("value", [object(), {"a": object()}, itself(), {object(): 1}])
async def test_a_value_that_cannot_be_shown_is_an_error_that_says_the_tool_ran(value: Any) -> None:
    outcome = await outcome_of(ToolOutput(value, [PatchMetadata({"a": 1})]))

    assert outcome.result.is_error
    assert outcome.result.content.startswith("Error: give ran, but its result cannot be shown: ")
    assert outcome.operations == ()
    assert outcome.exception is not None


async def test_a_large_result_is_cut_to_the_limit_with_a_notice_and_kept_whole_beside_it() -> None:
    outcome = await outcome_of("x" * 10_000_000)

    assert len(outcome.result.content) == 100_000
    assert "this is the beginning of 10000000 characters" in outcome.result.content[-100:]
    assert outcome.whole == "x" * 10_000_000


async def test_a_result_of_exactly_the_limit_is_not_cut() -> None:
    outcome = await outcome_of("x" * 200, limit=200)

    assert outcome.result.content == "x" * 200
    assert outcome.whole is None


async def test_operations_come_with_the_result_in_order() -> None:
    operations: list[Operation] = [PatchMetadata({"a": 1}), AddMessage(UserMessage("hi"))]

    outcome = await outcome_of(ToolOutput("ok", operations))

    assert outcome.operations == tuple(operations)


def test_something_else_than_an_operation_is_refused() -> None:
    with pytest.raises(InvalidTool, match="expected AddMessage, QueueMessage, SetTodos or PatchMetadata; got dict"):
        ToolOutput("ok", [{"todos": []}])  # type: ignore[list-item]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=10,
    ).filter(lambda value: not isinstance(value, str | bytes | None))
)
async def test_any_json_like_value_becomes_valid_json_that_can_be_encoded(value: Any) -> None:
    outcome = await outcome_of(value)

    assert not outcome.result.is_error
    outcome.result.content.encode()
    json.loads(outcome.result.content, parse_constant=pytest.fail)
