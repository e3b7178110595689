"""Messages: during a run, twice, after failures, over interrupts."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, tool
from sapwood.agents import Receipt
from sapwood.agents._requests import receipt_of
from sapwood.conversation import (
    AssistantMessage,
    Message,
    MessageCompleted,
    Run,
    RunFinished,
    State,
    StatusChanged,
    ToolCall,
    UserMessage,
)
from sapwood.errors import CodecError, InvalidOption, ModelRefused, RunFailed
from sapwood.middleware import HumanInTheLoop
from sapwood.models import Delay, ModelRequest, Step, call
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
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def slowly(request: ModelRequest) -> Step:
    last = request.messages[-1]
    assert isinstance(last, UserMessage)
    return [Delay(10.0), f"re: {last.text}"]


@pytest.fixture
def agent() -> Agent:
    return Agent("a", model=ScriptedModel(then=slowly))


@pytest.mark.row("AR-24.3", "UP-44")
async def test_a_message_during_a_run_waits_durably_and_is_handled_once_after_it_with_no_idle_moment(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    session = await runtime.sessions.ensure_running(agent, "c1")
    with session.events() as events:
        async with session.send("one") as first, session.send("two") as second:
            assert (first.receipt.queued, second.receipt.queued, second.receipt.run_id) == (False, True, "")
            assert "MessageQueued" in await events_in(runtime)
            assert (await session.status()).queued == 1
            one = await first.finish()
            two = await second.finish()
        seen = (await waiting_events(events))[1:]
    assert one is not None
    assert two is not None
    assert (one.text, two.text) == ("re: one", "re: two")
    assert one.run_id != two.run_id
    assert transcript(session.state.messages) == ["user: one", "model: re: one", "user: two", "model: re: two"]
    assert [event.status for event in of(seen, StatusChanged)] == ["running", "idle"]
    order = [event for event in seen if isinstance(event, RunFinished | MessageCompleted)]
    assert names(order) == ["MessageCompleted", "MessageCompleted", "RunFinished"] * 2
    assert {event.run_id for event in seen[seen.index(one) + 1 :]} == {two.run_id}


@pytest.mark.row("AR-24.4")
async def test_messages_that_wait_together_make_one_turn(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("one") as first, session.send("two") as second, session.send("three") as third:
        await first.finish()
        two = await second.finish()
        three = await third.finish()
    assert two == three
    assert transcript(session.state.messages)[2:] == ["user: two", "user: three", "model: re: three"]
    assert session.state.counters.runs == 2


@pytest.mark.row("AR-24.5")
async def test_a_failed_run_holds_messages_back_until_a_person_says_something(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Delay(10.0), ModelRefused("scripted", "no credit")], then="hello")
    session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
    async with session.send("one") as first, session.send("two") as second:
        end = await first.finish()
        assert end is not None
        assert end.outcome == "failed"
        await trio.sleep(100)
        assert (await session.status()).queued == 1

        assert await session.say("three") == "hello"
        assert await second.finish() is not None
    assert transcript(session.state.messages) == ["user: one", "user: two", "user: three", "model: hello"]


@pytest.mark.row("AR-24.5")
async def test_an_interrupt_holds_messages_back_until_it_is_decided(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Delay(10.0), call("pay", cents=5)], "paid it", "and hello")
    agent = Agent("a", model=model, tools=[pay], middleware=[HumanInTheLoop(pay=True)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    with session.events() as events:
        async with session.send("pay") as first, session.send("hello") as second:
            end = await first.finish()
            assert end is not None
            assert end.outcome == "interrupted"
            assert (await session.status()).queued == 1
            await session.approvals[0].approve()
            end = await second.finish()
        seen = (await waiting_events(events))[1:]
    assert end is not None
    assert end.text == "and hello"
    assert [event.status for event in of(seen, StatusChanged)] == ["running", "interrupted", "running", "idle"]


@pytest.mark.row("AR-22.6", "AR-24.39")
async def test_a_message_that_waited_when_the_process_ended_is_delivered_by_the_next_one(
    path: Path, autojump_clock: MockClock, agent: Agent
) -> None:
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("one"), session.send("two"):
            pass
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            while (await until(events, RunFinished))[1].text != "re: two":
                pass
        assert transcript(session.state.messages) == ["user: one", "model: re: one", "user: two", "model: re: two"]


@pytest.mark.row("AR-24.5")
async def test_what_a_failed_run_held_back_does_not_start_a_run_after_a_restart(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Delay(10.0), ModelRefused("scripted", "no credit")], then="hello")
    agent = Agent("a", model=model)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("one") as first, session.send("two"):
            await first.finish()
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await trio.sleep(100)
        status = await session.status()
        assert (status.status, status.error, status.queued) == ("error", "scripted: no credit", 1)
        assert await session.say("go on") == "hello"
        assert transcript(session.state.messages)[1:3] == ["user: two", "user: go on"]


# --- the same message twice -------------------------------------------------------------------------


@pytest.mark.row("UP-32", "BR-28")
async def test_a_message_sent_twice_counts_once_wherever_its_run_is(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("one", message_id="m1") as first, session.send("one", message_id="m1") as again:
        assert again.receipt == first.receipt
        async with session.send("two", message_id="m2") as queued, session.send("two", message_id="m2") as waiting:
            assert waiting.receipt == queued.receipt
            assert await again.finish() == await first.finish()
            assert await waiting.finish() == await queued.finish()
    with trio.fail_after(1):
        assert await session.say("one", message_id="m1") == "re: one"
        assert await session.say("two", message_id="m2") == "re: two"
    assert transcript(session.state.messages) == ["user: one", "model: re: one", "user: two", "model: re: two"]
    assert session.state.counters.model_calls == 2


async def test_a_message_sent_again_after_its_run_failed_says_so_and_runs_nothing(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(ModelRefused("scripted", "no credit"))
    session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
    for _ in range(2):
        with pytest.raises(RunFailed, match="failed"):
            await session.say("one", message_id="m1")
    assert len(model.requests) == 1


async def test_a_message_sent_again_while_another_run_is_open_gets_its_own_answer(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    session = await runtime.sessions.ensure_running(agent, "c1")
    await session.say("one", message_id="m1")
    async with session.send("two") as second:
        assert await session.say("one", message_id="m1") == "re: one"
        await second.finish()


def test_the_receipt_of_an_earlier_message_says_where_its_run_is() -> None:
    def receipt(*messages: Message, run: Run | None = None, error: str = "") -> Receipt | None:
        return receipt_of(State(messages=messages, run=run, error=error), "m1")

    said, answer = UserMessage("go", "m1"), AssistantMessage("done", id="a1")
    calling = AssistantMessage("", (ToolCall("c1", "pay"),), "a0")
    done = Receipt("m1", "", queued=False, outcome="completed", text="done")
    assert receipt(UserMessage("go", "m2")) is None
    assert receipt(said, run=Run("r1")) == Receipt("m1", "r1", queued=False)
    # The last answer may not be the end yet: a layer may still add to it, and the run says so when it ends.
    assert receipt(said, answer, run=Run("r1")) == Receipt("m1", "r1", queued=False)
    assert receipt(said, calling, run=Run("r1", "interrupted")) == Receipt(
        "m1", "r1", queued=False, outcome="interrupted"
    )
    assert receipt(said, calling, answer) == done
    later = UserMessage("more", "m2")
    assert receipt(said, answer, later, run=Run("r2")) == done
    assert receipt(said, error="no credit") == Receipt("m1", "", queued=False, outcome="failed")
    assert receipt(said) == Receipt("m1", "", queued=False, outcome="cancelled")


# --- over an interrupt ------------------------------------------------------------------------------


@pytest.mark.row("BR-25", "AR-24.22", "AR-22.13")
async def test_a_message_over_an_interrupt_withdraws_it_passes_through_idle_and_is_answered(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(call("pay", cents=5), "as you wish", "hello")
    agent = Agent("a", model=model, tools=[pay], middleware=[HumanInTheLoop(pay=True)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    await finished(session, "pay")
    [approval] = session.approvals
    with session.events() as events:
        assert await session.say("no, wait") == "as you wish"
        seen = (await waiting_events(events))[1:]
    assert [event.status for event in of(seen, StatusChanged)] == ["idle", "running", "idle"]
    assert names(seen)[:5] == ["ToolFinished", "InterruptClosed", "StatusChanged", "RunFinished", "StatusChanged"]
    [superseded, _] = of(seen, RunFinished)
    assert (superseded.outcome, superseded.reason) == ("cancelled", "superseded")
    assert transcript(session.state.messages) == [
        "user: pay",
        "model:  -> pay",
        "pay: Error: pay was not run (the conversation went on before everything was decided)",
        "user: no, wait",
        "model: as you wish",
    ]
    assert_sendable(session.state)
    late = await approval.approve()
    assert type(late).__name__ == "Stale"
    assert await session.say("hello?") == "hello"
    assert session.approvals == ()


# --- bad messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  \n\t "])
async def test_a_blank_message_is_refused_and_changes_nothing(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent, text: str
) -> None:
    session = await runtime.sessions.ensure_running(agent, "c1")
    before = await events_in(runtime)
    with pytest.raises(InvalidOption, match="not blank"):
        await session.say(text)
    assert await events_in(runtime) == before


async def test_a_message_that_cannot_be_stored_is_the_senders_trouble_alone(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    class Loud(str):
        __slots__ = ()

    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("one") as first:
        with pytest.raises(CodecError):
            await session.say(Loud("two"))
        end = await first.finish()
    assert end is not None
    assert end.text == "re: one"
    assert (await session.status()).epoch == 1
    assert await state_in(runtime) == session.state
