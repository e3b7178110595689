"""An actor that does what a test tells it to, and three ways to ask it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from sapwood.actors import (
    Actor,
    ActorSystem,
    Cell,
    Down,
    Exit,
    ExitReason,
    Ref,
    Request,
    TaskDone,
    TelemetryEvent,
    handle,
    message,
)

E = TypeVar("E", bound=TelemetryEvent)
T = TypeVar("T")


@message("tests.actors.note")
class Note:
    value: Any = None


@message("tests.actors.do")
class Do:
    function: Callable[[Any], object]


@message("tests.actors.slow_do")
class SlowDo:
    function: Callable[[Any], Awaitable[object]]


@message("tests.actors.call")
class Call(Request[Any]):
    function: Callable[[Any], Any]


@message("tests.actors.slow_call")
class SlowCall(Request[Any]):
    function: Callable[[Any], Awaitable[Any]]


@message("tests.actors.stranger")
class Stranger:
    """No handler takes it."""


@message("tests.actors.strange_request")
class StrangeRequest(Request[int]):
    """No handler takes it."""


class Probe(Actor):
    """Notes what reaches it in `log`, and runs the functions that messages bring."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    @handle
    def note(self, message: Note) -> None:
        self.log.append(message.value)

    @handle
    def do(self, message: Do) -> None:
        message.function(self)

    @handle
    async def slow_do(self, message: SlowDo) -> None:
        await message.function(self)

    @handle
    def call(self, message: Call) -> Any:
        return message.function(self)

    @handle
    async def slow_call(self, message: SlowCall) -> Any:
        return await message.function(self)

    @handle
    def notice(self, message: Down | Exit | TaskDone) -> None:
        self.log.append(message)


class TrappingProbe(Probe):
    """A probe that gets the exits of linked actors as messages."""

    trap_exits = True


class StopNotes(Probe):
    """A probe that notes its end in a list that outlives it."""

    def __init__(self, ends: list[ExitReason]) -> None:
        super().__init__()
        self.ends = ends

    def on_stop(self, reason: ExitReason) -> None:
        self.ends.append(reason)


class Way(Enum):
    """The three ways in which a request can be handled."""

    INLINE = "a plain handler of an idle actor, run by the caller"
    SWITCHED = "a plain handler of a busy actor"
    ASYNC = "an async handler"


ways = pytest.mark.parametrize("way", list(Way), ids=[way.name.lower() for way in Way])


async def ask_by(way: Way, ref: Ref, function: Callable[[Any], Any], **options: Any) -> Any:
    """Have the actor call a function in the handler of a request, and return the answer."""
    if way is Way.INLINE:
        await settle()
        assert ref._cell.mode == 1, "the actor must be idle"
        return await ref.ask(Call(function), **options)
    if way is Way.SWITCHED:
        ref.tell(Do(lambda actor: None))
        return await ref.ask(Call(function), **options)

    async def slowly(actor: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return function(actor)

    return await ref.ask(SlowCall(slowly), **options)


async def settle() -> None:
    """Wait until nothing moves any more, at this moment of virtual time."""
    await trio.testing.wait_all_tasks_blocked()


async def later(function: Callable[..., T], *args: Any) -> T:
    """Call a function after a checkpoint; makes an async function of a plain one."""
    await trio.lowlevel.checkpoint()
    return function(*args)


async def until(condition: Callable[[], object]) -> None:
    """Let others run until a condition holds; time stands still meanwhile where it is virtual."""
    for _ in range(1_000_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    raise AssertionError("expected the condition to hold at last")


async def log_of(ref: Ref) -> list[Any]:
    """Return what a probe has noted, when all that was sent before has been handled."""
    return list((await ref.get_state(timeout=None))["log"])


async def end_of(ref: Ref) -> ExitReason:
    """Return the exit reason of an actor that is about to end."""
    with trio.fail_after(60):
        return await ref.wait_stopped()


def record(system: ActorSystem) -> list[TelemetryEvent]:
    """Return a list that telemetry events are appended to."""
    events: list[TelemetryEvent] = []
    system.telemetry.subscribe(events.append)
    return events


def of_kind(events: list[TelemetryEvent], kind: type[E]) -> list[E]:
    """Return the events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def cell_of(ref: Ref) -> Cell:
    """Return the kernel's side of a ref."""
    return ref._cell


def adding(value: object) -> Callable[[Any], None]:
    """Return a function for a probe that notes a value."""

    def function(actor: Any) -> None:
        actor.log.append(value)

    return function


def sleeping(seconds: float) -> Callable[[Any], Awaitable[None]]:
    """Return an async function for a probe that sleeps."""

    async def function(_actor: Any) -> None:
        await trio.sleep(seconds)

    return function


async def pause(_actor: Any) -> None:
    """Let others run; an async function for a probe."""
    await trio.lowlevel.checkpoint()


def raising(error: BaseException) -> Callable[[Any], Any]:
    """Return a function for a probe that raises."""

    def function(_actor: Any) -> Any:
        raise error

    return function
