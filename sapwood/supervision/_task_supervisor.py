"""The task supervisor: short-lived async functions, each isolated, with or without a result that somebody awaits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, TypeVarTuple

from sapwood.actors import Failure, Normal, Ref, Request, current_actor, handle, message
from sapwood.errors import ActorDown
from sapwood.supervision._callers import Called
from sapwood.supervision._children import StartedChild
from sapwood.supervision._dynamic import DynamicSupervisor
from sapwood.supervision._functions import FunctionChild
from sapwood.supervision._requests import StartChild, start_child, terminate_child, which_children
from sapwood.supervision._spec import ChildSpec, Restart, ShutdownTime, child
from sapwood.supervision._task_handle import TaskHandle, Work
from sapwood.supervision._task_stream import TaskStream

A = TypeVar("A")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@message("supervision.start_task")
class StartTask(Request[StartedChild]):
    """Asks a task supervisor to start the work of a caller that waits for the start."""

    spec: ChildSpec
    work: Any


class TaskSupervisor(DynamicSupervisor):
    """A dynamic supervisor of tasks; OTP's `Task.Supervisor`.

    Use it through `Tasks`. Its options are those of `DynamicSupervisor`. A crash of a task touches neither the
    supervisor nor another task.
    """

    @handle
    def start_work(self, message: StartTask) -> StartedChild | Failure | None:
        work: Work[Any] = message.work
        if work.unwanted:
            return Failure(ActorDown(message.spec.id))  # its caller died before the work was handed over (OTP L04)
        return self.start_child(StartChild(message.spec))


class Tasks:
    """The tasks of one task supervisor: start them, wait for them, list them.

    ```python
    tasks = Tasks(await start_child(top, child(TaskSupervisor)))
    task = await tasks.launch(fetch, "https://example.org")
    print(await task.result())
    ```

    Args:
        supervisor: Ref of a `TaskSupervisor`.
    """

    def __init__(self, supervisor: Ref) -> None:
        self.supervisor = supervisor

    async def start_child(
        self,
        function: Callable[[*Ts], Awaitable[Any]],
        *args: *Ts,
        restart: Restart = "temporary",
        shutdown: ShutdownTime = 5.0,
    ) -> Ref:
        """Start a task whose result nobody wants; OTP's `start_child` (OTP L07, L08).

        Args:
            function: The async function to run.
            *args: Its arguments.
            restart: `temporary`, the default, never restarts it.
            shutdown: Seconds that it gets to stop, see `ChildSpec`.

        Raises:
            MaxChildren: if the supervisor is full (OTP L09).
            ActorDown: if the supervisor is dead.
        """
        spec = child(function, *args, restart=restart, shutdown=shutdown)
        if isinstance(spec.birth.factory, FunctionChild):
            spec = child(Called(function), *args, id=spec.id, restart=restart, shutdown=shutdown)
        ref = await start_child(self.supervisor, spec)
        assert ref is not None
        return ref

    async def launch(
        self,
        function: Callable[[*Ts], Awaitable[T]],
        *args: *Ts,
        shutdown: ShutdownTime = 5.0,
    ) -> TaskHandle[T]:
        """Start a task that is linked to the calling actor, and return a handle to wait for it; OTP's `async`.

        If the task fails, the actor falls with it, and the other way round, as with any link (OTP L01, L03, J02).
        Called outside of actors there is nothing to link, and it is the same as `launch_nolink`.

        Raises:
            MaxChildren: if the supervisor is full (OTP L09).
            ActorDown: if the supervisor is dead.
        """
        caller = current_actor()
        task = await self._launch(function, args, shutdown, caller, linked=caller is not None)
        if caller is None or caller._cell.actor is None:
            return task
        # The link of a task that has returned already has nothing to tell, unless exits are messages (OTP J03).
        if caller._cell.traps_exits or not isinstance(task.ref.exit_reason, Normal):
            caller._cell.actor.link(task.ref)
        return task

    async def launch_nolink(
        self,
        function: Callable[[*Ts], Awaitable[T]],
        *args: *Ts,
        shutdown: ShutdownTime = 5.0,
    ) -> TaskHandle[T]:
        """Start a task that no failure ties to the caller, and return a handle to wait for it; OTP's `async_nolink`.

        Once it is started it runs on, whatever becomes of the caller (OTP L02, L04).

        Raises:
            MaxChildren: if the supervisor is full (OTP L09).
            ActorDown: if the supervisor is dead.
        """
        return await self._launch(function, args, shutdown, current_actor(), linked=False)

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts, timeout: float | None = None) -> T:
        """Run a task and return its result; the task ends if the wait for it does.

        Raises:
            ActorDown: with the task's exit reason, if it fails.
            AskTimeout: if it has not ended within `timeout` seconds.
            MaxChildren: if the supervisor is full.
        """
        task = await self.launch_nolink(function, *args)
        try:
            return await task.result(timeout)
        finally:
            task.ref.kill()

    def stream(
        self,
        function: Callable[[A], Awaitable[T]],
        items: Iterable[A],
        *,
        max_concurrency: int = 8,
        ordered: bool = True,
    ) -> TaskStream[A, T]:
        """Run a function for each item, a bounded number at a time; OTP's `async_stream_nolink` (OTP L12).

        ```python
        async with tasks.stream(fetch, urls, max_concurrency=4) as outcomes:
            async for outcome in outcomes:
                print(outcome)
        ```

        The next item is taken when an outcome has been consumed, so a slow consumer slows the work down. Leaving
        the block early kills what still runs.

        Args:
            function: The async function to run with each item.
            items: The items; taken one by one, as they are needed.
            max_concurrency: Most tasks that run, or wait to be consumed, at a time.
            ordered: Whether outcomes come in the order of the items; False gives them as they end.

        Raises:
            InvalidOption: if `max_concurrency` is no int >= 1.
        """
        return TaskStream(self._start_item, function, items, max_concurrency=max_concurrency, ordered=ordered)

    async def children(self) -> list[Ref]:
        """Return the tasks that run now.

        Raises:
            ActorDown: if the supervisor is dead.
        """
        return [info.ref for info in await which_children(self.supervisor) if info.ref is not None]

    async def terminate_child(self, task: Ref) -> None:
        """Stop a task by its own shutdown setting.

        Raises:
            ChildNotFound: if it is no task of this supervisor, or has ended.
            ActorDown: if the supervisor is dead.
        """
        await terminate_child(self.supervisor, task)

    async def _start_item(self, function: Callable[[A], Awaitable[T]], item: A) -> TaskHandle[T]:
        return await self._launch(function, (item,), 5.0, current_actor(), linked=False)

    async def _launch(
        self,
        function: Callable[..., Awaitable[T]],
        args: tuple[Any, ...],
        shutdown: ShutdownTime,
        owner: Ref | None,
        *,
        linked: bool,
    ) -> TaskHandle[T]:
        work = Work(Called(function), linked)
        spec = child(work, *args, restart="temporary", shutdown=shutdown)
        ref: Ref | None = None
        try:
            ref = (await self.supervisor.ask(StartTask(spec, work), timeout=None)).ref
        finally:
            if ref is None:
                work.abandon()
        assert ref is not None
        return TaskHandle(ref, spec, work, owner, self.supervisor)
