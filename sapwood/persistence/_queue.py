"""The write queue: operations wait here, and one task carries them out group by group."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TypeVar

import trio

from sapwood.actors import Environment
from sapwood.persistence._status import StoreStatus
from sapwood.persistence._writer import GroupWriter, PendingWrite

T = TypeVar("T")

MAX_BATCH = 512
"""Most operations that share a transaction."""


class WriteQueue:
    """Hands write operations to the writer, one thread hop for all that wait at the time."""

    def __init__(
        self, writer: GroupWriter, status: StoreStatus, environment: Environment, turn: trio.Lock | None
    ) -> None:
        """`turn` is held while the writer works, if it shares its connection with readers."""
        self._writer = writer
        self._status = status
        self._environment = environment
        self._turn = turn
        # Every waiting operation belongs to a task that waits for it, so the number of tasks bounds the channel.
        self._submit, self._inbox = trio.open_memory_channel[PendingWrite](float("inf"))
        self._shield = trio.CancelScope(shield=True)
        self._stopped = trio.Event()

    @property
    def pending(self) -> int:
        """Operations that wait for the writer."""
        return self._inbox.statistics().current_buffer_used

    async def write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """See `Store.write`."""
        await self._status.check()
        pending = PendingWrite(operation)
        self._submit.send_nowait(pending)
        try:
            await pending.done.wait()
        except trio.Cancelled:
            pending.withdrawn = True
            raise
        if pending.error is not None:
            raise pending.error
        value: T = pending.value
        return value

    async def run(self) -> None:
        """Carry out operations until the queue is closed and empty. A failure ends the store."""
        batch: list[PendingWrite] = []
        try:
            # What was accepted is carried out although the run is cancelled; `close` ends the shield.
            with self._shield:
                async for first in self._inbox:
                    batch = [write for write in (first, *self._waiting(MAX_BATCH - 1)) if not write.withdrawn]
                    if batch:
                        await self._commit(batch)
        except BaseException as error:
            self._status.state, self._status.why = "failed", f"its writer failed: {error!r}"
            raise
        finally:
            for write in (*batch, *self._waiting()):
                if not write.done.is_set():
                    write.error = self._status.unavailable()
                    write.done.set()
            self._inbox.close()
            self._stopped.set()

    async def close(self, deadline: float) -> None:
        """Take no more operations and wait until the accepted ones are done, or refused at the deadline."""
        self._submit.close()
        self._shield.deadline = deadline
        await self._stopped.wait()

    async def _commit(self, batch: list[PendingWrite]) -> None:
        async with self._turn or nullcontext():
            await self._environment.in_thread(self._writer.commit, batch)
        for write in batch:
            write.done.set()
        if self._writer.checkpoint_is_due:
            # After the answers, which need not wait for it.
            await self._environment.in_thread(self._writer.checkpoint)

    def _waiting(self, limit: int | None = None) -> Iterator[PendingWrite]:
        taken = 0
        while limit is None or taken < limit:
            try:
                yield self._inbox.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                return
            taken += 1
