"""ContextEditing: which results give way, and what stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood import Agent, ScriptedModel, tool
from sapwood.conversation import AssistantMessage, Message, ToolCall, ToolResult, UserMessage, check_pairs
from sapwood.errors import InvalidOption
from sapwood.middleware import (
    ContextEditing,
    Middleware,
    PatchToolCalls,
    ResultEviction,
    Summarization,
    message_tokens,
)
from sapwood.models import call
from tests.agents.kit import opened, transcript

CLEARED = "[this result was cleared to save space; call the tool again if you need it]"
SIZE = message_tokens(ToolResult("c", "look", CLEARED))


def history(*sizes: int, name: str = "look") -> tuple[Message, ...]:
    """Return one call after the other with results of these tokens."""
    messages: list[Message] = [UserMessage("go")]
    for number, size in enumerate(sizes):
        messages += [
            AssistantMessage("", (ToolCall(f"c{number}", name),)),
            ToolResult(f"c{number}", name, "r" * (size - 4) * 4),
        ]
    return tuple(messages)


def cleared(layer: ContextEditing, messages: tuple[Message, ...]) -> list[int]:
    """Return which of the results were cleared."""
    results = [each for each in layer.edited(messages) if isinstance(each, ToolResult)]
    return [index for index, each in enumerate(results) if each.content == layer.placeholder]


@pytest.mark.parametrize(
    ("options", "which"),
    [
        ({"threshold": 10_000}, []),
        ({"threshold": 900, "keep": 0, "stride": 0}, [0, 1, 2]),
        ({"threshold": 900, "keep": 0, "stride": 500}, [0, 1, 2, 3, 4, 5, 6]),
        ({"threshold": 100, "keep": 7, "stride": 0}, [0, 1, 2]),
        ({"threshold": 100, "keep": 15, "stride": 0}, []),
        ({"threshold": 100, "keep": 0, "stride": 0, "exclude": ["look"]}, []),
    ],
)
def test_the_oldest_results_are_cleared_until_the_rest_fits(options: dict[str, Any], which: list[int]) -> None:
    assert cleared(ContextEditing(**options), history(*[100] * 10)) == which


def test_a_result_that_is_smaller_than_the_placeholder_stays() -> None:
    assert cleared(ContextEditing(50, keep=0, stride=0), history(SIZE, 6, 200)) == [2]


async def test_only_the_request_changes_and_every_call_keeps_a_result(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "r" * 800

    model = ScriptedModel(*[call("look")] * 6, "Done.")
    agent = Agent("a", model=model, tools=[look], middleware=[ContextEditing(500, keep=1, stride=0)])
    async with opened(tmp_path / "s.db") as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert await session.say("go") == "Done."
        assert CLEARED not in str(session.state)
    last = transcript(model.requests[-1].messages)
    assert [line for line in last if line.startswith("look: ")] == [f"look: {CLEARED}"] * 5 + ["look: " + "r" * 800]
    for request in model.requests:
        assert check_pairs(request.messages) == ()


@given(
    st.lists(st.integers(5, 400), max_size=20),
    st.integers(1, 2000),
    st.integers(0, 5),
    st.sampled_from([0, 100, 1000]),
)
def test_edited_messages_are_valid_differ_in_old_results_alone_and_editing_twice_changes_nothing(
    sizes: list[int], threshold: int, keep: int, stride: int
) -> None:
    layer = ContextEditing(threshold, keep=keep, stride=stride)
    messages = history(*sizes)
    edited = layer.edited(messages)
    assert check_pairs(edited) == ()
    changed = [index for index, (old, new) in enumerate(zip(messages, edited, strict=True)) if old != new]
    assert all(isinstance(messages[index], ToolResult) for index in changed)
    protected = [index for index, each in enumerate(messages) if isinstance(each, ToolResult)][
        max(0, len(sizes) - keep) :
    ]
    assert keep == 0 or not set(changed) & set(protected)
    left = sum(map(message_tokens, edited))
    clearable = [each for index, each in enumerate(edited) if isinstance(each, ToolResult) and index not in protected]
    assert left <= threshold or keep == 0 or all(message_tokens(each) <= SIZE for each in clearable)
    if left <= threshold:
        assert layer.edited(edited) == edited


@pytest.mark.parametrize(
    ("layers", "problem"),
    [
        ([ResultEviction(), ContextEditing()], "expected ContextEditing before ResultEviction"),
        ([Summarization(), PatchToolCalls()], "expected PatchToolCalls before Summarization"),
    ],
    ids=["eviction", "repair"],
)
def test_layers_that_change_what_the_model_sees_stand_in_the_order_that_works(
    layers: list[Middleware], problem: str
) -> None:
    with pytest.raises(InvalidOption, match=problem):
        Agent("a", model=ScriptedModel(), middleware=layers)


def test_it_comes_after_summaries_which_would_otherwise_read_placeholders() -> None:
    with pytest.raises(InvalidOption, match="expected Summarization before ContextEditing"):
        Agent("a", model=ScriptedModel(), middleware=[ContextEditing(), Summarization()])


@pytest.mark.parametrize("options", [{"threshold": 0}, {"keep": -1}, {"stride": -1}])
def test_an_option_out_of_its_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=f"ContextEditing {next(iter(options))}"):
        ContextEditing(**options)
