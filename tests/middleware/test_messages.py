"""Messages to middleware: in the order in which they were sent, one at a time, beside the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, ScriptedModel
from sapwood.conversation import PatchMetadata
from sapwood.middleware import Change, Middleware, MiddlewareContext
from sapwood.models import Delay
from tests.agents.kit import finished, opened, state_in


class Slow(Middleware):
    """Takes longer for earlier messages, and notes when it works on several at once."""

    def __init__(self) -> None:
        self.at_work = 0
        self.most_at_work = 0

    async def handle_message(self, message: Any, context: MiddlewareContext) -> list[Change]:
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        heard = context.state.metadata.get("heard", [])
        await trio.sleep(5.0 - message)
        self.at_work -= 1
        return [PatchMetadata({"heard": [*heard, message]})]


@pytest.mark.row("S4-011")
async def test_messages_are_handled_one_by_one_in_the_order_in_which_they_were_sent(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    layer = Slow()
    agent = Agent("a", model=ScriptedModel([Delay(30.0), "Hello."]), middleware=[layer])
    async with opened(tmp_path / "s.db") as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(finished, session, "go")
            for number in range(5):
                await trio.sleep(0.01)
                nursery.start_soon(session.notify, "Slow", number)
        assert session.state.metadata == {"heard": [0, 1, 2, 3, 4]}
        assert await state_in(runtime) == session.state
    assert layer.most_at_work == 1
