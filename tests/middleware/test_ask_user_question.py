"""AskUserQuestion: what the model may ask, what people may answer, and what the model reads then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import Accepted, AlreadyDecided, Invalid, RunFinished, Stale
from sapwood.errors import InvalidOption
from sapwood.middleware import AskUserQuestion, Choice, HumanInTheLoop, Question
from sapwood.models import call
from tests.agents.kit import assert_sendable, finished, opened, transcript, until

COLOURS: list[dict[str, str]] = [
    {"value": "blue", "label": "Blue", "description": "like the sea"},
    {"value": "red"},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@tool
def paint(colour: str) -> str:
    """Paint."""
    return f"painted {colour}"


def wish(**arguments: Any) -> Any:
    return call("ask_user", **arguments)


async def started(runtime: Runtime, *steps: Any, layer: AskUserQuestion | None = None) -> Session:
    agent = Agent(
        "a",
        model=ScriptedModel(*steps),
        tools=[paint],
        middleware=[layer or AskUserQuestion(), HumanInTheLoop(paint=True)],
    )
    return await runtime.sessions.ensure_running(agent, "c1")


async def answered(session: Session, *chosen: str, other: str = "") -> str:
    """Answer the first open question, and return what the tool answered."""
    [approval, *_] = session.approvals
    question = Question.of(approval.interrupt)
    with session.events() as events:
        outcome = await approval.answer(by="ada", **question.answer(*chosen, other=other))
        assert isinstance(outcome, Accepted)
        if not session.approvals:
            await until(events, RunFinished)
    lines = transcript(session.state.messages)
    return [line.removeprefix("ask_user: ") for line in lines if line.startswith("ask_user: ")][-1]


async def test_a_question_waits_over_a_restart_and_its_answer_is_the_result_of_the_call(
    path: Path, autojump_clock: MockClock
) -> None:
    step = wish(question="Which colour?", kind="one", choices=COLOURS)
    async with opened(path) as runtime:
        session = await started(runtime, step, "Blue then.")
        result = await finished(session, "paint it")
        assert result.outcome == "interrupted"
        before = session.approvals[0].interrupt
    async with opened(path, seed=1) as runtime:
        session = await started(runtime, "Blue then.")
        [approval] = session.approvals
        interrupt = approval.interrupt
        assert interrupt == before
        assert (interrupt.kind, interrupt.reason) == ("question", "Which colour?")
        assert interrupt.allowed == ("answer", "reject", "escalate")
        question = Question.of(interrupt)
        assert question == Question(
            "Which colour?", "one", (Choice("blue", "Blue", "like the sea"), Choice("red", "red")), other=False
        )
        assert await answered(session, "blue") == "blue"
        assert transcript(session.state.messages)[-1] == "model: Blue then."
        assert_sendable(session.state)
        assert isinstance(await approval.answer(result="red"), AlreadyDecided | Stale)


@pytest.mark.parametrize(
    ("asked", "chosen", "other", "result"),
    [
        ({"question": "Why?"}, ["Because."], "", "Because."),
        ({"question": "?", "kind": "one", "choices": COLOURS}, ["red"], "", "red"),
        ({"question": "?", "kind": "one", "choices": COLOURS, "other": True}, [], "green", {"other": "green"}),
        ({"question": "?", "kind": "several", "choices": COLOURS}, ["red", "blue"], "", {"chosen": ["red", "blue"]}),
        ({"question": "?", "kind": "several", "choices": COLOURS}, [], "", {"chosen": []}),
        (
            {"question": "?", "kind": "several", "choices": COLOURS, "other": True},
            ["red"],
            "green",
            {"chosen": ["red"], "other": "green"},
        ),
    ],
)
async def test_the_model_reads_what_was_chosen_and_what_was_said_in_other_words(
    path: Path, autojump_clock: MockClock, *, asked: dict[str, Any], chosen: list[str], other: str, result: Any
) -> None:
    async with opened(path) as runtime:
        session = await started(runtime, wish(**asked), "ok")
        await finished(session, "go")
        read = await answered(session, *chosen, other=other)
        assert read == result if isinstance(result, str) else json.loads(read) == result


async def test_several_questions_and_an_approval_of_one_answer_are_decided_one_by_one_in_any_order(
    path: Path, autojump_clock: MockClock
) -> None:
    calls = [wish(question="First?"), wish(question="Second?"), call("paint", colour="red")]
    async with opened(path) as runtime:
        session = await started(runtime, calls, "ok")
        await finished(session, "go")
        approval, first, second = session.approvals
        assert [each.interrupt.reason for each in (first, second)] == ["First?", "Second?"]
        await second.answer(**Question.of(second.interrupt).answer("two"))
        with session.events() as events:
            await approval.approve()
            await first.answer(**Question.of(first.interrupt).answer("one"))
            await until(events, RunFinished)
        assert transcript(session.state.messages)[2:] == [
            "ask_user: one",
            "ask_user: two",
            "paint: painted red",
            "model: ok",
        ]


async def test_a_person_may_leave_a_question_unanswered_unless_the_layer_forbids_it(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        session = await started(runtime, wish(question="Why?"), "ok")
        await finished(session, "go")
        with session.events() as events:
            await session.approvals[0].reject("not now", by="ada")
            await until(events, RunFinished)
        told = transcript(session.state.messages)[2]
        assert told.startswith("ask_user: Error: ask_user was not run (rejected by ada")
        assert "not now" in told
        await runtime.sessions.stop("c1")
        layer = AskUserQuestion(allow_reject=False, expires_after=60.0)
        session = await started(runtime, wish(question="Why?"), "ok", layer=layer)
        await finished(session, "go on")
        [approval] = session.approvals
        assert isinstance(await approval.reject("no"), Invalid)
        assert approval.interrupt.expires_at == approval.interrupt.created_at + 60.0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"question": " "}, "expected a text that is not blank"),
        ({"question": "?", "kind": "one"}, "expected 2 to 10 choices; got 0"),
        ({"question": "?", "kind": "one", "choices": COLOURS[:1]}, "expected 2 to 10 choices; got 1"),
        ({"question": "?", "choices": COLOURS}, "expected no choices for kind text"),
        ({"question": "?", "kind": "one", "choices": COLOURS * 2}, "got 'blue' twice"),
        ({"question": "?", "kind": "several", "choices": [{"value": str(n)} for n in range(11)]}, "got 11"),
        ({"question": "?", "kind": "one", "choices": [{"value": ""}, {"value": "x"}]}, "got an empty one"),
        ({"question": "?", "kind": "maybe"}, "kind"),
        ({"question": "?", "colour": "red"}, "colour"),
        ({}, "question"),
    ],
)
async def test_nobody_is_asked_a_question_that_cannot_be_asked_and_the_model_is_told_why(
    path: Path, autojump_clock: MockClock, arguments: dict[str, Any], problem: str
) -> None:
    async with opened(path) as runtime:
        session = await started(runtime, wish(**arguments), "ok")
        assert (await finished(session, "go")).outcome == "completed"
        result = transcript(session.state.messages)[2]
        assert result.startswith("ask_user: Error: ")
        assert problem in result


@pytest.mark.parametrize(("allow_other", "offered"), [(None, True), (True, False), (False, False)])
async def test_a_layer_may_settle_whether_other_words_are_welcome(
    path: Path, autojump_clock: MockClock, *, allow_other: bool | None, offered: bool
) -> None:
    model = ScriptedModel(wish(question="?", kind="one", choices=COLOURS))
    layer = AskUserQuestion(allow_other=allow_other)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(Agent("a", model=model, middleware=[layer]), "c1")
        await finished(session, "go")
        [spec] = model.requests[0].tools
        assert ("other" in spec.parameters["properties"]) == offered
        assert Question.of(session.approvals[0].interrupt).other is (allow_other is True)


@pytest.mark.parametrize(
    ("question", "chosen", "other", "problem"),
    [
        (Question("?"), [], "", "expected one text"),
        (Question("?"), ["a", "b"], "", "expected one text"),
        (Question("?"), [" "], "", "expected one text"),
        (Question("?", "one", (Choice("a"), Choice("b"))), ["c"], "", "expected values from a, b; got 'c'$"),
        (
            Question("?", "one", (Choice("a"), Choice("b")), other=True),
            ["c"],
            "",
            "got 'c'; pass other words as other=",
        ),
        (Question("?", "one", (Choice("a"), Choice("b"))), ["a", "b"], "", "exactly one value"),
        (Question("?", "one", (Choice("a"), Choice("b"))), [], "", "exactly one value"),
        (Question("?", "one", (Choice("a"), Choice("b")), other=True), ["a"], "c", "exactly one value"),
        (Question("?", "several", (Choice("a"), Choice("b"))), ["a", "a"], "", "every value once"),
        (Question("?", "several", (Choice("a"), Choice("b"))), ["a"], "c", "got other words: 'c'"),
    ],
)
def test_an_answer_that_does_not_fit_its_question_is_refused(
    question: Question, chosen: list[str], other: str, problem: str
) -> None:
    with pytest.raises(InvalidOption, match=problem):
        question.answer(*chosen, other=other)


async def test_an_interrupt_that_asks_nothing_is_no_question(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        session = await started(runtime, call("paint", colour="red"))
        await finished(session, "go")
        with pytest.raises(InvalidOption, match="expected the interrupt of a question"):
            Question.of(session.approvals[0].interrupt)


def test_a_time_to_answer_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidOption, match="above 0 seconds"):
        AskUserQuestion(expires_after=0)
