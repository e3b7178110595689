"""Sub-agents: agents of their own, below their parent, of which it gets the final answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, ToolContext, tool
from sapwood.conversation import (
    RunFinished,
    State,
    SubAgentChanged,
    SubAgentFinished,
    SubAgentStarted,
    ToolCall,
    ToolResult,
    UserMessage,
)
from sapwood.errors import StoreUnavailable
from sapwood.middleware import HookResult, Middleware, MiddlewareContext, ReplaceMessages, SubAgents
from sapwood.models import Delay, call
from sapwood.persistence import Journal
from sapwood.registry import NotRunning, Running
from tests.agents.families import ask, parent, scripted, worker
from tests.agents.kit import assert_sendable, finished, of, opened, server_of, state_in, transcript, until


@pytest.mark.row("S4-018", "S4-028", "S4-031", "S3-013")
async def test_the_parent_gets_only_the_final_answer_of_a_sub_agent_that_ends_then(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "a secret detail"

    layer = SubAgents(worker=worker(["Let me see.", call("look")], "It is 42.", tools=[look]))
    session = await runtime.sessions.ensure_running(parent(ask(), "The answer is 42.", layer=layer), "c1")

    end = await finished(session, "What is it?")

    assert end.text == "The answer is 42."
    assert transcript(session.state.messages) == [
        "user: What is it?",
        "model:  -> task",
        "task: It is 42.",
        "model: The answer is 42.",
    ]
    child = await runtime.sessions.load("c1/call_1")
    assert transcript(child.messages) == [
        "user: Do it",
        "model: Let me see. -> look",
        "look: a secret detail",
        "model: It is 42.",
    ]
    await trio.sleep(1)
    assert isinstance(await runtime.sessions.lookup("c1/call_1"), NotRunning)
    assert [each.outcome for each in session.state.sub_agents] == ["completed"]
    assert_sendable(session.state)


@pytest.mark.row("S4-032", "S3-024", "UP-48", "UP-52")
async def test_sub_agents_work_at_the_same_time_and_the_failure_of_one_harms_no_other(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = SubAgents(
        slow=worker([Delay(5.0), "slow is done"]),
        slower=worker([Delay(8.0), "slower is done"]),
        broken=worker(RuntimeError("no luck")),
    )
    agent = parent([ask("slow"), ask("broken"), ask("slower")], "all in", layer=layer)
    session = await runtime.sessions.ensure_running(agent, "c1")
    begun = trio.current_time()

    assert (await finished(session, "go")).text == "all in"

    assert trio.current_time() - begun < 9.0
    results = [each for each in session.state.messages if isinstance(each, ToolResult)]
    assert [each.content for each in results][::2] == ["slow is done", "slower is done"]
    assert results[1].is_error
    assert "RuntimeError: no luck" in results[1].content
    assert [each.outcome for each in session.state.sub_agents] == ["completed", "failed", "completed"]


async def test_no_more_sub_agents_work_at_once_than_may_and_the_others_follow_in_order(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    begun: list[tuple[str, float]] = []

    @tool
    async def note(context: ToolContext) -> str:
        """Note."""
        begun.append((context.agent_id, trio.current_time()))
        await trio.sleep(10)
        return "noted"

    layer = SubAgents(worker=worker(call("note"), "ok", tools=[note]), max_concurrent=2)
    session = await runtime.sessions.ensure_running(parent([ask()] * 5, "done", layer=layer), "c1")
    assert (await finished(session, "go")).text == "done"

    start = begun[0][1]
    assert [round(at - start) // 10 for _, at in begun] == [0, 0, 1, 1, 2]
    assert [agent_id for agent_id, _ in sorted(begun, key=lambda each: each[1])][4] == "c1/call_5"


async def test_an_unknown_agent_type_is_an_error_that_names_those_that_there_are(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = SubAgents(worker=worker("never"))
    session = await runtime.sessions.ensure_running(parent(ask("walker"), "oh", layer=layer), "c1")
    await finished(session, "go")
    result = session.state.messages[2]
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert "there is no agent type 'walker'; there are: worker" in result.content
    assert session.state.sub_agents == ()


async def test_those_who_watch_the_parent_see_its_sub_agents_at_every_depth_and_may_watch_them_too(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    leaf = worker([Delay(1.0), "leaf says so"], name="leaf")
    middle = Agent("middle", model=scripted(ask("leaf"), "middle too"), middleware=[SubAgents(leaf=leaf)])
    agent = parent(ask("middle"), "so it is", layer=SubAgents(middle=middle))
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        seen = [event async for event in run]

    started, over = of(seen, SubAgentStarted), of(seen, SubAgentFinished)
    assert [each.path for each in started] == [("boss", "middle"), ("boss", "middle", "leaf")]
    assert [(each.path, each.outcome) for each in over] == [
        (("boss", "middle", "leaf"), "completed"),
        (("boss", "middle"), "completed"),
    ]
    assert [each.sub_agent for each in over] == ["c1/call_1/call_1", "c1/call_1"]
    assert ("boss", "middle", "leaf") in {each.path for each in of(seen, SubAgentChanged)}
    assert runtime.sessions.running() == ["c1"]


async def test_a_sub_agent_can_be_followed_by_itself_while_it_works(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = SubAgents(worker=worker([Delay(5.0), "It is 42."]))
    session = await runtime.sessions.ensure_running(parent(ask(), "ok", layer=layer), "c1")
    async with session.send("go"):
        await trio.sleep(1)
        child = runtime.sessions.session("c1/call_1")
        assert (await child.status()).status == "running"
        with child.events() as events:
            names = [type(event).__name__ async for event in events]
    assert "TextStreamed" in names
    assert names[-1] == "AgentShutdown"


# --- death ------------------------------------------------------------------------------------------


@pytest.mark.row("UP-61", "AR-24.33")
@pytest.mark.parametrize("at", [0.5, 3.0, 5.5])
async def test_a_parent_that_crashes_takes_its_sub_agents_along_and_goes_on_with_them(
    runtime: Runtime, autojump_clock: MockClock, at: float
) -> None:
    effects: list[str] = []

    @tool(idempotent=True)
    async def work(context: ToolContext) -> str:
        """Work."""
        await trio.sleep(2)
        effects.append(context.idempotency_key)
        return "worked"

    layer = SubAgents(worker=worker(call("work"), [Delay(2.0), "finished"], tools=[work]))
    session = await runtime.sessions.ensure_running(parent(ask(), [Delay(2.0), "good"], layer=layer), "c1")
    async with session.send("go") as run:
        await trio.sleep(at)
        child = runtime.registry.lookup_nowait(("agent", "c1/call_1"))
        server_of(runtime).kill()
        await trio.sleep(0.01)
        assert at > 5 or not child.ref.alive  # type: ignore[union-attr]  # it runs
        end = await run.finish()

    assert end is not None
    assert end.text == "good"
    assert len(set(effects)) == 1
    assert transcript(session.state.messages)[2] == "task: finished"
    child_state = await state_in(runtime, "c1/call_1")
    assert sum(isinstance(each, UserMessage) for each in child_state.messages) == 1


class Forgetting(Middleware):
    """Takes the first message away as soon as there are three, as a summary would."""

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        if len(state.messages) < 3:
            return None
        return [ReplaceMessages((state.messages[0].id,), (UserMessage("before: something was asked", id="summary"),))]


async def test_a_sub_agent_whose_task_was_summarized_away_is_not_told_again_after_a_crash(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool(idempotent=True)
    def work() -> str:
        """Work."""
        return "worked"

    layer = SubAgents(worker=worker(call("work"), [Delay(5.0), "finished"], tools=[work], middleware=[Forgetting()]))
    session = await runtime.sessions.ensure_running(parent(ask(), "good", layer=layer), "c1")
    async with session.send("go") as run:
        await trio.sleep(1)
        server_of(runtime).kill()
        await run.finish()
    child = await runtime.sessions.load("c1/call_1")
    assert [each.text for each in child.messages if isinstance(each, UserMessage)] == ["before: something was asked"]
    assert transcript(session.state.messages)[2] == "task: finished"


async def test_a_sub_agent_that_crashes_goes_on_from_its_own_journal(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = SubAgents(worker=worker([Delay(5.0), "finished"]))
    session = await runtime.sessions.ensure_running(parent(ask(), "good", layer=layer), "c1")
    async with session.send("go") as run:
        await trio.sleep(1)
        server_of(runtime, "c1/call_1").kill()
        end = await run.finish()
    assert end is not None
    assert end.text == "good"
    assert session.state.sub_agents[0].outcome == "completed"


async def test_a_sub_agent_that_crashes_again_and_again_is_an_error_result_with_its_reason(
    runtime: Runtime, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Journal.append

    async def refuse(self: Journal, agent_id: str, **options: Any) -> int:
        if agent_id == "c1/call_1" and options["expected_seq"] > 5:
            raise StoreUnavailable("store.db", "the disk is gone for it")
        return await append(self, agent_id, **options)

    monkeypatch.setattr(Journal, "append", refuse)
    layer = SubAgents(worker=worker("never"), other=worker("fine"))
    session = await runtime.sessions.ensure_running(parent([ask(), ask("other")], "I see", layer=layer), "c1")

    assert (await finished(session, "go")).text == "I see"

    result, other = (each for each in session.state.messages if isinstance(each, ToolResult))
    assert result.is_error
    assert "it crashed: StoreUnavailable" in result.content
    assert "the disk is gone for it" in result.content
    assert other.content == "fine"


async def test_a_supervisor_of_sub_agents_that_dies_is_restarted_and_they_go_on(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = SubAgents(worker=worker([Delay(5.0), "finished"]))
    session = await runtime.sessions.ensure_running(parent(ask(), "good", layer=layer), "c1")
    async with session.send("go") as run:
        await trio.sleep(1)
        server = server_of(runtime)
        home = runtime.registry.lookup_nowait(("sub_agents", "c1"))
        assert isinstance(home, Running)
        home.ref.kill()
        end = await run.finish()
    assert end is not None
    assert end.text == "good"
    assert server_of(runtime) is server
    assert transcript(session.state.messages)[2] == "task: finished"


async def test_the_process_may_end_while_a_sub_agent_works(path: Path, autojump_clock: MockClock) -> None:
    layer = SubAgents(worker=worker([Delay(5.0), "finished"]))
    agent = parent(ask(), "good", layer=layer)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go"):
            await trio.sleep(1)
    async with opened(path) as runtime:
        assert (await state_in(runtime)).sub_agents[0].outcome == ""
        session = await runtime.sessions.ensure_running(agent, "c1")
        await trio.sleep(20)
        assert session.state.status == "idle"
        assert transcript(session.state.messages)[2:] == ["task: finished", "model: good"]


async def test_a_call_id_that_a_provider_uses_again_is_not_taken_for_the_earlier_sub_agent(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    again = [ToolCall("call_1", "task", ask(text=text).arguments) for text in ("first", "second")]
    echo = Agent("echo", model=ScriptedModel("answer 1", "answer 2"))
    agent = Agent("boss", model=ScriptedModel(*again, "done"), middleware=[SubAgents(worker=echo)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        await until(run, RunFinished, outcome="completed")
    results = [message.content for message in session.state.messages if isinstance(message, ToolResult)]
    assert results == ["answer 1", "answer 2"]
    assert [each.agent_id for each in session.state.sub_agents] == ["c1/call_1", "c1/call_1_2"]
