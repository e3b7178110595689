"""Interrupts and how decisions on them are judged."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.conversation import (
    VERDICTS,
    Accepted,
    AlreadyDecided,
    Decision,
    Interrupt,
    InterruptKind,
    Invalid,
    Stale,
    State,
    ToolCall,
    Verdict,
    edited_call,
)
from sapwood.conversation.journal import InterruptClosed, InterruptDecided, InterruptRaised, apply, fold
from sapwood.errors import CodecError, InvalidOption


def approval(number: int = 1, **fields: Any) -> Interrupt:
    call = ToolCall(f"c{number}", "refund", {"order": "17", "cents": 7500})
    return Interrupt(call.id, "approval", call, **fields)


def raised(*interrupts: Interrupt) -> State:
    return fold(State(), [InterruptRaised(each) for each in interrupts])


def decide(state: State, decision: Decision, now: float = 0.0) -> State:
    assert isinstance(state.judge(decision, now), Accepted)
    return apply(state, InterruptDecided(decision))


@pytest.mark.row("UP-11", "UP-12", "AR-22.10", "AR-24.24")
def test_three_interrupts_take_their_own_answers_in_any_order_and_keep_partial_ones() -> None:
    answers = [
        Decision("c1", "approve", by="ann"),
        Decision("c2", "reject", reason="too much", by="bob"),
        Decision("c3", "edit", {"cents": 2500}, by="ann"),
    ]
    for order in itertools.permutations(answers):
        state = raised(approval(1), approval(2), approval(3))
        for number, answer in enumerate(order, start=1):
            state = decide(state, answer)
            assert len(state.undecided) == 3 - number
        assert {each.id for each in state.interrupts} == {"c1", "c2", "c3"}
        assert [state.decision(answer.interrupt_id) for answer in answers] == answers


def test_a_second_answer_is_told_who_was_first_and_changes_nothing() -> None:
    state = decide(raised(approval()), Decision("c1", "approve", by="ann"))
    second = Decision("c1", "reject", by="bob")

    assert state.judge(second, 0.0) == AlreadyDecided("ann", "approve")
    assert apply(state, InterruptDecided(second)) == state


def test_a_repeated_answer_after_the_interrupt_was_acted_on_is_still_already_decided() -> None:
    answer = Decision("c1", "approve", by="ann")
    state = apply(decide(raised(approval()), answer), InterruptClosed("c1"))

    assert state.interrupts == ()
    assert state.judge(answer, 0.0) == AlreadyDecided("ann", "approve")


def test_an_answer_to_a_withdrawn_interrupt_is_stale() -> None:
    state = apply(raised(approval()), InterruptClosed("c1", "withdrawn"))

    outcome = state.judge(Decision("c1", "approve"), 0.0)

    assert isinstance(outcome, Stale)
    assert "no such interrupt: 'c1'" in outcome.problem


@pytest.mark.row("UP-13")
def test_an_answer_must_name_its_interrupt() -> None:
    assert isinstance(raised(approval()).judge(Decision("", "approve"), 0.0), Stale)


def test_an_answer_at_or_after_the_expiry_is_stale_and_the_interrupt_is_listed_as_expired() -> None:
    state = raised(approval(expires_at=100.0))

    assert state.expired(99.9) == ()
    assert isinstance(state.judge(Decision("c1", "approve"), 99.9), Accepted)
    assert isinstance(state.judge(Decision("c1", "approve"), 100.0), Stale)
    assert state.expired(100.0) == state.interrupts


@pytest.mark.parametrize(
    ("decision", "problem"),
    [
        (Decision("c1", "answer", {"text": "yes"}), "expected one of approve, edit, reject, escalate; got 'answer'"),
        (Decision("c1", "maybe"), "got 'maybe'"),  # type: ignore[arg-type]
        (Decision("c1", "edit"), "use approve"),
        (Decision("c1", "edit", {"order": "18"}), "expected changes to cents; got one to 'order'"),
        (Decision("c1", "edit", {"cents": 1, "order": "18"}), "got one to 'order'"),
        (Decision("c1", "approve", {"cents": 1}), "use edit"),
    ],
)
@pytest.mark.row("AR-22.12", "AR-24.25", "AR-24.26")
def test_an_answer_that_does_not_fit_is_invalid_and_leaves_the_interrupt_open(decision: Decision, problem: str) -> None:
    state = raised(approval(editable=("cents",)))

    outcome = state.judge(decision, 0.0)

    assert isinstance(outcome, Invalid)
    assert problem in outcome.problem
    assert state.undecided == state.interrupts
    assert isinstance(state.judge(Decision("c1", "approve"), 0.0), Accepted)


def test_an_edit_may_repeat_a_locked_argument_as_it_is() -> None:
    state = raised(approval(editable=("cents",)))

    assert isinstance(state.judge(Decision("c1", "edit", {"cents": 1, "order": "17"}), 0.0), Accepted)


@pytest.mark.row("UP-22")
def test_an_edit_changes_arguments_and_neither_the_tool_nor_the_id() -> None:
    interrupt = approval()

    edited = edited_call(interrupt, Decision("c1", "edit", {"cents": 2500}))

    assert edited == ToolCall("c1", "refund", {"order": "17", "cents": 2500})
    assert edited_call(interrupt, Decision("c1", "approve")) == interrupt.call


def test_an_escalated_interrupt_stays_open_and_knows_who_passed_it_on() -> None:
    state = decide(raised(approval()), Decision("c1", "escalate", by="ann"))

    assert state.undecided[0].escalations == ("ann",)
    assert state.judge(Decision("c1", "escalate", by="ann"), 0.0) == AlreadyDecided("ann", "escalate")
    assert isinstance(state.judge(Decision("c1", "approve", by="boss"), 0.0), Accepted)


def test_a_halt_takes_no_decision() -> None:
    state = raised(Interrupt("c1", "halt", ToolCall("c1", "stop")))

    for verdict in ("approve", "answer", "reject"):
        outcome = state.judge(Decision("c1", verdict), 0.0)
        assert isinstance(outcome, Invalid)
        assert "dismiss it" in outcome.problem


@pytest.mark.parametrize("kind", list(VERDICTS))
def test_every_kind_accepts_by_default_all_verdicts_that_make_sense_for_it(kind: InterruptKind) -> None:
    assert Interrupt("c1", kind, ToolCall("c1", "t")).allowed == VERDICTS[kind]


def test_verdicts_and_kinds_that_make_no_sense_are_refused() -> None:
    call = ToolCall("c1", "t")
    with pytest.raises(InvalidOption, match="expected verdicts from answer, reject, escalate; got 'edit'"):
        Interrupt("c1", "question", call, allowed=("edit",))
    with pytest.raises(InvalidOption, match="expected one of approval, question, reconcile, halt; got 'prompt'"):
        Interrupt("c1", "prompt", call)  # type: ignore[arg-type]


def test_a_decision_keeps_its_own_copy_of_the_arguments_and_refuses_what_json_cannot_say() -> None:
    arguments: dict[str, Any] = {"cents": [1]}
    decision = Decision("c1", "edit", arguments)
    arguments["cents"].append(2)

    assert decision.arguments == {"cents": [1]}
    with pytest.raises(CodecError, match=r"arguments\.when"):
        Decision("c1", "edit", {"when": object()})


def test_an_interrupt_raised_again_after_it_was_closed_wants_a_new_answer() -> None:
    state = apply(decide(raised(approval()), Decision("c1", "reject", by="ann")), InterruptClosed("c1"))

    state = apply(state, InterruptRaised(approval()))

    assert isinstance(state.judge(Decision("c1", "approve", by="bob"), 0.0), Accepted)


def test_old_decisions_are_forgotten_at_last_but_those_on_open_interrupts_are_not() -> None:
    state = decide(raised(approval(0)), Decision("c0", "approve", by="ann"))
    for number in range(1, 101):
        state = apply(state, InterruptRaised(approval(number)))
        state = apply(state, InterruptDecided(Decision(f"c{number}", "approve")))
        state = apply(state, InterruptClosed(f"c{number}"))

    assert state.decision("c0") is not None
    assert state.decision("c100") is not None
    assert state.decision("c1") is None
    assert len(state.decisions) == 65


verdicts = st.sampled_from(["approve", "edit", "reject", "escalate", "answer"])


@given(st.lists(st.tuples(st.integers(0, 3), verdicts, st.sampled_from(["ann", "bob"]), st.integers(0, 20))))
def test_each_interrupt_gets_at_most_one_decision_whatever_people_say_and_when(
    said: list[tuple[int, Verdict, str, int]],
) -> None:
    state = raised(*(approval(number, expires_at=10.0) for number in range(3)))
    for number, verdict, by, now in said:
        decision = Decision(f"c{number}", verdict, {"cents": 1} if verdict in ("edit", "answer") else {}, by=by)
        outcome = state.judge(decision, now)
        before = state
        if isinstance(outcome, Accepted):
            state = apply(state, InterruptDecided(decision))
            assert now < 10
            assert state != before
    ids = [decision.interrupt_id for decision in state.decisions]
    assert len(set(ids)) == len(ids)
    assert {each.id for each in state.interrupts} == {"c0", "c1", "c2"}


def test_records_of_interrupts_are_immutable() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        approval().reason = "other"  # type: ignore[misc]
