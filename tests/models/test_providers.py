"""The provider models against a server that speaks each provider's wire format over real sockets."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from sapwood.actors import SimulatedEnvironment
from sapwood.conversation import AssistantMessage, ToolCall, ToolResult, ToolSpec, Usage, UserMessage
from sapwood.errors import (
    InvalidOption,
    MissingExtra,
    ModelError,
    ModelProtocolError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from sapwood.models import (
    AnthropicModel,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    OpenAIModel,
    RetryPolicy,
    StreamRestarted,
    TextDelta,
    retrying,
)
from sapwood.testing._fake_provider import FakeProvider, open_fake_provider
from sapwood.testing._fake_wire import Ending, FakeAnswer, FakeBody, FakeFailure, FakeReply, FakeSilence

KEY = "sk-do-not-show-0123456789"
HELLO = ModelRequest("Be brief.", (UserMessage("Hello"),))
LONG = "A text that takes a good many events to send."

ProviderModel = AnthropicModel | OpenAIModel


@attrs.frozen
class Provider:
    """One provider's models and the server that stands in for it."""

    kind: str
    server: FakeProvider
    made: list[ProviderModel]

    def model(self, *, stall_timeout: float = 5.0) -> ProviderModel:
        """Return a model that talks to the server."""
        make = make_anthropic if self.kind == "anthropic" else make_openai
        self.made.append(make(self.server, stall_timeout))
        return self.made[-1]


def make_anthropic(server: FakeProvider, stall_timeout: float = 5.0) -> ProviderModel:
    return AnthropicModel("fake-1", api_key=KEY, base_url=server.anthropic_url, stall_timeout=stall_timeout)


def make_openai(server: FakeProvider, stall_timeout: float = 5.0) -> ProviderModel:
    return OpenAIModel("fake-1", api_key=KEY, base_url=server.openai_url, stall_timeout=stall_timeout)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(params=["anthropic", "openai"])
async def provider(request: pytest.FixtureRequest) -> AsyncGenerator[Provider, None]:
    async with open_fake_provider() as server:
        provider = Provider(str(request.param), server, [])
        yield provider
        for model in provider.made:
            await model.aclose()


async def collect(
    model: ProviderModel, request: ModelRequest = HELLO, *, into: list[ModelEvent] | None = None
) -> list[ModelEvent]:
    got: list[ModelEvent] = [] if into is None else into
    with trio.fail_after(10):
        async with model.stream(request) as events:
            async for event in events:
                got.append(event)  # noqa: PERF401  # what came before an error must be seen
    return got


async def answer_of(model: ProviderModel, request: ModelRequest = HELLO) -> AssistantMessage:
    answer = (await collect(model, request))[-1]
    assert isinstance(answer, ModelAnswer)
    return answer.message


async def failure_of(model: ProviderModel, request: ModelRequest = HELLO) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await collect(model, request)
    return caught.value


# --- answers


@pytest.mark.row("S4-022", "BR-65")
async def test_text_and_parallel_calls_are_assembled_with_usage_and_stop_reason(provider: Provider) -> None:
    calls = (ToolCall("id_1", "add", {"a": 1, "note": "\u00e9 \U0001f600"}), ToolCall("id_2", "now"))
    provider.server.script(FakeAnswer(text=LONG, calls=calls, usage=Usage(120, 30, 100)))

    message = await answer_of(provider.model())

    assert message == AssistantMessage(LONG, calls, stop_reason="tools", usage=Usage(120, 30, 100))


async def test_arguments_that_are_no_json_object_are_kept_as_they_came_and_are_no_error(provider: Provider) -> None:
    calls = (ToolCall("id_1", "add", malformed='{"a": 1'), ToolCall("id_2", "add", malformed="[1, 2]"))
    provider.server.script(FakeAnswer(calls=calls))

    assert (await answer_of(provider.model())).tool_calls == calls


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refused"),
        ("something_new", "end"),
    ],
)
async def test_stop_reasons_of_anthropic_are_mapped(stop: str, expected: str) -> None:
    async with open_fake_provider(FakeAnswer(text="x", stop=stop)) as server, make_anthropic(server) as model:
        assert (await answer_of(model)).stop_reason == expected


@pytest.mark.parametrize(
    ("stop", "expected"), [("stop", "end"), ("length", "length"), ("content_filter", "refused"), ("new", "end")]
)
async def test_stop_reasons_of_openai_are_mapped(stop: str, expected: str) -> None:
    async with open_fake_provider(FakeAnswer(text="x", stop=stop)) as server, make_openai(server) as model:
        assert (await answer_of(model)).stop_reason == expected


