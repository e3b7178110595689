"""CallLimits: what a run and a conversation may use, and how they end when it is used up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, tool
from sapwood.errors import InvalidOption, RunFailed
from sapwood.middleware import CallLimits, HumanInTheLoop
from sapwood.models import call
from tests.agents.kit import assert_sendable, finished, opened, transcript


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@tool
def look() -> str:
    """Look."""
    return "seen"


@tool
def pay() -> str:
    """Pay."""
    return "paid"


async def started(runtime: Runtime, model: ScriptedModel, **options: Any) -> Session:
    layers = [CallLimits(**options), HumanInTheLoop(pay=True)]
    agent = Agent("a", model=model, tools=[look, pay], middleware=layers)
    return await runtime.sessions.ensure_running(agent, "c1")


async def test_a_run_beyond_its_model_calls_ends_with_an_answer_that_says_why(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(then=call("look"))
    async with opened(path) as runtime:
        session = await started(runtime, model, model_calls=3)
        result = await finished(session, "go")
        assert (result.outcome, result.reason) == ("completed", "limit")
        assert result.text == "I stopped: the run used up its limit of 3 model calls."
        assert len(model.requests) == 3
        assert_sendable(session.state)
        await finished(session, "go on")
        assert len(model.requests) == 6


async def test_the_answer_to_the_last_permitted_model_call_counts(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        session = await started(runtime, ScriptedModel(call("look"), "Done."), model_calls=2)
        assert await session.say("go") == "Done."


async def test_a_conversation_that_used_up_its_model_calls_makes_no_more_over_runs_and_restarts(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(then="Hello.")
    async with opened(path) as runtime:
        session = await started(runtime, model, conversation_model_calls=2)
        assert [await session.say("hi"), await session.say("hi")] == ["Hello.", "Hello."]
        assert "for the whole conversation" in await session.say("hi")
    async with opened(path, seed=1) as runtime:
        session = await started(runtime, model, conversation_model_calls=2)
        assert "for the whole conversation" in await session.say("hi")
    assert len(model.requests) == 2


async def test_calls_beyond_the_limit_get_error_results_and_the_model_may_still_answer(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(call("look"), [call("look"), call("look"), call("look")], call("look"), "Done.", "Again.")
    problem = "look: Error: look was not run: the run used up its limit of 3 tool calls"
    async with opened(path) as runtime:
        session = await started(runtime, model, tool_calls=3)
        assert await session.say("go") == "Done."
        results = [line for line in transcript(session.state.messages) if line.startswith("look: ")]
        assert results == ["look: seen"] * 3 + [problem] * 2
        assert session.state.counters.tool_calls == 3
        assert_sendable(session.state)


async def test_calls_that_wait_for_people_count_before_anybody_has_decided(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([call("pay"), call("look")], [call("look")], "Done.")
    async with opened(path) as runtime:
        session = await started(runtime, model, conversation_tool_calls=2)
        await finished(session, "go")
        async with session.send("never mind") as run:
            await run.finish()
        results = [line for line in transcript(session.state.messages) if line.startswith(("look: ", "pay: "))]
        assert results[1] == "look: seen"
        assert results[0].startswith("pay: Error")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"model_calls": 2}, "the run used up its limit of 2 model calls"),
        ({"tool_calls": 1}, "the run used up its limit of 1 tool calls"),
        ({"conversation_tool_calls": 0}, "limit of 0 tool calls for the whole conversation"),
    ],
)
async def test_a_run_fails_at_its_limit_if_that_is_wanted(
    path: Path, autojump_clock: MockClock, options: dict[str, int], problem: str
) -> None:
    async with opened(path) as runtime:
        session = await started(runtime, ScriptedModel(then=call("look")), on_limit="error", **options)
        with pytest.raises(RunFailed, match=problem):
            await session.say("go")
        assert_sendable(session.state)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "expected at least one of model_calls, tool_calls"),
        ({"model_calls": 0}, "expected None or an int >= 1; got 0"),
        ({"tool_calls": -1}, "expected None or an int >= 0; got -1"),
        ({"conversation_model_calls": 1.5}, "got 1.5"),
        ({"model_calls": True}, "got True"),
        ({"model_calls": 1, "on_limit": "explode"}, "expected finish or error; got 'explode'"),
    ],
)
def test_limits_that_limit_nothing_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        CallLimits(**options)


async def test_nobody_is_asked_about_a_call_that_the_limit_has_refused(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        session = await started(runtime, ScriptedModel([call("pay"), call("pay")]), tool_calls=1)
        await finished(session, "go")
        assert [approval.interrupt.id for approval in session.approvals] == ["call_1"]
