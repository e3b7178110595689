"""Secrets: what the host is trusted with is in no log line, no store and no event."""

from __future__ import annotations

import contextlib
import logging
from contextvars import ContextVar
from pathlib import Path

import pytest
import trio

from sapwood import Actor, Agent, handle, message, open_runtime, tool
from sapwood.conversation import ToolCall
from sapwood.errors import RunFailed
from sapwood.middleware import ContextVarProvider, DebugLog, ProcessContext
from sapwood.models import AnthropicModel
from sapwood.testing.providers import FakeAnswer, FakeFailure, open_fake_provider
from sapwood.tools import ToolContext
from tests.agents.kit import waiting_events

PLANTED = ("sk-ant-planted-key", "planted-host-token", "planted-context-token", "planted-state", "planted-message")

token: ContextVar[str] = ContextVar("token")


@message("secrets.note")
class Note:
    text: str


@message("secrets.crash")
class Crash:
    pass


class Vault(Actor):
    def __init__(self, secret: str) -> None:
        self.secret = secret

    @handle
    def crash(self, message: Crash) -> None:
        raise ValueError("the vault is shut")


@tool
def use(context: ToolContext) -> str:
    """Use the secrets."""
    assert context.host["token"] == PLANTED[1]
    assert token.get() == PLANTED[2]
    return "used"


async def work(path: Path) -> list[str]:
    """Do everything that has to do with secrets, and return the events of it as text."""
    answers = [FakeAnswer(calls=(ToolCall("one", "use", {}),)), FakeAnswer(text="done")]
    async with open_fake_provider(*answers, FakeFailure(401)) as provider:
        model = AnthropicModel("claude-x", api_key=PLANTED[0], base_url=provider.anthropic_url)
        token.set(PLANTED[2])
        layers = [ProcessContext(ContextVarProvider(token, stored=False)), DebugLog(content=True)]
        agent = Agent("a", model=model, tools=[use], middleware=layers, host={"token": PLANTED[1]})
        async with open_runtime(store=path) as runtime:
            session = await runtime.sessions.ensure_running(agent, "c1")
            with session.events() as events:
                assert await session.say("go") == "done"
                with contextlib.suppress(RunFailed):
                    await session.say("again")
                seen = [repr(event) for event in await waiting_events(events)]
            vault = await runtime.spawn(Vault, PLANTED[3], key=("vault", 1))
            vault.tell(Crash())
            vault.tell(Note(PLANTED[4]))
            await vault.wait_stopped()
            assert any(PLANTED[0] in value for value in provider.requests[0].headers.values())
        await model.aclose()
    return seen


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING], ids=["debug", "warning"])
async def test_no_planted_secret_is_found_in_the_log_the_store_or_an_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    caplog.set_level(level)
    path = tmp_path / "secrets.db"
    with trio.fail_after(30):
        seen = await work(path)
    assert "actor crashed" in caplog.text
    haystacks = {"log": caplog.text.encode(), "events": "\n".join(seen).encode()}
    haystacks |= {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert b"again" in haystacks["secrets.db"]
    found = [(secret, name) for secret in PLANTED for name, hay in haystacks.items() if secret.encode() in hay]
    assert found == []
