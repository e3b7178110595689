"""The scripted model."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from sapwood.conversation import AssistantMessage, ToolCall, ToolResult, Usage, UserMessage
from sapwood.errors import InvalidOption, ModelUnavailable, ScriptExhausted
from sapwood.models import (
    Delay,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ScriptedModel,
    Stall,
    Step,
    Stop,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    call,
)


def ask(*messages: UserMessage | AssistantMessage | ToolResult, system: str = "") -> ModelRequest:
    return ModelRequest(system, messages or (UserMessage("hi"),))


async def collect(model: ScriptedModel, request: ModelRequest | None = None) -> list[ModelEvent]:
    async with model.stream(request or ask()) as events:
        return [event async for event in events]


async def answer(model: ScriptedModel, request: ModelRequest | None = None) -> AssistantMessage:
    last = (await collect(model, request))[-1]
    assert isinstance(last, ModelAnswer)
    return last.message


async def test_steps_are_played_in_order_and_every_request_is_recorded() -> None:
    model = ScriptedModel("one", call("add", a=1), ["three", call("add", a=2), call("now")])
    requests = [ask(UserMessage(text)) for text in ("a", "b", "c")]

    answers = [await answer(model, request) for request in requests]

    assert [made.text for made in answers] == ["one", "", "three"]
    assert answers[1].tool_calls == (ToolCall("call_1", "add", {"a": 1}),)
    assert answers[2].tool_calls == (ToolCall("call_1", "add", {"a": 2}), ToolCall("call_2", "now"))
    assert [made.stop_reason for made in answers] == ["end", "tools", "tools"]
    assert model.requests == requests
    assert model.remaining == 0


async def test_text_comes_in_chunks() -> None:
    events = await collect(ScriptedModel("abcdefg", chunk=3))

    assert events[:-1] == [TextDelta("abc"), TextDelta("def"), TextDelta("g")]


async def test_ids_are_the_scripts_own_or_the_first_that_the_conversation_has_free() -> None:
    used = AssistantMessage("", (ToolCall("call_1", "now"), ToolCall("call_3", "now")))
    model = ScriptedModel([call("now"), ToolCall("mine", "now"), call("now")])

    made = await answer(model, ask(UserMessage("x"), used))

    assert [tool_call.id for tool_call in made.tool_calls] == ["call_2", "mine", "call_4"]


async def test_malformed_arguments_are_streamed_and_answered_as_they_are() -> None:
    events = await collect(ScriptedModel(ToolCall("", "add", malformed='{"a')))

    assert events[:2] == [ToolCallStarted("call_1", "add"), ToolCallDelta("call_1", '{"a')]
    last = events[-1]
    assert isinstance(last, ModelAnswer)
    assert last.message.tool_calls == (ToolCall("call_1", "add", malformed='{"a'),)


async def test_a_delay_passes_on_the_clock(autojump_clock: MockClock) -> None:
    await collect(ScriptedModel(["a", Delay(30.0), "b"]))

    assert trio.current_time() == pytest.approx(30.0)


async def test_an_error_is_raised_after_the_parts_before_it() -> None:
    error = ModelUnavailable("scripted", "gone")
    got: list[ModelEvent] = []

    async def read() -> None:
        async with ScriptedModel(["half", error]).stream(ask()) as events:
            async for event in events:
                got.append(event)  # noqa: PERF401  # what came before the error must be seen

    with pytest.raises(ModelUnavailable) as caught:
        await read()

    assert caught.value is error
    assert got == [TextDelta("half")]


async def test_a_stall_lasts_until_it_is_cancelled(autojump_clock: MockClock) -> None:
    with trio.move_on_after(1000) as scope:
        await collect(ScriptedModel(["a", Stall()]))

    assert scope.cancelled_caught


async def test_a_function_sees_the_request_and_may_be_async() -> None:
    async def late(request: ModelRequest) -> str:
        await trio.lowlevel.checkpoint()
        return f"async {request.system}"

    def cut(request: ModelRequest) -> Step:
        return [f"sync {request.system}", Stop("length")]

    model = ScriptedModel(cut, late)

    first, second = await answer(model, ask(system="s")), await answer(model, ask(system="t"))

    assert (first.text, first.stop_reason) == ("sync s", "length")
    assert second.text == "async t"


async def test_usage_is_the_scripts_or_counted_at_four_characters_a_token() -> None:
    model = ScriptedModel(["x" * 9, Usage(10, 20, 5)], "x" * 9)
    request = ask(UserMessage("12345"), system="1234")

    assert (await answer(model, request)).usage == Usage(10, 20, 5)
    assert (await answer(model, request)).usage == Usage(1 + 2, 3)


async def test_the_end_of_the_script_is_an_error_of_its_own() -> None:
    model = ScriptedModel("only", name="short")
    await collect(model)

    with pytest.raises(ScriptExhausted, match="scripted:short: the script has 1 steps") as caught:
        await collect(model)

    assert not caught.value.retryable
    assert len(model.requests) == 2


async def test_then_answers_for_ever_after_the_end() -> None:
    model = ScriptedModel("one", then="again")

    assert [(await answer(model)).text for _ in range(3)] == ["one", "again", "again"]


async def test_several_agents_share_one_model_with_a_script_for_each() -> None:
    model = ScriptedModel(by=lambda request: request.system, scripts={"a": ["a1", "a2"], "b": ["b1"]})

    texts = [(await answer(model, ask(system=system))).text for system in ("a", "b", "a")]

    assert texts == ["a1", "b1", "a2"]
    with pytest.raises(ScriptExhausted, match="the script 'b'"):
        await collect(model, ask(system="b"))
    with pytest.raises(ScriptExhausted, match="the script 'c' has 0 steps"):
        await collect(model, ask(system="c"))


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InvalidOption, match="by= together with scripts="):
        ScriptedModel(by=lambda request: "a")
    with pytest.raises(InvalidOption, match="by= together with scripts="):
        ScriptedModel("x", by=lambda request: "a", scripts={"a": []})
    with pytest.raises(InvalidOption, match="chunk"):
        ScriptedModel(chunk=0)
