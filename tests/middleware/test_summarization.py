"""Summarization: what the model sees of a long conversation, what people see of it, and what it costs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, tool
from sapwood.actors import SimulatedEnvironment
from sapwood.conversation import (
    AddMessage,
    AssistantMessage,
    Message,
    PatchMetadata,
    PendingCall,
    State,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    check_pairs,
    evolve,
    journal,
)
from sapwood.errors import InvalidOption, ModelRefused, RunFailed
from sapwood.middleware import (
    Change,
    Middleware,
    MiddlewareContext,
    PatchToolCalls,
    Summarization,
    message_tokens,
    summary_of,
)
from sapwood.models import NO_RETRY, ModelRequest, Stop, call
from tests.agents.kit import assert_sendable, entries_of, opened, state_in, transcript

LONG = "x" * 400  # 104 tokens as a message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@tool
def look(at: str) -> str:
    """Look at something."""
    return LONG


async def started(runtime: Runtime, layer: Summarization, model: ScriptedModel, agent_id: str = "c1") -> Session:
    agent = Agent("a", model=model, tools=[look], middleware=[layer])
    return await runtime.sessions.ensure_running(agent, agent_id)


def texts(request: ModelRequest) -> list[str]:
    return transcript(request.messages)


def answers(number: int) -> list[str]:
    return [f"answer {each} {LONG}" for each in range(number)]


# --- in a running agent -----------------------------------------------------------------------------


@pytest.mark.row("S4-014", "S3-092", "S3-093")
async def test_the_model_sees_a_summary_that_grows_and_people_see_everything(
    path: Path, autojump_clock: MockClock
) -> None:
    writer = ScriptedModel("They spoke of one.", "They spoke of one and two.", then="?")
    model = ScriptedModel(*answers(9))
    async with opened(path) as runtime:
        session = await started(runtime, Summarization(400, keep=1, model=writer), model)
        for number in range(9):
            await session.say(f"question {number}")
        assert_sendable(session.state)
        assert [line[:16] for line in transcript(session.state.messages)][::2] == [
            f"user: question {number}"[:16] for number in range(9)
        ]
        assert await state_in(runtime) == session.state

    assert texts(model.requests[0]) == ["user: question 0"]
    shortened = [texts(request)[0] for request in model.requests if "[Summary" in texts(request)[0]]
    first = "user: [Summary of earlier conversation (steps 1-2)]\nThey spoke of one."
    second = "user: [Summary of earlier conversation (steps 1-4)]\nThey spoke of one and two."
    assert shortened[0] == first
    assert second in shortened
    for request in model.requests:
        assert check_pairs(request.messages) == ()
        assert sum(map(message_tokens, request.messages)) <= 400 + 120

    begin, extended = [request.messages[0] for request in writer.requests[:2]]
    assert isinstance(begin, UserMessage)
    assert isinstance(extended, UserMessage)
    assert "person: question 0" in begin.text
    assert "Earlier summary" not in begin.text
    assert extended.text.startswith("Earlier summary:\nThey spoke of one.\n")
    assert "question 0" not in extended.text
    assert "200 to 300 words" in writer.requests[0].system


async def test_a_summary_is_there_again_after_a_restart_and_is_not_made_twice(
    path: Path, autojump_clock: MockClock
) -> None:
    writer = ScriptedModel("In short: hello.")
    model = ScriptedModel(*answers(6))
    layer = Summarization(400, keep=1, model=writer)
    async with opened(path) as runtime:
        session = await started(runtime, layer, model)
        for number in range(5):
            await session.say(f"question {number}")
        assert len(writer.requests) == 1
    async with opened(path, seed=1) as runtime:
        session = await started(runtime, layer, model)
        assert summary_of(session.state.metadata) == "In short: hello."
        await session.say("and now?")
        whole = len(session.state.messages)
    assert texts(model.requests[-1])[0].endswith("In short: hello.")
    assert len(model.requests[-1].messages) < whole
    assert len(writer.requests) == 1


@pytest.mark.row("AR-24.57")
@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        (ModelRefused("scripted", "no such model"), "ModelRefused: scripted: no such model"),
        (ValueError("bug"), "ValueError: bug"),
        (["", Stop("refused")], "ModelProtocolError: scripted:script: expected a text; got none (refused)"),
        ("   ", "ModelProtocolError: scripted:script: expected a text; got none (end)"),
    ],
    ids=["refused", "bug", "refusal", "blank"],
)
async def test_when_a_summary_fails_the_model_sees_everything_and_the_next_call_tries_again(
    path: Path, autojump_clock: MockClock, failure: Any, problem: str
) -> None:
    writer = ScriptedModel(failure, "In short.")
    model = ScriptedModel(*answers(6))
    async with opened(path) as runtime:
        session = await started(runtime, Summarization(400, keep=1, model=writer, retry=NO_RETRY), model)
        for number in range(5):
            await session.say(f"question {number}")
        assert len(model.requests[4].messages) == 9
        stored = session.state.metadata["summarization"]
        assert (stored["problem"], stored["text"], stored["calls"]) == (problem, "", 1)
        await session.say("once more")
        stored = session.state.metadata["summarization"]
        assert (stored["problem"], stored["text"], stored["calls"]) == ("", "In short.", 2)
    assert len(model.requests[5].messages) < 9


async def test_the_tokens_of_summaries_are_counted_once_in_the_usage_of_the_conversation(
    path: Path, autojump_clock: MockClock
) -> None:
    writer = ScriptedModel(["In short.", Usage(1000, 100, 10)])
    parts: list[Any] = [[text, Usage(1, 1, 0)] for text in answers(7)]
    model = ScriptedModel(*parts)
    async with opened(path) as runtime:
        session = await started(runtime, Summarization(400, keep=1, model=writer), model)
        for number in range(4):
            await session.say(f"question {number}")
        assert session.state.usage == Usage(4, 4, 0)
        await session.say("question 4")
        assert session.state.usage == Usage(1005, 105, 10)
        await session.say("question 5")
        assert session.state.usage == Usage(1006, 106, 10)


async def test_a_summary_owed_by_a_run_that_failed_is_counted_by_the_next_answer(
    path: Path, autojump_clock: MockClock
) -> None:
    writer = ScriptedModel(["In short.", Usage(1000, 100, 0)])
    parts: list[Any] = [[text, Usage(1, 1, 0)] for text in answers(7)]
    model = ScriptedModel(*parts[:4], ModelRefused("scripted", "down"), *parts[4:])
    async with opened(path) as runtime:
        session = await started(runtime, Summarization(400, keep=1, model=writer), model)
        for number in range(4):
            await session.say(f"question {number}")
        with pytest.raises(RunFailed, match="down"):
            await session.say("question 4")
        await session.say("question 5")
        assert session.state.usage == Usage(1005, 105, 0)


@pytest.mark.row("S3-095")
async def test_eight_thousand_tokens_are_the_threshold_unless_an_agent_says_otherwise_or_has_no_layer(
    path: Path, autojump_clock: MockClock
) -> None:
    huge = "y" * 3_960
    seen: dict[str, int] = {}
    layers: dict[str, list[Summarization]] = {
        "default": [Summarization(model=ScriptedModel(then="In short."))],
        "large": [Summarization(50_000, model=ScriptedModel(then="In short."))],
        "whole": [],
    }
    async with opened(path) as runtime:
        for name, chosen in layers.items():
            model = ScriptedModel(then=huge)
            session = await runtime.sessions.ensure_running(Agent("a", model=model, middleware=chosen), name)
            for _ in range(8):
                await session.say("go on")
            assert len(model.requests[-1].messages) == 15
            for _ in range(2):
                await session.say("go on")
            seen[name] = len(model.requests[-1].messages)
    assert seen == {"default": 14, "large": 19, "whole": 19}


@pytest.mark.row("S4-014", "AR-24.57")
async def test_results_of_parallel_calls_stay_with_their_calls_when_a_long_run_is_summarised(
    path: Path, autojump_clock: MockClock
) -> None:
    wishes = [[call("look", at=f"{turn}-{each}") for each in range(4)] for turn in range(6)]
    model = ScriptedModel(*wishes, "done")
    async with opened(path) as runtime:
        session = await started(runtime, Summarization(1200, keep=1, model=ScriptedModel(then="In short.")), model)
        assert await session.say("look at everything") == "done"
        assert_sendable(session.state)
    shortened = [request for request in model.requests if "[Summary" in texts(request)[0]]
    assert shortened
    for request in shortened:
        assert check_pairs(request.messages) == ()
        assert texts(request)[1] == "user: look at everything"


# --- where it cuts ----------------------------------------------------------------------------------


class World:
    """What the layer needs of a server, without one."""

    def __init__(self, *messages: Message, writer: ScriptedModel | None = None, **state: Any) -> None:
        self.writer = writer or ScriptedModel(then="In short.")
        self.state = State(messages=tuple(self._named(messages)), **state)
        self.sent: list[tuple[Message, ...]] = []
        self.environment = SimulatedEnvironment()
        self.agent = SimpleNamespace(name="a", model=self.writer)
        self.local: dict[str, Any] = {}

    def _named(self, messages: tuple[Message, ...]) -> list[Message]:
        return [evolve(each, id=f"m{index}") for index, each in enumerate(messages)]

    async def call(self, layer: Summarization) -> tuple[Message, ...]:
        """Run the hooks around one model call; return what the model sees."""
        context: Any = self
        changes: Any = await layer.before_model(self.state, context)
        for change in changes or ():
            assert isinstance(change, PatchMetadata)
            self.state = evolve(self.state, metadata={**self.state.metadata, **change.values})

        async def model(request: ModelRequest) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            self.sent.append(request.messages)
            return AssistantMessage("ok")

        await layer.around_model_call(ModelRequest("", self.state.messages), model, context)
        return self.sent[-1]


def said(tokens: int) -> UserMessage:
    return UserMessage("u" * (tokens - 4) * 4)


def answered(tokens: int) -> AssistantMessage:
    return AssistantMessage("a" * (tokens - 4) * 4)


@pytest.mark.row("S3-091")
@pytest.mark.parametrize(
    ("steps", "keep", "kept"),
    [
        ([100] * 9, 3, 9),  # not beyond the threshold
        ([100] * 11, 3, 7),  # 70 % of 1000 tokens for recent steps
        ([100] * 11, 9, 9),  # but never fewer than are kept
        ([100] * 11, 11, 11),
        ([500, 500, 100, 100, 100], 3, 3),
        ([50, 1000, 100, 100], 3, 4),  # what is old is not worth a call
    ],
)
async def test_recent_steps_take_seventy_percent_of_the_threshold_and_the_last_ones_stay(
    steps: list[int], keep: int, kept: int
) -> None:
    messages = [each for size in steps for each in (said(size // 2), answered(size // 2))]
    world = World(*messages)
    seen = await world.call(Summarization(1000, keep=keep))
    assert seen[len(seen) - 2 * kept :] == world.state.messages[-2 * kept :]
    assert len(seen) == 2 * kept + (kept < len(steps))
    assert await world.call(Summarization(1000, keep=keep)) == seen
    assert len(world.writer.requests) == (kept < len(steps))


async def test_a_very_long_history_is_summarised_in_several_calls_that_each_read_a_part() -> None:
    messages = [each for _ in range(30) for each in (said(1000), answered(3000))]
    parts: list[Any] = [[text, Usage(100, 10)] for text in ("one", "two", "three")]
    world = World(*messages, writer=ScriptedModel(*parts))
    seen = await world.call(Summarization(8000, keep=1))
    assert len(world.writer.requests) == 3
    assert isinstance(seen[0], UserMessage)
    assert seen[0].text == "[Summary of earlier conversation (steps 1-29)]\nthree"
    assert len(seen) == 3
    assert world.state.metadata["summarization"]["owed"] == [300, 30, 0]


async def test_long_messages_are_read_by_their_beginning_and_end_and_failed_calls_as_such() -> None:
    wish = AssistantMessage("I look.", (ToolCall("c1", "look", {"at": "sea"}),))
    result = ToolResult("c1", "look", "BEGIN" + "." * 5000 + "END", is_error=True)
    world = World(UserMessage("go"), wish, result, answered(500), answered(500), said(10))
    await world.call(Summarization(1000, keep=1))
    [request] = world.writer.requests
    assert isinstance(request.messages[0], UserMessage)
    read = request.messages[0].text
    assert 'person: go\nagent: I look.\nagent calls look {"at": "sea"}\nlook failed: BEGIN' in read
    assert "END" in read
    assert len(read) < 5000


async def test_a_summary_of_messages_that_are_gone_says_nothing_about_the_present_ones() -> None:
    world = World(*[each for _ in range(11) for each in (said(50), answered(50))])
    assert len(await world.call(Summarization(1000, keep=3))) < 22
    world.state = evolve(world.state, messages=(UserMessage("new", id="n1"),))
    assert await world.call(Summarization(1000, keep=3)) == world.state.messages
    assert summary_of(world.state.metadata) == ""


@pytest.mark.parametrize(
    "stored", [None, 5, {}, {"text": "x"}, {"text": 5, "owed": [0, 0, 0]}, {"text": "", "owed": 3}]
)
async def test_metadata_that_is_no_summary_counts_as_none(stored: Any) -> None:
    world = World(said(50), metadata={"summarization": stored})
    assert await world.call(Summarization(1000)) == world.state.messages


@pytest.mark.parametrize(("options", "problem"), [({"threshold": 99}, "threshold of 100"), ({"keep": 0}, "1 step")])
def test_an_option_out_of_its_range_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        Summarization(**options)


# --- whatever the conversation ----------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Conversations that a provider would take, with up to ten parallel calls."""
    messages: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["said", "said", "answered", "called"]))
        size = draw(st.sampled_from([10, 60, 300]))
        if kind == "said" or not messages:
            messages.append(said(size))
        elif kind == "answered":
            messages.append(answered(size))
        else:
            calls = tuple(ToolCall(f"c{number + each}", "look") for each in range(draw(st.integers(1, 10))))
            number += len(calls)
            messages.append(AssistantMessage("", calls))
            messages += [ToolResult(each.id, "look", "r" * size) for each in calls]
    return messages


