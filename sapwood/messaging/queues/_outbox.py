"""The outbox: messages that somebody gave without waiting are stored in order, many in one transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from sapwood.errors import PersistenceError, QueueClosed, QueueError, QueueFull
from sapwood.messaging.queues._appending import Appended
from sapwood.messaging.queues._core import Core, logger
from sapwood.messaging.queues._events import AppendFailed
from sapwood.messaging.queues._messages import Outgoing

OUTBOX: Final = 10_000
"""Most messages that may wait to be stored."""

TOGETHER: Final = 500
"""Most messages that are stored in one transaction."""

RETRY_STORE: Final = 1.0
"""Seconds until the outbox tries again after the store could not answer."""


class Outbox:
    """What was given to `append_nowait` and is not stored yet."""

    def __init__(self, core: Core, append: Callable[[Sequence[Outgoing]], Awaitable[list[Appended]]]) -> None:
        self._core = core
        self._append = append
        self._waiting: deque[Outgoing] = deque()
        self._filled = trio.Event()
        self._emptied = trio.Event()

    def put(self, outgoing: Outgoing) -> None:
        """Take a message.

        Raises:
            QueueFull: if too many wait.
        """
        if len(self._waiting) >= OUTBOX:
            raise QueueFull(self._core.head.name, OUTBOX, len(self._waiting))
        self._waiting.append(outgoing)
        self._filled.set()

    async def empty(self) -> None:
        """Wait until every message is stored, or was reported as unsaved."""
        await trio.lowlevel.checkpoint()
        while self._waiting:
            await self._emptied.wait()

    def give_up(self) -> None:
        """Report what still waits as unsaved."""
        core = self._core
        while self._waiting:
            out = self._waiting.popleft()
            core.count("unsaved")
            core.tell(AppendFailed(core.head.name, out.message, QueueClosed(core.head.name)))

    async def run(self) -> None:
        """Store what comes, until cancelled."""
        while True:
            await self._filled.wait()
            self._filled = trio.Event()
            while self._waiting:
                await self._send_some()
            self._emptied.set()
            self._emptied = trio.Event()

    async def _send_some(self) -> None:
        batch = list(self._waiting)[:TOGETHER]
        try:
            try:
                await self._send(batch)
            except QueueError:
                # One of them is at fault, or the queue is gone: the first alone shows which.
                batch = batch[:1]
                await self._send_alone(batch[0])
        except PersistenceError as error:
            logger.warning("queue %r: messages wait for the store: %s", self._core.head.name, error)
            await trio.sleep(RETRY_STORE)
            return
        for out in batch:
            if self._is_first(out):
                self._waiting.popleft()

    def _is_first(self, out: Outgoing) -> bool:
        # False if `give_up` has reported it meanwhile.
        return bool(self._waiting) and self._waiting[0] is out

    async def _send_alone(self, out: Outgoing) -> None:
        core = self._core
        try:
            await self._send([out])
        except QueueError as error:
            if not self._is_first(out):
                return
            core.count("unsaved")
            logger.warning("queue %r: message %s was not stored: %s", core.head.name, out.id, error)
            core.tell(AppendFailed(core.head.name, out.message, error))

    async def _send(self, batch: Sequence[Outgoing]) -> None:
        while True:
            room = self._core.room
            try:
                await self._append(batch)
            except QueueFull:
                if self._core.options.overflow != "wait" or len(batch) > 1:
                    raise
                await room.wait()
            else:
                return
