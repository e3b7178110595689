"""Factories: today's code with yesterday's data at every start, and a fresh state only where nothing is stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, NotRunning, OfflineModel, Running, Runtime, ScriptedModel
from sapwood.agents import Conversation, FactoryRouter
from sapwood.conversation import AddMessage, AssistantMessage, Operation, PatchMetadata
from sapwood.errors import (
    AgentMissing,
    CodecError,
    DuplicateName,
    InvalidOption,
    RecordCorrupt,
    RegistryUnavailable,
    StoreUnavailable,
    UnknownRoute,
)
from sapwood.persistence import Journal
from tests.agents.kit import events_in, opened, server_of, transcript


class Recording:
    """A factory that notes what it is asked."""

    def __init__(self, answer: str = "hello", name: str = "a") -> None:
        self.answer = answer
        self.name = name
        self.built: list[dict[str, object]] = []
        self.fresh: list[str] = []

    def build(self, conversation: Conversation) -> Agent:
        self.built.append(dict(conversation.routing))
        return Agent(self.name, model=ScriptedModel(then=self.answer))

    async def fresh_state(self, conversation: Conversation) -> Sequence[Operation]:
        await trio.lowlevel.checkpoint()
        self.fresh.append(conversation.agent_id)
        return [AddMessage(AssistantMessage("Welcome.")), PatchMetadata({"plan": "basic"})]


# --- what is stored, and what is built --------------------------------------------------------------


@pytest.mark.row("S4-036", "S4-037", "S4-038")
async def test_a_resumed_conversation_gets_todays_factory_with_yesterdays_data(
    path: Path, autojump_clock: MockClock
) -> None:
    yesterday, today = Recording("from yesterday"), Recording("from today")
    routing = {"factory": "support", "user": 17}
    async with opened(path) as runtime:
        router = FactoryRouter()
        router.add("support", yesterday)
        session = await runtime.sessions.ensure_running(router, "c1", routing=routing)
        assert await session.say("hi") == "from yesterday"

    async with opened(path) as runtime:
        router = FactoryRouter()
        router.add("other", Recording())
        router.add("support", today)
        runtime.sessions.use(factory=router)
        session = await runtime.sessions.resume("c1")
        assert await session.say("and now?") == "from today"
        assert session.state.routing == routing
        assert session.state.metadata == {"plan": "basic"}
        assert transcript(session.state.messages)[0] == "model: Welcome."

    assert (yesterday.built, yesterday.fresh) == ([routing], ["c1"])
    assert (today.built, today.fresh) == ([routing], [])


@pytest.mark.row("S4-037", "S4-038")
async def test_what_is_stored_wins_over_what_a_later_caller_says(path: Path, autojump_clock: MockClock) -> None:
    factory = Recording()
    for user in (1, 2):
        async with opened(path) as runtime:
            session = await runtime.sessions.ensure_running(factory, "c1", routing={"user": user})
            assert session.state.routing == {"user": 1}
    assert factory.built == [{"user": 1}, {"user": 1}]
    assert factory.fresh == ["c1"]


@pytest.mark.row("S4-037")
async def test_a_server_that_crashed_is_restarted_with_a_newly_built_agent(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    factory = Recording()
    session = await runtime.sessions.ensure_running(factory, "c1", routing={"user": 1})
    factory.answer = "after the deploy"
    server_of(runtime).kill()
    await trio.testing.wait_all_tasks_blocked()
    await runtime.sessions.ensure_running(factory, "c1")
    assert await session.say("hi") == "after the deploy"
    assert factory.built == [{"user": 1}, {"user": 1}], "one for each start, and none for whom it already ran"
    assert factory.fresh == ["c1"]


async def test_a_conversation_that_runs_already_asks_no_factory(runtime: Runtime, autojump_clock: MockClock) -> None:
    first, second = Recording(), Recording()
    await runtime.sessions.ensure_running(first, "c1")
    await runtime.sessions.ensure_running(second, "c1")
    runtime.sessions.use(factory=second)
    await runtime.sessions.resume("c1")
    assert second.built == []


@pytest.mark.row("S4-036", "S4-047")
async def test_callers_at_once_share_one_server_and_one_fresh_state(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    factory = Recording()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(runtime.sessions.ensure_running, factory, "c1")
    assert factory.fresh == ["c1"]
    assert (await events_in(runtime)).count("ConversationCreated") == 1
    assert (await runtime.sessions.session("c1").status()).epoch == 1


async def test_the_routing_data_outlives_a_reset(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(Recording(), "c1", routing={"user": 1})
    await session.reset()
    assert (session.state.messages, session.state.routing) == ((), {"user": 1})


async def test_a_conversation_begun_by_an_agent_can_be_handed_to_a_factory(
    path: Path, autojump_clock: MockClock
) -> None:
    factory = Recording()
    async with opened(path) as runtime:
        await runtime.sessions.ensure_running(Agent("a", model=OfflineModel()), "c1")
    for _ in range(2):
        async with opened(path) as runtime:
            session = await runtime.sessions.ensure_running(factory, "c1", routing={"user": 1})
            assert session.state.routing == {"user": 1}
            assert (await events_in(runtime)).count("ConversationRouted") == 1
    assert factory.fresh == [], "something was stored"


# --- nothing is started when it cannot be told what --------------------------------------------------


@pytest.mark.row("S4-037")
async def test_an_unknown_route_names_the_known_ones_and_starts_nothing(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        router = FactoryRouter()
        router.add("support", Recording())
        router.add("sales", Recording())
        with pytest.raises(UnknownRoute, match=r"'support', 'sales'.*'suport'") as caught:
            await runtime.sessions.ensure_running(router, "c1", routing={"factory": "suport"})
        assert caught.value.known == ("support", "sales")
        assert await runtime.sessions.lookup("c1") == NotRunning()
        assert await runtime.journal.agents() == []


async def test_rules_are_asked_in_order_and_only_about_conversations_without_a_name(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    router = FactoryRouter()
    router.add("vip", Recording("for vips"), when=lambda conversation: conversation.routing.get("vip") is True)
    router.add("rest", Recording("for the rest"), when=lambda conversation: "user" in conversation.routing)
    routings: list[dict[str, Any]] = [
        {"user": 1, "vip": True},
        {"user": 2},
        {"user": 3, "vip": True, "factory": "rest"},
    ]
    said = [
        await (await runtime.sessions.ensure_running(router, f"c{number}", routing=routing)).say("hi")
        for number, routing in enumerate(routings)
    ]
    assert said == ["for vips", "for the rest", "for the rest"]
    with pytest.raises(UnknownRoute, match="no name, and no rule fits"):
        await runtime.sessions.ensure_running(router, "c9")


async def test_what_a_factory_raises_reaches_the_caller_and_nothing_is_started(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Broken(Recording):
        def build(self, conversation: Conversation) -> Agent:
            raise LookupError("no such user")

    with pytest.raises(LookupError, match="no such user"):
        await runtime.sessions.ensure_running(Broken(), "c1")
    assert await runtime.sessions.lookup("c1") == NotRunning()
    assert await runtime.journal.agents() == []


async def test_only_a_conversation_of_which_something_is_stored_can_be_resumed(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    with pytest.raises(InvalidOption, match=r"sessions\.use\(factory"):
        await runtime.sessions.resume("c1")
    runtime.sessions.use(factory=Recording())
    with pytest.raises(AgentMissing, match="nothing is stored"):
        await runtime.sessions.resume("c1")
    assert await runtime.journal.agents() == []


@pytest.mark.row("S4-038")
async def test_a_store_that_cannot_answer_never_leads_to_a_fresh_state(
    path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = Recording()

    async def failing(self: Journal, agent_id: str) -> None:
        await trio.lowlevel.checkpoint()
        raise StoreUnavailable("store.db", "is locked")

    async with opened(path) as runtime:
        await runtime.sessions.ensure_running(factory, "c1")
    async with opened(path) as runtime:
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "load", failing)
            with pytest.raises(StoreUnavailable):
                await runtime.sessions.ensure_running(factory, "c1")
        assert await runtime.sessions.lookup("c1") == NotRunning()
    assert (len(factory.built), factory.fresh) == (1, ["c1"])


@pytest.mark.row("S4-038")
async def test_a_damaged_store_never_leads_to_a_fresh_state(path: Path, autojump_clock: MockClock) -> None:
    factory = Recording()
    async with opened(path) as runtime:
        await runtime.sessions.ensure_running(factory, "c1")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE journal SET record = x'00' WHERE seq = 2")
    connection.commit()
    connection.close()
    async with opened(path) as runtime:
        with pytest.raises(RecordCorrupt):
            await runtime.sessions.ensure_running(factory, "c1")
    assert (len(factory.built), factory.fresh) == (1, ["c1"])


@pytest.mark.row("S4-045")
async def test_a_registry_that_cannot_tell_builds_nothing(path: Path, autojump_clock: MockClock) -> None:
    factory = Recording()
    async with opened(path) as runtime:
        runtime.registry.drain()
        with pytest.raises(RegistryUnavailable):
            await runtime.sessions.ensure_running(factory, "c1")
        assert factory.built == []


@pytest.mark.parametrize(
    ("wrong", "error"), [({"key": object()}, CodecError), ({1: "x"}, CodecError)], ids=["value", "key"]
)
async def test_routing_data_that_could_not_be_stored_is_refused(
    runtime: Runtime, autojump_clock: MockClock, wrong: dict[Any, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match="routing"):
        await runtime.sessions.ensure_running(Recording(), "c1", routing=wrong)
    assert not isinstance(await runtime.sessions.lookup("c1"), Running)


async def test_routing_data_without_a_factory_is_refused(runtime: Runtime, autojump_clock: MockClock) -> None:
    with pytest.raises(InvalidOption, match="routing"):
        await runtime.sessions.ensure_running(Agent("a", model=OfflineModel()), "c1", routing={"user": 1})


async def test_what_is_neither_an_agent_nor_a_factory_is_refused(runtime: Runtime, autojump_clock: MockClock) -> None:
    for wrong in ("support", Recording, None):
        with pytest.raises(InvalidOption, match="expected a factory"):
            await runtime.sessions.ensure_running(wrong, "c1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # on purpose
    with pytest.raises(InvalidOption, match="expected a factory"):
        runtime.sessions.use(factory="support")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # on purpose
    assert await runtime.journal.agents() == []


def test_a_router_refuses_what_is_no_factory_and_a_name_twice() -> None:
    router = FactoryRouter()
    router.add("a", lambda _: Agent("a", model=OfflineModel()))
    with pytest.raises(DuplicateName):
        router.add("a", Recording())
    for wrong in (Recording, 17):
        with pytest.raises(InvalidOption, match="factory"):
            router.add("b", wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # on purpose
    with pytest.raises(InvalidOption, match="name"):
        router.add("", Recording())
    assert router.names == ("a",)
