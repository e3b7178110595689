"""Deadlines: one heap and one task for all time-outs and timers of a system."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

import trio
from trio._core._run import SystemClock  # the only way to tell trio's real clock from a virtual one

_NEVER = float("inf")
_COMPACT_ABOVE = 64


class Due(Protocol):
    """What may stand in the heap: an ask that waits, or a `Deadline`."""

    @property
    def pending(self) -> bool:
        """Whether it is still to fire."""
        ...

    def fire(self) -> None:
        """Do what is due; it is pending no longer."""
        ...


class Deadline:
    """One moment at which something is to happen; cancel it if the thing is no longer wanted."""

    __slots__ = ("_action", "_owner", "at")

    def __init__(self, at: float, action: Callable[[], None], owner: Deadlines) -> None:
        self.at = at
        self._action: Callable[[], None] | None = action
        self._owner = owner

    @property
    def pending(self) -> bool:
        """Whether it has neither fired nor been cancelled."""
        return self._action is not None

    def cancel(self) -> bool:
        """Forget the action; say whether it was still pending."""
        if self._action is None:
            return False
        self._action = None
        self._owner.forget()
        return True

    def fire(self) -> None:
        """Run the action, once."""
        action = self._action
        if action is not None:
            self._action = None
            action()


class Deadlines:
    """A heap of deadlines on the monotonic clock.

    Setting and cancelling one costs no task switch and no cancel scope; cancelled ones are dropped lazily, and
    the heap is rebuilt when they are the larger part, so that it never grows with the number of calls made.
    Actions run in the task that runs `run`, must not block, and must not raise.
    """

    def __init__(self) -> None:
        self.clock = trio.lowlevel.current_clock()
        self._heap: list[tuple[float, int, Due]] = []
        self._cancelled = 0
        self._counter = 0
        self._next = _NEVER
        self._scope: trio.CancelScope | None = None
        self._exact = False

    def __len__(self) -> int:
        """How many deadlines are pending."""
        return len(self._heap) - self._cancelled

    def at(self, when: float, action: Callable[[], None]) -> Deadline:
        """Run `action` at the time `when`, in seconds on trio's clock; equal times keep their order."""
        deadline = Deadline(when, action, self)
        self.add(when, deadline)
        return deadline

    def add(self, when: float, due: Due) -> None:
        """Have `due` fire at the time `when`; whoever takes that back calls `forget`."""
        self._counter = count = self._counter + 1
        heapq.heappush(self._heap, (when, count, due))
        if when < self._next:
            self._next = when
            if self._scope is not None:
                self._scope.deadline = when

    def forget(self) -> None:
        """Note that one in the heap is pending no longer."""
        self._cancelled = cancelled = self._cancelled + 1
        heap = self._heap
        if cancelled == len(heap):
            heap.clear()
            self._cancelled = 0
        elif cancelled > _COMPACT_ABOVE and cancelled * 2 > len(heap):
            heap[:] = [entry for entry in heap if entry[2].pending]
            heapq.heapify(heap)
            self._cancelled = 0
        if self._exact and self._scope is not None:
            self._scope.deadline = self._earliest()

    def _earliest(self) -> float:
        heap = self._heap
        while heap and not heap[0][2].pending:
            heapq.heappop(heap)
            self._cancelled -= 1
        self._next = heap[0][0] if heap else _NEVER
        return self._next

    async def run(self) -> None:
        """Fire deadlines until cancelled."""
        # A virtual clock jumps to whatever is waited for, so there a cancelled deadline may not be waited for.
        self._exact = not isinstance(self.clock, SystemClock)
        while True:
            self._fire_due(trio.current_time())
            with trio.CancelScope(deadline=self._earliest()) as self._scope:
                await trio.sleep_forever()
            self._scope = None

    def _fire_due(self, now: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= now:
            deadline = heapq.heappop(heap)[2]
            if deadline.pending:
                deadline.fire()
            else:
                self._cancelled -= 1
