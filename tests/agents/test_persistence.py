"""Stores of conversations: what any must do, shown of two, and agents that live in one of the host's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from trio.testing import MockClock

from sapwood import Agent, NotRunning, Runtime, ScriptedModel
from sapwood.actors import RealEnvironment, SimulatedEnvironment
from sapwood.errors import AgentMissing, InvalidOption, RecordCorrupt
from sapwood.persistence import AgentPersistence, Journal, open_store
from sapwood.testing import AgentPersistenceSuite
from tests.agents.json_lines import JsonLines
from tests.agents.kit import opened, transcript


class TestSqliteFile(AgentPersistenceSuite):
    @asynccontextmanager
    async def _open(self, folder: Path) -> AsyncGenerator[AgentPersistence]:
        environment = RealEnvironment()
        async with open_store(folder / "agents.db", environment) as store:
            yield Journal(store, environment)

    def open(self, folder: Path) -> AbstractAsyncContextManager[AgentPersistence]:
        return self._open(folder)


class TestJsonLines(AgentPersistenceSuite):
    @asynccontextmanager
    async def _open(self, folder: Path) -> AsyncGenerator[AgentPersistence]:
        yield JsonLines(folder / "agents", RealEnvironment())

    def open(self, folder: Path) -> AbstractAsyncContextManager[AgentPersistence]:
        return self._open(folder)


def test_a_suite_without_a_store_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"open\(folder\)"):
        AgentPersistenceSuite().open(tmp_path)


@pytest.mark.row("S4-036")
async def test_agents_live_in_a_store_of_the_hosts_own(tmp_path: Path, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel(then="yes"))
    for number, text in enumerate(("one", "two")):
        async with opened(tmp_path / f"{number}.db", snapshots=3) as runtime:
            runtime.sessions.use(persistence=JsonLines(tmp_path / "own", SimulatedEnvironment()))
            session = await runtime.sessions.ensure_running(agent, "c1")
            assert await session.say(text) == "yes"
            assert await runtime.journal.agents() == [], "nothing reached the runtime's own store"
            expected = ["user: one", "model: yes", "user: two", "model: yes"][: 2 * number + 2]
            assert transcript(session.state.messages) == expected
            assert transcript((await runtime.sessions.transcript("c1")).messages) == expected
            await runtime.sessions.fork("c1", f"copy{number}")
            assert (await session.status()).epoch == number + 1


async def test_a_damaged_record_of_the_hosts_own_store_starts_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel(then="yes"))
    async with opened(tmp_path / "0.db") as runtime:
        store = JsonLines(tmp_path / "own", SimulatedEnvironment())
        runtime.sessions.use(persistence=store)
        await runtime.sessions.ensure_running(agent, "c1")
        await runtime.sessions.stop("c1")
        store._lives["c1"].events[1] = (1, 0.0, b"\x00")
        with pytest.raises(RecordCorrupt):
            await runtime.sessions.ensure_running(agent, "c1")
        assert await runtime.sessions.lookup("c1") == NotRunning()


async def test_the_store_is_not_changed_while_conversations_run(
    runtime: Runtime, autojump_clock: MockClock, tmp_path: Path
) -> None:
    agent = Agent("a", model=ScriptedModel(then="yes"))
    await runtime.sessions.ensure_running(agent, "c1")
    own = JsonLines(tmp_path / "own", SimulatedEnvironment())
    with pytest.raises(InvalidOption, match="'c1'"):
        runtime.sessions.use(persistence=own)
    await runtime.sessions.stop("c1")
    runtime.sessions.use(persistence=own)
    with pytest.raises(AgentMissing):
        await runtime.sessions.load("c1")
