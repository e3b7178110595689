"""Events: what subscribers of a conversation are told, whenever they join and whatever dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import (
    AgentShutdown,
    Gap,
    RunFinished,
    StatusChanged,
    TextStreamed,
    ToolFinished,
    journal,
)
from sapwood.errors import ActorDown, StoreUnavailable
from sapwood.models import Delay, call
from sapwood.persistence import Journal
from tests.agents.kit import finished, names, of, opened, server_of, until, waiting_events


@tool
async def wait(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "waited"


def agent(*steps: Any) -> Agent:
    return Agent("a", model=ScriptedModel(*steps, then="ok"), tools=[wait])


@pytest.mark.row("AR-22.2", "S4-067")
async def test_who_joins_during_a_run_gets_its_live_events(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(agent([Delay(5.0), call("wait", seconds=5.0)], "done"), "c1")
    async with session.send("go") as run:
        await trio.sleep(1)
        with session.events() as late:
            seen, end = await until(late, RunFinished)
        assert end == await run.finish()
    assert names(seen)[0] == "StatusChanged"
    assert [event.status for event in of(seen, StatusChanged)] == ["running", "idle"]
    assert {"ToolCallSeen", "ToolStarted", "ToolFinished", "TextStreamed", "MessageCompleted"} <= set(names(seen))


@pytest.mark.row("S4-069", "AR-24.35")
async def test_a_new_subscription_begins_with_the_present_status(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(agent(), "c1")
    await session.say("go")
    with session.events() as events:
        [first] = await waiting_events(events)
    assert isinstance(first, StatusChanged)
    assert (first.status, first.agent_id) == ("idle", "c1")
    with session.events(after=first.seq) as following:
        assert await waiting_events(following) == []


@pytest.mark.row("AR-24.34")
async def test_who_subscribes_before_the_start_sees_the_first_event_once(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    with runtime.sessions.session("c1").events() as events:
        session = await runtime.sessions.ensure_running(agent(), "c1")
        await session.say("go")
        seen = await waiting_events(events)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert isinstance(seen[0], StatusChanged)


@pytest.mark.row("UP-72")
async def test_a_reader_that_lost_its_connection_gets_what_it_missed(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await runtime.sessions.ensure_running(agent([call("wait", seconds=5.0)], "done"), "c1")
    with session.events() as whole:
        async with session.send("go") as run:
            with session.events() as first:
                read, last = await until(first, ToolFinished)
            await run.finish()
        with session.events(after=last.seq) as again:
            rest = await waiting_events(again)
        everything = await waiting_events(whole)
    assert [*read[1:], *rest] == [event for event in everything if event.seq > read[0].seq]


@pytest.mark.row("S4-068", "UP-74")
async def test_a_subscriber_that_never_reads_does_not_hold_up_the_agent(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    long = "word " * 20_000
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(long, chunk=5)), "c1")
    with session.events() as slow:
        end = await finished(session, "go")
        assert end.text == long
        seen = await waiting_events(slow)
    assert len(seen) < 1_100
    assert isinstance(seen[-1], RunFinished)
    [gap] = of(seen, Gap)
    assert gap.to_seq - gap.from_seq > 10_000


# --- ends -------------------------------------------------------------------------------------------


async def end_by(runtime: Runtime, how: str) -> None:
    server = server_of(runtime)
    match how:
        case "shutdown":
            await runtime.sessions.stop("c1")
        case "killed":
            server.kill()
        case _:
            await runtime.journal.claim("c1", owner="somebody else")


def crash(*_: Any) -> None:
    raise ZeroDivisionError("a fault in the server")


@pytest.mark.row("AR-22.27", "S4-062", "S4-069")
@pytest.mark.parametrize("how", ["shutdown", "killed", "fenced"])
async def test_the_end_of_the_server_is_told_exactly_once_with_its_reason(
    runtime: Runtime, autojump_clock: MockClock, how: str
) -> None:
    session = await runtime.sessions.ensure_running(agent("hello", [Delay(5.0), "late"]), "c1")
    await session.say("one")
    with session.events() as events:
        async with session.send("two"):
            await trio.sleep(1)
            await end_by(runtime, how)
            await trio.sleep(100)
        seen = await waiting_events(events)
    [end] = of(seen, AgentShutdown)
    assert (end.reason, end.status) == (how, "running")
    after = names(seen)[names(seen).index("AgentShutdown") + 1 :]
    if how == "killed":
        assert after[0] == "StatusChanged"
        assert of(seen, RunFinished)[-1].text == "ok"
    else:
        assert after == []


@pytest.mark.row("S4-062", "AR-24.38", "AR-22.0")
async def test_after_a_crash_subscriptions_go_on_with_the_restarted_server(
    runtime: Runtime, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await runtime.sessions.ensure_running(agent("one", "two"), "c1")
    await session.say("1")
    with session.events() as events:
        monkeypatch.setattr("sapwood.agents._inbox.receipt_of", crash)
        with pytest.raises(ActorDown):
            await session.say("2", message_id="m2")
        monkeypatch.undo()
        session = await runtime.sessions.ensure_running(agent(), "c1")
        assert await session.say("2", message_id="m2") == "two"
        seen = await waiting_events(events)
    assert names(seen)[:3] == ["StatusChanged", "AgentShutdown", "StatusChanged"]
    assert of(seen, AgentShutdown)[0].reason == "crash"
    assert [event.seq for event in seen[1:]] == list(range(seen[1].seq, seen[1].seq + len(seen) - 1))
    assert (await session.status()).epoch == 2


async def test_a_server_that_fails_to_start_again_tells_of_one_end(
    runtime: Runtime, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await runtime.sessions.ensure_running(agent(), "c1")
    with session.events() as events:
        monkeypatch.setattr("sapwood.agents._server.Log", crash)
        server_of(runtime).kill()
        await trio.sleep(100)
        seen = [event async for event in events]
    assert names(seen) == ["StatusChanged", "AgentShutdown"]


async def test_a_run_stream_ends_with_the_agent_and_has_no_result_then(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await runtime.sessions.ensure_running(agent([Delay(50.0), "late"]), "c1")
    async with session.send("go") as run:
        await runtime.sessions.stop("c1")
        assert await run.finish() is None

    await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(then=[Delay(50.0), "late"])), "c1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.sessions.stop, "c1")
        with pytest.raises(ActorDown):
            await session.say("again")


@pytest.mark.row("AR-24.38")
async def test_a_run_stream_goes_on_over_a_crash(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(agent(["Half", Delay(50.0), "never"], "whole"), "c1")
    async with session.send("go") as run:
        await until(run, TextStreamed)
        server_of(runtime).kill()
        seen, end = await until(run, RunFinished)
    assert (end.text, end.run_id) == ("whole", run.receipt.run_id)
    assert names(seen)[:5] == ["TextDiscarded", "UsageCounted", "AgentShutdown", "StatusChanged", "TextStreamed"]


async def test_the_end_of_the_runtime_is_told_too(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        session: Session = await runtime.sessions.ensure_running(agent(), "c1")
        events = session.events()
    seen = [event async for event in events]
    assert [event.reason for event in of(seen, AgentShutdown)] == ["shutdown"]


# --- nothing is kept for nobody ---------------------------------------------------------------------


@pytest.mark.row("AR-24.37", "BR-79", "UP-65")
async def test_nothing_is_kept_of_conversations_that_nobody_runs_or_follows(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    for number in range(20):
        session = runtime.sessions.session(f"c{number}")
        with session.events():
            pass
        with pytest.raises(ActorDown):
            await session.say("hello")
    assert runtime.sessions._publishers == {}
    for number in range(3):
        session = await runtime.sessions.ensure_running(agent(), f"c{number}")
        await session.say("go")
        await runtime.sessions.stop(f"c{number}")
    assert runtime.sessions._publishers == {}


async def test_a_subscription_that_outlives_the_agent_keeps_its_place(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await runtime.sessions.ensure_running(agent(), "c1")
    with session.events() as events:
        await runtime.sessions.stop("c1")
        assert names([event async for event in events]) == ["StatusChanged", "AgentShutdown"]
        await runtime.sessions.ensure_running(agent(), "c1")
        assert names(await waiting_events(events)) == ["StatusChanged"]


@pytest.mark.row("UP-14", "UP-72")
async def test_what_was_journaled_and_never_announced_is_announced_by_the_next_server(
    runtime: Runtime, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Journal.append
    lost = [True]

    async def losing(self: Journal, *args: Any, **options: Any) -> int:
        seq = await append(self, *args, **options)
        if lost[0] and any(isinstance(event, journal.RunFinished) for event in options["events"]):
            lost[0] = False
            raise StoreUnavailable("store.db", "the acknowledgement was lost")
        return seq

    monkeypatch.setattr(Journal, "append", losing)
    session = await runtime.sessions.ensure_running(agent("hello"), "c1")
    with trio.fail_after(10):
        async with session.send("go") as run:
            seen, end = await until(run, RunFinished)
    assert (end.outcome, end.text) == ("completed", "hello")
    assert names(seen)[-3:] == ["AgentShutdown", "StatusChanged", "RunFinished"]
    assert (await session.status()).epoch == 2
