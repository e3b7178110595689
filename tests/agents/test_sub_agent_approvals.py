"""What sub-agents ask people comes up to their parent, at any depth, and the answers find their way down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, Session, tool
from sapwood.conversation import (
    Accepted,
    AlreadyDecided,
    AssistantMessage,
    Decision,
    Invalid,
    RunFinished,
    Stale,
    ToolResult,
)
from sapwood.middleware import Approval, AskUserQuestion, Haltable, HumanInTheLoop, SubAgent, SubAgents, halt
from sapwood.models import call
from sapwood.tools import Tool, ToolOutput
from tests.agents.families import ask, parent, scripted, worker
from tests.agents.kit import assert_sendable, finished, opened, server_of, state_in, transcript, until


class Bank:
    """Where payments show."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    def tool(self) -> Tool[..., Any]:
        @tool(idempotent=True)
        def pay(to: str, cents: int) -> str:
            """Pay."""
            self.paid.append((to, cents))
            return f"paid {cents} to {to}"

        return pay


def payer(bank: Bank, to: str, cents: int = 100) -> Agent:
    return worker(
        call("pay", to=to, cents=cents),
        f"{to} has it",
        name="payer",
        tools=[bank.tool()],
        middleware=[HumanInTheLoop(pay=True)],
    )


def nested(bank: Bank, depth: int) -> Agent:
    """Return an agent with `depth` levels of sub-agents below it, of which the lowest one pays."""
    agent = payer(bank, "ann")
    for level in range(depth, 0, -1):
        layer = SubAgents(deeper=agent)
        agent = Agent(f"level {level}", model=scripted(ask("deeper"), f"level {level} is done"), middleware=[layer])
    return agent


async def asked(session: Session, text: str = "go") -> RunFinished:
    """Say something, and come back when people are asked."""
    async with session.send(text) as run:
        return (await until(run, RunFinished, outcome="interrupted"))[1]


@pytest.mark.row("BR-23", "S4-030", "AR-24.28")
@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_a_question_of_a_sub_agent_is_listed_at_the_top_and_answered_there_at_every_depth(
    runtime: Runtime, autojump_clock: MockClock, depth: int
) -> None:
    bank = Bank()
    session = await runtime.sessions.ensure_running(nested(bank, depth), "c1")
    await asked(session)

    (approval,) = session.approvals
    assert (await session.status()).status == "interrupted"
    assert approval.interrupt.path == ("level 1", *["deeper"] * depth)
    assert approval.interrupt.id == "/".join(["call_1"] * (depth + 1))
    assert approval.interrupt.call.arguments == {"to": "ann", "cents": 100}
    assert not any(isinstance(each, ToolResult) for each in session.state.messages)
    lowest = "c1" + "/call_1" * depth
    server = server_of(runtime, lowest)

    assert isinstance(await approval.approve(by="eve"), Accepted)
    assert server.alive
    await trio.sleep(5)

    assert session.state.messages[-1].text == "level 1 is done"  # type: ignore[union-attr]  # it is an answer
    assert bank.paid == [("ann", 100)]
    assert (await state_in(runtime, lowest)).decisions[0].by == "eve"
    assert session.approvals == ()
    assert_sendable(session.state)


