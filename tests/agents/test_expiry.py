"""Questions that nobody answers in time, answers that hold for a run, and halts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import (
    EXPIRY,
    Accepted,
    AlreadyDecided,
    Decision,
    Interrupt,
    InterruptClosed,
    InterruptDecided,
    Invalid,
    RunFinished,
    Stale,
    State,
    ToolCall,
    ToolResult,
)
from sapwood.errors import InvalidOption
from sapwood.middleware import Approval, HookResult, HumanInTheLoop, Middleware, MiddlewareContext, Suspend
from sapwood.models import call
from sapwood.persistence import Entry
from tests.agents.kit import (
    assert_sendable,
    entries_of,
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
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def payer(*steps: Any, rule: Approval | None = None) -> Agent:
    model = ScriptedModel(*(steps or (call("pay", cents=5), "done")))
    return Agent("a", model=model, tools=[pay], middleware=[HumanInTheLoop(pay=rule or Approval())])


async def asked(runtime: Runtime, agent: Agent) -> Session:
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert (await finished(session, "go")).outcome == "interrupted"
    return session


def last_result(session: Session) -> ToolResult:
    results = [each for each in session.state.messages if isinstance(each, ToolResult)]
    return results[-1]


# --- nobody answers ---------------------------------------------------------------------------------


@pytest.mark.row("UP-24")
async def test_a_call_that_nobody_decides_in_time_is_refused_and_the_run_goes_on(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await asked(runtime, payer(rule=Approval(expires_after=60.0)))
    [approval] = session.approvals
    with session.events() as events:
        seen, end = await until(events, RunFinished)
    assert trio.current_time() == pytest.approx(60.0, abs=1.0)
    assert (end.outcome, end.text) == ("completed", "done")
    assert [event.outcome for event in of(seen, InterruptClosed)] == ["expired"]
    assert last_result(session).content == "Error: pay was not run (nobody answered in time)"
    assert last_result(session).problem == "denied"
    late = await approval.approve()
    assert isinstance(late, Stale)
    assert await state_in(runtime) == session.state


@pytest.mark.row("UP-24")
async def test_a_question_is_left_to_somebody_else_once_and_then_given_up(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await asked(runtime, payer(rule=Approval(expires_after=60.0, on_expiry="escalate")))
    with session.events() as events:
        _, passed_on = await until(events, InterruptDecided)
        assert (passed_on.verdict, passed_on.by, round(trio.current_time())) == ("escalate", EXPIRY, 60)
        [approval] = session.approvals
        assert approval.interrupt.escalations == (EXPIRY,)
        await trio.sleep(30)
        await until(events, RunFinished)
    assert round(trio.current_time()) == 120
    assert last_result(session).problem == "denied"


@pytest.mark.row("UP-24")
async def test_whoever_a_question_is_left_to_has_the_whole_time(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await asked(runtime, payer(rule=Approval(expires_after=60.0, on_expiry="escalate")))
    await trio.sleep(50)
    await session.approvals[0].escalate("not mine", by="ann")
    await trio.sleep(50)
    with session.events() as events:
        assert isinstance(await session.approvals[0].approve(by="bob"), Accepted)
        await until(events, RunFinished)
    assert last_result(session).content == "paid 5"


@pytest.mark.row("UP-24", "UP-62")
async def test_a_question_that_keeps_waiting_takes_late_answers(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await asked(runtime, payer(rule=Approval(expires_after=60.0, on_expiry="queue")))
    await trio.sleep(10_000)
    with session.events() as events:
        assert isinstance(await session.approvals[0].approve(), Accepted)
        await until(events, RunFinished)
    assert last_result(session).content == "paid 5"


@pytest.mark.row("UP-24")
async def test_time_runs_out_while_the_process_is_down_too(path: Path, autojump_clock: MockClock) -> None:
    agent = payer(rule=Approval(expires_after=60.0))
    async with opened(path) as runtime:
        await asked(runtime, agent)
    await trio.sleep(100)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            _, end = await until(events, RunFinished)
    assert end.text == "done"


@pytest.mark.row("UP-24")
async def test_of_several_questions_only_those_whose_time_is_up_are_given_up(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    def send(to: str) -> str:
        """Send."""
        return f"sent to {to}"

    model = ScriptedModel([call("pay", cents=5), call("send", to="ann")], "done")
    gate = HumanInTheLoop(pay=Approval(expires_after=60.0), send=Approval(expires_after=600.0))
    session = await asked(runtime, Agent("a", model=model, tools=[pay, send], middleware=[gate]))
    await trio.sleep(100)
    assert (await session.status()).status == "interrupted"
    [left] = session.approvals
    with session.events() as events:
        await left.approve()
        await until(events, RunFinished)
    assert transcript(session.state.messages)[2:4] == [
        "pay: Error: pay was not run (nobody answered in time)",
        "send: sent to ann",
    ]
    assert_sendable(session.state)


@attrs.define
class Asking(Middleware):
    """Asks about the run as a whole, before the model is called."""

    kind: Any = "question"
    expires_after: float | None = 60.0

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        if state.decision("ask") is not None:
            return None
        now = context.environment.wall()
        expires_at = None if self.expires_after is None else now + self.expires_after
        return Suspend((Interrupt("ask", self.kind, ToolCall("ask", "ask"), "may I?", expires_at=expires_at),))


async def test_a_run_that_nobody_lets_go_on_fails_and_does_not_ask_again(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel(), middleware=[Asking()])
    session = await asked(runtime, agent)
    with session.events() as events:
        _, end = await until(events, RunFinished)
    assert (end.outcome, end.reason) == ("failed", "nobody answered in time")
    assert session.approvals == ()
    await trio.sleep(1000)
    assert (await session.status()).status == "error"


# --- rejections and edits ---------------------------------------------------------------------------


async def test_a_rejection_without_the_reason_that_is_required_changes_nothing(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await asked(runtime, payer(rule=Approval(reason_required=True)))
    [approval] = session.approvals
    refused = await approval.reject(" ")
    assert isinstance(refused, Invalid)
    assert "expected a reason for the rejection; got none" in refused.problem
    assert session.approvals == (approval,)
    assert isinstance(await approval.reject("too much", by="ann"), Accepted)


@pytest.mark.row("AR-22.12")
async def test_who_decided_what_when_and_under_which_policy_is_in_the_journal(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await asked(runtime, payer(rule=Approval(policy="refunds-v7", editable=("cents",))))
    await trio.sleep(5)
    await session.approvals[0].edit(cents=3, by="ann", reason="half of it")
    entries: list[Entry] = await entries_of(runtime)
    [raised] = [entry.event for entry in entries if type(entry.event).__name__ == "InterruptRaised"]
    [decided] = [entry.event.decision for entry in entries if type(entry.event).__name__ == "InterruptDecided"]
    assert raised.interrupt.policy == "refunds-v7"
    assert (decided.by, decided.reason, decided.arguments) == ("ann", "half of it", {"cents": 3})
    assert decided.at - raised.interrupt.created_at == pytest.approx(5.0, abs=0.1)


# --- for the whole run ------------------------------------------------------------------------------


def payments() -> Agent:
    return payer(call("pay", cents=1), [call("pay", cents=2), call("pay", cents=3)], "done", call("pay", cents=4), "x")


async def test_an_approval_may_hold_for_the_rest_of_the_run_and_no_longer(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await asked(runtime, payments())
    with session.events() as events:
        await session.approvals[0].approve(by="ann", for_run=True)
        seen, end = await until(events, RunFinished)
    assert end.text == "done"
    assert [each for each in transcript(session.state.messages) if each.startswith("pay")] == [
        "pay: paid 1",
        "pay: paid 2",
        "pay: paid 3",
    ]
    assert len(of(seen, InterruptDecided)) == 1
    assert (await finished(session, "once more")).outcome == "interrupted"


async def test_what_is_approved_for_a_run_is_kept_over_a_crash(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await asked(runtime, payments())
    with session.events() as events:
        await session.approvals[0].approve(for_run=True)
        server_of(runtime).kill()
        _, end = await until(events, RunFinished)
    assert end.text == "done"


async def test_only_an_approval_can_hold_for_a_run(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await asked(runtime, payer())
    outcome = await session.decide(Decision("call_1", "reject", scope="run"))
    assert isinstance(outcome, Invalid)
    assert "scope='run' goes with the approval of a call; got it with 'reject'" in outcome.problem


async def test_a_second_answerer_of_a_run_wide_approval_is_told_who_was_faster(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await asked(runtime, payments())
    [approval] = session.approvals
    answers: list[Any] = []

    async def answer(by: str, *, for_run: bool) -> None:
        answers.append(await approval.approve(by=by, for_run=for_run))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: answer("ann", for_run=True))
        nursery.start_soon(lambda: answer("bob", for_run=False))
    kinds = sorted(type(each).__name__ for each in answers)
    assert kinds == ["Accepted", "AlreadyDecided"]
    [told] = [each for each in answers if isinstance(each, AlreadyDecided)]
    [counted] = [each for each in answers if isinstance(each, Accepted)]
    assert told.by == counted.decision.by


# --- halts ------------------------------------------------------------------------------------------


@pytest.mark.row("AR-24.20", "AR-22.13")
async def test_a_halt_is_dismissed_and_nothing_else_is(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel(), middleware=[Asking("halt", None)])
    session = await asked(runtime, agent)
    [halt] = session.approvals
    assert isinstance(await halt.approve(), Invalid)
    with session.events() as events:
        assert await halt.dismiss() is True
        seen = await waiting_events(events)
    assert [event.outcome for event in of(seen, InterruptClosed)] == ["dismissed"]
    assert (await session.status()).status == "idle"
    assert session.state.run is None
    assert await halt.dismiss() is False


@pytest.mark.row("AR-24.20")
async def test_a_question_cannot_be_dismissed(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await asked(runtime, payer())
    assert await session.approvals[0].dismiss() is False
    assert len(session.approvals) == 1


@pytest.mark.row("AR-24.14", "AR-22.3")
async def test_an_open_question_survives_a_deploy_without_the_middleware_that_asked(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        await asked(runtime, payer())
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel("done"), tools=[pay]), "c1")
        [approval] = session.approvals
        with session.events() as events:
            await approval.approve()
            _, end = await until(events, RunFinished)
    assert end.text == "done"


@pytest.mark.row("AR-24.15")
def test_to_suspend_for_nothing_is_refused() -> None:
    with pytest.raises(InvalidOption, match="expected at least one interrupt"):
        Suspend(())


def test_an_unknown_end_of_patience_is_refused() -> None:
    wrong: Any = "shrug"
    with pytest.raises(InvalidOption, match="expected one of abort, escalate, queue; got 'shrug'"):
        Interrupt("i", "approval", ToolCall("i", "t"), on_expiry=wrong)