@pytest.mark.row("BR-61", "AR-24.57", "UP-30")
@given(histories(), st.integers(1, 6), st.sampled_from([100, 300, 1000]))
async def test_no_summary_parts_a_call_from_its_results_whatever_is_kept(
    messages: list[Message], keep: int, threshold: int
) -> None:
    world = World(*messages)
    layer = Summarization(threshold, keep=keep)
    seen = await world.call(layer)
    assert check_pairs(seen) == ()
    newest = next(each for each in reversed(world.state.messages) if isinstance(each, UserMessage))
    assert newest in seen
    again = await world.call(layer)
    assert again == seen
    assert check_pairs(again) == ()


@pytest.mark.row("BR-61")
async def test_open_and_paused_calls_are_never_summarised() -> None:
    wish = AssistantMessage("", (ToolCall("c1", "look"), ToolCall("c2", "look")))
    messages: list[Message] = [said(100), wish, ToolResult("c1", "look", LONG), *[answered(100)] * 12]
    pending = (PendingCall(ToolCall("c2", "look"), "key"),)
    seen = await World(*messages, pending=pending).call(Summarization(1000, keep=1))
    assert any(isinstance(each, AssistantMessage) and each.tool_calls for each in seen)
    seen = await World(*messages).call(Summarization(1000, keep=1))
    assert not any(isinstance(each, AssistantMessage) and each.tool_calls for each in seen)


