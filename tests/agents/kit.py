"""What the tests of agents share: runtimes in a simulated world, collected events, middleware that notes its hooks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

from sapwood import Ref, Runtime, Session, open_runtime
from sapwood.actors import SimulatedEnvironment
from sapwood.agents import RunStream, Sessions, Subscription
from sapwood.conversation import (
    AssistantMessage,
    Message,
    Operation,
    RunFinished,
    State,
    StreamEvent,
    ToolResult,
    UserMessage,
    check_pairs,
    journal,
)
from sapwood.middleware import HookResult, Middleware, MiddlewareContext, ModelCall, RunCall, ToolInvocation
from sapwood.models import ModelRequest
from sapwood.persistence import Entry, SnapshotPolicy
from sapwood.registry import Running
from sapwood.tools import ToolOutcome

E = TypeVar("E", bound=StreamEvent)


@asynccontextmanager
async def opened(path: Path | str, *, seed: int = 0, snapshots: int = 200, **options: Any) -> AsyncGenerator[Runtime]:
    """Open a runtime in a simulated world: real SQLite, no threads, a virtual clock."""
    async with open_runtime(
        store=path, environment=SimulatedEnvironment(seed), signals=False, synchronous="NORMAL", **options
    ) as runtime:
        sessions: Sessions = runtime.sessions
        sessions._services = attrs.evolve(sessions._services, snapshots=SnapshotPolicy(every=snapshots))
        yield runtime


def server_of(runtime: Runtime, agent_id: str = "c1") -> Ref:
    """Return the live server of a conversation."""
    found = runtime.registry.lookup_nowait(("agent", agent_id))
    assert isinstance(found, Running)
    return found.ref


async def entries_of(runtime: Runtime, agent_id: str = "c1") -> list[Entry]:
    """Return what is journaled."""
    return await runtime.journal.read(agent_id, limit=100_000)


async def events_in(runtime: Runtime, agent_id: str = "c1") -> list[str]:
    """Return the names of the journaled events in order."""
    return [type(entry.event).__name__ for entry in await entries_of(runtime, agent_id)]


async def state_in(runtime: Runtime, agent_id: str = "c1") -> State:
    """Fold the journal as it is stored."""
    entries = await entries_of(runtime, agent_id)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    return journal.fold(State(), (entry.event for entry in entries))


# --- events -----------------------------------------------------------------------------------------


async def waiting_events(subscription: Subscription) -> list[StreamEvent]:
    """Return what a subscription has, without waiting for more."""
    found: list[StreamEvent] = []
    with trio.move_on_after(0.0001):
        while True:
            try:
                found.append(await anext(subscription))
            except StopAsyncIteration:
                break
    return found


async def until(subscription: Subscription | RunStream, kind: type[E], **wanted: Any) -> tuple[list[StreamEvent], E]:
    """Read events up to one of a kind with these attributes; return all of them, and that one."""
    read: list[StreamEvent] = []
    async for event in subscription:
        read.append(event)
        if isinstance(event, kind) and all(getattr(event, name) == value for name, value in wanted.items()):
            return read, event
    raise AssertionError(f"the events ended without {kind.__name__} {wanted}: {names(read)}")


async def finished(session: Session, text: str, **options: Any) -> RunFinished:
    """Send a message and return the end of its run."""
    async with session.send(text, **options) as run:
        result = await run.finish()
    assert result is not None
    return result


def names(events: Sequence[StreamEvent]) -> list[str]:
    """Return the kinds of events in order."""
    return [type(event).__name__ for event in events]


def of(events: Sequence[StreamEvent], kind: type[E]) -> list[E]:
    """Return the events of one kind."""
    return [event for event in events if isinstance(event, kind)]


# --- transcripts ------------------------------------------------------------------------------------


def transcript(messages: Sequence[Message]) -> list[str]:
    """Return a conversation in short lines: `user: …`, `model: … -> tool`, `tool: …`."""
    lines: list[str] = []
    for message in messages:
        match message:
            case UserMessage(text):
                lines.append(f"user: {text}")
            case AssistantMessage(text, calls):
                lines.append(f"model: {text}" + "".join(f" -> {call.name}" for call in calls))
            case ToolResult(name=name, content=content):
                lines.append(f"{name}: {content}")
    return lines


def assert_sendable(state: State) -> None:
    """Fail if a provider would refuse the conversation."""
    assert check_pairs(state.messages) == ()


# --- middleware -------------------------------------------------------------------------------------


class Noting(Middleware):
    """Base of middleware that writes down when its hooks run. Several share one list."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.label = name

    def note(self, hook: str) -> None:
        self.log.append(f"{self.label}.{hook}")


class AllHooks(Noting):
    """Has every hook, and changes nothing."""

    def init(self, agent: object) -> None:
        self.note("init")

    def system_prompt(self, context: MiddlewareContext) -> str:
        self.note("system_prompt")
        return f"part of {self.label}"

    async def on_server_start(self, context: MiddlewareContext) -> None:
        self.note("on_server_start")

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        self.note("before_model")
        return None

    async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
        self.note("after_model")
        return None

    async def around_run(self, call_next: RunCall, context: MiddlewareContext) -> None:
        self.note("run begins")
        await call_next()
        self.note("run ends")

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        self.note("model call begins")
        answer = await call_next(request)
        self.note("model call ends")
        return answer

    async def around_tool_call(self, call: Any, call_next: ToolInvocation, context: MiddlewareContext) -> ToolOutcome:
        self.note("tool call begins")
        outcome = await call_next(call)
        self.note("tool call ends")
        return outcome


def named(base: type[Noting], name: str, log: list[str]) -> Noting:
    """Return an instance of a subclass with this name, since names of middleware are those of its classes."""
    made: type[Noting] = type(name, (base,), {})
    return made(log, name)


class Changing(Middleware):
    """Makes given changes at given hooks, once each."""

    def __init__(
        self, *, before: Sequence[Operation] = (), after: Sequence[Operation] = (), start: Sequence[Operation] = ()
    ) -> None:
        self.before = list(before)
        self.after = list(after)
        self.start = list(start)

    async def on_server_start(self, context: MiddlewareContext) -> Sequence[Operation]:
        return self.start

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        changes, self.before = self.before, []
        return changes

    async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
        changes, self.after = self.after, []
        return changes
