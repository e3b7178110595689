"""Raw asyncio with what the baseline does on trio: a deque, one future to sleep on, batches of 64."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from benchmarks.cells import workloads
from benchmarks.cells.raw import Handler
from benchmarks.cells.raw_asyncio import RawAsyncio

BATCH = 64


class Park(Handler):
    """The baseline's actor, on asyncio."""

    __slots__ = ("loop", "queue", "sleeping")

    def __init__(self) -> None:
        super().__init__()
        self.queue: deque[Any] = deque()
        self.sleeping: asyncio.Future[None] | None = None
        self.loop = asyncio.get_running_loop()

    def tell(self, message: Any) -> None:
        self.queue.append(message)
        if self.sleeping is not None:
            self.sleeping.set_result(None)
            self.sleeping = None

    async def ask(self, message: Any) -> Any:
        answer: asyncio.Future[Any] = self.loop.create_future()
        self.tell(Slot(message, answer))
        return await answer

    async def run(self) -> None:
        queue = self.queue
        while True:
            count = 0
            while queue:
                entry = queue.popleft()
                if type(entry) is Slot:
                    try:
                        entry.answer.set_result(await self.handle(entry.message))
                    except ValueError as error:
                        entry.answer.set_exception(error)
                        self.total = 0
                else:
                    await self.handle(entry)
                count += 1
                if count == BATCH:
                    break
            if queue:
                await asyncio.sleep(0)
            else:
                self.sleeping = sleeping = self.loop.create_future()
                await sleeping


class Slot:
    """A request with the future of its answer."""

    __slots__ = ("answer", "message")

    def __init__(self, message: Any, answer: asyncio.Future[Any]) -> None:
        self.message = message
        self.answer = answer


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return workloads.measure(RawAsyncio(Park), workload)
