"""ResponseCache: which requests are the same, how long answers are good, and what stands in when models are down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood import Agent, ScriptedModel, tool
from sapwood.actors import SimulatedEnvironment
from sapwood.conversation import AssistantMessage, Message, State, ToolCall, ToolResult, Usage, UserMessage
from sapwood.errors import InvalidOption, ModelUnavailable, RunFailed
from sapwood.middleware._response_cache import KEY, ResponseCache
from sapwood.models import NO_RETRY, ModelRequest, Stop, ToolSpec, call
from tests.agents.kit import finished, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


DOWN = ModelUnavailable("p", "down")


@tool
def look() -> str:
    """Look."""
    return "seen"


async def say(runtime: Any, agent: Agent, conversation: str, text: str = "hello") -> str:
    session = await runtime.sessions.ensure_running(agent, conversation)
    answer: str = await session.say(text)
    return answer


# --- in a running agent -------------------------------------------------------------------------------


@pytest.mark.row("S2-061")
async def test_the_same_question_in_another_conversation_is_answered_without_the_model_and_costs_nothing(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel("first", "second")
    agent = Agent("a", model=model, middleware=[ResponseCache()])
    async with opened(path) as runtime:
        one = await runtime.sessions.ensure_running(agent, "c1")
        first = await finished(one, "hello")
        await trio.sleep(10)
        other = await runtime.sessions.ensure_running(agent, "c2")
        second = await finished(other, "hello")
        assert (first.text, second.text, len(model.requests)) == ("first", "first", 1)
        paid, answer = one.state.messages[-1], other.state.messages[-1]
        assert isinstance(paid, AssistantMessage)
        assert isinstance(answer, AssistantMessage)
        assert (paid.usage == Usage(), answer.usage == Usage()) == (False, True)
        assert KEY not in one.state.metadata
        assert answer.id
        assert answer.id != paid.id
        assert other.state.metadata[KEY] == {"hits": 1, "message": answer.id, "age": 10.0, "stale": False}
        assert await other.say("and now?") == "second"
        assert other.state.metadata[KEY]["hits"] == 1


async def test_answers_are_good_for_their_time_and_not_longer(path: Path, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel("first", "second"), middleware=[ResponseCache(ttl=60)])
    async with opened(path) as runtime:
        assert await say(runtime, agent, "c1") == "first"
        await trio.sleep(59)
        assert await say(runtime, agent, "c2") == "first"
        await trio.sleep(2)
        assert await say(runtime, agent, "c3") == "second"


@pytest.mark.row("S2-061")
async def test_agents_share_answers_only_if_they_are_told_to(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        for shared, expected in ((False, "second"), (True, "first")):
            model, cache = ScriptedModel("first", "second"), ResponseCache(shared=shared)
            for number, name in enumerate(("a", "b")):
                agent = Agent(name, model=model, middleware=[cache])
                answer = await say(runtime, agent, f"{shared}-{name}")
                assert answer == ("first", expected)[number]


async def test_an_answer_that_calls_tools_is_kept_only_if_that_is_wanted_and_its_calls_get_new_ids(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        for wanted, calls in ((False, 3), (True, 2)):
            model = ScriptedModel(call("look"), "Done.", call("look") if not wanted else "?", "?")
            agent = Agent("a", model=model, tools=[look], middleware=[ResponseCache(tool_calls=wanted)])
            assert await say(runtime, agent, f"{wanted}-1") == "Done."
            assert await say(runtime, agent, f"{wanted}-2") == "Done."
            assert len(model.requests) == calls
            ids: set[str] = set()
            for number in (1, 2):
                session = await runtime.sessions.ensure_running(agent, f"{wanted}-{number}")
                (_, asked, result, _) = session.state.messages
                assert isinstance(asked, AssistantMessage)
                assert isinstance(result, ToolResult)
                assert result.call_id == asked.tool_calls[0].id
                ids.add(result.call_id)
            assert len(ids) == 2 or not wanted


@pytest.mark.parametrize("reason", ["length", "refused"])
async def test_an_answer_that_is_not_whole_is_never_kept(reason: str, path: Path, autojump_clock: MockClock) -> None:
    cache = ResponseCache()
    model = ScriptedModel(["I can", Stop(reason)])
    agent = Agent("a", model=model, middleware=[cache])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await finished(session, "hello")
        assert len(cache) == 0


@pytest.mark.row("S2-061", "S4-023")
async def test_service_degrades_from_the_model_to_a_fallback_to_the_cache_to_an_honest_error(
    path: Path, autojump_clock: MockClock
) -> None:
    first = ScriptedModel("from the first", DOWN, then=DOWN, name="first")
    second = ScriptedModel("from the second", then=DOWN, name="second")
    cache = ResponseCache(ttl=60, stale_for=600)
    agent = Agent("a", model=first, fallbacks=[second], retry=NO_RETRY, middleware=[cache])
    async with opened(path) as runtime:
        assert await say(runtime, agent, "c1", "one") == "from the first"
        assert await say(runtime, agent, "c2", "two") == "from the second"
        await trio.sleep(100)
        session = await runtime.sessions.ensure_running(agent, "c3")
        assert await session.say("one") == "from the first"
        assert session.state.metadata[KEY]["stale"] is True
        assert session.state.metadata[KEY]["age"] == 100.0
        with pytest.raises(RunFailed, match="down"):
            await say(runtime, agent, "c4", "never asked before")
        await trio.sleep(600)
        with pytest.raises(RunFailed, match="down"):
            await say(runtime, agent, "c5", "one")


# --- the parts ----------------------------------------------------------------------------------------


class Around:
    """A stand-in for a context, with what the cache uses of it."""

    def __init__(self, agent: str = "a", model: str = "m") -> None:
        class Named:
            def __init__(self, name: str) -> None:
                self.name = name
                self.model = self

        self.agent: Any = Named(agent)
        self.agent.model = Named(model)
        self.environment = SimulatedEnvironment()
        self.local: dict[str, Any] = {}


async def asked(cache: ResponseCache, request: ModelRequest, around: Around, text: str) -> str:
    async def answer(request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        return AssistantMessage(text)

    context: Any = around
    return (await cache.around_model_call(request, answer, context)).text


QUESTION = ModelRequest("be brief", (UserMessage("hello", "u1"),), (ToolSpec("t", "d", {"type": "object"}),), 100, 0.5)
SAME = ModelRequest("be brief", (UserMessage("hello", "other"),), (ToolSpec("t", "d", {"type": "object"}),), 100, 0.5)


@pytest.mark.parametrize(
    "other",
    [
        ModelRequest("be long", QUESTION.messages, QUESTION.tools, 100, 0.5),
        ModelRequest("be brief", (UserMessage("hello!"),), QUESTION.tools, 100, 0.5),
        ModelRequest("be brief", (*QUESTION.messages, AssistantMessage("hi")), QUESTION.tools, 100, 0.5),
        ModelRequest("be brief", (AssistantMessage("hello"),), QUESTION.tools, 100, 0.5),
        ModelRequest("be brief", QUESTION.messages, (), 100, 0.5),
        ModelRequest("be brief", QUESTION.messages, (ToolSpec("t", "d", {}),), 100, 0.5),
        ModelRequest("be brief", QUESTION.messages, QUESTION.tools, 99, 0.5),
        ModelRequest("be brief", QUESTION.messages, QUESTION.tools, 100, None),
    ],
    ids=["system", "text", "more", "role", "no tools", "schema", "max tokens", "temperature"],
)
async def test_whatever_the_model_sees_or_is_told_makes_a_request_another_one(other: ModelRequest) -> None:
    cache, around = ResponseCache(), Around()
    assert await asked(cache, QUESTION, around, "1") == "1"
    assert await asked(cache, SAME, around, "2") == "1"
    assert await asked(cache, other, around, "3") == "3"


async def test_another_model_and_another_runtime_are_asked_anew() -> None:
    cache, around = ResponseCache(shared=True), Around()
    assert await asked(cache, QUESTION, around, "1") == "1"
    assert await asked(cache, QUESTION, Around(model="n"), "2") == "2"
    assert await asked(cache, QUESTION, Around(), "3") == "3"


async def test_a_hit_that_came_to_nothing_does_not_mark_the_answer_that_the_model_gives_next() -> None:
    cache, around = ResponseCache(), Around()
    context: Any = around
    for text in ("1", "2"):
        assert await asked(cache, QUESTION, around, text) == "1"
    assert await asked(cache, ModelRequest("", (UserMessage("new"),)), around, "3") == "3"
    assert await cache.after_model(State(), context) is None


ids = st.lists(st.text("xyz", min_size=1, max_size=3), min_size=2, max_size=2, unique=True)


def history(first: str, second: str, *, crossed: bool = False) -> tuple[Message, ...]:
    results = [ToolResult(first, "t", "one"), ToolResult(second, "t", "two")]
    calls = (ToolCall(first, "t", {"n": 1}), ToolCall(second, "t", {"n": 2}))
    return (UserMessage("go"), AssistantMessage("", calls), *(reversed(results) if crossed else results))


@given(ids, ids)
async def test_ids_of_calls_do_not_count_but_which_result_answers_which_call_does(
    some: list[str], others: list[str]
) -> None:
    cache, around = ResponseCache(), Around()
    assert await asked(cache, ModelRequest("", history(*some)), around, "1") == "1"
    assert await asked(cache, ModelRequest("", history(*others)), around, "2") == "1"
    swapped = history(*some)[:2] + tuple(
        ToolResult(each, "t", text) for each, text in zip(reversed(some), ("one", "two"), strict=True)
    )
    assert await asked(cache, ModelRequest("", swapped), around, "3") == "3"


async def test_the_longest_unused_answers_leave_when_there_are_too_many_or_they_are_too_long() -> None:
    def question(text: str) -> ModelRequest:
        return ModelRequest("", (UserMessage(text),))

    cache, around = ResponseCache(capacity=2), Around()
    for text in ("a", "b", "a", "c"):
        await asked(cache, question(text), around, text)
    assert len(cache) == 2
    assert await asked(cache, question("a"), around, "new") == "a"
    assert await asked(cache, question("b"), around, "new") == "new"

    cache = ResponseCache(max_bytes=1_000)
    await asked(cache, question("huge"), around, "x" * 2_000)
    assert len(cache) == 0
    for number in range(20):
        await asked(cache, question(str(number)), around, "y" * 100)
    assert 2 <= len(cache) <= 9
    cache.clear()
    assert len(cache) == 0


@pytest.mark.parametrize(
    "wrong", [{"ttl": 0}, {"ttl": True}, {"capacity": 0}, {"max_bytes": 1.5}, {"stale_for": -1}], ids=str
)
def test_an_option_out_of_its_range_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidOption, match=f"ResponseCache {name}: expected"):
        ResponseCache(**wrong)
