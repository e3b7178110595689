"""Runs that are for something: they go on until a tool was called."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Limits, Runtime, ScriptedModel, tool
from sapwood.agents import ToolAnswer
from sapwood.conversation import RunFinished, Until
from sapwood.errors import CodecError, InvalidOption, InvalidTool, RunFailed, RunInProgress, ToolError
from sapwood.middleware import HumanInTheLoop
from sapwood.models import Delay, call
from tests.agents.kit import finished, opened, server_of, transcript, until


@attrs.frozen
class Address:
    street: str
    number: int


@tool
def submit(addresses: list[Address]) -> list[Address]:
    """Hand in the addresses."""
    if not addresses:
        raise ToolError("there must be one at least")
    return addresses


@tool
def look(what: str = "") -> str:
    """Look."""
    return f"saw {what}"


GOOD = call("submit", addresses=[{"street": "High Street", "number": 5}])
EMPTY = call("submit", addresses=[])


async def answer_of(runtime: Runtime, *steps: object, limits: Limits | None = None) -> tuple[Agent, ToolAnswer]:
    agent = Agent("a", model=ScriptedModel(*steps), tools=[submit, look], limits=limits)  # type: ignore[arg-type]  # steps of a script
    session = await runtime.sessions.ensure_running(agent, "c1")
    return agent, await session.run_until(submit, "Find the addresses")


@pytest.mark.row("AR-24.60")
async def test_a_run_goes_on_until_the_tool_was_called_and_returns_what_it_was_called_with(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent, answer = await answer_of(runtime, call("look"), GOOD)
    assert answer.arguments == {"addresses": [Address("High Street", 5)]}
    assert answer.value == [Address("High Street", 5)]
    assert answer.call.arguments == {"addresses": [{"street": "High Street", "number": 5}]}
    assert isinstance(agent.model, ScriptedModel)
    assert agent.model.remaining == 0


@pytest.mark.row("AR-24.60")
async def test_a_model_that_stops_without_the_call_is_an_error_by_name(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    with pytest.raises(RunFailed, match="the model stopped without calling submit") as raised:
        await answer_of(runtime, call("look"), "I could not find any.")
    assert raised.value.cause == "not_called"


@pytest.mark.row("AR-24.60")
async def test_a_call_with_an_error_lets_the_model_try_again_within_its_limits(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    _, answer = await answer_of(runtime, EMPTY, call("submit"), GOOD)
    assert answer.value == [Address("High Street", 5)]


@pytest.mark.row("AR-24.60")
async def test_trying_again_ends_at_the_limit_of_the_run(runtime: Runtime, autojump_clock: MockClock) -> None:
    with pytest.raises(RunFailed) as raised:
        await answer_of(runtime, EMPTY, EMPTY, GOOD, limits=Limits(2))
    assert raised.value.cause == "limit"


@pytest.mark.row("AR-24.60")
async def test_the_other_variant_takes_a_call_with_an_error_too(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel(EMPTY, GOOD), tools=[submit])
    session = await runtime.sessions.ensure_running(agent, "c1")
    end = await finished(session, "go", until=Until(("submit",), success=False))
    assert end.outcome == "completed"
    assert transcript(session.state.messages)[-1] == "submit: Error: there must be one at least"


@pytest.mark.row("AR-24.60")
async def test_a_call_of_an_earlier_run_does_not_count_for_this_one(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(GOOD, call("look"), GOOD)
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[submit, look]), "c1")
    await session.run_until(submit, "once")
    answer = await session.run_until(submit, "twice")
    assert model.remaining == 0
    assert answer.result is session.state.messages[-1]


@pytest.mark.row("AR-22.8", "AR-24.60", "UP-15")
@pytest.mark.parametrize("restart", [False, True])
async def test_what_a_run_is_for_survives_an_approval_and_a_restart(
    path: Path, autojump_clock: MockClock, *, restart: bool
) -> None:
    agent = Agent("a", model=ScriptedModel(GOOD, "never"), tools=[submit], middleware=[HumanInTheLoop(submit=True)])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with pytest.raises(RunFailed, match="interrupted"):
            await session.run_until(submit, "go")
        if restart:
            await runtime.sessions.stop("c1")
            session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            await session.approvals[0].approve()
            _, end = await until(events, RunFinished)
    assert end.outcome == "completed"


async def test_what_a_run_is_for_survives_a_crash(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel([Delay(5.0), "never"], call("look"), GOOD), tools=[submit, look])
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go", until=Until(("submit",))) as run:
        await trio.sleep(1)
        server_of(runtime).kill()
        end = await run.finish()
    assert end is not None
    assert end.outcome == "completed"


async def test_a_tool_that_the_agent_does_not_have_is_refused_with_the_nearest(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(), tools=[submit]), "c1")
    with pytest.raises(InvalidOption, match="there is no tool 'submt'; did you mean 'submit'"):
        await session.say("go", until=Until(("submt",)))
    assert session.state.messages == ()


@pytest.mark.row("AR-24.1", "AR-24.2", "UP-47")
async def test_a_run_for_something_begins_only_while_no_other_is_open(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel([Delay(5.0), "done"]), tools=[submit])
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        with pytest.raises(RunInProgress) as raised:
            await session.run_until(submit, "now")
        with pytest.raises(RunInProgress, match="running"):
            await session.say("now", while_running="reject")
        assert raised.value.run_id == run.receipt.run_id
        await run.finish()
    assert transcript(session.state.messages) == ["user: go", "model: done"]
    assert session.state.counters.runs == 1


def test_a_result_is_read_back_as_what_the_function_returned() -> None:
    @tool
    def nothing() -> None:
        """Return nothing."""

    @tool
    async def either(x: int) -> int | str:
        """Return either."""
        return x

    @tool
    def opaque() -> object:
        """Return anything."""
        return 1

    @tool
    def strange() -> set[int]:
        """Return a set."""
        return {1}

    assert nothing.read_result("done") is None
    assert either.read_result("5") == 5
    assert either.read_result("five") == "five"
    assert opaque.read_result('{"a": 1}') == {"a": 1}
    with pytest.raises(InvalidTool, match="its result"):
        strange.read_result("[1]")
    with pytest.raises(CodecError, match="result of submit"):
        submit.read_result("[1")
