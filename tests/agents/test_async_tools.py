"""Tools whose work goes on elsewhere: the agent waits without a run, and asks from time to time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, ToolContext, tool
from sapwood.conversation import (
    Deferral,
    RunFinished,
    StatusChanged,
    ToolDeferred,
    ToolFinished,
    ToolResult,
    ToolSpec,
)
from sapwood.errors import InvalidOption, InvalidTool, ToolError
from sapwood.middleware import HumanInTheLoop
from sapwood.models import call
from sapwood.tools import Pending, Tool
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


@attrs.define
class Works:
    """A place where work goes on: jobs, and what they answer when they are asked."""

    answers: list[Any] = attrs.field(factory=list[Any])
    started: int = 0
    polls: list[float] = attrs.field(factory=list[float])
    pending: Pending = attrs.field(factory=lambda: Pending("job-1"))
    keys: list[str] = attrs.field(factory=list[str])

    def tool(self, **options: Any) -> Tool[..., Any]:
        async def poll(poll_id: str, context: ToolContext) -> Any:
            self.polls.append(trio.current_time())
            self.keys.append(context.idempotency_key)
            answer = self.answers.pop(0) if self.answers else Pending(poll_id)
            if isinstance(answer, Exception):
                raise answer
            return answer

        @tool(poll=poll, **options)
        async def render(scene: str, context: ToolContext) -> str | Pending:
            """Render a scene."""
            self.started += 1
            self.keys.append(context.idempotency_key)
            return self.pending

        return render


@tool
async def look() -> str:
    """Look."""
    await trio.sleep(5)
    return "looked"


def agent_of(works: Works, *steps: Any, **options: Any) -> Agent:
    script = steps or (call("render", scene="a"), "done")
    return Agent("a", model=ScriptedModel(*script), tools=[works.tool(), look], **options)


async def waiting(session: Session, text: str = "go") -> RunFinished:
    """Say something, and come back when the agent waits for work elsewhere."""
    async with session.send(text) as run:
        return (await until(run, RunFinished))[1]


async def test_an_agent_waits_without_a_run_and_asks_until_the_work_is_done(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    works = Works([Pending("job-1", note="half"), "a picture"])
    session = await runtime.sessions.ensure_running(agent_of(works), "c1")
    with session.events() as events:
        end = await waiting(session)
        assert (end.outcome, (await session.status()).status) == ("waiting", "waiting")
        _, end = await until(events, RunFinished, outcome="completed")
        seen = await waiting_events(events)
    assert (end.text, works.started) == ("done", 1)
    # Every 30 seconds, unless the tool says otherwise.
    assert [round(moment) for moment in works.polls] == [30, 60]
    assert len(set(works.keys)) == 1
    assert transcript(session.state.messages)[-2:] == ["render: a picture", "model: done"]
    assert session.state.counters.runs == 1
    assert of(seen, RunFinished) == []
    assert await state_in(runtime) == session.state


async def test_how_far_the_work_is_can_be_watched(runtime: Runtime, autojump_clock: MockClock) -> None:
    works = Works([Pending("job-1", every=5.0, note="half"), "a picture"], pending=Pending("job-1", every=10.0))
    session = await runtime.sessions.ensure_running(agent_of(works), "c1")
    with session.events() as events:
        async with session.send("go"):
            seen, _ = await until(events, RunFinished, outcome="completed")
    assert [(each.deferral.every, each.deferral.note) for each in of(seen, ToolDeferred)] == [(10.0, ""), (5.0, "half")]
    assert [round(moment) for moment in works.polls] == [10, 15]
    assert [event.status for event in of(seen, StatusChanged)] == ["idle", "running", "waiting", "running", "idle"]
    assert [event.result.content for event in of(seen, ToolFinished)] == ["a picture"]


@pytest.mark.row("UP-62")
async def test_the_work_is_asked_about_again_after_a_restart_and_not_started_anew(
    path: Path, autojump_clock: MockClock
) -> None:
    works = Works()
    agent = agent_of(works)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await waiting(session)
        await trio.sleep(10)
    works.answers = ["a picture"]
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert (await session.status()).status == "waiting"
        assert works.polls == []
        with session.events() as events:
            await until(events, RunFinished, outcome="completed")
    assert works.started == 1
    assert [round(moment) for moment in works.polls] == [30]


async def test_work_that_was_to_be_asked_about_while_the_process_was_down_is_asked_about_at_once(
    path: Path, autojump_clock: MockClock
) -> None:
    works = Works()
    agent = agent_of(works)
    async with opened(path) as runtime:
        await waiting(await runtime.sessions.ensure_running(agent, "c1"))
    works.answers = ["a picture"]
    await trio.sleep(1000)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            await until(events, RunFinished, outcome="completed")
    assert [round(moment) for moment in works.polls] == [1000]


async def test_calls_beside_it_run_meanwhile_and_the_model_waits_for_all(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    works = Works(["a picture"])
    agent = agent_of(works, [call("render", scene="a"), call("look")], "done")
    session = await runtime.sessions.ensure_running(agent, "c1")
    await finished(session, "go")
    assert transcript(session.state.messages)[2:] == ["render: a picture", "look: looked", "model: done"]


async def test_an_open_question_and_open_work_are_both_waited_for(runtime: Runtime, autojump_clock: MockClock) -> None:
    works = Works([Pending("job-1"), "a picture"])
    gate = HumanInTheLoop(look=True)
    agent = agent_of(works, [call("render", scene="a"), call("look")], "done", middleware=[gate])
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert (await finished(session, "go")).outcome == "interrupted"
    await trio.sleep(45)
    assert len(works.polls) == 1
    with session.events() as events:
        await session.approvals[0].approve()
        _, end = await until(events, RunFinished)
        assert end.outcome == "waiting"
        await until(events, RunFinished, outcome="completed")
    assert_sendable(session.state)


async def test_a_result_that_comes_while_people_are_asked_leaves_the_question_open(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    works = Works(["a picture"])
    gate = HumanInTheLoop(look=True)
    agent = agent_of(works, [call("render", scene="a"), call("look")], "done", middleware=[gate])
    session = await runtime.sessions.ensure_running(agent, "c1")
    await finished(session, "go")
    await trio.sleep(100)
    assert session.state.deferred == ()
    assert (await session.status()).status == "interrupted"
    with session.events() as events:
        await session.approvals[0].approve()
        await until(events, RunFinished, outcome="completed")


async def test_work_that_is_not_done_in_time_is_a_typed_error_for_the_model(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    works = Works(pending=Pending("job-1", give_up_after=70.0))
    session = await runtime.sessions.ensure_running(agent_of(works), "c1")
    await finished(session, "go")
    assert [round(moment) for moment in works.polls] == [30, 60, 70]
    result = session.state.messages[-2]
    assert isinstance(result, ToolResult)
    assert (result.problem, result.is_error) == ("timeout", True)
    assert result.content == "Error: render was not done in time; it may go on as job-1"


async def test_work_that_failed_is_an_error_for_the_model(runtime: Runtime, autojump_clock: MockClock) -> None:
    works = Works([ToolError("no such scene")])
    session = await runtime.sessions.ensure_running(agent_of(works), "c1")
    await finished(session, "go")
    assert transcript(session.state.messages)[-2] == "render: Error: no such scene"


async def test_a_poll_that_fails_is_made_again_and_only_many_in_a_row_end_the_call(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    broken = OSError("no route to host")
    works = Works([broken, broken, Pending("job-1"), *[broken] * 5])
    session = await runtime.sessions.ensure_running(agent_of(works), "c1")
    await finished(session, "go")
    assert len(works.polls) == 8
    result = session.state.messages[-2]
    assert isinstance(result, ToolResult)
    assert result.problem == "unknown"
    assert "could not be asked 5 times in a row (OSError: no route to host)" in result.content


async def test_a_poll_that_hangs_is_cut_off_and_made_again(runtime: Runtime, autojump_clock: MockClock) -> None:
    asked: list[float] = []

    async def poll(poll_id: str) -> str:
        asked.append(trio.current_time())
        if len(asked) == 1:
            await trio.sleep_forever()
        return "done after all"

    @tool(poll=poll)
    def export() -> Pending:
        """Export."""
        return Pending("e1")

    agent = Agent("a", model=ScriptedModel(call("export"), "done"), tools=[export])
    session = await runtime.sessions.ensure_running(agent, "c1")
    await finished(session, "go")
    assert transcript(session.state.messages)[-2] == "export: done after all"
    assert len(asked) == 2


async def test_a_cancel_ends_the_waiting_and_says_what_is_known(runtime: Runtime, autojump_clock: MockClock) -> None:
    works = Works()
    session = await runtime.sessions.ensure_running(agent_of(works, call("render", scene="a"), "hello"), "c1")
    await waiting(session)
    assert await session.cancel("enough") is True
    await trio.sleep(1000)
    assert works.polls == []
    assert "render was stopped (enough)" in transcript(session.state.messages)[-1]
    assert await session.say("still there?") == "hello"
    assert_sendable(session.state)


async def test_what_people_say_meanwhile_waits_unless_it_replaces_the_run(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    works = Works()
    agent = agent_of(works, call("render", scene="a"), "instead", "and that")
    session = await runtime.sessions.ensure_running(agent, "c1")
    await waiting(session)
    async with session.send("and this?") as second:
        assert second.receipt.queued
        assert await session.say("stop that", while_running="replace") == "instead"
    lines = transcript(session.state.messages)
    assert lines[-3:] == ["user: and this?", "user: stop that", "model: instead"]


@pytest.mark.row("UP-59")
@pytest.mark.parametrize("at", [15.0, 29.99, 30.5, 31.5])
async def test_a_server_that_dies_while_work_goes_on_elsewhere_loses_nothing_of_it(
    runtime: Runtime, autojump_clock: MockClock, at: float
) -> None:
    works = Works([Pending("job-1", every=1.0), Pending("job-1"), "a picture"])
    session = await runtime.sessions.ensure_running(agent_of(works), "c1")
    async with session.send("go") as run:
        await trio.sleep(at)
        server_of(runtime).kill()
        await run.finish()
    assert works.started == 1
    assert transcript(session.state.messages)[-2:] == ["render: a picture", "model: done"]
    assert (await events_in(runtime)).count("ToolFinished") == 1


async def test_a_tool_that_has_no_way_to_be_asked_may_not_leave_work_behind(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    def forgetful() -> Pending:
        """Start something."""
        return Pending("x")

    agent = Agent("a", model=ScriptedModel(call("forgetful"), "done"), tools=[forgetful])
    session = await runtime.sessions.ensure_running(agent, "c1")
    await session.say("go")
    assert "its author must pass poll=" in transcript(session.state.messages)[-2]


async def test_work_whose_tool_is_gone_after_a_deploy_is_an_error(path: Path, autojump_clock: MockClock) -> None:
    works = Works()
    async with opened(path) as runtime:
        await waiting(await runtime.sessions.ensure_running(agent_of(works), "c1"))
    async with opened(path) as runtime:
        agent = Agent("a", model=ScriptedModel("done"))
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            await until(events, RunFinished, outcome="completed")
        assert "there is no tool 'render' any more" in transcript(session.state.messages)[-2]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"poll_id": ""}, "poll_id: expected a text that is not empty and can be stored; got ''"),
        ({"poll_id": "\udcff"}, "poll_id: expected a text that is not empty and can be stored"),
        ({"poll_id": "x", "every": 0}, "every: expected seconds above 0; got 0"),
        ({"poll_id": "x", "give_up_after": float("nan")}, "give_up_after: expected seconds above 0; got nan"),
    ],
)
def test_a_pending_that_cannot_be_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        Pending(**options)


def no_parameter() -> None: ...


def two_ids(a: str, b: str) -> None: ...


def context_first(context: ToolContext, poll_id: str) -> None: ...


@pytest.mark.parametrize("poll", [no_parameter, two_ids, context_first, 5])
def test_a_poll_function_that_cannot_be_called_is_refused_when_the_tool_is_made(poll: Any) -> None:
    with pytest.raises(InvalidTool, match="poll: expected"):

        @tool(poll=poll)
        def start() -> str:
            """Start."""
            return ""


def test_the_parts_of_an_asynchronous_tool_are_data() -> None:
    works = Works()
    assert works.tool().poller is not None
    assert isinstance(works.tool().spec, ToolSpec)
    assert Deferral("x").every == 30.0
