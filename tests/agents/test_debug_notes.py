"""Notes for debugging: every change as it is journaled, for those who ask and for nobody else."""

from __future__ import annotations

import json

import pytest
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, tool
from sapwood.conversation import DebugNote, PatchMetadata, event_from_json, event_to_json
from sapwood.errors import ModelUnavailable
from sapwood.middleware import SubAgent, SubAgents
from sapwood.models import RetryPolicy, call
from tests.agents.kit import Changing, names, of, waiting_events


@tool
def look_up(word: str) -> str:
    """Look a word up. word: the word."""
    return f"{word}: a word"


@pytest.mark.row("S4-070")
async def test_a_debugger_sees_what_middleware_changed_and_every_attempt_of_a_model(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(ModelUnavailable("scripted", "connection lost"), call("look_up", word="tree"), "done")
    marks = Changing(before=[PatchMetadata({"mark": 1})])
    agent = Agent("a", model=model, tools=[look_up], middleware=[marks], retry=RetryPolicy(attempts=2))
    session = await runtime.sessions.ensure_running(agent, "c1")
    with session.events(debug=True) as debugging, session.events() as plain:
        await session.say("hi")
        seen, ordinary = await waiting_events(debugging), await waiting_events(plain)
    notes = of(seen, DebugNote)
    entries = (await runtime.journal.read("c1"))[1:]
    assert [note.journal_seq for note in notes] == [entry.seq for entry in entries], "every change, in order"
    by_middleware = [(note.kind, note.source) for note in notes if note.source]
    assert by_middleware == [("operations.applied", "Changing")]
    kinds = [note.kind for note in notes]
    assert "model.attempt_failed" in kinds
    assert kinds.index("tool.intended") < kinds.index("tool.started") < kinds.index("tool.finished")
    failed = next(note for note in notes if note.kind == "model.attempt_failed")
    assert failed.data["following"] == "retry"
    assert all(event_from_json(json.loads(json.dumps(event_to_json(note)))) == note for note in notes)
    # Who does not debug gets none, and misses no number.
    assert "DebugNote" not in names(ordinary)
    assert [event for event in seen if not isinstance(event, DebugNote)] == ordinary


@pytest.mark.row("S4-070")
async def test_a_sub_agent_can_be_debugged_like_any_other(runtime: Runtime, autojump_clock: MockClock) -> None:
    child = Agent("helper", model=ScriptedModel(call("look_up", word="tree"), "a plant"), tools=[look_up])
    model = ScriptedModel(call("task", agent_type="helper", description="What is a tree?"), "It is a plant.")
    agent = Agent("a", model=model, middleware=[SubAgents(helper=SubAgent(child, description="Looks things up."))])
    session = await runtime.sessions.ensure_running(agent, "c1")
    below = runtime.sessions.session("c1/call_1")
    with session.events(debug=True) as debugging, below.events(debug=True) as debugging_below:
        assert await session.say("hi") == "It is a plant."
        seen, seen_below = await waiting_events(debugging), await waiting_events(debugging_below)
    [sub_agent] = session.state.sub_agents
    assert sub_agent.agent_id == "c1/call_1"
    assert [note.kind for note in of(seen, DebugNote) if note.kind.startswith("sub_agent.")] != []
    notes = of(seen_below, DebugNote)
    assert {note.agent_id for note in notes} == {"c1/call_1"}
    assert "tool.finished" in [note.kind for note in notes]
