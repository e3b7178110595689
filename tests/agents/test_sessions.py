"""Sessions: found, started once, stopped whole; and what a broken conversation costs the others."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Actor, Agent, NotRunning, Running, Runtime, ScriptedModel, Unavailable
from sapwood.agents import Stopped
from sapwood.agents._server import AgentServer
from sapwood.conversation import PatchMetadata
from sapwood.errors import (
    ActorDown,
    ChildFailed,
    FutureVersion,
    InvalidOption,
    RecordCorrupt,
    RegistryUnavailable,
    StoreUnavailable,
)
from sapwood.middleware import Middleware, MiddlewareContext
from sapwood.models import Delay
from sapwood.persistence import Claim, Journal
from sapwood.registry import Registry
from sapwood.supervision import TreeNode, child, start_child, which_children
from sapwood.testing import Invariants
from tests.agents.kit import Changing, opened, server_of, transcript


@pytest.fixture
def agent() -> Agent:
    return Agent("a", model=ScriptedModel(then="hello"))


def labels(node: TreeNode) -> list[str]:
    return [each.label for each in node.walk()]


def tree_of(runtime: Runtime, agent_id: str) -> TreeNode | None:
    return next((each for each in runtime.tree().walk() if each.ref.key == ("agent_tree", agent_id)), None)


# --- starting ---------------------------------------------------------------------------------------


@pytest.mark.row("S4-036", "S4-047", "S4-072", "AR-24.19", "UP-47", "UP-50")
async def test_fifty_callers_at_once_start_one_server(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    answers: list[str] = []

    async def talk(number: int) -> None:
        session = await runtime.sessions.ensure_running(agent, "c1")
        answers.append(await session.say(f"hello {number}"))

    invariants = Invariants(runtime)
    with invariants.watching():
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(talk, number)
    invariants.assert_hold()
    status = await runtime.sessions.session("c1").status()
    assert (status.epoch, len(answers)) == (1, 50)
    said = Counter(line for line in transcript(runtime.sessions.session("c1").state.messages) if line[0] == "u")
    assert said == Counter(f"user: hello {number}" for number in range(50))


async def test_who_asks_while_a_start_is_under_way_gets_its_failure_too(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class SlowToFail(Middleware):
        async def on_server_start(self, context: MiddlewareContext) -> None:
            await trio.sleep(5)
            raise ConnectionError("no queue")

    broken = Agent("a", model=ScriptedModel(), middleware=[SlowToFail()])
    failures: list[str] = []

    async def start(delay: float) -> None:
        await trio.sleep(delay)
        with pytest.raises(ChildFailed) as caught:
            await runtime.sessions.ensure_running(broken, "c1")
        failures.append(str(caught.value))

    async with trio.open_nursery() as nursery:
        for delay in range(4):
            nursery.start_soon(start, delay)
    assert len(failures) == 4
    assert all("no queue" in failure for failure in failures)
    assert trio.current_time() < 6


@pytest.mark.row("S4-071", "S4-072")
async def test_a_conversation_that_is_slow_to_start_holds_up_no_other(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    class Slow(Middleware):
        async def on_server_start(self, context: MiddlewareContext) -> None:
            await trio.sleep(1000)

    slow = Agent("a", model=ScriptedModel(then="late"), middleware=[Slow()])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.sessions.ensure_running, slow, "slow")
        await trio.sleep(1)
        with trio.fail_after(1):
            other = await runtime.sessions.ensure_running(agent, "other")
            assert await other.say("?") == "hello"
            server_of(runtime, "other").kill()
            await trio.sleep(0.1)
            assert (await other.status()).epoch == 2
            assert await runtime.sessions.stop("other") == Stopped()
            assert isinstance(await runtime.sessions.lookup("slow"), Running)
    assert trio.current_time() >= 1000
    assert await runtime.sessions.session("slow").say("?") == "late"


async def test_a_conversation_can_be_stopped_while_it_starts(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    class Stuck(Middleware):
        async def on_server_start(self, context: MiddlewareContext) -> None:
            await trio.sleep_forever()

    async def start() -> None:
        with trio.move_on_after(60):
            await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(), middleware=[Stuck()]), "c1")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start)
        await trio.sleep(1)
        assert await runtime.sessions.stop("c1") == Stopped()
        nursery.cancel_scope.cancel()
    assert tree_of(runtime, "c1") is None
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert await session.say("?") == "hello"


@pytest.mark.row("AR-22.15", "UP-60")
async def test_a_server_that_cannot_load_after_a_crash_tries_again_and_its_tree_gives_up_in_the_end(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await runtime.sessions.ensure_running(agent, "c1")
    await session.say("1")
    claim = Journal.claim
    failures = [2]

    async def failing(self: Journal, agent_id: str, *, owner: str) -> Claim:
        if failures[0]:
            failures[0] -= 1
            raise StoreUnavailable("store.db", "is locked")
        return await claim(self, agent_id, owner=owner)

    monkeypatch.setattr(Journal, "claim", failing)
    server_of(runtime).kill()
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert await session.say("2") == "hello"
    assert failures == [0]

    failures[0] = 100
    server_of(runtime).kill()
    with pytest.raises(StoreUnavailable, match="is locked"):
        await runtime.sessions.ensure_running(agent, "c1")
    await trio.sleep(1)
    assert tree_of(runtime, "c1") is None
    assert 95 <= failures[0] < 100


@pytest.mark.row("S4-044", "S4-043")
async def test_a_lookup_starts_nothing_and_has_three_answers(
    path: Path, autojump_clock: MockClock, agent: Agent
) -> None:
    async with opened(path) as runtime:
        sessions = runtime.sessions
        assert await sessions.lookup("c1") == NotRunning()
        assert sessions.running() == []
        await sessions.ensure_running(agent, "c1")
        found = await sessions.lookup("c1")
        assert isinstance(found, Running)
        assert await found.ref.say("hi") == "hello"
        assert sessions.running() == ["c1"]
        runtime.registry.drain()
        assert await sessions.lookup("c1") == Unavailable("draining")


@pytest.mark.row("S4-045", "S4-046", "S4-047", "AR-24.40", "AR-24.41", "AR-24.44", "UP-50")
async def test_nothing_is_started_or_denied_while_the_registry_cannot_tell(
    path: Path, autojump_clock: MockClock, agent: Agent
) -> None:
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        runtime.registry.drain()
        for wanted in ("c1", "c2"):
            with pytest.raises(RegistryUnavailable, match="draining") as caught:
                await runtime.sessions.ensure_running(agent, wanted)
            assert caught.value.retry_after > 0
        with pytest.raises(RegistryUnavailable):
            await session.status()
        with pytest.raises(RegistryUnavailable):
            runtime.sessions.running()
        assert await runtime.sessions.stop("c1") == Unavailable("draining")
        assert tree_of(runtime, "c2") is None


@pytest.mark.parametrize("agent_id", ["", None, 7])
async def test_an_id_that_is_no_text_is_refused(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent, agent_id: Any
) -> None:
    with pytest.raises(InvalidOption, match="conversation id"):
        await runtime.sessions.ensure_running(agent, agent_id)


async def test_a_session_of_a_conversation_that_does_not_run_says_so(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    session = runtime.sessions.session("c1")
    assert repr(session) == "<Session 'c1'>"
    with pytest.raises(ActorDown):
        await session.status()
    with pytest.raises(ActorDown):
        _ = session.state
    await runtime.sessions.ensure_running(agent, "c1")
    assert (await session.status()).status == "idle"


async def test_a_running_server_keeps_its_configuration_and_the_next_one_gets_the_new_one(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    other = Agent("b", model=ScriptedModel(then="hi"))
    await runtime.sessions.ensure_running(agent, "c1")
    session = await runtime.sessions.ensure_running(other, "c1")
    assert await session.say("?") == "hello"
    await runtime.sessions.stop("c1")
    session = await runtime.sessions.ensure_running(other, "c1")
    assert await session.say("?") == "hi"


# --- stored state -----------------------------------------------------------------------------------


@pytest.mark.row("S4-033", "S4-038", "S4-035", "S4-019")
async def test_a_stored_conversation_is_restored_and_only_a_new_one_begins_empty(
    path: Path, autojump_clock: MockClock
) -> None:
    first = Agent("a", model=ScriptedModel("one"), middleware=[Changing(start=[PatchMetadata({"title": "x"})])])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(first, "c1")
        await session.say("1")
        before = session.state
    changed = Agent("renamed", model=ScriptedModel("two"), prompt="new prompt")
    async with opened(path, seed=9) as runtime:
        session = await runtime.sessions.ensure_running(changed, "c1")
        assert session.state == before
        assert before.metadata == {"title": "x"}
        assert await session.say("2") == "two"
        other = await runtime.sessions.ensure_running(changed, "c2")
        assert other.state.messages == ()


@pytest.mark.row("S4-034")
async def test_no_secret_of_the_configuration_reaches_the_store(path: Path, autojump_clock: MockClock) -> None:
    private = "s3cr3t-k3y"
    agent = Agent("a", model=ScriptedModel("x"), prompt=f"use {private}", host={"key": private})
    async with opened(path) as runtime:
        await (await runtime.sessions.ensure_running(agent, "c1")).say("hello")
    assert private.encode() not in b"".join(file.read_bytes() for file in path.parent.iterdir())


def damage(path: Path, change: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(change)
    connection.close()


@pytest.mark.row("AR-22.15", "UP-55", "UP-70")
async def test_a_conversation_that_cannot_be_read_is_refused_by_its_name_and_never_started_afresh(
    path: Path, autojump_clock: MockClock, agent: Agent
) -> None:
    async with opened(path) as runtime:
        await (await runtime.sessions.ensure_running(agent, "c1")).say("hello")
    damage(path, "UPDATE journal SET record = x'00ff' WHERE seq = 3")
    async with opened(path) as runtime:
        for _ in range(2):
            with pytest.raises(RecordCorrupt) as caught:
                await runtime.sessions.ensure_running(agent, "c1")
            assert (caught.value.agent_id, caught.value.seq) == ("c1", 3)
        assert await runtime.sessions.lookup("c1") == NotRunning()
        other = await runtime.sessions.ensure_running(agent, "c2")
        assert await other.say("hello") == "hello"


@pytest.mark.row("AR-22.15", "AR-22.16")
async def test_a_conversation_of_a_newer_version_is_refused(
    path: Path, autojump_clock: MockClock, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as runtime:
        await (await runtime.sessions.ensure_running(agent, "c1")).say("hello")

        async def newer(*_: Any, **__: Any) -> Any:
            await trio.lowlevel.checkpoint()
            raise FutureVersion("conversation.state", 9, 1)

        await runtime.sessions.stop("c1")
        monkeypatch.setattr(type(runtime.journal), "claim", newer)
        with pytest.raises(FutureVersion):
            await runtime.sessions.ensure_running(agent, "c1")


@pytest.mark.row("UP-60", "AR-22.15")
async def test_a_store_that_cannot_answer_is_not_taken_for_an_empty_one(
    path: Path, autojump_clock: MockClock, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as runtime:
        await (await runtime.sessions.ensure_running(agent, "c1")).say("hello")
        await runtime.sessions.stop("c1")

        async def locked(*_: Any, **__: Any) -> Any:
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("store.db", "is locked")

        monkeypatch.setattr(type(runtime.journal), "claim", locked)
        with pytest.raises(StoreUnavailable, match="is locked"):
            await runtime.sessions.ensure_running(agent, "c1")
        monkeypatch.undo()
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert transcript(session.state.messages) == ["user: hello", "model: hello"]


# --- stopping ---------------------------------------------------------------------------------------


@pytest.mark.row("AR-22.3", "S4-004", "S4-051")
async def test_a_stop_takes_the_whole_tree_and_the_state_stays(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    session = await runtime.sessions.ensure_running(agent, "c1")
    await session.say("1")
    tree = tree_of(runtime, "c1")
    assert tree is not None
    assert [each.ref.key for each in tree.walk()] == [("agent_tree", "c1"), ("agent", "c1"), ("sub_agents", "c1")]

    assert await runtime.sessions.stop("c1") == Stopped()
    assert tree_of(runtime, "c1") is None
    assert not any(each.ref.alive for each in tree.walk())
    assert await runtime.sessions.stop("c1") == NotRunning()
    assert await runtime.sessions.stop("unknown") == NotRunning()
    assert runtime.sessions.running() == []

    session = await runtime.sessions.ensure_running(agent, "c1")
    assert len(session.state.messages) == 2


@pytest.mark.row("AR-22.3")
async def test_a_server_that_ends_by_itself_leaves_no_tree_behind(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    await runtime.sessions.ensure_running(agent, "c1")
    await server_of(runtime).stop()
    await trio.sleep(1)
    assert tree_of(runtime, "c1") is None


@pytest.mark.row("S4-051", "AR-24.33")
@pytest.mark.parametrize("how", ["crash", "stop"])
async def test_what_an_agent_has_started_below_it_dies_with_its_server(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent, how: str
) -> None:
    session = await runtime.sessions.ensure_running(agent, "c1")
    below = runtime.registry.whereis(("sub_agents", "c1"))
    assert below is not None
    worker = await start_child(below, child(Actor))
    assert worker is not None
    if how == "crash":
        server_of(runtime).kill()
        await trio.sleep(1)
        assert (await session.status()).epoch == 2
        assert await which_children(runtime.registry.running()[("sub_agents", "c1")]) == []
    else:
        await runtime.sessions.stop("c1")
        assert runtime.registry.whereis(("sub_agents", "c1")) is None
    assert not worker.alive


@pytest.mark.row("AR-22.22")
async def test_what_runs_is_counted_without_what_belongs_to_it(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    for number in range(3):
        await runtime.sessions.ensure_running(agent, f"c{number}")
    assert runtime.sessions.running() == ["c0", "c1", "c2"]


@pytest.mark.row("BR-71", "UP-36")
async def test_a_stop_during_a_run_leaves_it_to_the_next_server_at_the_step_it_had_reached(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Delay(50.0), "late"], then="done")
    agent = Agent("a", model=model)
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go"):
        await trio.sleep(1)
    assert await runtime.sessions.stop("c1") == Stopped()
    row = next(row for row in await runtime.journal.agents() if row.agent_id == "c1")
    assert row.released
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert (await session.status()).status == "running"
    assert await session.say("and?") == "done"
    assert transcript(session.state.messages)[:2] == ["user: go", "model: done"]


# --- poison -----------------------------------------------------------------------------------------


@pytest.mark.row("S4-071", "UP-52", "AR-24.10")
async def test_a_conversation_whose_server_crashes_at_each_start_gives_up_alone(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [await runtime.sessions.ensure_running(agent, f"good{number}") for number in range(5)]
    homes = {label: node.ref for node in runtime.tree().walk() if (label := node.label) in ("agents", "core")}
    begin = AgentServer.on_continue

    async def on_continue(self: AgentServer, token: Any) -> None:
        if self.agent_id == "poison":
            raise ZeroDivisionError("crashes at each start")
        await begin(self, token)

    monkeypatch.setattr(AgentServer, "on_continue", on_continue)
    for _ in range(20):
        with suppress(ActorDown):
            await runtime.sessions.ensure_running(agent, "poison")
        await trio.sleep(0.1)
    assert tree_of(runtime, "poison") is None
    assert {node.label: node.ref for node in runtime.tree().walk() if node.label in homes} == homes
    for other in others:
        assert (await other.status()).epoch == 1
        assert await other.say("?") == "hello"


@pytest.mark.row("S4-071")
async def test_trees_that_die_in_numbers_cost_the_supervisor_of_all_agents_nothing(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent
) -> None:
    other = await runtime.sessions.ensure_running(agent, "other")
    [home] = [node.ref for node in runtime.tree().walk() if node.label == "agents"]
    for number in range(30):
        await runtime.sessions.ensure_running(agent, f"c{number}")
        tree = tree_of(runtime, f"c{number}")
        assert tree is not None
        tree.ref.kill()
    await trio.sleep(1)
    assert home.alive
    assert runtime.sessions.running() == ["other"]
    assert (await other.status()).epoch == 1


async def test_a_conversation_that_never_stays_up_is_refused_after_a_few_attempts(
    runtime: Runtime, autojump_clock: MockClock, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[Any] = []

    async def ends_at_once(self: Registry, key: Any, *_: Any, **__: Any) -> Any:
        await trio.lowlevel.checkpoint()
        starts.append(key)
        return Running(dead)

    dead = await runtime.spawn(Actor)
    await dead.stop()
    monkeypatch.setattr(Registry, "get_or_start", ends_at_once)
    with trio.fail_after(5), pytest.raises(ActorDown, match="agent 'c1'"):
        await runtime.sessions.ensure_running(agent, "c1")
    assert 1 < len(starts) < 10
