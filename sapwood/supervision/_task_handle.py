"""One supervised task: its result, and who may ask for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import attrs
import trio

from sapwood.actors import ExitReason, Killed, Ref, Shutdown, current_actor
from sapwood.errors import ActorDown, AskTimeout, NotOwner
from sapwood.supervision._spec import ChildSpec, ShutdownTime
from sapwood.supervision._stopping import stop_cell

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@attrs.frozen
class Returned(Generic[T_co]):
    """The task returned `value`."""

    value: T_co


@attrs.frozen
class Failed:
    """The task ended without a result; `reason` is its exit reason."""

    reason: ExitReason


Outcome: TypeAlias = Returned[T] | Failed
"""How a task ended."""


@attrs.define(eq=False)
class Work(Generic[T]):
    """The function of one task, and a place for its result.

    Attributes:
        function: What to run.
        linked: Whether it ends with its caller.
        result: What it returned.
        unwanted: Whether its caller was gone before it was started.
    """

    function: Callable[..., Awaitable[T]]
    linked: bool
    result: Returned[T] | None = None
    unwanted: bool = False
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    async def __call__(self, *args: Any) -> None:
        with self._scope:
            self.result = Returned(await self.function(*args))

    def abandon(self) -> None:
        """Note that the caller is gone: what has not begun does not begin, and what is linked ends (OTP L03, L04)."""
        self.unwanted = True
        if self.linked:
            self._scope.cancel()


class TaskHandle(Generic[T]):
    """A task that somebody started and may wait for; OTP's `Task` struct.

    Only the actor that started it may wait for it or stop it (OTP L06); if none did, only code outside of actors.
    Waiting takes no message out of a mailbox and leaves none behind (OTP L01).
    """

    def __init__(self, ref: Ref, spec: ChildSpec, work: Work[T], owner: Ref | None, supervisor: Ref) -> None:
        self.ref = ref
        self.owner = owner
        self._spec = spec
        self._work = work
        self._supervisor = supervisor

    def __repr__(self) -> str:
        return f"<TaskHandle {self.ref.label}{'' if self.ref.alive else ' (ended)'}>"

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self.ref.alive

    async def result(self, timeout: float | None = None) -> T:
        """Wait for its end and return what it returned; OTP's `await`.

        Args:
            timeout: Seconds to wait; None, the default, waits as long as it runs. The task goes on if the wait ends.

        Raises:
            ActorDown: with its exit reason, if it ended without a result (OTP L05).
            AskTimeout: if it has not ended in time; waiting again is allowed.
            NotOwner: if another actor started it.
        """
        outcome = await self.poll(timeout)
        match outcome:
            case Returned(value):
                return value
            case Failed(reason):
                raise ActorDown(self.ref.label, reason)
            case None:
                raise AskTimeout(self.ref.label, "result", timeout or 0.0)

    async def poll(self, timeout: float | None = 0.0) -> Outcome[T] | None:
        """Wait for its end and return how it ended, or None if it still runs; OTP's `yield`, may be repeated.

        Args:
            timeout: Seconds to wait; None waits as long as it runs.

        Raises:
            NotOwner: if another actor started it.
        """
        self._check_owner("wait for")
        reason: ExitReason | None = None
        if self.done:
            await trio.lowlevel.checkpoint()
            reason = self.ref.exit_reason
        else:
            with trio.move_on_after(float("inf") if timeout is None else timeout):
                reason = await self.ref.wait_stopped()
        return None if reason is None else self._outcome(reason)

    async def shutdown(self, timeout: ShutdownTime = 5.0) -> Outcome[T] | None:
        """Stop it and wait for its end (OTP L10).

        Args:
            timeout: Seconds that it gets before it is killed, None for no limit, or `brutal_kill`.

        Returns:
            What it had returned already, None if it was stopped as asked, or how it ended otherwise; one that had
            to be killed after its time ended `Killed`.

        Raises:
            NotOwner: if another actor started it.
        """
        self._check_owner("stop")
        if self.owner is not None and self.owner._cell.actor is not None:
            self.owner._cell.actor.unlink(self.ref, flush=True)
        await trio.lowlevel.checkpoint()
        spec = attrs.evolve(self._spec, shutdown=timeout)
        reason = await stop_cell(self.ref._cell, spec, self._supervisor.label)
        asked = Killed() if timeout == "brutal_kill" else Shutdown()
        return None if self._work.result is None and reason == asked else self._outcome(reason)

    def _outcome(self, reason: ExitReason) -> Outcome[T]:
        return self._work.result if self._work.result is not None else Failed(reason)

    def _check_owner(self, deed: str) -> None:
        if current_actor() is not self.owner:
            raise NotOwner(self.ref.label, deed, self.owner, current_actor())


async def results(tasks: Sequence[TaskHandle[T]], timeout: float | None = None) -> list[T]:
    """Wait for many tasks and return their results in the order given; OTP's `await_many` (OTP L11).

    Args:
        tasks: The tasks.
        timeout: Seconds to wait for all of them together; None waits as long as they run.

    Raises:
        ActorDown: as soon as any of them ends without a result; the others go on.
        AskTimeout: naming one that has not ended in time.
        NotOwner: if another actor started one of them.
    """
    failures: list[Exception] = []
    async with trio.open_nursery() as nursery:

        async def wait(task: TaskHandle[T]) -> None:
            try:
                await task.result()
            except (ActorDown, NotOwner) as error:
                failures.append(error)
                nursery.cancel_scope.cancel()

        for task in tasks:
            nursery.start_soon(wait, task)
        if timeout is not None:
            nursery.cancel_scope.deadline = trio.current_time() + timeout
    if failures:
        raise failures[0]
    for task in tasks:
        if not task.done:
            raise AskTimeout(task.ref.label, "result", timeout or 0.0)
    return [await task.result() for task in tasks]