async def test_a_call_id_that_the_conversation_has_already_is_replaced(provider: Provider) -> None:
    provider.server.script(FakeAnswer(calls=(ToolCall("call_0", "now"), ToolCall("", "now"))))
    history = (
        UserMessage("x"),
        AssistantMessage("", (ToolCall("call_0", "now"),)),
        ToolResult("call_0", "now", "noon"),
    )

    first, second = (await answer_of(provider.model(), ModelRequest("", history))).tool_calls

    assert len({first.id, second.id, "call_0", ""}) == 4


async def test_connections_are_used_again_for_the_next_call(provider: Provider) -> None:
    provider.server.script(*[FakeAnswer(text=LONG)] * 4)
    model = provider.model()

    for _ in range(4):
        await collect(model)

    assert provider.server.connections == 1


# --- failures


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (FakeFailure(529), ModelUnavailable),
        (FakeFailure(500), ModelUnavailable),
        (FakeFailure(502, body=b"<html>Bad gateway</html>"), ModelUnavailable),
        (FakeFailure(408), ModelUnavailable),
        (FakeFailure(429), RateLimited),
        (FakeFailure(429, kind="insufficient_quota"), ModelRefused),
        (FakeFailure(400), ModelRefused),
        (FakeFailure(401), ModelRefused),
        (FakeFailure(404), ModelRefused),
        (FakeFailure(413), ModelRefused),
        (FakeBody(b"<html></html>", "text/html"), ModelProtocolError),
        (FakeBody(b"data: [1]\n\n"), ModelProtocolError),
        (FakeBody(b"data: \xff\n\n"), ModelProtocolError),
        (FakeBody(b'data: {"choices": 5, "type": 7}\n\ndata: {"type": "message_delta"}\n\n'), ModelProtocolError),
        (FakeBody(b""), ModelUnavailable),
    ],
    ids=str,
)
async def test_every_failure_has_its_error(provider: Provider, reply: FakeReply, expected: type[ModelError]) -> None:
    provider.server.script(reply)

    error = await failure_of(provider.model())

    assert type(error) is expected
    assert error.status == (reply.status if isinstance(reply, FakeFailure) else None)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("disconnect", ModelUnavailable),
        ("close", ModelUnavailable),
        ("error", ModelUnavailable),
        ("malformed", ModelProtocolError),
    ],
)
async def test_a_stream_that_breaks_in_the_middle_has_its_error_after_its_deltas(
    provider: Provider, ending: Ending, expected: type[ModelError]
) -> None:
    provider.server.script(FakeAnswer(text=LONG, ending=ending, after=6, drip=0.005), FakeAnswer(text="Again."))
    model = provider.model()
    got: list[ModelEvent] = []

    with pytest.raises(expected):
        await collect(model, into=got)

    assert LONG.startswith("".join(event.text for event in got if isinstance(event, TextDelta)))
    assert got != []
    assert (await answer_of(model)).text == "Again."


@pytest.mark.parametrize("reply", [FakeSilence(), FakeAnswer(text=LONG, ending="stall", after=5)], ids=str)
async def test_a_silent_provider_is_unavailable_after_the_stall_timeout(provider: Provider, reply: FakeReply) -> None:
    provider.server.script(reply)

    error = await failure_of(provider.model(stall_timeout=0.2))

    assert isinstance(error, ModelUnavailable)
    assert "0.2 s" in error.problem
    with trio.fail_after(5):
        await provider.server.wait_for_disconnects()


async def test_a_slow_drip_is_no_stall(provider: Provider) -> None:
    provider.server.script(FakeAnswer(text="drip drip drip", piece=2, drip=0.06))

    assert (await answer_of(provider.model(stall_timeout=0.3))).text == "drip drip drip"


async def test_the_time_that_the_consumer_takes_is_no_stall(provider: Provider) -> None:
    provider.server.script(FakeAnswer(text="slow reader", piece=4))

    with trio.fail_after(10):
        async with provider.model(stall_timeout=0.1).stream(HELLO) as events:
            first = await anext(events)
            await trio.sleep(0.25)
            rest = [event async for event in events]

    assert isinstance(first, TextDelta)
    assert isinstance(rest[-1], ModelAnswer)


async def test_keep_alive_pings_are_signs_of_life() -> None:
    reply = FakeAnswer(text=LONG, ending="pings", after=4)
    async with open_fake_provider(reply) as server, make_anthropic(server, 0.2) as model:
        with trio.move_on_after(0.6) as scope:
            await collect(model)

    assert scope.cancelled_caught


@pytest.mark.parametrize(("header", "expected"), [("7", 7.0), ("0.5", 0.5), ("", None), ("soon", None), ("-3", 0.0)])
async def test_a_rate_limit_carries_the_seconds_to_wait(
    provider: Provider, header: str, expected: float | None
) -> None:
    provider.server.script(FakeFailure(429, "slow down", retry_after=header))

    assert (await failure_of(provider.model())).retry_after == expected


