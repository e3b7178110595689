"""Histories that are already damaged: what a model is sent of them is valid, and nothing valid is taken away."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapwood import ScriptedModel
from sapwood.actors import SimulatedEnvironment
from sapwood.conversation import (
    AssistantMessage,
    Message,
    PatchMetadata,
    State,
    ToolCall,
    ToolResult,
    UserMessage,
    check_pairs,
    evolve,
    journal,
)
from sapwood.middleware import Middleware, PatchToolCalls, ReplaceMessages, Summarization
from sapwood.models import ModelRequest

FILLER = " " + "x" * 400

Damage = Literal["none", "orphan first", "orphan between", "orphan last", "missing", "double", "two orphans"]
KINDS: tuple[Damage, ...] = (
    "none", "orphan first", "orphan between", "orphan last", "missing", "double", "two orphans",
)  # fmt: skip


def turn(number: int, damage: Damage) -> list[Message]:
    """Return one turn with two calls, whose ids are those of every other turn, and its damage."""
    calls = (ToolCall("c1", "look", {"turn": number}), ToolCall("c2", "look", {"turn": number}))
    first, second = (ToolResult(f"c{each}", "look", f"turn {number} result {each}{FILLER}") for each in (1, 2))
    orphan = ToolResult(f"gone {number}", "look", f"orphan of turn {number}")
    results: dict[Damage, list[ToolResult]] = {
        "none": [first, second],
        "orphan first": [orphan, first, second],
        "orphan between": [first, orphan, second],
        "orphan last": [first, second, orphan],
        "missing": [first],
        "double": [first, second, ToolResult("c1", "look", f"orphan of turn {number}")],
        "two orphans": [orphan, orphan, first, second],
    }
    return [UserMessage(f"question {number}"), AssistantMessage("", calls), *results[damage]]


class World:
    """What the two layers need of a server, without one: `call` runs the hooks around one model call."""

    def __init__(self, damages: list[Damage]) -> None:
        messages = [each for number, damage in enumerate(damages) for each in turn(number, damage)]
        messages += [AssistantMessage("well"), UserMessage("and now?")]
        self.state = State(messages=tuple(evolve(each, id=f"m{number}") for number, each in enumerate(messages)))
        self.writer = ScriptedModel(then="In short.")
        self.environment = SimulatedEnvironment()
        self.agent = SimpleNamespace(name="a", model=self.writer)
        self.local: dict[str, Any] = {}
        self.journaled: list[journal.JournalEvent] = []

    async def call(self, *layers: Middleware) -> tuple[Message, ...]:
        context: Any = self
        for layer in layers:
            changes: Any = await layer.before_model(self.state, context)
            for change in changes or ():
                event: journal.JournalEvent
                if isinstance(change, ReplaceMessages):
                    event = journal.MessagesReplaced(change.removed, change.inserted)
                else:
                    event = journal.OperationsApplied((change,))
                if not isinstance(change, PatchMetadata):
                    self.journaled.append(event)
                self.state = journal.apply(self.state, event)
        sent: list[ModelRequest] = []

        async def model(request: ModelRequest) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            sent.append(request)
            return AssistantMessage("ok")

        await layers[-1].around_model_call(ModelRequest("", self.state.messages), model, context)
        return sent[-1].messages

    @property
    def read(self) -> str:
        """What the summarising model was given."""
        return "".join(each.text for request in self.writer.requests for each in request.messages if each.text)  # type: ignore[union-attr]  # they are user messages


def results_by_turn(messages: tuple[Message, ...]) -> dict[int, list[str]]:
    """Return the contents of the results of each turn, without the filler."""
    found: dict[int, list[str]] = {}
    number = -1
    for message in messages:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            number = message.tool_calls[0].arguments["turn"]
        elif isinstance(message, ToolResult):
            found.setdefault(number, []).append(message.content.removesuffix(FILLER))
    return found


def check_turns(seen: tuple[Message, ...], damages: list[Damage]) -> None:
    for number, contents in results_by_turn(seen).items():
        whole = [f"turn {number} result {each}" for each in (1, 2)]
        if damages[number] == "missing":
            assert contents[0] == whole[0]
            assert all(content.startswith("Error: ") for content in contents[1:])
        else:
            assert contents == whole, "what was valid stays, each in its own turn"


damages = st.lists(st.sampled_from(KINDS), min_size=3, max_size=8)


@pytest.mark.row("BR-62")
@given(damages=damages, keep=st.integers(1, 6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_summary_of_a_damaged_history_pairs_each_id_in_its_own_turn_and_reports_what_it_leaves_out(
    damages: list[Damage], keep: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    caplog.set_level(logging.WARNING, "sapwood")
    world = World(damages)
    seen = await world.call(Summarization(100, keep=keep))
    if not world.writer.requests:
        return
    assert check_pairs(seen) == ()
    check_turns(seen, damages)
    kept = set(results_by_turn(seen))
    orphans = {number for number, damage in enumerate(damages) if damage not in ("none", "missing")}
    log = "\n".join(record.getMessage() for record in caplog.records)
    for number in orphans:
        if number in kept:
            assert f"m{position_of_orphan(world.state, number)}" in log
        else:
            assert f"orphan of turn {number}" in world.read
    assert await world.call(Summarization(100, keep=keep)) == seen, "a second pass changes nothing"


def position_of_orphan(state: State, number: int) -> int:
    content = f"orphan of turn {number}"
    return next(
        at for at, each in enumerate(state.messages) if isinstance(each, ToolResult) and each.content == content
    )


@pytest.mark.row("BR-62")
@given(damages=damages, keep=st.integers(1, 6), summarised=st.booleans())
async def test_mended_on_record_first_every_orphan_is_named_in_the_journal_and_what_is_sent_is_valid(
    damages: list[Damage], keep: int, *, summarised: bool
) -> None:
    world = World(damages)
    before = world.state
    layers = [PatchToolCalls(), Summarization(100, keep=keep)] if summarised else [PatchToolCalls()]
    seen = await world.call(*layers)
    assert check_pairs(seen) == ()
    assert check_pairs(world.state.messages) == ()
    removed = {
        each for event in world.journaled if isinstance(event, journal.MessagesReplaced) for each in event.removed
    }
    orphans = {
        each.id for each in before.messages if isinstance(each, ToolResult) and each.content.startswith("orphan")
    }
    assert orphans <= removed
    valid = [each for each in before.messages if isinstance(each, ToolResult) and each.id not in orphans]
    assert [each for each in world.state.messages if each in valid] == valid
    assert results_by_turn(world.state.messages).keys() == set(range(len(damages)))