class Importing(Middleware):
    """Puts a conversation into a new one, as an import does."""

    def __init__(self, *messages: Message) -> None:
        self.messages = messages

    async def on_server_start(self, context: MiddlewareContext) -> list[Change]:
        return [] if context.state.messages else [AddMessage(each) for each in self.messages]


async def test_an_imported_conversation_with_orphans_and_gaps_is_mended_on_record_and_then_summarised(
    path: Path, autojump_clock: MockClock
) -> None:
    wish = AssistantMessage("", (ToolCall("c1", "look"), ToolCall("c2", "look")))
    imported: list[Message] = []
    for turn in range(8):
        imported += [
            UserMessage(f"question {turn}"),
            ToolResult(f"gone {turn}", "look", LONG),
            wish,
            ToolResult("c1", "look", f"{turn} {LONG}"),
            *([ToolResult("c2", "look", f"{turn} {LONG}")] * (turn % 3)),
        ]
    model = ScriptedModel("Done.")
    layers = [Importing(*imported), PatchToolCalls(), Summarization(1000, keep=2, model=ScriptedModel("In short."))]
    async with opened(path) as runtime:
        agent = Agent("a", model=model, tools=[look], middleware=layers)
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert await session.say("and now?") == "Done."
        assert_sendable(session.state)
        repairs = [entry.event for entry in await entries_of(runtime)]
        assert any(isinstance(each, journal.OperationsApplied) and each.source == "PatchToolCalls" for each in repairs)
        stored = [each for each in session.state.messages if isinstance(each, ToolResult)]
    [request] = model.requests
    assert texts(request)[0].startswith("user: [Summary of earlier conversation")
    assert check_pairs(request.messages) == ()
    kept = [each for each in request.messages if isinstance(each, ToolResult) and LONG in each.content]
    assert kept
    assert not [each for each in kept if each not in stored]