async def test_a_retry_after_date_is_counted_from_the_environments_clock(provider: Provider) -> None:
    environment = SimulatedEnvironment(epoch=1_700_000_000.0 - trio.current_time())
    provider.server.script(FakeFailure(429, retry_after="Tue, 14 Nov 2023 22:13:50 GMT"))
    model = attrs.evolve(provider).model()
    model._environment = environment

    retry_after = (await failure_of(model)).retry_after

    assert retry_after is not None
    assert retry_after == pytest.approx(30, abs=5)


@pytest.mark.parametrize("make", [AnthropicModel, OpenAIModel])
async def test_a_refused_connection_is_unavailable(make: type[ProviderModel]) -> None:
    async with open_fake_provider() as server:
        url = server.openai_url
    async with make("fake", base_url=url) as model:
        error = await failure_of(model)

    assert isinstance(error, ModelUnavailable)
    assert "Connection error." not in str(error)


@pytest.mark.parametrize("make", [AnthropicModel, OpenAIModel])
async def test_without_a_key_the_call_is_refused_with_what_to_do(make: type[ProviderModel]) -> None:
    async with make("fake") as model:
        error = await failure_of(model)

    assert isinstance(error, ModelRefused)
    assert f"set {make.key_variable}" in str(error)


async def test_a_broken_stream_is_repeated_and_the_consumer_is_told_to_discard(provider: Provider) -> None:
    provider.server.script(
        FakeAnswer(text=LONG, ending="disconnect", after=5, drip=0.005), FakeFailure(529), FakeAnswer(text="Whole.")
    )
    policy = RetryPolicy(base=0.01)

    with trio.fail_after(10):
        model = provider.model()
        async with retrying(model, HELLO, environment=SimulatedEnvironment(), policy=policy) as events:
            got = [event async for event in events]

    restarts = [at for at, event in enumerate(got) if isinstance(event, StreamRestarted)]
    assert len(restarts) == 2
    assert len(provider.server.requests) == 3
    assert "".join(event.text for event in got[restarts[-1] :] if isinstance(event, TextDelta)) == "Whole."


# --- leaving


@pytest.mark.row("UP-37")
async def test_an_early_exit_reaches_the_socket_and_leaks_no_connection(provider: Provider) -> None:
    provider.server.script(*[FakeAnswer(text=LONG, drip=0.01)] * 20)
    model = provider.model()

    with trio.fail_after(20):
        for _ in range(20):
            async with model.stream(HELLO) as events:
                await anext(events)
        await provider.server.wait_for_disconnects(20)
        await provider.server.wait_until_idle()

    gc.collect()
    assert provider.server.open_connections == 0


@pytest.mark.row("UP-37", "BR-68")
@pytest.mark.parametrize("reply", [FakeSilence(), FakeAnswer(text=LONG, ending="stall", after=5)], ids=str)
async def test_a_cancellation_reaches_the_socket(provider: Provider, reply: FakeReply) -> None:
    provider.server.script(reply, FakeAnswer(text="Next."))
    model = provider.model()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect, model)
            await provider.server.wait_for_requests()
            nursery.cancel_scope.cancel()
        await provider.server.wait_for_disconnects()

    assert (await answer_of(model)).text == "Next."


async def test_aclose_closes_the_connections_and_the_next_call_opens_new_ones(provider: Provider) -> None:
    provider.server.script(FakeAnswer(text="1"), FakeAnswer(text="2"))
    model = provider.model()

    await collect(model)
    await model.aclose()
    with trio.fail_after(5):
        await provider.server.wait_until_idle()
    await model.aclose()

    assert (await answer_of(model)).text == "2"
    assert provider.server.connections == 2


@pytest.mark.parametrize("make", [make_anthropic, make_openai])
def test_a_model_serves_several_runs_one_after_another_and_in_threads(
    make: Callable[[FakeProvider], ProviderModel],
) -> None:
    models: list[ProviderModel] = []
    texts: list[str] = []

    async def run(*, close: bool) -> None:
        async with open_fake_provider(FakeAnswer(text="Hello.")) as server:
            models.append(models[0] if models else make(server))
            models[0]._base_url = make(server)._base_url
            texts.append((await answer_of(models[0])).text)
            if close:
                await models[0].aclose()

    def run_in_thread() -> None:
        trio.run(partial(run, close=True))

    trio.run(partial(run, close=False))  # what it leaves open is closed by the next run
    trio.run(partial(run, close=True))
    thread = threading.Thread(target=run_in_thread)
    thread.start()
    thread.join(timeout=20)
    gc.collect()

    assert texts == ["Hello."] * 3
    assert models[0]._clients == {}


# --- secrets


