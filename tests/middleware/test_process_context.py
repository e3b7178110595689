"""ProcessContext: what held where the agent was made holds in its runs, its tools and the next process."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextvars import ContextVar, copy_context
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import State
from sapwood.errors import CodecError, DuplicateName, InvalidOption, RunFailed
from sapwood.middleware import (
    ContextVarProvider,
    Middleware,
    MiddlewareContext,
    ProcessContext,
    TraceContextProvider,
)
from sapwood.models import call
from tests.agents.kit import opened, state_in

TENANT: ContextVar[str] = ContextVar("tenant")
DAY: ContextVar[date] = ContextVar("day")
TOKEN: ContextVar[str | None] = ContextVar("token", default=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def seen() -> Generator[list[Any]]:
    found: list[Any] = []
    yield found
    found.clear()


def layer() -> ProcessContext:
    return ProcessContext(
        ContextVarProvider(TENANT),
        ContextVarProvider(DAY, encode=date.isoformat, decode=date.fromisoformat),
        ContextVarProvider(TOKEN, stored=False),
    )


def snapshot() -> tuple[Any, ...]:
    return (TENANT.get("none"), DAY.get(None), TOKEN.get())


class Watching(Middleware):
    """Notes what holds in its hooks."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    async def before_model(self, state: State, context: MiddlewareContext) -> None:
        self.seen.append(("hook", *snapshot()))


def agent_for(context: ProcessContext, seen: list[Any]) -> Agent:
    @tool
    async def look() -> str:
        """Look around."""
        seen.append(("tool", *snapshot()))
        return "seen"

    @tool(blocking=True)
    def look_in_thread() -> str:
        """Look around in a thread."""
        seen.append(("thread", *snapshot()))
        return "seen"

    model = ScriptedModel([call("look"), call("look_in_thread")], then="ok")
    return Agent("a", model=model, tools=[look, look_in_thread], middleware=[context, Watching(seen)])


def agent_of(tenant: str, token: str | None, context: ProcessContext, seen: list[Any]) -> Agent:
    """Make an agent where these values hold, and nowhere else."""

    def make() -> Agent:
        TENANT.set(tenant)
        DAY.set(date(2026, 1, 2))
        TOKEN.set(token)
        return agent_for(context, seen)

    return copy_context().run(make)


async def started(runtime: Runtime, agent: Agent) -> Session:
    return await runtime.sessions.ensure_running(agent, "c1")


async def test_hooks_tools_and_threads_see_what_held_where_the_agent_was_made(
    path: Path, autojump_clock: MockClock, seen: list[Any]
) -> None:
    async with opened(path) as runtime:
        session = await started(runtime, agent_of("acme", "s3cret", layer(), seen))
        await session.say("go")
        values = ("acme", date(2026, 1, 2), "s3cret")
        assert sorted({each[0] for each in seen}) == ["hook", "thread", "tool"]
        assert {each[1:] for each in seen} == {values}
        assert snapshot() == ("none", None, None)
        assert session.state.metadata == {"process_context": {"tenant": "acme", "day": "2026-01-02"}}
        assert "s3cret" not in str(await state_in(runtime))


async def test_a_restart_elsewhere_finds_the_stored_values_and_not_those_that_may_not_be_stored(
    path: Path, autojump_clock: MockClock, seen: list[Any]
) -> None:
    async with opened(path) as runtime:
        await (await started(runtime, agent_of("acme", "s3cret", layer(), seen))).say("go")
    seen.clear()
    async with opened(path, seed=1) as runtime:
        session = await started(runtime, agent_for(layer(), seen))
        await session.say("again")
    assert seen[0] == ("hook", "acme", date(2026, 1, 2), None)


async def test_what_a_conversation_has_stays_until_the_host_hands_in_something_newer(
    path: Path, autojump_clock: MockClock, seen: list[Any]
) -> None:
    async with opened(path) as runtime:
        await (await started(runtime, agent_of("acme", "old", layer(), seen))).say("go")
        await runtime.sessions.stop("c1")
        context = layer()
        session = await started(runtime, agent_of("other", "new", context, seen))
        seen.clear()
        await session.say("again")
        assert seen[0] == ("hook", "acme", date(2026, 1, 2), "new")

        def newer() -> Any:
            TENANT.set("moved")
            TOKEN.set("newest")
            return context.capture()

        captured = copy_context().run(newer)
        assert "newest" not in repr(captured)
        assert await session.notify("ProcessContext", captured)
        seen.clear()
        await session.say("once more")
        assert seen[0] == ("hook", "moved", date(2026, 1, 2), "newest")
        with pytest.raises(InvalidOption, match=r"expected what capture\(\) returned"):
            await session.notify("ProcessContext", {"tenant": "evil"})


async def test_the_spans_of_tools_join_the_trace_of_the_request_in_the_next_process_too(
    path: Path, autojump_clock: MockClock
) -> None:
    parents: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        parents.append(f"{trace.get_current_span().get_span_context().trace_id:x}")
        return "seen"

    def agent(*steps: Any) -> Agent:
        layers = [ProcessContext(TraceContextProvider())]
        return Agent("a", model=ScriptedModel(*steps), tools=[look], middleware=layers)

    span = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1)))
    with trace.use_span(span):
        made = agent(call("look"), "ok")
    async with opened(path) as runtime:
        await (await started(runtime, made)).say("go")
    async with opened(path, seed=1) as runtime:
        await (await started(runtime, agent(call("look"), "ok"))).say("go")
    assert parents == ["abc", "abc"]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_value_that_cannot_be_restored_fails_the_run_and_says_so(
    path: Path, autojump_clock: MockClock, seen: list[Any]
) -> None:
    def refuse(value: Any) -> str:
        raise ValueError("no such tenant")

    provider = ContextVarProvider(TENANT, encode=str, decode=refuse)
    async with opened(path) as runtime:
        session = await started(runtime, agent_of("acme", None, ProcessContext(provider), seen))
        with pytest.raises(RunFailed, match="no such tenant"):
            await session.say("go")


def test_a_restored_value_holds_inside_its_block_and_no_longer() -> None:
    provider = ContextVarProvider(DAY, encode=date.isoformat, decode=date.fromisoformat)
    with provider.restore("2026-01-02"):
        assert DAY.get() == date(2026, 1, 2)
        assert provider.capture() == "2026-01-02"
    assert DAY.get(None) is None
    assert provider.capture() is None


def test_providers_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidOption, match="at least one provider"):
        ProcessContext()
    with pytest.raises(DuplicateName, match="tenant"):
        ProcessContext(ContextVarProvider(TENANT), ContextVarProvider(DAY, name="tenant"))
    wrong: Any = "tenant"
    with pytest.raises(InvalidOption, match="expected a ContextVar; got 'tenant'"):
        ContextVarProvider(wrong)
    with pytest.raises(InvalidOption, match="encode together with decode"):
        ContextVarProvider(DAY, encode=str)


def test_a_value_that_is_no_data_is_refused_when_the_agent_is_made() -> None:
    lock: ContextVar[Any] = ContextVar("lock")

    def make() -> None:
        lock.set(threading.Lock())
        Agent("a", model=ScriptedModel(), middleware=[ProcessContext(ContextVarProvider(lock))])

    with pytest.raises(CodecError, match=r"context\.lock"):
        copy_context().run(make)
