"""What sub-agents may use, how they are cancelled and paused, what they take over, and what they hand in."""

from __future__ import annotations

import json
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Limits, Runtime, ToolContext, tool
from sapwood.conversation import Accepted, RunFinished, ToolResult, Usage, UserMessage
from sapwood.errors import InvalidOption
from sapwood.middleware import ContextVarProvider, DynamicAgents, HumanInTheLoop, ProcessContext, SubAgent, SubAgents
from sapwood.models import Delay, ModelRequest, Stall, call
from tests.agents.families import ask, parent, scripted, worker
from tests.agents.kit import assert_sendable, entries_of, finished, opened, server_of, state_in, transcript, until

# --- cancel -----------------------------------------------------------------------------------------


@pytest.mark.row("S3-107", "AR-24.32", "AR-22.22")
async def test_cancelling_the_parent_ends_sub_agents_inside_model_calls_first(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    middle = Agent("middle", model=scripted(ask()), middleware=[SubAgents(worker=worker(Stall()))])
    agent = parent([ask("middle"), ask("worker")], layer=SubAgents(middle=middle, worker=worker(Stall())))
    session = await runtime.sessions.ensure_running(agent, "c1")
    begun = trio.current_time()
    async with session.send("go") as run:
        await trio.sleep(1)
        assert runtime.sessions.running() == ["c1"]  # sub-agents are no conversations of the host's
        assert await session.cancel("enough")
        end = await run.finish()
    assert end is not None
    assert (end.outcome, end.reason) == ("cancelled", "enough")
    assert trio.current_time() - begun < 2.0
    ends = {}
    for agent_id in ("c1", "c1/call_1", "c1/call_1/call_1", "c1/call_2"):
        state = await state_in(runtime, agent_id)
        assert (state.run, state.pending) == (None, ())
        ends[agent_id] = [x.at for x in await entries_of(runtime, agent_id) if type(x.event).__name__ == "RunFinished"][
            -1
        ]
    assert max(ends.values()) == ends["c1"]
    await trio.sleep(10)
    assert runtime.registry.running("agent").keys() == {("agent", "c1")}
    assert [each.outcome for each in session.state.sub_agents] == ["cancelled", "cancelled"]
    assert_sendable(session.state)


async def test_a_sub_agent_that_does_not_end_is_cut_off_after_the_grace(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    async def drag() -> str:
        """Drag."""
        await trio.sleep(1000)
        return "over"

    session = await runtime.sessions.ensure_running(
        parent(ask(), layer=SubAgents(worker=worker(call("drag"), tools=[drag]))), "c1"
    )
    async with session.send("go") as run:
        await trio.sleep(1)
        assert await session.cancel("enough", grace=3.0)
        begun = trio.current_time()
        end = await run.finish()
    assert end is not None
    assert end.outcome == "cancelled"
    assert 3.0 <= trio.current_time() - begun < 4.0


async def test_a_sub_agent_that_somebody_cancels_is_an_error_result_of_its_call(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await runtime.sessions.ensure_running(
        parent([ask(), ask("other")], "noted", layer=SubAgents(worker=worker(Stall()), other=worker("fine"))), "c1"
    )
    async with session.send("go") as run:
        await trio.sleep(1)
        await runtime.sessions.session("c1/call_1").cancel("not now")
        end = await run.finish()
    assert end is not None
    assert end.text == "noted"
    assert transcript(session.state.messages)[2:4] == [
        "task: Error: sub-agent worker was cancelled: its run was cancelled",
        "task: fine",
    ]


async def test_a_sub_agent_cannot_be_stopped_behind_the_back_of_its_parent(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await runtime.sessions.ensure_running(parent(ask(), layer=SubAgents(worker=worker(Stall()))), "c1")
    async with session.send("go"):
        await trio.sleep(1)
        with pytest.raises(InvalidOption, match="it is a sub-agent"):
            await runtime.sessions.stop("c1/call_1")
        assert server_of(runtime, "c1/call_1").alive


async def test_a_pause_of_the_parent_pauses_its_sub_agents_until_it_goes_on(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    calls: list[float] = []

    @tool
    async def step() -> str:
        """Step."""
        calls.append(trio.current_time())
        await trio.sleep(2)
        return "stepped"

    busy = worker(call("step"), call("step"), "stepped twice", tools=[step])
    session = await runtime.sessions.ensure_running(parent(ask(), "good", layer=SubAgents(worker=busy)), "c1")
    async with session.send("go") as run:
        await trio.sleep(1)
        assert await session.pause()
        assert (await until(run, RunFinished))[1].outcome == "waiting"
        await trio.sleep(100)
        assert len(calls) == 1
        assert session.state.status == "paused"
        assert await session.resume()
        await trio.sleep(10)
    assert (await session.status()).status == "idle"
    assert transcript(session.state.messages)[2] == "task: stepped twice"


async def test_a_paused_family_stays_paused_over_a_restart_and_goes_on_together(
    path: Path, autojump_clock: MockClock
) -> None:
    @tool(idempotent=True)
    async def step() -> str:
        """Step."""
        await trio.sleep(2)
        return "stepped"

    agent = parent(ask(), "good", layer=SubAgents(worker=worker(call("step"), "stepped", tools=[step])))
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go"):
            await trio.sleep(1)
            await session.pause()
            await trio.sleep(10)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert await session.resume()
        await trio.sleep(20)
        assert transcript(session.state.messages)[2:] == ["task: stepped", "model: good"]


async def test_a_sub_agent_that_another_process_has_taken_over_is_left_to_it(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = SubAgents(worker=worker([Delay(5.0), "never"]))
    session = await runtime.sessions.ensure_running(parent(ask(), "I see", layer=layer), "c1")
    async with session.send("go") as run:
        await trio.sleep(1)
        await runtime.journal.claim("c1/call_1", owner="somebody else")
        end = await run.finish()
    assert end is not None
    assert end.text == "I see"
    assert "taken over by another server" in transcript(session.state.messages)[2]


# --- limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "its", "of_type", "granted"),
    [
        ({}, {}, {}, {"model_calls": 49, "steps": None, "tokens": None, "tool_calls": None, "seconds": None}),
        ({"model_calls": 9}, {"model_calls": 20}, {}, {"model_calls": 8}),
        ({"model_calls": 9}, {"model_calls": 3}, {}, {"model_calls": 3}),
        ({"steps": 7}, {}, {"steps": 15}, {"steps": 6}),
        ({"seconds": 300.0}, {"seconds": 60.0}, {"seconds": 20.0}, {"seconds": 20.0}),
        ({"tool_calls": 5}, {}, {}, {"tool_calls": 4}),
        ({"tokens": 100_000}, {"tokens": 200_000}, {}, {"tokens": 99_000}),
    ],
)
async def test_a_sub_agent_gets_the_least_of_what_is_configured_and_what_its_parent_has_left(
    runtime: Runtime,
    autojump_clock: MockClock,
    *,
    mine: dict[str, Any],
    its: dict[str, Any],
    of_type: dict[str, Any],
    granted: dict[str, Any],
) -> None:
    limited = SubAgent(worker("ok", limits=Limits(**its)), limits=Limits(**of_type) if of_type else None)
    turns = ([ask(), Usage(900, 100)], "done")
    session = await runtime.sessions.ensure_running(
        parent(*turns, layer=SubAgents(worker=limited), limits=Limits(**mine)), "c1"
    )
    await finished(session, "go")
    given = session.state.sub_agents[0].limits
    assert {name: given[name] for name in granted} == granted


async def test_a_limit_binds_the_sub_agent_and_its_tokens_count_for_the_run_that_waits(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    endless = Agent("endless", model=scripted(*[[call("look"), Usage(100, 0)]] * 50), tools=[look])
    layer = SubAgents(worker=SubAgent(endless, limits=Limits(model_calls=3)))
    turns = ([ask(), Usage(10, 0)], [ask(), Usage(10, 0)], "enough")
    session = await runtime.sessions.ensure_running(parent(*turns, layer=layer, limits=Limits(tokens=500)), "c1")
    end = await finished(session, "go")
    results = [each for each in session.state.messages if isinstance(each, ToolResult)]
    assert "3 model calls" in results[0].content
    assert [each.usage.input_tokens for each in session.state.sub_agents] == [300, 200]
    assert (end.outcome, end.cause) == ("failed", "limit")


async def test_a_run_that_has_nothing_left_can_order_nothing(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = parent(ask(), layer=SubAgents(worker=worker("ok")), limits=Limits(steps=1))
    session = await runtime.sessions.ensure_running(agent, "c1")
    await finished(session, "go")
    result = session.state.messages[2]
    assert isinstance(result, ToolResult)
    assert "nothing left of its limit of steps" in result.content
    assert session.state.sub_agents == ()


# --- results ----------------------------------------------------------------------------------------


@attrs.frozen
class Finding:
    """What was found."""

    title: str
    score: int


SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "score": {"type": "integer", "minimum": 0}},
    "required": ["title", "score"],
}


@pytest.mark.parametrize("shape", [Finding, SCHEMA], ids=["class", "schema"])
async def test_a_result_of_a_given_shape_is_handed_in_and_a_wrong_one_is_tried_again(
    runtime: Runtime, autojump_clock: MockClock, shape: Any
) -> None:
    finder = worker(
        call("submit_result", result={"title": "x", "score": "high"}),
        call("submit_result", result={"title": "x", "score": 7}),
    )
    layer = SubAgents(worker=SubAgent(finder, result=shape))
    session = await runtime.sessions.ensure_running(parent(ask(), "thanks", layer=layer), "c1")
    assert (await finished(session, "go")).text == "thanks"
    result = session.state.messages[2]
    assert isinstance(result, ToolResult)
    assert json.loads(result.content) == {"title": "x", "score": 7}
    child = await state_in(runtime, "c1/call_1")
    assert "score" in transcript(child.messages)[2]
    assert len(child.messages) == 5


async def test_a_sub_agent_that_hands_nothing_in_is_an_error_result(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = SubAgents(worker=SubAgent(worker("I think it is x"), result=Finding))
    session = await runtime.sessions.ensure_running(parent(ask(), "hm", layer=layer), "c1")
    await finished(session, "go")
    result = session.state.messages[2]
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert "the model stopped without calling submit_result" in result.content


@pytest.mark.parametrize("shape", [int, "a text", 7], ids=["int", "text", "number"])
def test_a_shape_that_is_none_is_refused_when_the_type_is_made(shape: Any) -> None:
    with pytest.raises(InvalidOption, match="expected an attrs class, a JSON schema or None"):
        SubAgent(worker("ok"), result=shape)


# --- what is taken over -----------------------------------------------------------------------------

TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


async def test_host_values_and_the_context_of_the_request_reach_the_tools_of_a_sub_agent(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    seen: list[tuple[str, Any, Any]] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look."""
        seen.append((TENANT.get(), context.host["db"], context.host["region"]))
        return "seen"

    def carrier() -> ProcessContext:
        return ProcessContext(ContextVarProvider(TENANT))

    inner = Agent(
        "worker", model=scripted(call("look"), "ok"), tools=[look], middleware=[carrier()], host={"region": "north"}
    )
    token = TENANT.set("acme")
    agent = Agent(
        "boss",
        model=scripted(ask(), "done"),
        middleware=[carrier(), SubAgents(worker=inner)],
        host={"db": "one", "region": "south"},
    )
    TENANT.reset(token)
    session = await runtime.sessions.ensure_running(agent, "c1")
    await finished(session, "go")
    assert seen == [("acme", "one", "north")]


# --- agents that the model thinks up ----------------------------------------------------------------


async def test_the_model_may_think_up_an_agent_with_the_tools_and_models_that_it_is_offered(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    def add(a: int, b: int) -> str:
        """Add."""
        return str(a + b)

    small = scripted(call("add", a=1, b=2), "three")
    order = call("task_for_new_agent", description="1 + 2?", prompt="You add.", tools=["add"], model="small")
    layer = SubAgents(dynamic=DynamicAgents(tools=[add], models={"small": small}))
    session = await runtime.sessions.ensure_running(parent(order, "fine", layer=layer), "c1")
    await finished(session, "go")
    assert transcript(session.state.messages)[2] == "task_for_new_agent: three"
    request: ModelRequest = small.requests[0]
    assert request.system.startswith("You add.")
    assert [each.name for each in request.tools] == ["add"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tools": ["rm"]}, "there is no tool 'rm' for it; there are: none"),
        ({"model": "huge"}, "there is no model 'huge'"),
        ({"prompt": " "}, "expected a prompt of 1 to 10000 characters"),
    ],
)
async def test_what_may_not_be_given_to_a_new_agent_is_refused(
    runtime: Runtime, autojump_clock: MockClock, wrong: dict[str, Any], said: str
) -> None:
    order = call("task_for_new_agent", **{"description": "Go", "prompt": "You go.", **wrong})
    session = await runtime.sessions.ensure_running(parent(order, "oh", layer=SubAgents(dynamic=DynamicAgents())), "c1")
    await finished(session, "go")
    result = session.state.messages[2]
    assert isinstance(result, ToolResult)
    assert said in result.content


# --- in the background ------------------------------------------------------------------------------


async def test_a_sub_agent_in_the_background_holds_nobody_up_and_tells_when_it_is_done(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = SubAgents(worker=worker([Delay(30.0), "the report"]))
    turns = (ask(background=True), "started", "here it is")
    session = await runtime.sessions.ensure_running(parent(*turns, layer=layer, stop_after=5.0), "c1")
    assert (await finished(session, "go")).text == "started"
    assert transcript(session.state.messages)[2] == "task: started as call_1; you are told when it is done"
    await trio.sleep(20)
    assert server_of(runtime).alive
    await trio.sleep(12)
    assert transcript(session.state.messages)[-2:] == [
        "user: [task call_1 of worker is done]\nthe report",
        "model: here it is",
    ]
    assert session.state.counters.self_started == 1


async def test_work_in_the_background_can_be_asked_about_and_cancelled(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = SubAgents(worker=worker(Stall()))
    turns = (
        ask(background=True),
        call("task_status", task_id="call_1"),
        call("task_cancel", task_id="call_1"),
        call("task_status", task_id="call_9"),
        [Delay(10.0), "so be it"],
        "I know",
    )
    session = await runtime.sessions.ensure_running(parent(*turns, layer=layer), "c1")
    await finished(session, "go")
    results = [each.content for each in session.state.messages if isinstance(each, ToolResult)]
    assert results[1:] == ["worker: running", "it is being stopped", "Error: there is no task 'call_9'"]
    await trio.sleep(10)
    assert session.state.sub_agents[0].outcome == "cancelled"
    assert any(isinstance(each, UserMessage) and "was cancelled" in each.text for each in session.state.messages)


async def test_work_in_the_background_goes_on_after_a_crash_and_a_cancelled_run(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = SubAgents(worker=worker([Delay(30.0), "the report"]))
    turns = (ask(background=True), Stall(), "here it is")
    session = await runtime.sessions.ensure_running(parent(ask(background=True), Stall(), layer=layer), "c1")
    del turns
    async with session.send("go"):
        await trio.sleep(1)
        await session.cancel("enough")
        await trio.sleep(1)
    server_of(runtime).kill()
    await trio.sleep(60)
    assert session.state.sub_agents[0].outcome == "completed"
    assert [each.message.text for each in session.state.queue] == ["[task call_1 of worker is done]\nthe report"] or (
        transcript(session.state.messages)[-1].startswith("user: [task call_1")
    )


async def test_runs_that_work_in_the_background_begins_come_to_an_end(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    again = [ask(background=True), "started"]
    agent = Agent(
        "boss",
        model=scripted(*again * 20),
        middleware=[SubAgents(worker=worker([Delay(1.0), "ok"]))],
        limits=Limits(self_started=3),
    )
    session = await runtime.sessions.ensure_running(agent, "c1")
    await finished(session, "go")
    await trio.sleep(100)
    assert session.state.counters.self_started == 3
    assert len(session.state.sub_agents) == 4
    assert len(session.state.queue) == 1


async def test_a_reset_of_the_parent_ends_what_works_in_the_background(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = SubAgents(worker=worker([Delay(500.0), "never"]))
    session = await runtime.sessions.ensure_running(parent(ask(background=True), "started", layer=layer), "c1")
    await finished(session, "go")
    await session.reset()
    await trio.sleep(10)
    assert session.state.sub_agents == ()
    assert runtime.registry.running("agent").keys() == {("agent", "c1")}
    # The same call id again is another sub-agent with another conversation.
    await finished(session, "go")
    (again,) = (await state_in(runtime)).sub_agents
    assert again.id == "call_1"
    assert again.agent_id.startswith("c1/call_1-")


async def test_what_a_sub_agent_in_the_background_asks_is_listed_and_holds_no_run_back(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool(idempotent=True)
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    payer = worker(call("pay", cents=5), "paid", tools=[pay], middleware=[HumanInTheLoop(pay=True)])
    turns = (ask(background=True), "started", "yes?", "good")
    session = await runtime.sessions.ensure_running(parent(*turns, layer=SubAgents(worker=payer)), "c1")
    await finished(session, "go")
    await trio.sleep(5)
    (approval,) = session.approvals
    assert session.state.status == "idle"
    assert (await finished(session, "hello")).text == "yes?"
    assert [each.interrupt for each in session.approvals] == [approval.interrupt]
    server_of(runtime).kill()
    await trio.sleep(5)
    assert [each.interrupt for each in session.approvals] == [approval.interrupt]
    assert isinstance(await approval.approve(), Accepted)
    await trio.sleep(5)
    assert transcript(session.state.messages)[-2:] == ["user: [task call_1 of worker is done]\npaid", "model: good"]


async def test_a_drain_leaves_sub_agents_where_they_are_and_the_next_process_goes_on(
    path: Path, autojump_clock: MockClock
) -> None:
    @tool(idempotent=True)
    async def work() -> str:
        """Work."""
        await trio.sleep(5)
        return "worked"

    agent = parent(ask(), "good", layer=SubAgents(worker=worker(call("work"), "finished", tools=[work])))
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go"):
            await trio.sleep(1)
            report = await runtime.drain()
        assert report.cut == ()
        assert (await state_in(runtime)).sub_agents[0].outcome == ""
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await trio.sleep(20)
        assert session.state.status == "idle"
        assert transcript(session.state.messages)[2:] == ["task: finished", "model: good"]


async def test_a_type_that_is_gone_after_a_deploy_is_an_error_result(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        layer = SubAgents(worker=worker(Stall()))
        session = await runtime.sessions.ensure_running(parent(ask(), "oh", layer=layer), "c1")
        async with session.send("go"):
            await trio.sleep(1)
    async with opened(path) as runtime:
        layer = SubAgents(other=worker("ok"))
        session = await runtime.sessions.ensure_running(parent(ask(), "oh", layer=layer), "c1")
        await trio.sleep(5)
        assert transcript(session.state.messages)[2:] == [
            "task: Error: sub-agent worker failed: there is no agent type 'worker'; there are: other",
            "model: oh",
        ]
