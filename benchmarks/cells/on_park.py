"""Raw trio by hand: a deque, parking and rescheduling, batches of 64, no supervision. The baseline of all ratios."""

from __future__ import annotations

from collections import deque
from typing import Any

import outcome
import trio

from benchmarks.cells import workloads
from benchmarks.cells.raw import Handler
from benchmarks.cells.raw_trio import RawTrio

BATCH = 64


class Park(Handler):
    """The smallest actor that can do the workloads."""

    __slots__ = ("parked", "queue", "task")

    def __init__(self) -> None:
        super().__init__()
        self.queue: deque[Any] = deque()
        self.parked = False
        self.task: Any = None

    def tell(self, message: Any) -> None:
        self.queue.append(message)
        if self.parked:
            self.parked = False
            trio.lowlevel.reschedule(self.task)

    async def ask(self, message: Any) -> Any:
        self.tell(Slot(message, trio.lowlevel.current_task()))
        return await trio.lowlevel.wait_task_rescheduled(_abort)

    async def run(self) -> None:
        self.task = trio.lowlevel.current_task()
        queue = self.queue
        while True:
            count = 0
            while queue:
                entry = queue.popleft()
                if type(entry) is Slot:
                    try:
                        value = await self.handle(entry.message)
                    except ValueError as error:
                        trio.lowlevel.reschedule(entry.task, outcome.Error(error))
                        self.total = 0  # the next incarnation, in the same task
                    else:
                        trio.lowlevel.reschedule(entry.task, outcome.Value(value))
                else:
                    await self.handle(entry)
                count += 1
                if count == BATCH:
                    break
            if queue:
                await trio.lowlevel.checkpoint()
            else:
                self.parked = True
                await trio.lowlevel.wait_task_rescheduled(_abort)


class Slot:
    """A request with the task that waits for its answer."""

    __slots__ = ("message", "task")

    def __init__(self, message: Any, task: Any) -> None:
        self.message = message
        self.task = task


def _abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.SUCCEEDED


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return workloads.measure(RawTrio(Park), workload)
