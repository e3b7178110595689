"""Store files for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from sapwood import Agent, OfflineModel, open_runtime, tool
from sapwood.middleware import HumanInTheLoop, TodoList


@tool
def refund(order: str, cents: int) -> str:
    """Refund part of an order. cents: amount in US cents."""
    return f"refunded {cents} cents of {order}"


SUPPORT = Agent(
    name="support",
    model=OfflineModel(),
    tools=[refund],
    middleware=[TodoList(), HumanInTheLoop(refund=True)],
)


async def fill(store: Path) -> None:
    """Make a store of two conversations: one is idle with to-dos, the other waits for an approval."""
    async with open_runtime(store=store, signals=False) as runtime:
        idle = await runtime.sessions.ensure_running(SUPPORT, "idle-1")
        await idle.say("Add to-dos: buy milk, call Anna")
        waiting = await runtime.sessions.ensure_running(SUPPORT, "waiting-1")
        await waiting.say("Refund 75 dollars of order 17")


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    store = tmp_path_factory.mktemp("filled") / "support.db"
    trio.run(fill, store)
    return store.read_bytes()


@pytest.fixture
def store(filled: bytes, tmp_path: Path) -> Path:
    """A store file that nobody has open."""
    path = tmp_path / "support.db"
    path.write_bytes(filled)
    return path
