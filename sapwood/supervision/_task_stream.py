"""A bounded stream of tasks: one for each item, so many at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from types import TracebackType
from typing import Generic, TypeVar

import trio

from sapwood.errors import InvalidOption
from sapwood.supervision._stopping import STUCK_AFTER
from sapwood.supervision._task_handle import Outcome, TaskHandle

A = TypeVar("A")
T = TypeVar("T")


class TaskStream(Generic[A, T]):
    """Outcomes of a function for many items; made by `Tasks.stream`.

    An async context manager and an async iterator. No nursery or scope is open between two outcomes.
    """

    def __init__(
        self,
        start: Callable[[Callable[[A], Awaitable[T]], A], Awaitable[TaskHandle[T]]],
        function: Callable[[A], Awaitable[T]],
        items: Iterable[A],
        *,
        max_concurrency: int,
        ordered: bool,
    ) -> None:
        if type(max_concurrency) is not int or max_concurrency < 1:
            raise InvalidOption(f"max_concurrency: expected an int >= 1; got {max_concurrency!r}")
        self._start = start
        self._function = function
        self._items = iter(items)
        self._max_concurrency = max_concurrency
        self._ordered = ordered
        self._tasks: list[TaskHandle[T]] = []
        self._open = False

    async def __aenter__(self) -> TaskStream[A, T]:
        self._open = True
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What runs is killed, and waited for though the consumer may be cancelled; the limit is for one that is stuck.
        self._open = False
        for task in self._tasks:
            task.ref.kill()
        with trio.CancelScope(deadline=trio.current_time() + STUCK_AFTER, shield=True):
            for task in self._tasks:
                await task.ref.wait_stopped()
        self._tasks.clear()

    def __aiter__(self) -> TaskStream[A, T]:
        return self

    async def __anext__(self) -> Outcome[T]:
        """Return the next outcome.

        Raises:
            StopAsyncIteration: when every item has had its outcome.
            InvalidOption: outside of `async with`.
            MaxChildren: if the supervisor has no room for the next item.
        """
        if not self._open:
            raise InvalidOption("a stream of tasks is used inside   async with tasks.stream(...) as outcomes:")
        for item in islice(self._items, self._max_concurrency - len(self._tasks)):
            self._tasks.append(await self._start(self._function, item))
        if not self._tasks:
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        task = self._tasks[0] if self._ordered else await self._first_to_end()
        outcome = await task.poll(None)
        assert outcome is not None
        self._tasks.remove(task)
        return outcome

    async def _first_to_end(self) -> TaskHandle[T]:
        async with trio.open_nursery() as nursery:

            async def wait(task: TaskHandle[T]) -> None:
                await task.ref.wait_stopped()
                nursery.cancel_scope.cancel()

            for task in self._tasks:
                nursery.start_soon(wait, task)
        return next(task for task in self._tasks if task.done)
