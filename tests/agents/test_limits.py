"""Limits of a run: what it may use, and that the last permitted answer counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Limits, Runtime, ScriptedModel, tool
from sapwood.conversation import RunFinished, ToolResult, Usage
from sapwood.errors import InvalidOption, ModelUnavailable, RunFailed
from sapwood.middleware import HumanInTheLoop
from sapwood.models import Delay, RetryPolicy, Stall, Step, call
from tests.agents.kit import assert_sendable, events_in, finished, opened, server_of, state_in, transcript, until


@tool
def look(what: str = "") -> str:
    """Look."""
    return f"saw {what}"


@tool
async def work(seconds: float) -> str:
    """Work."""
    await trio.sleep(seconds)
    return "worked"


def problems(results: list[ToolResult]) -> list[str]:
    return [result.problem for result in results]


def results_of(session: Any) -> list[ToolResult]:
    return [each for each in session.state.messages if isinstance(each, ToolResult)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "limits.steps: expected None or an int >= 1; got 0"),
        ({"tokens": 1.5}, "limits.tokens"),
        ({"tool_calls": -1}, "limits.tool_calls"),
        ({"self_started": None}, "limits.self_started: expected an int >= 0; got None"),
        ({"seconds": 0}, "limits.seconds: expected None or seconds above 0; got 0"),
        ({"seconds": float("inf")}, "limits.seconds"),
        ({"seconds": True}, "limits.seconds"),
    ],
)
def test_a_limit_out_of_its_range_is_refused_with_what_was_expected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Limits(**options)


@pytest.mark.row("AR-22.17")
@pytest.mark.parametrize("limits", [Limits(2), Limits(steps=2), Limits(tokens=300)], ids=["calls", "steps", "tokens"])
async def test_the_answer_to_the_last_permitted_call_counts_whatever_the_limit_is(
    runtime: Runtime, autojump_clock: MockClock, limits: Limits
) -> None:
    model = ScriptedModel([call("look"), Usage(100, 50)], ["done", Usage(400, 10)])
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[look], limits=limits), "c1")
    assert await session.say("go") == "done"


@pytest.mark.row("AR-22.17", "UP-83")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(2), "the run used up its limit of 2 model calls"),
        (Limits(steps=2), "the run used up its limit of 2 steps"),
        (Limits(tokens=300), "the run used up its limit of 300 tokens"),
    ],
    ids=["calls", "steps", "tokens"],
)
async def test_a_run_that_wants_more_than_its_limit_fails_by_name_with_its_tools_answered(
    runtime: Runtime, autojump_clock: MockClock, limits: Limits, reason: str
) -> None:
    model = ScriptedModel(then=[call("look"), Usage(100, 50)])
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[look], limits=limits), "c1")
    end = await finished(session, "go")
    assert (end.outcome, end.cause, end.reason) == ("failed", "limit", reason)
    assert (len(model.requests), len(results_of(session))) == (2, 2)
    assert_sendable(session.state)
    with pytest.raises(RunFailed) as raised:
        await session.say("again")
    assert raised.value.cause == "limit"


@pytest.mark.row("AR-22.17", "BR-56")
async def test_failed_attempts_count_with_their_calls_and_their_tokens(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    broken: Step = ["x" * 400, ModelUnavailable("scripted", "broke off")]
    model = ScriptedModel(broken, broken, ["done", Usage(10, 5)])
    agent = Agent("a", model=model, limits=Limits(3), retry=RetryPolicy(jitter=0.0))
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert await session.say("go") == "done"
    usage = session.state.usage
    assert session.state.counters.model_calls == 3
    # 100 tokens were received of each attempt that broke off, and its request was sent.
    assert usage.output_tokens == 205
    assert usage.input_tokens > 10
    assert (await events_in(runtime)).count("ModelAttemptFailed") == 2


@pytest.mark.row("BR-56")
async def test_an_attempt_of_which_nothing_came_costs_no_tokens(runtime: Runtime, autojump_clock: MockClock) -> None:
    model = ScriptedModel(ModelUnavailable("scripted", "no connection"), ["done", Usage(10, 5)])
    session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
    assert await session.say("go") == "done"
    assert session.state.usage == Usage(10, 5)


async def test_a_repetition_that_the_limit_forbids_is_not_made(runtime: Runtime, autojump_clock: MockClock) -> None:
    model = ScriptedModel(then=ModelUnavailable("scripted", "down"))
    agent = Agent("a", model=model, limits=Limits(2), retry=RetryPolicy(attempts=9))
    session = await runtime.sessions.ensure_running(agent, "c1")
    end = await finished(session, "go")
    assert (end.cause, len(model.requests)) == ("limit", 2)


@pytest.mark.row("BR-56", "BR-68")
async def test_a_model_call_that_was_cut_off_is_on_the_bill(runtime: Runtime, autojump_clock: MockClock) -> None:
    model = ScriptedModel(["x" * 400, Stall()])
    session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
    async with session.send("go") as run:
        await trio.sleep(1)
        await session.cancel()
        await run.finish()
    assert session.state.usage.output_tokens == 100
    assert await state_in(runtime) == session.state


# --- tool calls -------------------------------------------------------------------------------------


@pytest.mark.row("BR-55")
async def test_of_too_many_calls_the_first_run_and_the_others_are_told_why(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    wishes = [call("look", what=str(number)) for number in range(3)]
    model = ScriptedModel([call("look", what="a"), call("look", what="b")], wishes, "done")
    agent = Agent("a", model=model, tools=[look], limits=Limits(tool_calls=4))
    session = await runtime.sessions.ensure_running(agent, "c1")
    # An answer without tools is always affordable (C24).
    assert await session.say("go") == "done"
    assert [result.content for result in results_of(session)][2:] == [
        "saw 0",
        "saw 1",
        "Error: look was not run: the run used up its limit of 4 tool calls",
    ]
    assert problems(results_of(session)) == ["", "", "", "", "limit"]
    assert session.state.counters.tool_calls == 4


@pytest.mark.row("BR-55")
async def test_nobody_is_asked_about_a_call_that_the_limit_forbids(runtime: Runtime, autojump_clock: MockClock) -> None:
    model = ScriptedModel([call("look", what="a"), call("look", what="b")], "done")
    gate = HumanInTheLoop(look=True)
    agent = Agent("a", model=model, tools=[look], middleware=[gate], limits=Limits(tool_calls=1))
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert (await finished(session, "go")).outcome == "interrupted"
    assert [each.interrupt.call.arguments for each in session.approvals] == [{"what": "a"}]


@pytest.mark.row("BR-55")
async def test_the_count_of_calls_is_right_after_a_crash(path: Path, autojump_clock: MockClock) -> None:
    @tool(idempotent=True)
    async def slow(what: str) -> str:
        """Take a while."""
        await trio.sleep(10)
        return what

    wishes = [call("slow", what=str(number)) for number in range(3)]
    agent = Agent("a", model=ScriptedModel(wishes, "done"), tools=[slow], limits=Limits(tool_calls=2))
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run:
            await trio.sleep(5)
            server_of(runtime).kill()
            await run.finish()
        assert problems(results_of(session)) == ["", "", "limit"]
        assert session.state.counters.tool_calls == 2


# --- time -------------------------------------------------------------------------------------------


async def test_a_run_that_takes_too_long_ends_wherever_it_is(runtime: Runtime, autojump_clock: MockClock) -> None:
    model = ScriptedModel(["Let me", call("work", seconds=7.0)], ["Hm", Stall()], "fine")
    agent = Agent("a", model=model, tools=[work], limits=Limits(seconds=10.0))
    session = await runtime.sessions.ensure_running(agent, "c1")
    end = await finished(session, "go")
    assert (end.outcome, end.cause) == ("failed", "limit")
    assert end.reason == "the run used up its limit of 10.0 seconds"
    assert trio.current_time() < 11
    assert transcript(session.state.messages) == ["user: go", "model: Let me -> work", "work: worked"]
    assert await session.say("again") == "fine"


async def test_a_tool_that_is_cut_off_by_the_limit_has_an_honest_result(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(call("work", seconds=70.0))
    agent = Agent("a", model=model, tools=[work], limits=Limits(seconds=10.0))
    session = await runtime.sessions.ensure_running(agent, "c1")
    await finished(session, "go")
    assert problems(results_of(session)) == ["unknown"]
    assert_sendable(session.state)


async def test_time_in_which_people_are_waited_for_does_not_count(path: Path, autojump_clock: MockClock) -> None:
    def agent() -> Agent:
        model = ScriptedModel(then=[Delay(4.0), call("work", seconds=4.0)])
        gate = HumanInTheLoop(work=True)
        return Agent("a", model=model, tools=[work], middleware=[gate], limits=Limits(seconds=20.0))

    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent(), "c1")
        await finished(session, "go")
        await trio.sleep(1000)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent(), "c1")
        began = trio.current_time()
        with session.events() as events:
            await session.approvals[0].approve()
            await until(events, RunFinished, outcome="interrupted")
            await session.approvals[0].approve()
            _, end = await until(events, RunFinished)
        assert session.state.run is None
        assert (end.cause, trio.current_time() - began) == ("limit", 16.0)
