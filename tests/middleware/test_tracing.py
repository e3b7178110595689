"""Tracing: spans by the semantic conventions for generative AI, and nothing of what was said in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from trio.testing import MockClock

from sapwood import Agent, ScriptedModel, tool
from sapwood.conversation import RunFinished, Usage
from sapwood.errors import ModelRefused, RunFailed, ToolError
from sapwood.middleware import HumanInTheLoop, ProcessContext, TraceContextProvider, Tracing
from sapwood.models import Delay, call
from tests.agents.kit import opened, until

PRIVATE = "the-private-order"


@tool
async def look(order: str) -> str:
    """Look an order up."""
    await trio.sleep(2)
    return f"{order} is {PRIVATE}"


@tool
def refuse(order: str) -> str:
    """Refuse."""
    raise ToolError(f"no {PRIVATE}")


class Spans:
    """A tracer whose spans can be read."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.layer = Tracing(self.provider.get_tracer("test"))

    def all(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


async def test_a_run_its_calls_and_its_tools_are_one_tree_of_spans(tmp_path: Path, autojump_clock: MockClock) -> None:
    spans = Spans()
    model = ScriptedModel([call("look", order=PRIVATE), Usage(10, 5)], [Delay(1), f"It is {PRIVATE}.", Usage(20, 6)])
    agent = Agent("shop", model=model, tools=[look], middleware=[spans.layer])
    async with opened(tmp_path / "store.db") as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say(PRIVATE)
    found = spans.all()
    run = found["invoke_agent shop"]
    chat = found[f"chat {model.name}"]
    used = found["execute_tool look"]
    assert run.parent is None
    assert run.context is not None
    for inner in (chat, used):
        assert inner.parent is not None
        assert inner.parent.span_id == run.context.span_id
    assert (run.kind, chat.kind, used.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL)
    assert dict(run.attributes or {}) | {"sapwood.run.id": ""} == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "shop",
        "gen_ai.conversation.id": "c1",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 11,
        "sapwood.run.id": "",
        "sapwood.status": "running",
    }
    assert (chat.attributes or {})["gen_ai.usage.input_tokens"] == 20
    assert (used.attributes or {})["gen_ai.tool.name"] == "look"
    assert all(PRIVATE not in span.to_json() for span in found.values())


async def test_errors_are_told_by_their_type_and_never_by_their_text(tmp_path: Path, autojump_clock: MockClock) -> None:
    spans = Spans()
    model = ScriptedModel([call("refuse", order="17")], ModelRefused("model", f"no {PRIVATE}"))
    agent = Agent("shop", model=model, tools=[refuse], middleware=[spans.layer])
    async with opened(tmp_path / "store.db") as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with pytest.raises(RunFailed):
            await session.say("go")
    found = spans.all()
    assert (found["execute_tool refuse"].attributes or {})["error.type"] == "tool_error"
    assert (found[f"chat {model.name}"].attributes or {})["error.type"] == "ModelRefused"
    assert found[f"chat {model.name}"].status.status_code is StatusCode.ERROR
    assert all(PRIVATE not in span.to_json() for span in found.values())


async def test_the_wait_for_a_person_is_a_span_as_long_as_the_wait_across_a_restart(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    spans = Spans()
    model = ScriptedModel(call("look", order="17"), "done")
    layers = [spans.layer, HumanInTheLoop(look=True)]
    agent = Agent("shop", model=model, tools=[look], middleware=layers)
    async with opened(tmp_path / "store.db") as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say("go")
        await trio.sleep(100)
    async with opened(tmp_path / "store.db") as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        [approval] = session.approvals
        with session.events() as events:
            await approval.approve(by="ann")
            await until(events, RunFinished)
    wait = spans.all()["approval_wait look"]
    assert wait.end_time is not None
    assert wait.start_time is not None
    assert (wait.end_time - wait.start_time) / 1e9 == pytest.approx(100, abs=1)
    assert (wait.attributes or {})["sapwood.interrupt.kind"] == "approval"


async def test_the_trace_of_the_request_goes_on_in_the_run(tmp_path: Path, autojump_clock: MockClock) -> None:
    spans = Spans()
    with spans.provider.get_tracer("host").start_as_current_span("request") as request:
        agent = Agent(
            "shop", model=ScriptedModel("hello"), middleware=[ProcessContext(TraceContextProvider()), spans.layer]
        )
    async with opened(tmp_path / "store.db") as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say("go")
    run = spans.all()["invoke_agent shop"]
    assert run.parent is not None
    assert run.parent.span_id == request.get_span_context().span_id
