"""What every chat model must do, whoever makes it; a new implementation joins by a line in `CASES`."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import pytest
import trio

from sapwood.actors import SimulatedEnvironment
from sapwood.conversation import ToolCall, ToolSpec, UserMessage
from sapwood.models import (
    AnthropicModel,
    ChatModel,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    OfflineModel,
    OpenAIModel,
    ScriptedModel,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    call,
    retrying,
)
from sapwood.testing._fake_provider import open_fake_provider
from sapwood.testing._fake_wire import FakeAnswer

TEXT = "I answer in a few words, so that there are several deltas."
ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)
SAYS = ModelRequest("", (UserMessage("hello"),), (ADD,))
CALLS = ModelRequest("", (UserMessage("add 3 and 4"),), (ADD,))


@attrs.frozen
class Replies:
    """What a model must answer to `SAYS` and to `CALLS`, as often as it is asked."""

    texts: int = 0
    calls: int = 0


Open = Callable[[Replies], AbstractAsyncContextManager[ChatModel]]


@asynccontextmanager
async def offline(replies: Replies) -> AsyncGenerator[ChatModel, None]:
    yield OfflineModel()


@asynccontextmanager
async def scripted(replies: Replies) -> AsyncGenerator[ChatModel, None]:
    yield ScriptedModel(*[TEXT] * replies.texts, *[call("add", a=3, b=4)] * replies.calls)


def fake_answers(replies: Replies) -> list[FakeAnswer]:
    calls = FakeAnswer(calls=(ToolCall("call_a", "add", {"a": 3, "b": 4}),), drip=0.001)
    return [*[FakeAnswer(text=TEXT, drip=0.001)] * replies.texts, *[calls] * replies.calls]


@asynccontextmanager
async def anthropic(replies: Replies) -> AsyncGenerator[ChatModel, None]:
    async with (
        open_fake_provider(*fake_answers(replies)) as server,
        AnthropicModel("fake", base_url=server.anthropic_url) as model,
    ):
        yield model


@asynccontextmanager
async def openai(replies: Replies) -> AsyncGenerator[ChatModel, None]:
    async with (
        open_fake_provider(*fake_answers(replies)) as server,
        OpenAIModel("fake", base_url=server.openai_url) as model,
    ):
        yield model


@attrs.frozen
class Retried:
    """A model behind `retrying`, which must keep the same promises."""

    model: ChatModel

    @property
    def name(self) -> str:
        return self.model.name

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncGenerator[ModelEvent, None]]:
        return retrying(self.model, request, environment=SimulatedEnvironment())  # type: ignore[return-value]  # an iterator will do


@asynccontextmanager
async def retried(replies: Replies) -> AsyncGenerator[ChatModel, None]:
    async with scripted(replies) as model:
        yield Retried(model)


CASES: list[Open] = [offline, scripted, anthropic, openai, retried]


@pytest.fixture(params=CASES, ids=lambda case: case.__name__)
def open_model(request: pytest.FixtureRequest) -> Open:
    made: Open = request.param
    return made


async def collect(model: ChatModel, request: ModelRequest) -> list[ModelEvent]:
    with trio.fail_after(10):
        async with model.stream(request) as events:
            return [event async for event in events]


@pytest.mark.row("S4-022")
async def test_a_stream_is_deltas_and_then_exactly_one_answer_with_their_text(open_model: Open) -> None:
    async with open_model(Replies(texts=1)) as model:
        events = await collect(model, SAYS)

    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    answer = events[-1]
    assert isinstance(answer, ModelAnswer)
    assert [event for event in events if isinstance(event, ModelAnswer)] == [answer]
    assert len(deltas) > 1
    assert "".join(deltas) == answer.message.text
    assert answer.message.stop_reason == "end"
    assert answer.message.tool_calls == ()


@pytest.mark.row("S4-022", "BR-65")
async def test_a_call_is_named_before_its_arguments_and_its_deltas_are_the_final_argument_text(
    open_model: Open,
) -> None:
    async with open_model(Replies(calls=1)) as model:
        events = await collect(model, CALLS)

    answer = events[-1]
    assert isinstance(answer, ModelAnswer)
    (made,) = answer.message.tool_calls
    started = [event for event in events if isinstance(event, ToolCallStarted)]
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    assert started == [ToolCallStarted(made.id, "add")]
    assert events.index(started[0]) < events.index(deltas[0])
    assert {delta.call_id for delta in deltas} == {made.id}
    assert json.loads("".join(delta.text for delta in deltas)) == made.arguments == {"a": 3, "b": 4}
    assert made.id
    assert answer.message.stop_reason == "tools"


async def test_every_answer_counts_its_tokens(open_model: Open) -> None:
    async with open_model(Replies(texts=1)) as model:
        events = await collect(model, SAYS)

    answer = events[-1]
    assert isinstance(answer, ModelAnswer)
    assert answer.message.usage.input_tokens > 0
    assert answer.message.usage.output_tokens > 0


async def test_a_stream_that_is_read_to_its_end_stays_at_its_end(open_model: Open) -> None:
    async with open_model(Replies(texts=1)) as model, model.stream(SAYS) as events:
        with trio.fail_after(10):
            assert [event async for event in events] != []
            assert [event async for event in events] == []


async def test_a_block_left_early_ends_the_call_and_the_next_call_works(open_model: Open) -> None:
    async with open_model(Replies(texts=2)) as model:
        async with model.stream(SAYS) as events:
            first = await anext(events)
        again = await collect(model, SAYS)

    assert isinstance(first, TextDelta)
    assert isinstance(again[-1], ModelAnswer)


@pytest.mark.row("BR-68", "UP-37")
@pytest.mark.parametrize("seen", [0, 1, 3])
async def test_a_cancelled_call_ends_at_once_without_an_answer_and_the_next_call_works(
    open_model: Open, seen: int
) -> None:
    got: list[ModelEvent] = []
    async with open_model(Replies(texts=2)) as model:
        with trio.fail_after(10), trio.CancelScope() as scope:
            if seen == 0:
                scope.cancel()
            async with model.stream(SAYS) as events:
                async for event in events:
                    got.append(event)
                    if len(got) == seen:
                        scope.cancel()
        again = await collect(model, SAYS) if seen else []

    assert scope.cancelled_caught
    assert len(got) == seen
    assert not any(isinstance(event, ModelAnswer) for event in got)
    assert seen == 0 or isinstance(again[-1], ModelAnswer)


async def test_an_error_of_the_consumer_leaves_the_block_as_it_is(open_model: Open) -> None:
    async with open_model(Replies(texts=1)) as model:

        async def read_one_and_fail() -> None:
            async with model.stream(SAYS) as events:
                await anext(events)
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await read_one_and_fail()


async def test_overlapping_calls_do_not_mix(open_model: Open) -> None:
    answers: list[list[ModelEvent]] = []

    async with open_model(Replies(calls=8)) as model:

        async def run() -> None:
            answers.append(await collect(model, CALLS))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(run)

    assert len(answers) == 8
    for events in answers:
        answer = events[-1]
        assert isinstance(answer, ModelAnswer)
        assert [made.arguments for made in answer.message.tool_calls] == [{"a": 3, "b": 4}]


async def test_the_name_says_provider_and_model(open_model: Open) -> None:
    async with open_model(Replies()) as model:
        provider, _, name = model.name.partition(":")
    assert provider
    assert name
