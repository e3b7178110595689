"""Messages that wait: when they are delivered, changed or taken back, and runs that nobody asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Limits, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import (
    MessageCompleted,
    QueueChanged,
    QueueHeld,
    QueueMessage,
    RunFinished,
    StatusChanged,
    ToolFinished,
    UserMessage,
)
from sapwood.errors import InvalidOption, RunInProgress
from sapwood.middleware import HumanInTheLoop, Middleware, MiddlewareContext
from sapwood.models import Delay, Stall, call
from sapwood.tools import ToolOutput
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


@tool
def remind(text: str) -> ToolOutput:
    """Have oneself told something later."""
    return ToolOutput("noted", [QueueMessage(UserMessage(text))])


async def lines_after(runtime: Runtime, delivery: Any, *, at: float) -> list[str]:
    """Say something while a run is open, and return the conversation when all is over."""
    model = ScriptedModel(call("work"), [Delay(10.0), "first"], "second")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[work]), "c1")
    async with session.send("go") as run:
        await trio.sleep(at)
        assert await session.say("by the way", delivery=delivery) == "second"
        await run.finish()
    assert_sendable(session.state)
    assert await state_in(runtime) == session.state
    return transcript(session.state.messages)


@pytest.mark.row("UP-44", "AR-24.3")
async def test_a_message_for_now_reaches_the_model_before_its_next_call(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(call("work"), "saw it", "never")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[work]), "c1")
    async with session.send("go") as run:
        await trio.sleep(5)
        async with session.send("by the way", delivery="now") as second:
            assert second.receipt.queued
            end = await second.finish()
        assert end == await run.finish()
    lines = ["user: go", "model:  -> work", "work: worked", "user: by the way", "model: saw it"]
    assert transcript(session.state.messages) == lines
    assert (session.state.counters.runs, len(model.requests)) == (1, 2)


@pytest.mark.row("UP-44")
@pytest.mark.parametrize(("delivery", "runs"), [("now", 1), ("next_turn", 1), ("next_run", 2)])
async def test_a_message_that_comes_during_the_last_answer_is_delivered_after_it(
    runtime: Runtime, autojump_clock: MockClock, delivery: str, runs: int
) -> None:
    lines = await lines_after(runtime, delivery, at=15.0)
    assert lines[-3:] == ["model: first", "user: by the way", "model: second"]
    assert runtime.sessions.session("c1").state.counters.runs == runs


async def test_a_message_for_the_next_turn_does_not_disturb_this_one(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    lines = await lines_after(runtime, "next_turn", at=5.0)
    assert lines == ["user: go", "model:  -> work", "work: worked", "model: first", "user: by the way", "model: second"]
    assert runtime.sessions.session("c1").state.counters.runs == 1


async def test_messages_for_different_moments_wait_in_one_queue(runtime: Runtime, autojump_clock: MockClock) -> None:
    model = ScriptedModel(call("work"), "one", "two", "three")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[work]), "c1")
    async with session.send("go") as run, session.send("later", delivery="next_run") as last:
        async with session.send("soon", delivery="next_turn"), session.send("quick", delivery="now"):
            assert [item.message.text for item in session.queue] == ["later", "soon", "quick"]
        await run.finish()
        await last.finish()
    assert transcript(session.state.messages)[3:] == [
        "user: quick",
        "model: one",
        "user: soon",
        "model: two",
        "user: later",
        "model: three",
    ]
    assert session.state.counters.runs == 2


async def test_an_option_that_does_not_exist_is_refused_and_nothing_is_queued(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel()), "c1")
    wrong: Any = "soon"
    with pytest.raises(InvalidOption, match="delivery: expected one of now, next_turn, next_run; got 'soon'"):
        await session.say("go", delivery=wrong)
    with pytest.raises(InvalidOption, match="while_running: expected one of"):
        await session.say("go", while_running=wrong)
    assert session.state.messages == ()


# --- until it is delivered --------------------------------------------------------------------------


async def test_a_message_that_waits_can_be_changed_and_taken_back_until_it_is_delivered(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Delay(10.0), "one"], "two")
    session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
    with session.events() as events:
        async with session.send("go") as run, session.send("b", message_id="b") as second:
            async with session.send("c", message_id="c"):
                assert await session.edit_queued("b", "better") == "done"
                assert await session.cancel_queued("c") == "done"
                assert await session.cancel_queued("c") == "unknown"
            with pytest.raises(InvalidOption, match="blank"):
                await session.edit_queued("b", " ")
            await run.finish()
            await second.finish()
            assert await session.edit_queued("b", "best") == "delivered"
            assert await session.cancel_queued("b") == "delivered"
            assert await session.cancel_queued("nothing") == "unknown"
        seen = of(await waiting_events(events), QueueChanged)
    assert transcript(session.state.messages)[2:] == ["user: better", "model: two"]
    assert [[item.message.text for item in event.queue] for event in seen] == [
        ["b"],
        ["b", "c"],
        ["better", "c"],
        ["better"],
        [],
    ]


async def test_what_waits_is_changed_in_the_journal_and_so_after_a_crash_too(
    path: Path, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel([Delay(10.0), "never"], "one", "two"))
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run, session.send("b", message_id="b"), session.send("c", message_id="c"):
            await session.edit_queued("b", "better")
            await session.cancel_queued("c")
            server_of(runtime).kill()
            await run.finish()
            await trio.sleep(100)
        assert transcript(session.state.messages) == ["user: go", "model: one", "user: better", "model: two"]


# --- instead of waiting -----------------------------------------------------------------------------


async def interrupted_run(runtime: Runtime, how: Any) -> tuple[Session, float]:
    model = ScriptedModel("before", [call("work", seconds=1.0)], [Delay(60.0), "never"], "instead")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[work]), "c1")
    await session.say("hello")
    async with session.send("go") as run:
        await until(run, ToolFinished)
        began = trio.current_time()
        assert await session.say("stop that", while_running=how) == "instead"
        end = await run.finish()
    assert end is not None
    assert end.outcome == "cancelled"
    assert_sendable(session.state)
    assert await state_in(runtime) == session.state
    return session, trio.current_time() - began


@pytest.mark.row("UP-46")
async def test_a_message_may_replace_the_run_that_is_open(runtime: Runtime, autojump_clock: MockClock) -> None:
    session, took = await interrupted_run(runtime, "replace")
    assert took < 3
    assert transcript(session.state.messages)[2:] == [
        "user: go",
        "model:  -> work",
        "work: worked",
        "user: stop that",
        "model: instead",
    ]


@pytest.mark.row("UP-46")
async def test_a_message_may_take_back_what_was_said_in_the_run_that_is_open(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session, _ = await interrupted_run(runtime, "rollback")
    lines = ["user: hello", "model: before", "user: stop that", "model: instead"]
    assert transcript(session.state.messages) == lines


@pytest.mark.row("UP-46", "AR-24.2")
async def test_a_message_may_refuse_to_wait_and_changes_nothing_then(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel([Delay(5.0), "done"])), "c1")
    async with session.send("go") as run:
        await trio.sleep(1)
        before = await events_in(runtime)
        with pytest.raises(RunInProgress, match="expected no open run; got one that is running"):
            await session.say("now", while_running="reject")
        assert await events_in(runtime) == before
        await run.finish()


@pytest.mark.row("UP-46")
@pytest.mark.parametrize("how", ["replace", "rollback"])
async def test_a_message_replaces_a_run_that_waits_for_people_too(
    runtime: Runtime, autojump_clock: MockClock, how: Literal["replace", "rollback"]
) -> None:
    model = ScriptedModel("before", call("work"), "instead")
    agent = Agent("a", model=model, tools=[work], middleware=[HumanInTheLoop(work=True)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    await session.say("hello")
    await finished(session, "go")
    assert await session.say("stop that", while_running=how) == "instead"
    assert session.approvals == ()
    assert_sendable(session.state)
    assert ("user: go" in transcript(session.state.messages)) is (how == "replace")


# --- runs that nobody asked for ---------------------------------------------------------------------


def restless() -> ScriptedModel:
    return ScriptedModel(then=lambda request: call("remind", text="on") if is_said(request) else "fine")


def is_said(request: Any) -> bool:
    return isinstance(request.messages[-1], UserMessage)


@pytest.mark.row("AR-24.6")
async def test_runs_that_nobody_asked_for_come_to_an_end_until_a_person_speaks(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=restless(), tools=[remind], limits=Limits(self_started=3))
    session = await runtime.sessions.ensure_running(agent, "c1")
    for total in (4, 8):
        with session.events() as events:
            await session.say("go")
            await trio.sleep(1000)
            seen = await waiting_events(events)
        # One run was asked for, three followed by themselves; what the last one wants is kept.
        assert session.state.counters.runs == total
        assert session.state.counters.self_started == 3
        assert [item.message.text for item in session.queue] == ["on"]
        assert (await session.status()).status == "idle"
        [held] = of(seen, QueueHeld)
        assert (held.queued, held.reason[:32]) == (1, "3 runs in a row that nobody aske")


@pytest.mark.row("AR-24.6")
async def test_the_count_of_runs_that_nobody_asked_for_survives_a_restart(
    path: Path, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=restless(), tools=[remind], limits=Limits(self_started=2))
    async with opened(path) as runtime:
        await (await runtime.sessions.ensure_running(agent, "c1")).say("go")
        await trio.sleep(100)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await trio.sleep(100)
        assert (session.state.counters.runs, len(session.queue)) == (3, 1)


async def test_an_agent_may_be_forbidden_to_begin_runs_at_all(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=restless(), tools=[remind], limits=Limits(self_started=0))
    session = await runtime.sessions.ensure_running(agent, "c1")
    await session.say("go")
    await trio.sleep(100)
    assert (session.state.counters.runs, len(session.queue)) == (1, 1)


async def test_a_run_that_an_agent_begins_itself_follows_without_an_idle_moment(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=restless(), tools=[remind], limits=Limits(self_started=1))
    session = await runtime.sessions.ensure_running(agent, "c1")
    with session.events() as events:
        await session.say("go")
        await trio.sleep(100)
        seen = await waiting_events(events)
    assert [event.status for event in of(seen, StatusChanged)] == ["idle", "running", "idle"]
    assert len(of(seen, RunFinished)) == 2


class Waking(Middleware):
    async def handle_message(self, message: Any, context: MiddlewareContext) -> list[QueueMessage]:
        return [QueueMessage(UserMessage(str(message)))]


async def test_a_middleware_wakes_an_idle_agent_with_a_message(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel("good morning"), middleware=[Waking()])
    session = await runtime.sessions.ensure_running(agent, "c1")
    with session.events() as events:
        assert await session.notify("Waking", "it is seven") is True
        _, end = await until(events, RunFinished)
    assert end.text == "good morning"
    assert session.state.counters.self_started == 1


@pytest.mark.row("AR-24.9")
async def test_a_tool_that_queues_a_message_and_a_cancel_do_not_block_each_other(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([call("remind", text="later"), call("work", seconds=60.0)], "hello")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[remind, work]), "c1")
    async with session.send("go") as run:
        await until(run, ToolFinished)
        assert await session.cancel() is True
        with trio.fail_after(10):
            await run.finish()
    assert [item.message.text for item in session.queue] == ["later"]
    with session.events() as events:
        assert await session.say("still there?") == "hello"
        seen = await waiting_events(events)
    assert [each.message.text for each in of(seen, MessageCompleted)][:2] == ["later", "still there?"]  # type: ignore[union-attr]  # both are said


async def test_a_failed_run_says_that_what_waits_is_held_back(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(Stall())), "c1")
    with session.events() as events:
        async with session.send("go"), session.send("and this"):
            await session.cancel()
            _, held = await until(events, QueueHeld)
    assert (held.queued, "cancelled" in held.reason) == (1, True)
