"""Presence: who watches a conversation, and a server that stops when nobody does and nothing is to be done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, NotRunning, Running, Runtime, ScriptedModel, tool
from sapwood.actors import Exited, Shutdown
from sapwood.conversation import UserMessage
from sapwood.errors import ActorDown, InvalidOption
from sapwood.middleware import HumanInTheLoop
from sapwood.models import Delay, call
from sapwood.testing import Invariants
from tests.agents.kit import finished, opened, transcript

AFTER = 10.0


@pytest.fixture
async def resting(path: Path, autojump_clock: MockClock) -> AsyncIterator[Runtime]:
    assert trio.lowlevel.current_clock() is autojump_clock
    async with opened(path) as runtime:
        runtime.sessions.use(unwatched_after=AFTER)
        yield runtime


async def runs(runtime: Runtime) -> bool:
    return isinstance(await runtime.sessions.lookup("c1"), Running)


@tool
def refund(cents: int) -> str:
    """Refund. cents: how much."""
    return f"refunded {cents}"


async def test_a_server_that_nobody_watches_stops_after_its_time_and_not_before(
    resting: Runtime, autojump_clock: MockClock
) -> None:
    session = await resting.sessions.ensure_running(Agent("a", model=ScriptedModel(then="yes")), "c1")
    await session.say("hi")
    await trio.sleep(AFTER - 0.5)
    assert await runs(resting)
    await trio.sleep(1)
    assert await resting.sessions.lookup("c1") == NotRunning()
    session = await resting.sessions.ensure_running(Agent("a", model=ScriptedModel(then="yes")), "c1")
    assert transcript(session.state.messages) == ["user: hi", "model: yes"]


async def test_viewers_keep_it_and_the_last_one_to_leave_starts_the_clock(
    resting: Runtime, autojump_clock: MockClock
) -> None:
    session = await resting.sessions.ensure_running(Agent("a", model=ScriptedModel()), "c1")
    with session.watch("ann"):
        with session.watch("ann"), session.watch("bob"):
            assert list(session.viewers) == ["ann", "bob"]
            await trio.sleep(5 * AFTER)
        assert list(session.viewers) == ["ann"]
        await trio.sleep(5 * AFTER + 7)
    assert not session.viewers
    await trio.sleep(AFTER - 0.5)
    assert await runs(resting)
    await trio.sleep(1)
    assert not await runs(resting)


async def test_who_follows_events_is_a_viewer_too(resting: Runtime, autojump_clock: MockClock) -> None:
    ends: list[Any] = []
    resting.telemetry.subscribe(ends.append, Exited)
    session = await resting.sessions.ensure_running(Agent("a", model=ScriptedModel()), "c1")
    with session.events():
        await trio.sleep(5 * AFTER)
        assert await runs(resting)
    await trio.sleep(AFTER / 2)
    with session.events():
        await trio.sleep(2 * AFTER)
        assert await runs(resting), "somebody came back in time"
    await trio.sleep(2 * AFTER)
    assert not await runs(resting)
    assert Shutdown("no_viewers") in [end.reason for end in ends if end.key == ("agent", "c1")]


@pytest.mark.row("AR-22.4", "AR-22.24")
async def test_a_run_that_outlasts_the_last_viewer_ends_first_and_then_the_server(
    resting: Runtime, autojump_clock: MockClock
) -> None:
    session = await resting.sessions.ensure_running(
        Agent("a", model=ScriptedModel(["half", Delay(7 * AFTER), " done"])), "c1"
    )
    with session.watch("ann"):
        await session.post("hi")
    await trio.sleep(6 * AFTER)
    assert await runs(resting), "the run is at work"
    await trio.sleep(AFTER + AFTER / 2)
    assert await runs(resting), "its time begins with the end of the run"
    await trio.sleep(AFTER)
    assert not await runs(resting)
    assert transcript((await resting.sessions.load("c1")).messages) == ["user: hi", "model: half done"]


async def test_a_run_that_waits_for_a_person_or_is_paused_keeps_its_server(
    resting: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(call("refund", cents=7500), "done")
    agent = Agent("a", model=model, tools=[refund], middleware=[HumanInTheLoop(refund=True)])
    session = await resting.sessions.ensure_running(agent, "c1")
    assert (await finished(session, "refund it")).outcome == "interrupted"
    await trio.sleep(10 * AFTER)
    assert await runs(resting)
    await session.approvals[0].approve()
    await trio.sleep(3 * AFTER)
    assert not await runs(resting)
    assert (await resting.sessions.load("c1")).messages[-1] == (await resting.sessions.transcript("c1")).messages[-1]


async def test_without_the_option_a_server_stays(runtime: Runtime, autojump_clock: MockClock) -> None:
    await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel()), "c1")
    await trio.sleep(10_000)
    assert await runs(runtime)
    for wrong in (0, -1.0, float("inf")):
        with pytest.raises(InvalidOption, match="unwatched_after"):
            runtime.sessions.use(unwatched_after=wrong)


@pytest.mark.parametrize("offset", [-0.001, 0.0, 0.001])
@pytest.mark.parametrize("seed", range(5))
async def test_a_message_that_arrives_at_that_moment_is_answered_or_its_sender_told(
    path: Path, autojump_clock: MockClock, offset: float, seed: int
) -> None:
    agent = Agent("a", model=ScriptedModel(then="yes"))
    outcomes: list[str] = []
    async with opened(path, seed=seed) as runtime:
        runtime.sessions.use(unwatched_after=AFTER)
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say("first")

        async def send(number: int) -> None:
            await trio.sleep(AFTER + offset)
            for _ in range(3):
                try:
                    await session.post(f"m{number}", message_id=f"m{number}")
                except ActorDown:
                    outcomes.append("told")
                    await runtime.sessions.ensure_running(agent, "c1")
                else:
                    outcomes.append("taken")
                    return

        invariants = Invariants(runtime)
        with invariants.watching():
            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(send, number)
            await trio.sleep(5)
        invariants.assert_hold()
        assert outcomes.count("taken") == 5
        if offset < 0:
            assert "told" not in outcomes
        said = [each.id for each in (await runtime.sessions.load("c1")).messages if isinstance(each, UserMessage)]
        assert sorted(said[1:]) == [f"m{number}" for number in range(5)], "each one once"
        await trio.sleep(3 * AFTER)
        assert not await runs(runtime)


async def test_a_viewer_who_joins_a_sleeping_conversation_stays_counted_when_it_wakes(
    resting: Runtime, autojump_clock: MockClock
) -> None:
    session = resting.sessions.session("c1")
    with session.watch("ann"):
        await resting.sessions.ensure_running(Agent("a", model=ScriptedModel()), "c1")
        await trio.sleep(3 * AFTER)
        assert await runs(resting)
        await resting.sessions.stop("c1")
        await resting.sessions.ensure_running(Agent("a", model=ScriptedModel()), "c1")
        await trio.sleep(3 * AFTER)
        assert await runs(resting)
    await trio.sleep(AFTER + 1)
    assert not await runs(resting)
