"""Nodes that leave: their conversations come back elsewhere, and readers keep the places that they took."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, NotRunning, Runtime, ScriptedModel
from sapwood.agents import FactoryRouter, Subscription
from sapwood.conversation import AgentShutdown, RunFinished, StreamEvent
from sapwood.errors import ActorDown, StaleEpoch
from sapwood.models import Delay
from tests.agents.kit import of, opened, server_of, transcript


def router() -> FactoryRouter:
    made = FactoryRouter()
    made.add("support", lambda _: Agent("support", model=ScriptedModel([Delay(5), "yes"], then="yes")))
    return made


@pytest.mark.row("S4-065", "S4-037")
async def test_conversations_of_a_node_that_leaves_come_back_with_the_next_request_elsewhere(
    path: Path, autojump_clock: MockClock
) -> None:
    routing = {"factory": "support"}
    with trio.CancelScope() as departure:
        async with opened(path) as leaving:
            for number in range(3):
                session = await leaving.sessions.ensure_running(router(), f"c{number}", routing=routing)
                await session.post("hi")
            # One has answered, one is in the middle of its answer, one has only just begun.
            await trio.sleep(6)
            await leaving.sessions.session("c1").post("again")
            await leaving.sessions.ensure_running(router(), "c3", routing=routing)
            departure.cancel()
            await trio.sleep_forever()

    async with opened(path) as staying:
        staying.sessions.use(factory=router())
        for number in range(4):
            assert await staying.sessions.lookup(f"c{number}") == NotRunning(), "nothing of it is left in a registry"
        sessions = [await staying.sessions.resume(f"c{number}") for number in range(4)]
        await trio.sleep(20)
        assert [(await session.status()).epoch for session in sessions] == [2, 2, 2, 2]
        said = [transcript(session.state.messages) for session in sessions]
        assert said[0] == said[2] == ["user: hi", "model: yes"]
        assert said[1] == ["user: hi", "model: yes", "user: again", "model: yes"]
        assert said[3] == []
        assert staying.sessions.running() == ["c0", "c1", "c2", "c3"]


@pytest.mark.row("S4-065")
async def test_a_node_that_was_given_up_and_lives_on_stops_its_server_at_the_next_write(
    path: Path, autojump_clock: MockClock
) -> None:
    routing = {"factory": "support"}
    async with opened(path) as given_up, opened(path, seed=1) as taking_over:
        old = await given_up.sessions.ensure_running(router(), "c1", routing=routing)
        with old.events() as events:
            taking_over.sessions.use(factory=router())
            new = await taking_over.sessions.resume("c1")
            assert await new.say("to the new one") == "yes"
            with pytest.raises(StaleEpoch):
                await old.post("to the old one")
            seen = [event async for event in events]
        assert of(seen, AgentShutdown)[-1].reason == "fenced"
        assert await given_up.sessions.lookup("c1") == NotRunning()
        with pytest.raises(ActorDown):
            await old.post("once more")
        assert transcript((await given_up.sessions.load("c1")).messages) == ["user: to the new one", "model: yes"]


@pytest.mark.row("AR-22.25", "AR-24.38")
async def test_a_subscription_that_was_handed_on_stays_with_its_reader_over_a_crash(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    seen: list[StreamEvent] = []

    async def read(events: Subscription) -> None:
        async for event in events:
            seen.append(event)
            if len(of(seen, RunFinished)) == 2:
                return

    session = await runtime.sessions.ensure_running(router(), "c1", routing={"factory": "support"})
    with session.events() as events:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, events)
            await session.say("before")
            server_of(runtime).kill()
            await trio.testing.wait_all_tasks_blocked()
            await runtime.sessions.ensure_running(router(), "c1")
            await session.say("after")
    assert [event.reason for event in of(seen, AgentShutdown)] == ["killed"]
    numbers = [event.seq for event in seen[1:]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "no event twice, and none missing"
