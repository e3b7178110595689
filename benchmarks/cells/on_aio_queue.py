"""Raw asyncio with an `asyncio.Queue`, and a future for each answer."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.cells import workloads
from benchmarks.cells.raw import Handler
from benchmarks.cells.raw_asyncio import RawAsyncio


class Queue(Handler):
    """An actor that takes from a queue without a bound."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        super().__init__()
        self.queue: asyncio.Queue[tuple[Any, asyncio.Future[Any] | None]] = asyncio.Queue()

    def tell(self, message: Any) -> None:
        self.queue.put_nowait((message, None))

    async def ask(self, message: Any) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((message, answer))
        return await answer

    async def run(self) -> None:
        while True:
            message, answer = await self.queue.get()
            if answer is None:
                await self.handle(message)
                continue
            try:
                answer.set_result(await self.handle(message))
            except ValueError as error:
                answer.set_exception(error)
                self.total = 0


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return workloads.measure(RawAsyncio(Queue), workload)
