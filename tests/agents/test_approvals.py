"""Approvals: asked before anything runs, kept over restarts, decided in any order, carried out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, ToolContext, tool
from sapwood.conversation import (
    Accepted,
    AlreadyDecided,
    Decision,
    DecisionOutcome,
    Interrupt,
    InterruptClosed,
    InterruptDecided,
    InterruptRaised,
    Invalid,
    RunFinished,
    Stale,
    State,
    StatusChanged,
    ToolCall,
    ToolFinished,
    ToolStarted,
)
from sapwood.errors import ChildFailed, CodecError
from sapwood.middleware import Approval, HookResult, HumanInTheLoop, Middleware, MiddlewareContext, Suspend
from sapwood.middleware._human_in_the_loop import Rule
from sapwood.models import call
from tests.agents.kit import (
    assert_sendable,
    events_in,
    finished,
    names,
    of,
    opened,
    server_of,
    state_in,
    transcript,
    until,
    waiting_events,
)


class Till:
    """Counts what was paid, by idempotency key."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()
        self.amounts: list[int] = []

    def agent(self, *steps: Any, rule: Rule = True, extra: tuple[Middleware, ...] = (), **options: Any) -> Agent:
        @tool(**options)
        def pay(context: ToolContext, order: str, cents: int) -> str:
            """Pay."""
            self.paid[context.idempotency_key] += 1
            self.amounts.append(cents)
            return f"paid {cents} for {order}"

        @tool
        async def note(text: str, seconds: float = 0.0) -> str:
            """Note."""
            await trio.sleep(seconds)
            return f"noted {text}"

        layers = [*extra, HumanInTheLoop(pay=rule)]
        return Agent("cashier", model=ScriptedModel(*steps), tools=[pay, note], middleware=layers)


def pays(*cents: int) -> list[Any]:
    return [call("pay", order=f"o{number}", cents=each) for number, each in enumerate(cents, 1)]


async def asked(runtime: Runtime, agent: Agent) -> Session:
    session = await runtime.sessions.ensure_running(agent, "c1")
    end = await finished(session, "go")
    assert (end.outcome, session.state.status) == ("interrupted", "interrupted")
    return session


async def decided(session: Session, *decisions: Decision) -> tuple[list[DecisionOutcome], RunFinished]:
    with session.events() as events:
        outcomes = [await session.decide(decision) for decision in decisions]
        _, end = await until(events, RunFinished)
    return outcomes, end


# --- verdicts ---------------------------------------------------------------------------------------


