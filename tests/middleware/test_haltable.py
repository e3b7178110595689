"""Haltable: a run that was stopped with a reason calls the model no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import AddMessage, Invalid, State, UserMessage
from sapwood.errors import InvalidOption
from sapwood.middleware import Haltable, halt
from sapwood.models import call
from sapwood.tools import ToolOutput
from tests.agents.kit import assert_sendable, finished, opened, transcript


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@tool
def finish(report: str) -> ToolOutput:
    """Hand in the report."""
    return halt("the report is in", content=f"taken: {report}")


@tool
def work() -> str:
    """Work."""
    return "worked"


async def started(runtime: Runtime, model: ScriptedModel, *layers: Haltable) -> Session:
    agent = Agent("a", model=model, tools=[finish, work], middleware=list(layers))
    return await runtime.sessions.ensure_running(agent, "c1")


@pytest.mark.row("AR-24.21")
async def test_one_tool_that_halts_is_enough_and_the_other_calls_of_its_answer_are_finished(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([call("work"), call("finish", report="R"), call("work")], "Next.")
    async with opened(path) as runtime:
        session = await started(runtime, model, Haltable())
        result = await finished(session, "go")
        assert result.outcome == "interrupted"
        [approval] = session.approvals
        assert (approval.interrupt.kind, approval.interrupt.reason) == ("halt", "the report is in")
        assert approval.interrupt.call.name == "finish"
        assert transcript(session.state.messages)[2:] == ["work: worked", "finish: taken: R", "work: worked"]
        assert len(model.requests) == 1


async def test_a_halt_lasts_over_a_restart_takes_no_decision_and_ends_with_the_next_message(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(call("finish", report="R"), "Next.")
    async with opened(path) as runtime:
        await finished(await started(runtime, model, Haltable()), "go")
    async with opened(path, seed=1) as runtime:
        session = await started(runtime, model, Haltable())
        assert (await session.status()).status == "interrupted"
        [approval] = session.approvals
        assert isinstance(await approval.approve(), Invalid)
        assert len(model.requests) == 1
        assert await session.say("go on") == "Next."
        assert session.approvals == ()
        assert_sendable(session.state)


async def test_a_halt_that_is_dismissed_ends_its_run_without_another_model_call(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(call("finish", report="R"), "Next.")
    async with opened(path) as runtime:
        session = await started(runtime, model, Haltable())
        await finished(session, "go")
        [approval] = session.approvals
        assert await session.dismiss(approval.interrupt.id)
        assert (await session.status()).status == "idle"
        assert not await session.dismiss(approval.interrupt.id)
        assert len(model.requests) == 1
        assert await session.say("go on") == "Next."


async def test_a_rule_halts_before_the_model_call_that_it_forbids(path: Path, autojump_clock: MockClock) -> None:
    def too_much(state: State) -> str | None:
        assert state.run is not None
        return "three calls are enough" if state.run.model_calls >= 3 else None

    model = ScriptedModel(then=call("work"))
    async with opened(path) as runtime:
        session = await started(runtime, model, Haltable(too_much))
        assert (await finished(session, "go")).outcome == "interrupted"
        assert session.approvals[0].interrupt.reason == "three calls are enough"
        assert len(model.requests) == 3
        await finished(session, "again")
        assert len(model.requests) == 6


async def test_without_the_layer_a_tool_that_would_halt_just_answers(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        session = await started(runtime, ScriptedModel(call("finish", report="R"), "Done."))
        assert await session.say("go") == "Done."


async def test_what_else_a_halting_tool_does_to_the_conversation_is_done(path: Path, autojump_clock: MockClock) -> None:
    @tool
    def note() -> ToolOutput:
        """Note and halt."""
        stopped = halt("enough")
        return ToolOutput(stopped.content, [AddMessage(UserMessage("noted")), *stopped.operations])

    agent = Agent("a", model=ScriptedModel(call("note")), tools=[note], middleware=[Haltable()])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await finished(session, "go")
        assert transcript(session.state.messages)[2:] == ["note: enough", "user: noted"]
        assert session.approvals[0].interrupt.kind == "halt"


@pytest.mark.parametrize("stored", [5, {}, {"run": 5}, {"reason": "old", "run": "run_1"}])
async def test_a_wish_of_another_run_or_none_at_all_halts_nothing(
    path: Path, autojump_clock: MockClock, stored: Any
) -> None:
    from sapwood.conversation import PatchMetadata
    from tests.agents.kit import Changing

    agent = Agent(
        "a", model=ScriptedModel("Hello."), middleware=[Changing(start=[PatchMetadata({"halt": stored})]), Haltable()]
    )
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert await session.say("hi") == "Hello."


def test_a_halt_without_a_reason_is_refused() -> None:
    with pytest.raises(InvalidOption, match="expected a reason"):
        halt("  ")