async def test_the_key_is_in_no_error_repr_log_or_traceback(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider.server.script(
        FakeFailure(401, f"Incorrect API key provided: {KEY}"),
        FakeFailure(400, body=KEY.encode()),
        FakeAnswer(text="x"),
    )
    model = provider.model()

    errors = [await failure_of(model), await failure_of(model)]
    await collect(model)

    seen = [repr(model), str(model), model.name, caplog.text, *map(str, errors), *map(repr, errors)]
    seen += ["".join(traceback.format_exception(error)) for error in errors]
    assert [text for text in seen if KEY in text] == []
    assert all(KEY in "".join(request.headers.values()) for request in provider.server.requests)


async def test_no_sdk_error_hangs_on_ours(provider: Provider) -> None:
    provider.server.script(FakeFailure(401), FakeAnswer(text=LONG, ending="disconnect"), FakeBody(b"data: [1]\n\n"))
    model = provider.model()

    for _ in range(3):
        error = await failure_of(model)
        assert error.__cause__ is None
        assert error.__context__ is None


# --- requests


HISTORY = (
    UserMessage("Add and tell."),
    AssistantMessage("", (ToolCall("a", "add", {"a": 1}), ToolCall("b c", "to lower", malformed='{"x'))),
    ToolResult("a", "add", "1"),
    ToolResult("b c", "to lower", "Error: no JSON", is_error=True),
    AssistantMessage("", stop_reason="cancelled"),
    UserMessage("half \ud83d pair, whole \ud83d\ude00, nul \0"),
)
ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})


@pytest.mark.row("S4-021", "BR-31")
async def test_a_conversation_is_sent_to_anthropic_in_alternating_turns() -> None:
    async with open_fake_provider(FakeAnswer(text="x")) as server, make_anthropic(server) as model:
        await collect(model, ModelRequest("Be brief.", HISTORY, (ADD,), max_tokens=99, temperature=0.5))
        body = server.requests[0].body

    assert body["system"] == "Be brief."
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (99, 0.5, True)
    assert body["tools"] == [{"name": "add", "description": "Adds.", "input_schema": dict(ADD.parameters)}]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    first, second = body["messages"][1]["content"]
    assert first == {"type": "tool_use", "id": "a", "name": "add", "input": {"a": 1}}
    assert (second["name"], second["input"]) == ("to_lower", {"malformed_arguments": '{"x'})
    one, two, said = body["messages"][2]["content"]
    assert one == {"type": "tool_result", "tool_use_id": "a", "content": "1", "is_error": False}
    assert (two["tool_use_id"], two["is_error"]) == (second["id"], True)
    assert said == {"type": "text", "text": "half \ufffd pair, whole \U0001f600, nul \0"}


@pytest.mark.row("S4-021", "BR-31")
async def test_a_conversation_is_sent_to_openai_message_by_message() -> None:
    async with open_fake_provider(FakeAnswer(text="x")) as server, make_openai(server) as model:
        await collect(model, ModelRequest("Be brief.", HISTORY, (ADD,), max_tokens=99))
        body = server.requests[0].body

    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert body["max_tokens"] == 99
    assert body["stream_options"] == {"include_usage": True}
    first, second = body["messages"][2]["tool_calls"]
    assert first == {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    assert body["messages"][4]["tool_call_id"] == second["id"]
    assert body["messages"][5]["content"] == "half \ufffd pair, whole \U0001f600, nul \0"
    assert body["tools"][0]["function"]["name"] == "add"


async def test_calls_in_the_history_are_declared_and_barred_when_no_tool_is_on_offer() -> None:
    async with open_fake_provider(FakeAnswer(text="x")) as server, make_anthropic(server) as model:
        await collect(model, ModelRequest("", HISTORY))
        body = server.requests[0].body

    assert [tool["name"] for tool in body["tools"]] == ["add", "to_lower"]
    assert body["tool_choice"] == {"type": "none"}
    assert "system" not in body


# --- construction


@pytest.mark.parametrize("make", [AnthropicModel, OpenAIModel])
def test_options_out_of_range_are_refused(make: type[ProviderModel]) -> None:
    with pytest.raises(InvalidOption, match="name of a model"):
        make("")
    with pytest.raises(InvalidOption, match="http://"):
        make("x", base_url="localhost:8080")
    with pytest.raises(InvalidOption, match="at least 1"):
        make("x", max_tokens=0)
    with pytest.raises(InvalidOption, match="above 0"):
        make("x", stall_timeout=0)


@pytest.mark.parametrize("make", [AnthropicModel, OpenAIModel])
def test_a_missing_sdk_is_named_with_the_extra_to_install(
    make: type[ProviderModel], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "modules", {k: v for k, v in sys.modules.items() if k != make.package})
    sys.path_importer_cache.clear()

    with pytest.raises(MissingExtra) as caught:
        make("x")

    assert str(caught.value) == f"{make.__name__} needs the package '{make.package}': pip install 'sapwood[llm]'"
