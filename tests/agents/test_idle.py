"""Servers that nobody needs, conversations that begin anew, and what arrives late or from several sides at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Limits, Runtime, ScriptedModel, tool
from sapwood.actors import Crashed, Normal, TaskRef
from sapwood.actors import TaskDone as Done
from sapwood.conversation import AgentShutdown, PatchMetadata, RunFinished, ToolStarted, Usage
from sapwood.errors import InvalidOption, RunInProgress
from sapwood.middleware import FileSystem, HumanInTheLoop, Middleware, MiddlewareContext
from sapwood.models import Delay, call
from sapwood.registry import NotRunning, Running
from sapwood.tools import Pending, ToolOutput
from tests.agents.kit import finished, of, opened, server_of, state_in, until, waiting_events


@tool
async def work(seconds: float = 100.0) -> ToolOutput:
    """Work."""
    await trio.sleep(seconds)
    return ToolOutput("worked", [PatchMetadata({"x": 1})])


async def runs(runtime: Runtime) -> bool:
    found = await runtime.sessions.lookup("c1")
    assert isinstance(found, Running | NotRunning)
    return isinstance(found, Running)


# --- servers that nobody needs ----------------------------------------------------------------------


@pytest.mark.row("AR-22.4", "S4-062")
async def test_a_server_that_nobody_needs_stops_and_the_conversation_goes_on_with_the_next_start(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel("one", "two"), stop_after=60.0)
    session = await runtime.sessions.ensure_running(agent, "c1")
    with session.events() as events:
        await session.say("go")
        await trio.sleep(59)
        assert await runs(runtime)
        await trio.sleep(2)
        assert not await runs(runtime)
        seen = await waiting_events(events)
    assert [event.reason for event in of(seen, AgentShutdown)] == ["inactivity"]
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert await session.say("go on") == "two"
    assert len(session.state.messages) == 4


@pytest.mark.row("AR-22.4", "AR-22.24")
async def test_a_run_that_takes_longer_than_the_patience_of_its_server_is_not_stopped(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Delay(100.0), call("work")], [Delay(100.0), "done"])
    agent = Agent("a", model=model, tools=[work], stop_after=10.0)
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert await session.say("go") == "done"
    assert await runs(runtime)
    # The time counts from the end of the run, although everybody had gone long before.
    await trio.sleep(11)
    assert not await runs(runtime)


@pytest.mark.row("AR-22.4")
async def test_a_server_that_waits_for_work_elsewhere_or_for_the_end_of_patience_stays(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    async def poll(poll_id: str) -> str | Pending:
        return "done" if trio.current_time() > 100 else Pending(poll_id)

    @tool(poll=poll)
    def export() -> Pending:
        """Export."""
        return Pending("e")

    agent = Agent("a", model=ScriptedModel(call("export"), "finished"), tools=[export], stop_after=10.0)
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert await session.say("go") == "finished"


@pytest.mark.row("AR-22.4")
async def test_a_question_outlives_the_server_that_nobody_needs(runtime: Runtime, autojump_clock: MockClock) -> None:
    model = ScriptedModel(call("work", seconds=1.0), "done")
    agent = Agent("a", model=model, tools=[work], middleware=[HumanInTheLoop(work=True)], stop_after=10.0)
    session = await runtime.sessions.ensure_running(agent, "c1")
    with session.events() as events:
        await finished(session, "go")
        _, gone = await until(events, AgentShutdown)
    assert (gone.reason, len(gone.open_interrupts)) == ("inactivity", 1)
    session = await runtime.sessions.ensure_running(agent, "c1")
    with session.events() as events:
        await session.approvals[0].approve()
        _, end = await until(events, RunFinished)
    assert end.text == "done"


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan")])
def test_a_patience_that_cannot_be_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidOption, match="expected stop_after in seconds above 0"):
        Agent("a", model=ScriptedModel(), stop_after=seconds)


# --- anew -------------------------------------------------------------------------------------------


@pytest.mark.row("AR-22.14")
async def test_a_conversation_begins_anew_and_its_files_stay(path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel(
        call("write_file", path="a.txt", content="kept"), "one", call("read_file", path="a.txt"), "two", "three"
    )
    agent = Agent("a", model=model, middleware=[FileSystem(scope=("user", 1))])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say("go")
        runs_before = session.state.counters.runs
        await session.reset()
        assert session.state.messages == ()
        assert session.state.counters.runs == runs_before
        assert await session.say("read it") == "two"
        assert "kept" in str(session.state.messages)
        assert await state_in(runtime) == session.state
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert len(session.state.messages) == 4


async def test_a_conversation_does_not_begin_anew_in_the_middle_of_a_run(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel([Delay(5.0), "done"])), "c1")
    async with session.send("go") as run:
        with pytest.raises(RunInProgress):
            await session.reset()
        end = await run.finish()
    assert end is not None
    assert end.text == "done"


# --- late, and at once ------------------------------------------------------------------------------


@pytest.mark.row("AR-22.28")
async def test_the_end_of_a_task_that_nobody_knows_any_more_changes_nothing(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel("one", "two")), "c1")
    await session.say("go")
    before = session.state
    server = server_of(runtime)
    stranger = TaskRef(server._cell, "of an earlier run")
    server.tell(Done(stranger, "late", Normal()))
    server.tell(Done(stranger, None, Crashed(ValueError("late"))))
    assert (await session.status()).epoch == 1
    assert session.state is before
    assert await session.say("go on") == "two"


class Setting(Middleware):
    async def handle_message(self, message: Any, context: MiddlewareContext) -> list[PatchMetadata]:
        return [PatchMetadata({"y": message})]


@pytest.mark.row("BR-53", "AR-22.7")
async def test_what_changes_beside_a_slow_tool_is_not_lost_when_the_tool_ends(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel(call("work"), "done"), tools=[work], middleware=[Setting()])
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        await until(run, ToolStarted)
        await session.notify("Setting", 2)
        async with session.send("meanwhile"):
            await session.cancel_queued("nothing")
        await session.cancel_queued(session.queue[0].id)
        await run.finish()
    assert session.state.metadata == {"x": 1, "y": 2}
    assert await state_in(runtime) == session.state


@pytest.mark.row("BR-56")
async def test_conversations_that_share_a_model_each_have_their_own_usage(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(then=[Delay(1.0), call("work", seconds=1.0), Usage(100, 10)])
    agent = Agent("a", model=model, tools=[work], limits=Limits(3))
    totals: list[Usage] = []

    async def converse(agent_id: str) -> None:
        session = await runtime.sessions.ensure_running(agent, agent_id)
        await finished(session, "go")
        totals.append(session.state.usage)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(converse, f"c{number}")
    assert totals == [Usage(300, 30)] * 3
    assert len(model.requests) == 9
