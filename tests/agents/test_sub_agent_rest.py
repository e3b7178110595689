"""Sub-agents and a parent that rests: nobody is lost, and both go on when somebody comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood import tool
from sapwood.agents import Stopped
from sapwood.conversation import RunFinished
from sapwood.middleware import HumanInTheLoop, SubAgents
from sapwood.models import call
from tests.agents.families import ask, parent, worker
from tests.agents.kit import opened, until

paid: list[int] = []


@tool
def pay(cents: int) -> str:
    """Pay."""
    paid.append(cents)
    return f"paid {cents}"


@pytest.mark.row("UP-56")
async def test_a_parent_does_not_rest_over_its_sub_agent_and_finds_it_again_after_a_stop(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    paid.clear()
    child = worker(call("pay", cents=5), "paid it", tools=[pay], middleware=[HumanInTheLoop(pay=True)])
    boss = parent(ask(), "all done", layer=SubAgents(worker=child), stop_after=60)
    async with opened(tmp_path / "store.db") as runtime:
        session = await runtime.sessions.ensure_running(boss, "c1")
        async with session.send("go"):
            pass
        await trio.sleep(1)
        [approval] = session.approvals
        # It does not rest while somebody below it has not ended; being stopped is another matter.
        await trio.sleep(1_000)
        assert runtime.sessions.running() == ["c1"]
        assert isinstance(await runtime.sessions.stop("c1"), Stopped)

        session = await runtime.sessions.ensure_running(boss, "c1")
        [again] = session.approvals
        assert again.interrupt.id == approval.interrupt.id
        with session.events() as events:
            await again.approve(by="ann")
            _, end = await until(events, RunFinished, outcome="completed")
    assert end.text == "all done"
    assert paid == [5]
