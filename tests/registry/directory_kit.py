"""Actors that do in a directory what a test tells them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
import trio

from sapwood.actors import (
    Actor,
    ActorSystem,
    Exit,
    Failure,
    Ref,
    Request,
    SimulatedEnvironment,
    handle,
    message,
    open_system,
)
from sapwood.errors import SapwoodError
from sapwood.registry import Directory, Key, Registered, Registration, Unregistered
from sapwood.supervision import Supervisor

T = TypeVar("T")

KEY: Key = ("room", 1)
OTHER: Key = ("room", 2)


@message("directories.run")
class Run(Request[Any]):
    """Has the actor call a function; a `SapwoodError` goes back to the caller."""

    function: Any


@message("directories.work")
class Work(Request[Any]):
    """Has the actor await a function."""

    function: Any


class Member(Actor):
    """Keeps what it was told of, and the exits that it trapped."""

    def __init__(self, start: Callable[[], Any] | None = None, *, traps: bool = False) -> None:
        self.trap_exits = traps
        self.told: list[tuple[str, Key, Any]] = []
        self.exits: list[Exit] = []
        self.start = start

    def on_start(self) -> None:
        if self.start is not None:
            self.start()

    @handle
    def run(self, message: Run) -> Any:
        try:
            return message.function()
        except SapwoodError as error:
            return Failure(error)

    @handle
    async def work(self, message: Work) -> Any:
        return await message.function()

    @handle
    def registered(self, message: Registered) -> None:
        self.told.append(("registered", message.registration.key, message.registration.value))

    @handle
    def unregistered(self, message: Unregistered) -> None:
        self.told.append(("unregistered", message.registration.key, message.registration.value))

    @handle
    def linked_ended(self, message: Exit) -> None:
        self.exits.append(message)


@asynccontextmanager
async def running(*directories: Directory[Any]) -> AsyncGenerator[ActorSystem]:
    """Run directories under a supervisor that restarts them for ever."""
    async with open_system(SimulatedEnvironment()) as system:
        specs = [directory.child_spec() for directory in directories]
        await system.spawn(Supervisor, specs, strategy="one_for_one", restarts=1000)
        yield system


async def do(ref: Ref, function: Callable[..., T], *args: Any) -> T:
    """Have an actor call a function."""
    result: T = await ref.ask(Run(lambda: function(*args)))
    return result


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until something holds."""
    for _ in range(10_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    pytest.fail("what was waited for did not come")


async def replace_owner(directory: Directory[Any]) -> None:
    """Kill the owner of the table, and wait until another one answers."""
    old = directory.ref
    old.kill()
    await until(lambda: directory.ref is not old and directory.state == "up")


def pairs(found: list[Registration[Any]]) -> list[tuple[Ref, Any]]:
    return [(one.ref, one.value) for one in found]
