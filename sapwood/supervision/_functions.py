"""Async functions as children, so that existing trio code can be supervised."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from sapwood.actors import Actor, TaskDone, TaskRef, handle


class FunctionActor(Actor):
    """Runs one async function; ends when it ends, and cancels it when told to stop.

    A return is `Normal`, an exception is a crash. With a `task_status` parameter the function has started when it
    calls `task_status.started()`, otherwise at once.
    """

    def __init__(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args
        self.task: TaskRef | None = None
        self._early: TaskDone | None = None

    async def on_start(self) -> None:
        if "task_status" not in inspect.signature(self.function).parameters:
            self.task = self.start_task(self.function, *self.args)
            await trio.lowlevel.checkpoint()
            return
        status = _Status()
        self.task = self.start_task(self._run, status, name=getattr(self.function, "__name__", None))
        await status.settled.wait()
        if status.error is not None:
            raise status.error

    async def _run(self, status: _Status) -> None:
        try:
            await self.function(*self.args, task_status=status)
        except Exception as error:
            status.fail(error)
            raise
        finally:
            status.settled.set()

    @handle
    def ended(self, message: TaskDone) -> None:
        self.stop(message.reason)

    def format_state(self) -> str:
        name = getattr(self.function, "__name__", repr(self.function))
        return f"function={name}"


class _Status:
    """The part of trio's task status that functions use."""

    def __init__(self) -> None:
        self.settled = trio.Event()
        self.begun = False
        self.error: Exception | None = None

    def started(self, value: Any = None) -> None:
        """Note that the function has started."""
        self.begun = True
        self.settled.set()

    def fail(self, error: Exception) -> None:
        """Note that the function failed; only an error before `started` is a failure to start."""
        if not self.begun:
            self.error = error

