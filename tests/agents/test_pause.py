"""Pausing and resuming a run, and cancelling it in good order."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Limits, Runtime, ScriptedModel, ToolContext, tool
from sapwood.conversation import RunFinished, StatusChanged, ToolResult, ToolStarted
from sapwood.errors import ToolError
from sapwood.middleware import HumanInTheLoop
from sapwood.models import Delay, call
from tests.agents.kit import (
    assert_sendable,
    events_in,
    finished,
    of,
    opened,
    server_of,
    state_in,
    transcript,
    until,
    waiting_events,
)


@tool
async def work(seconds: float = 10.0) -> str:
    """Work."""
    await trio.sleep(seconds)
    return "worked"


def worker(*steps: object, **options: object) -> Agent:
    model = ScriptedModel(*steps)  # type: ignore[arg-type]  # steps of a script
    return Agent("a", model=model, tools=[work], **options)  # type: ignore[arg-type]  # options of an agent


WORK = [Delay(10.0), "Let me", call("work")]


@pytest.mark.row("AR-22.5", "AR-24.5")
@pytest.mark.parametrize("at", [5.0, 15.0], ids=["while the model speaks", "while a tool runs"])
async def test_a_run_pauses_at_the_next_boundary_and_goes_on_where_it_was(
    runtime: Runtime, autojump_clock: MockClock, at: float
) -> None:
    session = await runtime.sessions.ensure_running(worker(WORK, "done"), "c1")
    with session.events() as events:
        async with session.send("go") as run:
            await trio.sleep(at)
            assert await session.pause() is True
            end = await run.finish()
        assert end is not None
        assert end.outcome == "paused"
        paused_at = transcript(session.state.messages)
        assert paused_at == ["user: go", "model: Let me -> work"] + ["work: worked"] * (at > 10)
        await trio.sleep(1000)
        assert (await session.status()).status == "paused"
        assert transcript(session.state.messages) == paused_at

        assert await session.resume() is True
        _, end = await until(events, RunFinished, outcome="completed")
    assert end.run_id == run.receipt.run_id
    assert transcript(session.state.messages) == ["user: go", "model: Let me -> work", "work: worked", "model: done"]
    assert session.state.counters.runs == 1
    assert await state_in(runtime) == session.state


@pytest.mark.row("AR-22.5")
async def test_a_paused_run_stays_so_over_a_restart_and_is_resumed_from_there(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(worker(WORK, "never"), "c1")
        async with session.send("go") as run:
            await trio.sleep(5)
            await session.pause()
            await run.finish()
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(worker("done"), "c1")
        await trio.sleep(100)
        assert (await session.status()).status == "paused"
        with session.events() as events:
            assert await session.resume() is True
            _, end = await until(events, RunFinished)
    assert (end.outcome, end.text) == ("completed", "done")


@pytest.mark.row("AR-22.5")
async def test_a_pause_that_was_asked_for_is_kept_over_a_crash(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(worker([Delay(10.0), "never"], WORK, "done"), "c1")
    async with session.send("go") as run:
        await trio.sleep(5)
        assert await session.pause() is True
        server_of(runtime).kill()
        end = await run.finish()
    assert end is not None
    assert end.outcome == "paused"


async def test_a_pause_that_is_taken_back_in_time_is_none(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(worker(WORK, "done"), "c1")
    async with session.send("go") as run:
        await trio.sleep(5)
        await session.pause()
        assert await session.resume() is True
        end = await run.finish()
    assert end is not None
    assert (end.outcome, end.text) == ("completed", "done")


async def test_a_run_that_ends_before_the_boundary_has_ended(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(worker([Delay(10.0), "done"]), "c1")
    async with session.send("go") as run:
        await trio.sleep(5)
        assert await session.pause() is True
        end = await run.finish()
    assert end is not None
    assert end.outcome == "completed"
    assert (await session.status()).status == "idle"


async def test_without_a_run_there_is_nothing_to_pause_or_resume(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(worker("hello"), "c1")
    assert (await session.pause(), await session.resume()) == (False, False)
    await session.say("go")
    assert (await session.pause(), await session.resume()) == (False, False)


@pytest.mark.row("AR-24.5")
async def test_what_people_say_while_a_run_is_paused_waits_for_its_end(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await runtime.sessions.ensure_running(worker(WORK, "done", "and that"), "c1")
    async with session.send("go") as run:
        await trio.sleep(5)
        await session.pause()
        await run.finish()
    async with session.send("and then?") as second:
        assert second.receipt.queued
        await trio.sleep(100)
        await session.resume()
        end = await second.finish()
    assert end is not None
    assert transcript(session.state.messages)[-3:] == ["model: done", "user: and then?", "model: and that"]


async def test_a_paused_run_can_be_cancelled(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(worker(WORK, "hello"), "c1")
    async with session.send("go") as run:
        await trio.sleep(5)
        await session.pause()
        await run.finish()
    assert await session.cancel("enough") is True
    assert (await session.status()).status == "idle"
    assert await session.resume() is False
    assert await session.say("still there?") == "hello"
    assert_sendable(session.state)


async def test_decisions_are_taken_while_a_run_is_paused_and_acted_on_when_it_goes_on(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = worker(call("work"), "done", middleware=[HumanInTheLoop(work=True)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert (await finished(session, "go")).outcome == "interrupted"
    assert await session.pause() is True
    assert (await session.status()).status == "paused"
    await session.approvals[0].approve()
    await trio.sleep(100)
    assert (await session.status()).status == "paused"
    with session.events() as events:
        await session.resume()
        seen, end = await until(events, RunFinished)
    assert end.text == "done"
    assert len(of(seen, ToolStarted)) == 1


async def test_a_run_that_goes_on_while_people_are_still_asked_waits_for_them(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = worker(call("work"), "done", middleware=[HumanInTheLoop(work=True)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    await finished(session, "go")
    await session.pause()
    with session.events() as events:
        await session.resume()
        _, end = await until(events, RunFinished)
    assert end.outcome == "interrupted"
    assert len(session.approvals) == 1


async def test_time_in_which_a_run_is_paused_does_not_count(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = worker(WORK, [Delay(5.0), "done"], limits=Limits(seconds=30.0))
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        await trio.sleep(5)
        await session.pause()
        await run.finish()
    await trio.sleep(1000)
    assert session.state.run is not None
    assert session.state.run.seconds == 10.0
    with session.events() as events:
        await session.resume()
        _, end = await until(events, RunFinished)
    assert end.outcome == "completed"


# --- cancelling in good order -----------------------------------------------------------------------


@pytest.mark.row("UP-34", "UP-39", "UP-33")
async def test_a_cancel_tells_tools_first_and_keeps_what_they_finish_within_the_grace(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    async def careful(context: ToolContext) -> str:
        """Work, and end in good order when asked to."""
        with trio.move_on_after(100):
            await context.stop.wait()
        await trio.sleep(1)
        return f"stopped half-way: {context.stop.reason}"

    @tool
    async def deaf() -> str:
        """Work, and listen to nobody."""
        await trio.sleep(100)
        return "never"

    began: list[str] = []

    @tool
    async def third() -> str:
        """Note that it began."""
        began.append("third")
        raise ToolError("should not have begun")

    model = ScriptedModel([call("careful"), call("deaf"), call("third")], "hello")
    agent = Agent("a", model=model, tools=[careful, deaf, third], limits=Limits(parallel_tools=2))
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        await trio.sleep(5)
        at = trio.current_time()
        assert await session.cancel("enough", grace=3.0) is True
        end = await run.finish()
    assert trio.current_time() - at == 3.0
    assert end is not None
    assert (end.outcome, end.reason) == ("cancelled", "enough")
    results = [each for each in session.state.messages if isinstance(each, ToolResult)]
    assert [each.content for each in results] == [
        "stopped half-way: enough",
        "Error: deaf was stopped (enough); it may have had its effect. Check before trying again",
        "Error: third was not run (enough)",
    ]
    assert [each.problem for each in results] == ["", "unknown", "stopped"]
    assert began == []
    assert await session.say("still there?") == "hello"
    assert_sendable(session.state)


@pytest.mark.row("UP-34", "UP-40")
async def test_a_cancel_waits_no_longer_than_the_tools_need(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(worker(call("work", seconds=6.0), "never"), "c1")
    async with session.send("go") as run:
        await trio.sleep(5)
        await session.cancel(grace=60.0)
        await run.finish()
    assert trio.current_time() < 7
    assert transcript(session.state.messages)[-1] == "work: worked"


@pytest.mark.row("UP-34")
async def test_the_grace_of_an_earlier_cancel_does_not_touch_a_later_run(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = worker(call("work", seconds=1.0), call("work", seconds=20.0), [Delay(60.0), "hello"])
    session = await runtime.sessions.ensure_running(agent, "c1")
    for _ in range(2):
        async with session.send("go") as run:
            await until(run, ToolStarted)
            await session.cancel(grace=10.0 if session.state.counters.runs == 1 else 60.0)
            await run.finish()
    assert transcript(session.state.messages)[-1] == "work: worked"
    assert await session.say("again") == "hello"


async def test_a_second_cancel_without_grace_ends_the_run_at_once(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(worker(call("work"), "never"), "c1")
    async with session.send("go") as run:
        await trio.sleep(1)
        assert await session.cancel(grace=100.0) is True
        assert await session.cancel(grace=0.0) is True
        await run.finish()
    assert trio.current_time() < 3


async def test_pauses_and_cancels_are_announced_as_statuses(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(worker(WORK, [Delay(5.0), "done"]), "c1")
    with session.events() as events:
        async with session.send("go") as run:
            await trio.sleep(1)
            await session.pause()
            await run.finish()
        await session.resume()
        await trio.sleep(12)
        await session.cancel()
        seen, _ = await until(events, RunFinished, outcome="cancelled")
        seen += await waiting_events(events)
    assert [event.status for event in of(seen, StatusChanged)] == ["idle", "running", "paused", "running", "idle"]
    assert "PauseAsked" in await events_in(runtime)
