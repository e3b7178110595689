"""Raw trio as its tutorial does it: a task and a memory channel, and a channel for each answer."""

from __future__ import annotations

import math
from typing import Any

import trio

from benchmarks.cells import workloads
from benchmarks.cells.raw import Handler
from benchmarks.cells.raw_trio import RawTrio


class Channel(Handler):
    """An actor that receives from a channel without a bound."""

    __slots__ = ("receiving", "sending")

    def __init__(self) -> None:
        super().__init__()
        self.sending, self.receiving = trio.open_memory_channel[tuple[Any, Any]](math.inf)

    def tell(self, message: Any) -> None:
        self.sending.send_nowait((message, None))

    async def ask(self, message: Any) -> Any:
        answer, waiting = trio.open_memory_channel[tuple[Any, Any]](1)
        self.sending.send_nowait((message, answer))
        value, error = await waiting.receive()
        if error is not None:
            raise error
        return value

    async def run(self) -> None:
        async for message, answer in self.receiving:
            if answer is None:
                await self.handle(message)
                continue
            try:
                value = await self.handle(message)
            except ValueError as error:
                answer.send_nowait((None, error))
                self.total = 0
            else:
                answer.send_nowait((value, None))


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return workloads.measure(RawTrio(Channel), workload)
