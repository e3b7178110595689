"""Async functions as children, so that existing trio code can be supervised."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from sapwood.actors import Actor, ExitReason, Started, StartResult, TaskDone, TaskRef, handle
from sapwood.errors import StartError


@attrs.frozen
class FunctionChild:
    """Makes the actor that runs an async function; what a child spec starts."""

    function: Callable[..., Awaitable[Any]]
    keywords: dict[str, Any] = attrs.field(factory=dict[str, Any])

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, *args: Any) -> FunctionActor:
        return FunctionActor(self.function, args, self.keywords)


class FunctionActor(Actor):
    """Runs one async function; ends when it ends, and cancels it when told to stop.

    A return is `Normal`, an exception is a crash. With a `task_status` parameter the function has started when it
    calls `task_status.started()`, and the value given there is the start's extra info; otherwise it has started
    at once. When the actor is told to stop, the function is cancelled and has its shutdown time to clean up in a
    shielded scope; an exception from that clean-up is the exit reason (OTP E10).
    """

    def __init__(
        self,
        function: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...] = (),
        keywords: dict[str, Any] | None = None,
    ) -> None:
        self._function = function
        self._args = args
        self._keywords = keywords or {}
        self._task: TaskRef | None = None
        self._settled = trio.Event()
        self._ended = trio.Event()
        self._failure: Exception | None = None

    async def on_start(self) -> StartResult:
        name = getattr(self._function, "__name__", None)
        if "task_status" not in inspect.signature(self._function).parameters:
            self._task = self.start_task(self._run, self._keywords, name=name)
            await trio.lowlevel.checkpoint()
            return None
        status = _TaskStatus(self._settled)
        self._task = self.start_task(self._run, {**self._keywords, "task_status": status}, name=name)
        await self._settled.wait()
        if status.begun:
            return None if status.value is None else Started(status.value)
        self._raise_failure()
        raise StartError(f"{name} returned without a call of task_status.started()")

    async def _run(self, keywords: dict[str, Any]) -> None:
        try:
            await self._function(*self._args, **keywords)
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            # Raised again in the actor itself, so that the report shows where it came from.
            self._failure = error
        finally:
            self._settled.set()
            self._ended.set()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @handle
    def function_ended(self, message: TaskDone) -> None:
        self.stop(message.reason)  # a failure is raised in on_stop

    async def on_stop(self, reason: ExitReason) -> None:
        if self._task is not None:
            self._task.cancel()
        await self._ended.wait()
        self._raise_failure()

    def format_state(self) -> str:
        return f"function={getattr(self._function, '__name__', repr(self._function))}"


class _TaskStatus:
    """The part of trio's task status that functions use."""

    def __init__(self, settled: trio.Event) -> None:
        self._settled = settled
        self.begun = False
        self.value: Any = None

    def started(self, value: Any = None) -> None:
        """Note that the function has started.

        Raises:
            RuntimeError: if it was called before, as trio's own does.
        """
        if self.begun:
            raise RuntimeError("called 'started' twice on the same task status")
        self.begun = True
        self.value = value
        self._settled.set()
