"""The end of a runtime, seen from the providers of its agents' models."""

from __future__ import annotations

import pytest
import trio

from sapwood import Agent, OpenAIModel, open_runtime
from sapwood.testing.providers import FakeAnswer, open_fake_provider

pytest.importorskip("openai", reason="needs the extra llm")


@pytest.mark.row("UP-37")
async def test_leaving_the_runtime_closes_the_connections_that_a_model_kept_open() -> None:
    async with open_fake_provider(FakeAnswer(text="hello")) as provider:
        model = OpenAIModel("any", api_key="key", base_url=provider.openai_url)
        with trio.fail_after(30):
            async with open_runtime(signals=False) as runtime:
                session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
                assert await session.say("hi") == "hello"
                assert provider.open_connections == 1
            await provider.wait_until_idle()
            assert provider.open_connections == 0