@pytest.mark.row("S4-016", "S4-024", "S4-025", "S4-069")
async def test_a_protected_call_waits_and_is_announced_once_it_is_durable(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    till = Till()
    session = await runtime.sessions.ensure_running(till.agent(pays(500), "done"), "c1")
    async with session.send("go") as run:
        events = [event async for event in run]
    assert names(events)[-3:] == ["InterruptRaised", "StatusChanged", "RunFinished"]
    [raised] = of(events, InterruptRaised)
    assert (raised.interrupt.kind, raised.interrupt.call.arguments) == ("approval", {"order": "o1", "cents": 500})
    assert of(events, StatusChanged)[-1].status == "interrupted"
    assert run.result is not None
    assert run.result.outcome == "interrupted"
    assert till.amounts == []
    [approval] = session.approvals
    assert approval.interrupt == raised.interrupt
    assert (await session.status()).open_interrupts == (raised.interrupt.id,)

    with session.events() as following:
        outcome = await approval.approve(by="ann", reason="fine")
        seen, end = await until(following, RunFinished)
    assert isinstance(outcome, Accepted)
    assert names(seen)[1:6] == ["InterruptDecided", "StatusChanged", "InterruptClosed", "ToolStarted", "ToolFinished"]
    [noted] = of(seen, InterruptDecided)
    assert (noted.verdict, noted.by, noted.reason) == ("approve", "ann", "fine")
    assert end.text == "done"
    assert transcript(session.state.messages)[2] == "pay: paid 500 for o1"
    assert list(till.paid.values()) == [1]


@pytest.mark.row("S4-025", "UP-21")
async def test_an_edit_runs_the_call_with_other_arguments_and_the_model_is_told(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    till = Till()
    session = await asked(runtime, till.agent(pays(7500), "done"))
    with session.events() as events:
        await session.approvals[0].edit(cents=2500, by="ann", reason="policy")
        seen, _ = await until(events, RunFinished)
    assert till.amounts == [2500]
    [started] = of(seen, ToolStarted)
    assert started.call.arguments == {"order": "o1", "cents": 2500}
    note = "[the arguments were changed by ann (policy): cents=2500]"
    assert transcript(session.state.messages)[2] == f"pay: paid 2500 for o1\n{note}"


@pytest.mark.row("S4-025")
async def test_a_rejection_runs_nothing_and_the_model_reads_the_reason(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    till = Till()
    session = await asked(runtime, till.agent(pays(7500), "a pity"))
    with session.events() as events:
        await session.approvals[0].reject("too much", by="ann")
        _, end = await until(events, RunFinished)
    assert (till.amounts, end.text) == ([], "a pity")
    assert transcript(session.state.messages)[2] == "pay: Error: pay was not run (rejected by ann: too much)"
    assert_sendable(session.state)


async def test_an_escalation_leaves_the_question_open_for_somebody_else(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    till = Till()
    session = await asked(runtime, till.agent(pays(7500), "done"))
    assert isinstance(await session.approvals[0].escalate("not mine", by="ann"), Accepted)
    [still] = session.approvals
    assert still.interrupt.escalations == ("ann",)
    assert session.state.status == "interrupted"
    assert isinstance(await still.escalate(by="ann"), AlreadyDecided)
    _, end = await decided(session, Decision(still.interrupt.id, "approve", by="bob"))
    assert end.text == "done"


@pytest.mark.row("AR-24.25", "AR-24.26", "AR-22.12")
@pytest.mark.parametrize(
    ("decision", "problem"),
    [
        (lambda id: Decision(id, "answer", {"text": "yes"}), "expected one of approve, edit, reject, escalate"),
        (lambda id: Decision(id, "edit"), "expected the arguments to change"),
        (lambda id: Decision(id, "edit", {"order": "other"}), "expected changes to cents"),
        (lambda id: Decision(id, "edit", {"cents": "much"}), "argument 'cents': expected an integer"),
        (lambda id: Decision(id, "approve", {"cents": 1}), "approve takes no arguments"),
    ],
)
async def test_a_decision_that_does_not_fit_leaves_the_question_as_it_was(
    runtime: Runtime, autojump_clock: MockClock, decision: Callable[[str], Decision], problem: str
) -> None:
    till = Till()
    session = await asked(runtime, till.agent(pays(500), "done", rule=Approval(editable=("cents",))))
    before = session.state
    outcome = await session.decide(decision(session.approvals[0].interrupt.id))
    assert isinstance(outcome, Invalid)
    assert problem in outcome.problem
    assert session.state == before
    _, end = await decided(session, Decision(session.approvals[0].interrupt.id, "approve"))
    assert end.text == "done"


@pytest.mark.row("AR-24.27")
async def test_a_decision_that_cannot_be_stored_is_its_senders_trouble_alone(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    till = Till()
    session = await asked(runtime, till.agent(pays(500), "done"))
    approval = session.approvals[0]
    wrong: Any = 5
    with pytest.raises(CodecError):
        await session.decide(Decision(approval.interrupt.id, "approve", by=wrong))
    assert session.approvals == (approval,)
    _, end = await decided(session, Decision(approval.interrupt.id, "approve"))
    assert end.text == "done"


@pytest.mark.row("AR-24.17", "AR-24.18", "UP-11", "UP-13")
async def test_one_of_two_answers_counts_and_the_other_is_told_so(runtime: Runtime, autojump_clock: MockClock) -> None:
    till = Till()
    session = await asked(runtime, till.agent(pays(500), "done"))
    [approval] = session.approvals
    outcomes: dict[str, DecisionOutcome] = {}

    async def answer(by: str) -> None:
        outcomes[by] = await approval.approve(by=by)

    with session.events() as events:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer, "ann")
            nursery.start_soon(answer, "bob")
        await until(events, RunFinished)
    kinds = sorted(type(outcome).__name__ for outcome in outcomes.values())
    assert kinds == ["Accepted", "AlreadyDecided"]
    winner = next(by for by, outcome in outcomes.items() if isinstance(outcome, Accepted))
    assert [each.by for each in outcomes.values() if isinstance(each, AlreadyDecided)] == [winner]
    assert list(till.paid.values()) == [1]
    assert isinstance(await approval.approve(by="cem"), AlreadyDecided)
    assert isinstance(await session.decide(Decision("unknown", "approve")), Stale)
    assert list(till.paid.values()) == [1]


async def test_an_answer_after_the_time_is_up_is_stale(runtime: Runtime, autojump_clock: MockClock) -> None:
    till = Till()
    session = await asked(runtime, till.agent(pays(500), rule=Approval(expires_after=60.0, policy="v7")))
    [approval] = session.approvals
    assert approval.interrupt.policy == "v7"
    await trio.sleep(61)
    outcome = await approval.approve()
    assert isinstance(outcome, Stale)
    assert "expired" in outcome.problem
    assert till.amounts == []


# --- several ----------------------------------------------------------------------------------------


@pytest.mark.row("S4-026", "AR-22.10", "AR-24.24", "BR-22", "UP-12", "UP-16", "UP-18", "UP-23")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_decisions_on_parallel_calls_come_in_any_order_and_each_call_gets_its_own(
    runtime: Runtime, autojump_clock: MockClock, order: tuple[int, ...]
) -> None:
    till = Till()
    session = await asked(runtime, till.agent(pays(100, 200, 300), "done"))
    approvals = session.approvals
    assert len({each.interrupt.id for each in approvals}) == 3
    decisions = [
        Decision(approvals[0].interrupt.id, "approve"),
        Decision(approvals[1].interrupt.id, "edit", {"cents": 222}),
        Decision(approvals[2].interrupt.id, "reject", reason="no"),
    ]
    with session.events() as events:
        for position in order[:2]:
            assert isinstance(await session.decide(decisions[position]), Accepted)
        await trio.sleep(10)
        assert session.state.status == "interrupted"
        assert [each.interrupt.id for each in session.approvals] == [approvals[order[2]].interrupt.id]
        assert isinstance(await session.decide(decisions[order[2]]), Accepted)
        _, end = await until(events, RunFinished)
    assert end.text == "done"
    lines = transcript(session.state.messages)[2:5]
    assert [line.split("\n")[0] for line in lines] == [
        "pay: paid 100 for o1",
        "pay: paid 222 for o2",
        "pay: Error: pay was not run (rejected: no)",
    ]
    assert sorted(till.amounts) == [100, 222]
    assert_sendable(session.state)


@pytest.mark.row("AR-24.23", "UP-4")
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_calls_beside_a_gated_one_run_at_once_and_once(
    runtime: Runtime, autojump_clock: MockClock, place: int
) -> None:
    till = Till()
    wishes: list[Any] = [call("note", text="a"), call("note", text="b")]
    wishes.insert(place, call("pay", order="o1", cents=500))
    session = await asked(runtime, till.agent(wishes, "done"))
    assert sorted(transcript(session.state.messages)[2:]) == ["note: noted a", "note: noted b"]
    _, end = await decided(session, Decision(session.approvals[0].interrupt.id, "approve"))
    assert end.text == "done"
    expected = ["note: noted a", "note: noted b"]
    expected.insert(place, "pay: paid 500 for o1")
    assert transcript(session.state.messages)[2:5] == expected
    assert (await events_in(runtime)).count("ToolStarted") == 3


@pytest.mark.row("UP-12")
async def test_a_decision_that_comes_while_other_calls_run_is_carried_out_in_the_same_run(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    till = Till()
    wishes = [call("note", text="slow", seconds=10.0), *pays(500)]
    session = await runtime.sessions.ensure_running(till.agent(wishes, "done"), "c1")
    async with session.send("go") as run:
        await until(run, ToolStarted)
        assert isinstance(await session.approvals[0].approve(), Accepted)
        seen, end = await until(run, RunFinished)
    assert (end.outcome, end.text) == ("completed", "done")
    assert "interrupted" not in [event.status for event in of(seen, StatusChanged)]
    assert till.amounts == [500]


async def test_a_decision_that_comes_when_the_run_begins_to_wait_is_not_lost(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class DecidesItself(Middleware):
        async def around_run(self, call_next: Any, context: Any) -> None:
            await call_next()
            for approval in session.approvals:
                assert isinstance(await approval.approve(), Accepted)

    till = Till()
    session = await runtime.sessions.ensure_running(till.agent(pays(500), "done", extra=(DecidesItself(),)), "c1")
    with trio.fail_after(10):
        assert await session.say("go") == "done"
    assert till.amounts == [500]


async def test_several_rounds_of_approval_in_one_run_keep_its_counts(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    till = Till()
    session = await asked(runtime, till.agent(*[pays(n) for n in (1, 2, 3)], "done"))
    run = session.state.run
    assert run is not None
    ends = [(await decided(session, Decision(session.approvals[0].interrupt.id, "approve")))[1] for _ in range(3)]
    end = ends[-1]
    assert (end.outcome, end.run_id) == ("completed", run.id)
    assert till.amounts == [1, 2, 3]
    assert session.state.counters.runs == 1


@pytest.mark.row("UP-11", "UP-16")
async def test_a_call_that_was_decided_is_not_asked_about_again_when_the_hooks_run_again(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Reviews(Middleware):
        async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
            if len(state.messages) > 2 or state.decision("review"):
                return None
            return Suspend((Interrupt(id="review", kind="question", call=ToolCall("review", "review")),))

    till = Till()
    session = await asked(runtime, till.agent([*pays(500), call("note", text="a")], "done", extra=(Reviews(),)))
    pay, review = (each.interrupt.id for each in session.approvals)
    assert "ToolIntended" not in await events_in(runtime)
    outcomes, end = await decided(session, Decision(pay, "approve"), Decision(review, "answer", {"text": "fine"}))
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    assert end.text == "done"
    assert transcript(session.state.messages)[2:4] == ["pay: paid 500 for o1", "note: noted a"]
    assert till.amounts == [500]
    assert (await events_in(runtime)).count("InterruptRaised") == 2


# --- over restarts ----------------------------------------------------------------------------------


@pytest.mark.row("AR-22.1", "AR-24.11", "AR-24.12", "S4-027", "UP-10", "UP-17")
async def test_open_questions_are_there_again_after_a_restart_and_are_carried_out_exactly_once(
    path: Path, autojump_clock: MockClock
) -> None:
    till = Till()
    agent = till.agent(pays(100, 200), "done")
    async with opened(path) as runtime:
        session = await asked(runtime, agent)
        before = session.approvals
        assert isinstance(await before[0].approve(by="ann"), Accepted)
    assert till.amounts == []
    async with opened(path, seed=1) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            await trio.sleep(100)
            assert names(await waiting_events(events)) == ["StatusChanged"]
            assert session.state.status == "interrupted"
            [still] = session.approvals
            assert still.interrupt == before[1].interrupt
            assert isinstance(await before[0].__class__(before[0].interrupt, session=session).approve(), AlreadyDecided)
            assert isinstance(await still.approve(), Accepted)
            _, end = await until(events, RunFinished)
    assert end.text == "done"
    assert sorted(till.amounts) == [100, 200]
    assert list(till.paid.values()) == [1, 1]
    async with opened(path, seed=2) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await trio.sleep(100)
        assert (session.state.status, session.approvals) == ("idle", ())
    assert len(till.amounts) == 2


@pytest.mark.row("AR-22.1", "UP-2", "UP-3", "AR-24.16")
async def test_a_decision_that_was_taken_and_not_carried_out_is_carried_out_by_the_next_server(
    path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    till = Till()
    agent = till.agent(pays(100), "done")
    async with opened(path) as runtime:
        session = await asked(runtime, agent)
        server = server_of(runtime)

        def stay_down(*_: Any) -> None:
            raise ConnectionError("the process is about to end")

        # The decision is journaled; then the server dies before it can begin to act on it.
        monkeypatch.setattr("sapwood.agents._run_keeper.RunKeeper.begin", stay_down)
        with pytest.raises(Exception, match="down"):
            await session.approvals[0].approve(by="ann")
        assert not server.alive
        monkeypatch.undo()
    assert till.amounts == []
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            seen, end = await until(events, RunFinished)
    assert "interrupted" not in [event.status for event in of(seen, StatusChanged)]
    assert (end.text, till.amounts) == ("done", [100])


@pytest.mark.row("AR-22.1", "UP-2")
@pytest.mark.parametrize("moment", [InterruptRaised, InterruptDecided, InterruptClosed, ToolStarted, ToolFinished])
async def test_an_approved_payment_is_made_once_although_the_server_is_killed_at_any_step(
    runtime: Runtime, autojump_clock: MockClock, moment: type[Any]
) -> None:
    till = Till()
    agent = till.agent(pays(500), then_done, then_done, idempotent=True)
    session = await runtime.sessions.ensure_running(agent, "c1")

    async def kill() -> None:
        with session.events() as events:
            await until(events, moment)
            server_of(runtime).kill()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        with session.events() as events:
            await session._ask(send("go"))
            while not session.state.interrupts:
                await anext(events)
            await trio.sleep(1)
            session = await runtime.sessions.ensure_running(agent, "c1")
            if session.approvals:
                await session.decide(Decision(session.approvals[0].interrupt.id, "approve"))
            await until(events, RunFinished, outcome="completed")
    assert len(till.paid) == 1
    assert session.approvals == ()
    assert_sendable(session.state)


def then_done(_: Any) -> str:
    return "done"


def send(text: str) -> Any:
    from sapwood.agents._requests import SendMessage

    return SendMessage(text)


@pytest.mark.row("UP-62", "UP-24")
async def test_a_question_without_a_limit_waits_for_as_long_as_it_takes(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    till = Till()
    session = await asked(runtime, till.agent(pays(500), "done"))
    await trio.sleep(30 * 24 * 3600)
    assert (await session.status()).status == "interrupted"
    _, end = await decided(session, Decision(session.approvals[0].interrupt.id, "approve"))
    assert (end.text, till.amounts) == ("done", [500])


# --- what is not asked ------------------------------------------------------------------------------


@pytest.mark.row("AR-24.13")
async def test_a_server_that_starts_without_open_calls_is_idle(path: Path, autojump_clock: MockClock) -> None:
    agent = Till().agent("hello")
    for _ in range(2):
        async with opened(path) as runtime:
            session = await runtime.sessions.ensure_running(agent, "c1")
            await trio.sleep(10)
            assert (session.state.status, session.approvals) == ("idle", ())


async def test_nobody_is_asked_about_a_call_that_cannot_run(runtime: Runtime, autojump_clock: MockClock) -> None:
    till = Till()
    session = await runtime.sessions.ensure_running(till.agent(call("pay", order="o1"), "sorry"), "c1")
    assert await session.say("go") == "sorry"
    assert "argument 'cents': missing" in transcript(session.state.messages)[2]
    assert "InterruptRaised" not in await events_in(runtime)


async def test_a_predicate_decides_and_one_that_fails_asks(runtime: Runtime, autojump_clock: MockClock) -> None:
    till = Till()
    session = await asked(runtime, till.agent(pays(100, 9000), "done", rule=lambda args: args.cents > 5000))
    assert [each.interrupt.call.arguments["cents"] for each in session.approvals] == [9000]
    assert till.amounts == [100]

    broken = till.agent(pays(5), "done", rule=lambda args: args.dollars > 5)
    other = await runtime.sessions.ensure_running(broken, "c2")
    assert (await finished(other, "go")).outcome == "interrupted"


@pytest.mark.row("UP-22")
async def test_the_tools_own_word_on_what_may_be_edited_holds_unless_the_rule_has_one(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    till = Till()
    session = await asked(runtime, till.agent(pays(500), editable=("cents",)))
    [approval] = session.approvals
    assert approval.interrupt.editable == ("cents",)
    assert isinstance(await approval.edit(order="o9"), Invalid)
    assert isinstance(await session.decide(Decision(approval.interrupt.id, "edit", {"cents": 1})), Accepted)


async def test_a_rule_for_a_misspelt_tool_refuses_the_start(runtime: Runtime, autojump_clock: MockClock) -> None:
    @tool
    def refund(cents: int) -> str:
        """Refund."""
        return "ok"

    agent = Agent("a", model=ScriptedModel(), tools=[refund], middleware=[HumanInTheLoop(refnd=True)])
    with pytest.raises(ChildFailed, match="no tool 'refnd'; did you mean 'refund'"):
        await runtime.sessions.ensure_running(agent, "c1")
    shared = HumanInTheLoop(refund=True, delete_everything=True)
    agent = Agent("a", model=ScriptedModel(), tools=[refund], middleware=[shared])
    await runtime.sessions.ensure_running(agent, "c1")


# --- reconciling ------------------------------------------------------------------------------------


@pytest.mark.row("S4-027", "UP-2", "BR-28")
@pytest.mark.parametrize(
    ("verdict", "arguments", "paid", "line"),
    [
        ("answer", {"result": "paid, says the bank"}, 1, "pay: paid, says the bank"),
        ("approve", {}, 2, "pay: paid 500 for o1"),
        ("reject", {}, 1, "pay: Error: the process ended while pay was running"),
    ],
)
async def test_what_a_crash_left_unknown_is_decided_by_a_person(
    path: Path, autojump_clock: MockClock, *, verdict: Any, arguments: dict[str, Any], paid: int, line: str
) -> None:
    paid_keys: list[str] = []
    slow = [True]

    @tool(crash_resume="ask")
    async def pay(context: ToolContext, order: str, cents: int) -> str:
        """Pay."""
        paid_keys.append(context.idempotency_key)
        if slow[0]:
            await trio.sleep_forever()
        return f"paid {cents} for {order}"

    agent = Agent("a", model=ScriptedModel(pays(500), "done"), tools=[pay])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run:
            await until(run, ToolStarted)
            await trio.sleep(1)
    slow[0] = False
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            _, raised = await until(events, InterruptRaised)
            await until(events, RunFinished, outcome="interrupted")
        assert (raised.interrupt.kind, len(paid_keys)) == ("reconcile", 1)
        outcomes, end = await decided(session, Decision(raised.interrupt.id, verdict, arguments))
        assert isinstance(outcomes[0], Accepted)
        assert end.text == "done"
        assert transcript(session.state.messages)[2].startswith(line)
        assert len(paid_keys) == paid
        assert len(set(paid_keys)) == 1
        assert_sendable(session.state)
        assert await state_in(runtime) == session.state


@pytest.mark.row("UP-24")
async def test_a_withdrawn_question_about_an_unknown_outcome_does_not_claim_that_nothing_ran(
    path: Path, autojump_clock: MockClock
) -> None:
    @tool(crash_resume="ask")
    async def pay(order: str, cents: int) -> str:
        """Pay."""
        await trio.sleep_forever()
        return "never"

    agent = Agent("a", model=ScriptedModel(pays(500), "as you say"), tools=[pay])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run:
            await until(run, ToolStarted)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            await until(events, RunFinished)
        assert await session.say("never mind") == "as you say"
        assert "whether it had its effect is unknown" in transcript(session.state.messages)[2]


async def test_an_interrupt_names_who_waits(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await asked(runtime, Till().agent(pays(1)))
    [approval] = session.approvals
    assert isinstance(approval.interrupt, Interrupt)
    assert (approval.interrupt.path, approval.interrupt.created_at) == ((), 1_700_000_000.0)