@st.composite
def damaged(draw: st.DrawFn) -> list[Message]:
    """Histories in which results are missing, doubled, alone or far from their calls, and ids are used again."""
    messages = draw(histories())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(messages)))
        other = draw(st.integers(0, len(messages) - 1))
        match draw(st.sampled_from(["drop", "orphan", "double", "reuse"])):
            case "drop" if len(messages) > 2:
                del messages[other]
            case "orphan":
                messages.insert(at, ToolResult("gone", "look", "r"))
            case "double" if isinstance(messages[other], ToolResult):
                messages.insert(at, messages[other])
            case _:
                calls = (ToolCall("c0", "look"),)
                messages += [AssistantMessage("", calls), ToolResult("c0", "look", "again")]
    return messages


@given(damaged(), st.integers(1, 4))
async def test_what_the_model_sees_after_a_summary_is_valid_even_if_the_conversation_is_not(
    messages: list[Message], keep: int
) -> None:
    world = World(*messages)
    seen = await world.call(Summarization(100, keep=keep))
    if not summary_of(world.state.metadata):
        return
    assert check_pairs(seen) == ()
    answers = [each for each in seen if isinstance(each, AssistantMessage)]
    kept = [each for each in world.state.messages if isinstance(each, AssistantMessage)]
    assert [each.id for each in answers] == [each.id for each in kept[len(kept) - len(answers) :]]