@pytest.mark.row("AR-22.9", "UP-4", "UP-19")
async def test_questions_of_parallel_sub_agents_are_kept_apart_and_answered_in_any_order(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    bank = Bank()
    layer = SubAgents(ann=payer(bank, "ann"), bob=payer(bank, "bob"), cy=payer(bank, "cy"))
    session = await runtime.sessions.ensure_running(
        parent([ask("ann"), ask("bob"), ask("cy")], "done", layer=layer), "c1"
    )
    await asked(session)
    await trio.sleep(1)

    ids = {each.interrupt.call.arguments["to"]: each for each in session.approvals}
    assert [each.interrupt.id for each in session.approvals] == ["call_1/call_1", "call_2/call_1", "call_3/call_1"]
    assert isinstance(await ids["cy"].reject("too much", by="eve"), Accepted)
    assert isinstance(await ids["ann"].edit(cents=5, by="eve"), Accepted)
    await trio.sleep(5)
    assert bank.paid == [("ann", 5)]
    assert [each.interrupt.call.arguments["to"] for each in session.approvals] == ["bob"]
    assert (await session.status()).status == "interrupted"
    # What is done is done once, whatever is still open beside it.
    assert [each.outcome for each in session.state.sub_agents] == ["completed", "", "completed"]
    assert isinstance(await ids["bob"].approve(by="eve"), Accepted)
    await trio.sleep(5)

    assert sorted(bank.paid) == [("ann", 5), ("bob", 100)]
    assert transcript(session.state.messages)[-4:] == [
        "task: ann has it",
        "task: bob has it",
        "task: cy has it",
        "model: done",
    ]
    refused = await state_in(runtime, "c1/call_3")
    assert "rejected by eve: too much" in transcript(refused.messages)[2]


async def test_duplicate_stale_and_unfit_answers_are_told_what_became_of_them(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    bank = Bank()
    rules = HumanInTheLoop(pay=Approval(editable=("cents",)))
    two = worker(
        [call("pay", to="ann", cents=1), call("pay", to="bob", cents=2)],
        "both",
        tools=[bank.tool()],
        middleware=[rules],
    )
    session = await runtime.sessions.ensure_running(parent(ask(), "done", layer=SubAgents(worker=two)), "c1")
    await asked(session)
    first, second = session.approvals

    assert isinstance(await first.edit(to="eve"), Invalid)
    assert isinstance(await first.edit(cents="many"), Invalid)  # the sub-agent itself knows its tools
    assert len(session.approvals) == 2
    assert isinstance(await first.approve(by="eve"), Accepted)
    assert await first.reject(by="joe") == AlreadyDecided("eve", "approve")
    assert isinstance(await session.decide(Decision("call_1/call_9", "approve")), Stale)
    assert isinstance(await second.escalate(by="eve"), Accepted)
    assert [each.interrupt.escalations for each in session.approvals] == [("eve",)]
    assert isinstance(await second.approve(by="boss"), Accepted)
    await trio.sleep(5)
    assert await second.approve(by="joe") == AlreadyDecided("boss", "approve")
    assert bank.paid == [("ann", 1), ("bob", 2)]
    assert session.state.status == "idle"


async def test_two_answers_at_the_same_moment_count_as_one(runtime: Runtime, autojump_clock: MockClock) -> None:
    bank = Bank()
    session = await runtime.sessions.ensure_running(nested(bank, 2), "c1")
    await asked(session)
    (approval,) = session.approvals
    outcomes: list[str] = []

    async def answer(by: str) -> None:
        outcomes.append(type(await approval.approve(by=by)).__name__)

    async with trio.open_nursery() as nursery:
        for by in ("ann", "bob", "cy"):
            nursery.start_soon(answer, by)
    assert sorted(outcomes) == ["Accepted", "AlreadyDecided", "AlreadyDecided"]
    await trio.sleep(5)
    assert bank.paid == [("ann", 100)]


@pytest.mark.parametrize("kill", ["c1", "c1/call_1", "c1/call_1/call_1", "process"])
async def test_questions_of_nested_sub_agents_survive_a_crash_with_the_same_ids(
    path: Path, autojump_clock: MockClock, kill: str
) -> None:
    bank = Bank()
    agent = nested(bank, 2)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await asked(session)
        before = [each.interrupt for each in session.approvals]
        if kill != "process":
            server_of(runtime, kill).kill()
            await trio.sleep(2)
            assert [each.interrupt for each in session.approvals] == before
            assert isinstance(await session.approvals[0].approve(), Accepted)
            await trio.sleep(5)
            assert session.state.status == "idle"
    if kill == "process":
        async with opened(path) as runtime:
            session = await runtime.sessions.ensure_running(agent, "c1")
            assert [each.interrupt for each in session.approvals] == before
            assert isinstance(await session.approvals[0].approve(), Accepted)
            await trio.sleep(5)
            assert session.state.status == "idle"
    assert bank.paid == [("ann", 100)]


async def test_a_message_withdraws_the_questions_and_stops_the_sub_agents_that_asked(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    bank = Bank()
    layer = SubAgents(ann=payer(bank, "ann"))
    session = await runtime.sessions.ensure_running(parent(ask("ann"), "never mind then", layer=layer), "c1")
    await asked(session)
    approval = session.approvals[0]
    assert (await finished(session, "never mind")).text == "never mind then"
    assert session.approvals == ()
    await trio.sleep(10)
    assert isinstance(await approval.approve(), Stale)
    assert bank.paid == []
    assert session.state.sub_agents[0].outcome == "cancelled"
    assert runtime.registry.running("agent").keys() == {("agent", "c1")}
    child = await state_in(runtime, "c1/call_1")
    assert (child.run, child.interrupts) == (None, ())


async def test_a_question_of_a_sub_agent_to_a_person_is_answered_at_the_top(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    asker = worker(call("ask_user", question="Which colour?"), "understood", middleware=[AskUserQuestion()])
    session = await runtime.sessions.ensure_running(parent(ask(), "done", layer=SubAgents(worker=asker)), "c1")
    await asked(session)
    (approval,) = session.approvals
    assert approval.interrupt.kind == "question"
    assert isinstance(await approval.answer(result="blue"), Accepted)
    await trio.sleep(5)
    assert transcript((await state_in(runtime, "c1/call_1")).messages)[2] == "ask_user: blue"
    assert session.state.status == "idle"


@pytest.mark.row("S4-029", "UP-20")
@pytest.mark.parametrize("inherits", [True, False])
async def test_rules_of_the_parent_hold_for_the_tools_of_its_sub_agents(
    runtime: Runtime, autojump_clock: MockClock, *, inherits: bool
) -> None:
    bank = Bank()
    free = worker(call("pay", to="ann", cents=100), "paid", tools=[bank.tool()])
    layers = [SubAgents(worker=SubAgent(free, approvals=inherits)), HumanInTheLoop(pay=True)]
    agent = Agent("boss", model=scripted(ask(), "done"), middleware=layers)
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        end = await run.finish()
    assert end is not None
    assert end.outcome == ("interrupted" if inherits else "completed")
    assert len(session.approvals) == (1 if inherits else 0)
    assert len(bank.paid) == (0 if inherits else 1)


@pytest.mark.row("AR-24.29")
async def test_a_sub_agent_may_ask_a_second_time(runtime: Runtime, autojump_clock: MockClock) -> None:
    bank = Bank()
    rules = HumanInTheLoop(pay=True)
    turns = (call("pay", to="ann", cents=1), call("pay", to="bob", cents=2), "both have it")
    twice = worker(*turns, tools=[bank.tool()], middleware=[rules])
    session = await runtime.sessions.ensure_running(parent(ask(), "done", layer=SubAgents(worker=twice)), "c1")
    await asked(session)
    for to in ("ann", "bob"):
        (approval,) = session.approvals
        assert approval.interrupt.call.arguments["to"] == to
        await approval.approve()
        await trio.sleep(5)
    assert bank.paid == [("ann", 1), ("bob", 2)]
    assert transcript(session.state.messages)[2] == "task: both have it"


@pytest.mark.row("AR-22.8")
async def test_a_sub_agent_that_hands_in_its_result_may_ask_before_it_does(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    bank = Bank()
    turns = (call("pay", to="ann", cents=1), call("submit_result", result={"receipt": "r-1"}))
    payer = worker(*turns, tools=[bank.tool()], middleware=[HumanInTheLoop(pay=True)])
    shape = {"type": "object", "required": ["receipt"]}
    layer = SubAgents(worker=SubAgent(payer, result=shape))
    session = await runtime.sessions.ensure_running(parent(ask(), "done", layer=layer), "c1")
    await asked(session)
    server_of(runtime).kill()
    await trio.sleep(2)
    await session.approvals[0].approve()
    await trio.sleep(5)
    assert transcript(session.state.messages)[2:] == ['task: {"receipt": "r-1"}', "model: done"]


@pytest.mark.row("AR-24.30")
async def test_a_sub_agent_that_is_killed_for_good_while_it_asks_is_an_error_result(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    bank = Bank()
    session = await runtime.sessions.ensure_running(
        parent(ask("ann"), "a pity", layer=SubAgents(ann=payer(bank, "ann"))), "c1"
    )
    await asked(session)
    for _ in range(4):
        server_of(runtime, "c1/call_1").kill()
        await trio.sleep(0.5)
    await trio.sleep(10)
    assert transcript(session.state.messages)[2:] == [
        "task: Error: sub-agent ann failed: it was killed",
        "model: a pity",
    ]
    assert session.approvals == ()


async def test_an_approval_for_the_rest_of_a_sub_agents_run_opens_nothing_in_its_parent(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    bank = Bank()
    twice = worker(call("pay", to="ann", cents=1), call("pay", to="ann", cents=2), "paid", tools=[bank.tool()])
    layers = [SubAgents(worker=twice), HumanInTheLoop(pay=True)]
    turns = (ask(), call("pay", to="bob", cents=3), "done")
    agent = Agent("boss", model=scripted(*turns), middleware=layers, tools=[bank.tool()])
    session = await runtime.sessions.ensure_running(agent, "c1")
    await asked(session)
    await session.approvals[0].approve(for_run=True)
    await trio.sleep(5)
    assert bank.paid == [("ann", 1), ("ann", 2)]
    assert [each.interrupt.call.arguments["to"] for each in session.approvals] == ["bob"]


async def test_what_nobody_decides_in_time_is_aborted_by_the_sub_agent_and_not_by_its_parent(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    bank = Bank()
    rules = HumanInTheLoop(pay=Approval(expires_after=60.0))
    hasty = worker(call("pay", to="ann", cents=1), "nobody answered", tools=[bank.tool()], middleware=[rules])
    session = await runtime.sessions.ensure_running(parent(ask(), "pity", layer=SubAgents(worker=hasty)), "c1")
    await asked(session)
    await trio.sleep(100)
    assert transcript(session.state.messages)[2:] == ["task: nobody answered", "model: pity"]
    assert bank.paid == []


@pytest.mark.row("AR-24.31")
async def test_a_halt_of_a_sub_agent_halts_its_parent_without_another_model_call(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    def stop_here() -> ToolOutput:
        """Stop."""
        return halt("the account is frozen")

    frozen = worker(call("stop_here"), "never", tools=[stop_here], middleware=[Haltable()])
    session = await runtime.sessions.ensure_running(parent(ask(), "never", layer=SubAgents(worker=frozen)), "c1")
    await asked(session)
    (approval,) = session.approvals
    assert (approval.interrupt.kind, approval.interrupt.reason) == ("halt", "the account is frozen")
    assert approval.interrupt.path == ("boss", "worker")
    assert await approval.dismiss()
    await trio.sleep(10)
    assert session.state.status == "idle"
    assert not any(isinstance(each, AssistantMessage) and each.text for each in session.state.messages)
    assert runtime.registry.running("agent").keys() == {("agent", "c1")}
    assert_sendable(session.state)
