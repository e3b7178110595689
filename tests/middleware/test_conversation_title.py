"""ConversationTitle: one try, beside the run, and nobody is harmed if it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import MetadataChanged, RunFinished, State
from sapwood.errors import InvalidOption, ModelRefused, RunFailed
from sapwood.middleware import ConversationTitle, HookResult, Middleware, MiddlewareContext
from sapwood.models import Delay, Stall, call
from tests.agents.kit import of, opened, waiting_events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@tool
async def work() -> str:
    """Work for ten seconds."""
    await trio.sleep(10)
    return "done"


async def started(runtime: Runtime, layer: ConversationTitle, model: ScriptedModel) -> Session:
    agent = Agent("a", model=model, tools=[work], middleware=[layer])
    return await runtime.sessions.ensure_running(agent, "c1")


@pytest.mark.row("S4-019", "AR-24.58")
async def test_a_title_is_written_once_beside_the_first_run_and_kept_over_restarts(
    path: Path, autojump_clock: MockClock
) -> None:
    writer = ScriptedModel([Delay(3.0), '  "Refund of\n order 17"  '])
    layer = ConversationTitle(model=writer)
    model = ScriptedModel([Delay(2.0), call("work")], [Delay(2.0), "Done."], "Bye.")
    async with opened(path) as runtime:
        session = await started(runtime, layer, model)
        begin = trio.current_time()
        with session.events() as events:
            assert await session.say("Where is my money for order 17?") == "Done."
            assert trio.current_time() - begin == pytest.approx(14.0)
            seen = await waiting_events(events)
        assert session.state.metadata == {"conversation_title": "Refund of order 17"}
        [changed] = of(seen, MetadataChanged)
        [ended] = of(seen, RunFinished)
        assert changed.values == {"conversation_title": "Refund of order 17"}
        assert changed.seq < ended.seq
    async with opened(path, seed=1) as runtime:
        session = await started(runtime, layer, model)
        await session.say("thanks")
        assert session.state.metadata == {"conversation_title": "Refund of order 17"}
    [request] = writer.requests
    assert [getattr(message, "text", "") for message in request.messages] == ["Where is my money for order 17?"]


@pytest.mark.row("AR-24.58")
async def test_a_title_that_fails_is_not_tried_again_and_costs_the_run_nothing(
    path: Path, autojump_clock: MockClock
) -> None:
    writer = ScriptedModel(ModelRefused("scripted", "no such model"))
    async with opened(path) as runtime:
        session = await started(runtime, ConversationTitle(model=writer), ScriptedModel("Hello.", "Bye."))
        assert await session.say("hi") == "Hello."
        assert session.state.metadata == {
            "conversation_title_problem": "ModelRefused: scripted: no such model",
        }
        assert await session.say("bye") == "Bye."
        assert len(writer.requests) == 1
        assert await session.notify("ConversationTitle", " Small \n talk ")
        assert session.state.metadata == {"conversation_title": "Small talk"}


async def test_a_title_that_takes_too_long_is_dropped_and_made_in_the_next_run(
    path: Path, autojump_clock: MockClock
) -> None:
    writer = ScriptedModel([Stall()], "Late")
    async with opened(path) as runtime:
        session = await started(runtime, ConversationTitle(model=writer), ScriptedModel("Hello.", "Bye."))
        begin = trio.current_time()
        assert await session.say("hi") == "Hello."
        assert trio.current_time() - begin == pytest.approx(5.0)
        assert session.state.metadata == {}
        assert await session.say("bye") == "Bye."
        assert session.state.metadata == {"conversation_title": "Late"}


async def test_a_run_that_fails_or_is_cancelled_ends_as_it_does_without_a_title(
    path: Path, autojump_clock: MockClock
) -> None:
    writer = ScriptedModel([Stall()], [Stall()], "A title")
    model = ScriptedModel(ModelRefused("scripted", "down"), [Stall()], "Hello.")
    async with opened(path) as runtime:
        session = await started(runtime, ConversationTitle(model=writer), model)
        with pytest.raises(RunFailed, match=r"failed \(scripted: down\)"):
            await session.say("one")
        async with session.send("two") as run:
            await trio.sleep(1)
            await session.cancel("enough")
            result = await run.finish()
        assert result is not None
        assert (result.outcome, result.reason) == ("cancelled", "enough")
        assert await session.say("three") == "Hello."
        assert session.state.metadata == {"conversation_title": "A title"}


async def test_an_error_of_another_layer_is_the_reason_of_the_run_as_it_is(
    path: Path, autojump_clock: MockClock
) -> None:
    class Failing(Middleware):
        async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
            raise ValueError("bug")

    layers = [ConversationTitle(model=ScriptedModel([Stall()])), Failing()]
    async with opened(path) as runtime:
        agent = Agent("a", model=ScriptedModel(), middleware=layers)
        session = await runtime.sessions.ensure_running(agent, "c1")
        with pytest.raises(RunFailed, match=r"failed \(ValueError: bug\)"):
            await session.say("hi")


async def test_the_agents_own_model_writes_the_title_if_no_other_is_given_and_long_ones_are_cut(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(
        by=lambda request: "six words" in request.system, scripts={True: ["word " * 50], False: ["Hello."]}
    )
    async with opened(path) as runtime:
        session = await started(runtime, ConversationTitle(max_length=12), model)
        assert await session.say("hi") == "Hello."
        assert session.state.metadata == {"conversation_title": "word word wo"}


@pytest.mark.parametrize("title", ["  ", 5, None])
async def test_a_title_from_the_host_that_is_none_is_refused(path: Path, autojump_clock: MockClock, title: Any) -> None:
    async with opened(path) as runtime:
        session = await started(runtime, ConversationTitle(), ScriptedModel())
        with pytest.raises(InvalidOption, match="expected a title"):
            await session.notify("ConversationTitle", title)
        assert session.state.metadata == {}


@pytest.mark.parametrize(("options", "problem"), [({"max_length": 0}, "1 character"), ({"patience": -1}, "0 seconds")])
def test_an_option_out_of_its_range_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        ConversationTitle(**options)
