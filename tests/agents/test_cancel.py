"""Cancelling: what is finished stays, what is open is settled honestly, and the next message works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, tool
from sapwood.conversation import (
    MessageCompleted,
    RunFinished,
    StatusChanged,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from sapwood.middleware import HumanInTheLoop, Middleware
from sapwood.models import Delay, Part, Stall, call
from tests.agents.kit import (
    assert_sendable,
    events_in,
    finished,
    names,
    of,
    opened,
    state_in,
    transcript,
    until,
    waiting_events,
)


@tool
async def work(name: str, seconds: float) -> str:
    """Work."""
    await trio.sleep(seconds)
    return f"{name} done"


@tool
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@pytest.mark.row("AR-24.7", "UP-33", "UP-35", "UP-37", "UP-38", "BR-26")
async def test_a_cancel_keeps_what_is_finished_and_says_honestly_what_is_known_of_the_rest(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    wishes = [call("work", name="quick", seconds=1.0), call("work", name="slow", seconds=100.0)]
    model = ScriptedModel(["Working.", *wishes], "hello")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[work]), "c1")
    async with session.send("go") as run:
        await until(run, ToolFinished)
        assert await session.cancel("enough", grace=0) is True
        _, end = await until(run, RunFinished)
    assert (end.outcome, end.reason) == ("cancelled", "enough")
    assert trio.current_time() < 2
    assert transcript(session.state.messages) == [
        "user: go",
        "model: Working. -> work -> work",
        "work: quick done",
        "work: Error: work was stopped (enough); it may have had its effect. Check before trying again",
    ]
    status = await session.status()
    assert (status.status, status.run_id, session.state.pending) == ("idle", "", ())
    assert await session.say("still there?") == "hello"
    assert_sendable(session.state)
    assert await state_in(runtime) == session.state


@pytest.mark.row("AR-24.8", "BR-68")
async def test_a_cancel_while_the_model_speaks_drops_the_half_said_and_the_late_answer(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(["Half a sen", Stall()], "hello")
    session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
    async with session.send("go") as run:
        await until(run, TextStreamed)
        await session.cancel()
        events, end = await until(run, RunFinished)
    assert names(events) == ["TextDiscarded", "UsageCounted", "StatusChanged", "RunFinished"]
    assert (end.outcome, end.text) == ("cancelled", "")
    assert transcript(session.state.messages) == ["user: go"]
    assert session.state.counters.model_calls == 1
    assert await session.say("again") == "hello"


@pytest.mark.row("AR-24.8")
async def test_a_model_that_answers_in_spite_of_a_cancel_is_not_heard(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Stubborn(Middleware):
        async def around_model_call(self, request: Any, call_next: Any, context: Any) -> Any:
            with trio.CancelScope(shield=True):
                return await call_next(request)

    model = ScriptedModel(["Late", Delay(5.0)], "hello")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, middleware=[Stubborn()]), "c1")
    async with session.send("go") as run:
        await until(run, TextStreamed)
        await session.cancel()
        _, end = await until(run, RunFinished)
    assert end.outcome == "cancelled"
    assert transcript(session.state.messages) == ["user: go"]
    assert await session.say("again") == "hello"


@pytest.mark.row("AR-24.9")
async def test_a_cancel_and_a_waiting_message_do_not_block_each_other(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(["Half", Stall()], then="hello")
    session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
    async with session.send("one") as first, session.send("two"):
        await until(first, TextStreamed)
        with trio.fail_after(5):
            await session.cancel()
            await first.finish()
            assert (await session.status()).queued == 1
            assert await session.say("three") == "hello"
    assert transcript(session.state.messages) == ["user: one", "user: two", "user: three", "model: hello"]


async def test_a_cancel_without_a_run_says_so(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel("x")), "c1")
    assert await session.cancel() is False
    await session.say("go")
    before = await events_in(runtime)
    assert await session.cancel() is False
    assert await events_in(runtime) == before


async def test_a_cancel_of_a_run_that_waits_withdraws_what_was_asked(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(call("pay", cents=5), "hello")
    agent = Agent("a", model=model, tools=[pay], middleware=[HumanInTheLoop(pay=True)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    await finished(session, "pay")
    [approval] = session.approvals
    with session.events() as events:
        assert await session.cancel("no") is True
        seen = (await waiting_events(events))[1:]
    assert names(seen) == ["ToolFinished", "InterruptClosed", "StatusChanged", "RunFinished"]
    assert session.approvals == ()
    assert type(await approval.approve()).__name__ == "Stale"
    assert await session.say("hello?") == "hello"
    assert_sendable(session.state)


@pytest.mark.row("UP-28")
async def test_a_cancel_beside_an_open_approval_leaves_no_question_that_nobody_acts_on(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    wishes = [call("pay", cents=5), call("work", name="slow", seconds=100.0)]
    agent = Agent("a", model=ScriptedModel(wishes, "hello"), tools=[pay, work], middleware=[HumanInTheLoop(pay=True)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        await until(run, ToolStarted)
        [approval] = session.approvals
        await session.cancel()
        await run.finish()
    assert (session.approvals, (await session.status()).status) == ((), "idle")
    assert type(await approval.approve()).__name__ == "Stale"
    assert transcript(session.state.messages)[2] == "pay: Error: pay was not run (cancelled)"
    assert await session.say("hello?") == "hello"
    assert_sendable(session.state)


@pytest.mark.row("UP-28", "UP-39")
async def test_a_cancel_between_the_answer_and_its_tools_runs_none_of_them(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Slow(Middleware):
        async def after_model(self, state: Any, context: Any) -> None:
            await trio.sleep(10)

    agent = Agent("a", model=ScriptedModel(call("pay", cents=5), "hello"), tools=[pay], middleware=[Slow()])
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        await until(run, MessageCompleted, message=session.state.messages[0])
        await until(run, MessageCompleted)
        await session.cancel()
        await run.finish()
    assert "ToolStarted" not in await events_in(runtime)
    assert transcript(session.state.messages)[2:] == ["pay: Error: pay was not run (cancelled)"]
    assert await session.say("hello?") == "hello"
    assert_sendable(session.state)


@pytest.mark.row("UP-36", "BR-26")
async def test_a_tool_that_ended_when_the_cancel_came_has_its_real_result(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    async def stubborn() -> str:
        """Do it whatever happens."""
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return "it is done"

    model = ScriptedModel(call("stubborn"), "hello")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[stubborn]), "c1")
    async with session.send("go") as run:
        await until(run, ToolStarted)
        await session.cancel()
        await run.finish()
    assert transcript(session.state.messages)[2] == "stubborn: it is done"
    assert run.result is not None
    assert run.result.outcome == "cancelled"


async def test_a_cancel_that_comes_when_the_run_begins_to_wait_is_not_lost(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Busy(Middleware):
        async def handle_message(self, message: Any, context: Any) -> None:
            await trio.sleep(10)

    steps: list[Part] = [Delay(5.0), call("pay", cents=5)]
    agent = Agent("a", model=ScriptedModel(steps), tools=[pay], middleware=[Busy(), HumanInTheLoop(pay=True)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("pay") as run, trio.open_nursery() as nursery:
        # While the server is busy the cancel waits, and meanwhile the run comes to its end.
        nursery.start_soon(session.notify, "Busy", "x")
        await trio.sleep(1)
        assert await session.cancel("just now") is True
        end = await run.finish()
    assert end is not None
    assert (end.outcome, end.reason) == ("cancelled", "just now")
    assert session.approvals == ()
    assert_sendable(session.state)


@pytest.mark.row("UP-40")
async def test_a_listener_that_goes_away_leaves_the_run_alone(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel([Delay(10.0), "done"])), "c1")
    with trio.move_on_after(1):
        await session.say("go")
    assert (await session.status()).status == "running"
    with session.events() as events:
        _, end = await until(events, RunFinished)
    assert end.text == "done"


async def test_a_run_that_was_cancelled_stays_cancelled_after_a_restart(path: Path, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel(["Half", Stall()], then="hello"))
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run:
            await until(run, TextStreamed)
            await session.cancel()
            await run.finish()
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            await trio.sleep(100)
            assert [event.status for event in of(await waiting_events(events), StatusChanged)] == ["idle"]
        assert await session.say("hello?") == "hello"
