"""What a person may type about an approval."""

from __future__ import annotations

import pytest

from sapwood.console._approvals import Later, Unclear, choices, read_decision
from sapwood.conversation import Decision, Interrupt, ToolCall

CALL = ToolCall("call_1", "refund", {"order": "17", "cents": 7500, "notify": True})
APPROVAL = Interrupt("call_1", "approval", CALL)
RECONCILE = Interrupt("call_1", "reconcile", CALL)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("approve", Decision("call_1", "approve", by="chat")),
        ("  Y ", Decision("call_1", "approve", by="chat")),
        ("reject", Decision("call_1", "reject", by="chat")),
        ("n  too much ", Decision("call_1", "reject", reason="too much", by="chat")),
        ("edit cents=2500", Decision("call_1", "edit", {"cents": 2500}, by="chat")),
        (
            "e order='18 b' notify=false",
            Decision("call_1", "edit", {"order": "18 b", "notify": False}, by="chat"),
        ),
        ("edit order=18", Decision("call_1", "edit", {"order": "18"}, by="chat")),
        ("edit cents=much", Decision("call_1", "edit", {"cents": "much"}, by="chat")),
        ("later", Later()),
    ],
)
def test_a_decision_is_read_as_it_was_meant(typed: str, expected: object) -> None:
    assert read_decision(typed, APPROVAL) == expected


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("sure", "expected one of: approve · edit NAME=VALUE ... · reject [REASON] · later"),
        ("answer yes", "expected one of: approve"),
        ("approve 5", "approve takes nothing after it; got '5'"),
        ("edit", "expected edit order=VALUE"),
        ("edit cents", "expected edit order=VALUE; got 'cents'"),
        ("edit amount=5", "refund was called with order, cents, notify; got 'amount'"),
        ("edit order='18", "the quotes do not match"),
    ],
)
def test_what_is_no_decision_is_answered_with_what_may_be_typed(typed: str, problem: str) -> None:
    reading = read_decision(typed, APPROVAL)

    assert isinstance(reading, Unclear)
    assert reading.problem.startswith(problem)


def test_a_call_of_unknown_outcome_takes_its_result_as_an_answer() -> None:
    assert choices(RECONCILE) == "answer TEXT · approve · reject [REASON] · later"
    assert read_decision("answer it was paid", RECONCILE) == Decision(
        "call_1", "answer", {"result": "it was paid"}, by="chat"
    )
    assert isinstance(read_decision("answer", RECONCILE), Unclear)
    assert isinstance(read_decision("edit cents=1", RECONCILE), Unclear)
