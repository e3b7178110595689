"""Calls and their results."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.conversation import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolResult,
    UserMessage,
    check_pairs,
    distinct_calls,
    orphan_results,
    repair_pairs,
    unanswered_calls,
)

USER = UserMessage("hello", "u")


def asks(*ids: str) -> AssistantMessage:
    return AssistantMessage("", tuple(ToolCall(each, "tool") for each in ids))


def result(call_id: str, content: str = "ok") -> ToolResult:
    return ToolResult(call_id, "tool", content)


ids = st.sampled_from(["a", "b", "c", ""])
messages = st.lists(
    st.one_of(
        st.builds(UserMessage, st.sampled_from(["x", "y"])),
        st.lists(ids, max_size=3).map(lambda some: asks(*some)),
        st.builds(result, ids, st.sampled_from(["1", "2"])),
    ),
    max_size=12,
)


def test_a_conversation_with_every_result_after_its_call_has_no_problems() -> None:
    conversation: list[Message] = [USER, asks("a", "b"), result("b"), result("a"), asks(), USER]

    assert check_pairs(conversation) == ()
    assert unanswered_calls(conversation) == ()
    assert orphan_results(conversation) == ()


@pytest.mark.parametrize(
    ("conversation", "problem"),
    [
        ([asks("a")], "call 'a' has no result"),
        ([asks("a"), USER, result("a")], "messages[1]: comes before the result of call 'a'"),
        ([result("a")], "messages[0]: answers 'a', no open call"),
        ([asks("a"), result("a"), result("a")], "messages[2]: answers 'a', no open call"),
        ([asks("a", "a"), result("a"), result("a")], "messages[0]: several calls with one id"),
    ],
)
def test_a_conversation_that_a_provider_would_refuse_is_explained(conversation: list[Message], problem: str) -> None:
    assert any(found.startswith(problem) for found in check_pairs(conversation))


def test_unanswered_calls_and_orphan_results_are_told_apart() -> None:
    conversation: list[Message] = [result("x"), asks("a", "b"), result("b"), result("b", "again")]

    assert [call.id for call in unanswered_calls(conversation)] == ["a"]
    assert [(each.call_id, each.content) for each in orphan_results(conversation)] == [("x", "ok"), ("b", "again")]


def test_an_id_that_a_model_uses_again_belongs_to_its_latest_call() -> None:
    conversation: list[Message] = [asks("a"), result("a"), asks("a"), result("a", "second")]

    assert check_pairs(conversation) == ()
    assert unanswered_calls(conversation) == ()


@given(messages)
def test_a_repaired_conversation_can_always_be_sent(conversation: list[Message]) -> None:
    assert check_pairs(repair_pairs(conversation)) == ()


@given(messages)
def test_a_repair_keeps_every_other_message_in_order_and_is_done_after_one_go(conversation: list[Message]) -> None:
    repaired = repair_pairs(conversation)

    assert [each.text for each in repaired if not isinstance(each, ToolResult)] == [
        each.text for each in conversation if not isinstance(each, ToolResult)
    ]
    assert repair_pairs(repaired) == repaired


def test_a_call_without_a_result_gets_an_error_result_next_to_it() -> None:
    repaired = repair_pairs([asks("a", "b"), result("b"), USER], content="Error: not run")

    assert repaired == (asks("a", "b"), ToolResult("a", "tool", "Error: not run", is_error=True), result("b"), USER)


def test_a_result_that_came_late_moves_back_to_its_call() -> None:
    assert repair_pairs([asks("a"), USER, result("a")]) == (asks("a"), result("a"), USER)


def test_calls_of_one_answer_with_one_id_get_ids_of_their_own() -> None:
    made = distinct_calls(asks("a", "a", "", "a_2"))
    new_ids = [call.id for call in made.tool_calls]

    assert new_ids[0] == "a"
    assert len(set(new_ids)) == 4
    assert all(new_ids)


def test_an_answer_with_distinct_ids_is_left_as_it_is() -> None:
    message = asks("a", "b")

    assert distinct_calls(message) is message


def test_results_of_calls_that_shared_an_id_go_to_the_calls_in_order() -> None:
    repaired = repair_pairs([asks("a", "a"), result("a", "1"), result("a", "2")])

    assert [(each.call_id, each.content) for each in repaired if isinstance(each, ToolResult)] == [
        ("a", "1"),
        ("a_2", "2"),
    ]
