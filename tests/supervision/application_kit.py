"""Applications that write down what happens, and fail where a test wants them to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import trio

from sapwood.actors import ExitReason, Ref
from sapwood.supervision import (
    Application,
    child,
    which_applications,
)
from tests.supervision.kit import BoomError, Worker


class Book:
    """Applications whose hooks and roots write down what happens, and fail where a test wants them to."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.failing: set[str] = set()

    def note(self, what: str) -> None:
        self.log.append(what)
        if what in self.failing:
            raise BoomError(what)

    def take(self) -> list[str]:
        """Return what has happened since the last time."""
        log, self.log = self.log, []
        return log

    def application(self, name: str, *requires: str, **options: Any) -> Application:
        options.setdefault("root", child(Noted, self, name, id=f"{name}-root"))
        options.setdefault("start", partial(self.begin, name))
        options.setdefault("stop", partial(self.end, name))
        return Application(name, requires=requires, **options)

    def begin(self, name: str, configuration: Mapping[str, Any]) -> str:
        self.note(f"start {name}")
        return f"state of {name}"

    def prepare(self, name: str, state: object) -> object:
        self.note(f"prepare {name}")
        return state

    async def end(self, name: str, state: object) -> None:
        await trio.lowlevel.checkpoint()
        self.note(f"stop {name}")


class Noted(Worker):
    def __init__(self, book: Book, name: str) -> None:
        super().__init__(name)
        self.book = book

    async def on_start(self) -> None:
        await trio.lowlevel.checkpoint()
        self.book.note(f"run {self.name}")

    def on_stop(self, reason: ExitReason) -> None:
        self.book.note(f"end {self.name}")


def shop(book: Book, **options: Any) -> list[Application]:
    """Four applications, in an order in which they cannot start."""
    return [
        book.application("web", "session", "catalog", **options),
        book.application("session", "database", **options),
        book.application("catalog", "database", **options),
        book.application("database", **options),
    ]


def running(controller: Ref) -> list[str]:
    return [info.name for info in which_applications(controller) if info.state == "running"]


def root_of(controller: Ref, name: str) -> Ref:
    [root] = [info.root for info in which_applications(controller) if info.name == name]
    assert root is not None
    return root


def waits(seconds: float) -> Callable[[object], Awaitable[None]]:
    """Return a hook that takes so long."""

    async def hook(state: object) -> None:
        await trio.sleep(seconds)

    return hook
