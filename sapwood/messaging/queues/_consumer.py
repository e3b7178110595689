"""A consumer: a supervised actor that handles the messages of a queue, one at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from sapwood.actors import Actor, ExitReason, Request, TaskDone, end_like, handle, message
from sapwood.errors import InvalidOption, LeaseLost, PersistenceError, QueueClosed, QueueFenced, RejectMessage
from sapwood.messaging.queues._core import logger
from sapwood.messaging.queues._delivery import Delivery
from sapwood.messaging.queues._options import is_count
from sapwood.messaging.queues._queue import Queue

Handler: TypeAlias = Callable[[Delivery], Awaitable[None]]
"""Handles one delivery. It may settle it itself; otherwise the consumer does: a return is `ack`, `RejectMessage` is
`reject`, any other exception is `nack`."""


@message("queues.retire")
class Retire:
    """Asks a consumer to end after the message that it is handling."""


@message("queues.handled")
class Handled(Request[int]):
    """Asks a consumer how many messages it has handled, well or not."""


class Consumer(Actor):
    """Receives from a queue and runs a handler for each message, one after the other; several share a queue evenly.

    A handler that fails harms its message alone: that is delivered again, or becomes a dead letter. If the
    consumer is stopped it finishes the message in hand, within its shutdown time, and gives back what it only
    prefetched. If it is killed the message in hand is delivered again at once, as a failed attempt. When its queue is
    closed it ends with `Normal`: as a child it is best `transient`. While the store cannot answer it waits.

    Args:
        queue: An open queue.
        handler: What to do with each message.
        prefetch: Messages taken at a time. More save trips to the store; the time-outs of all begin together, and
            a crash of the process counts as an attempt of each.
        visibility: Seconds to handle a message, those before it in the same batch included; None for the queue's own.

    Raises:
        InvalidOption: if `prefetch` is not at least 1.
    """

    def __init__(self, queue: Queue, handler: Handler, prefetch: int = 1, visibility: float | None = None) -> None:
        if not is_count(prefetch, 1):
            raise InvalidOption(f"prefetch: expected at least 1 message; got {prefetch!r}")
        self._queue = queue
        self._handler = handler
        self._prefetch = prefetch
        self._visibility = visibility
        self._retiring = False
        self._handled = 0
        self._waiting = trio.CancelScope()
        self._ended = trio.Event()

    def format_state(self) -> str:
        return f"queue={self._queue.name!r}, handled={self._handled}, retiring={self._retiring}"

    def on_start(self) -> None:
        self.start_task(self._serve, name="serve")

    @handle
    def retire(self, message: Retire) -> None:
        self._retire()

    @handle
    def handled(self, message: Handled) -> int:
        return self._handled

    @handle
    def serving_ended(self, message: TaskDone) -> None:
        end_like(self, message)

    async def on_stop(self, reason: ExitReason) -> None:
        self._retire()
        await self._ended.wait()

    def _retire(self) -> None:
        self._retiring = True
        self._waiting.cancel()

    async def _serve(self) -> None:
        try:
            while not self._retiring:
                deliveries: list[Delivery] = []
                with trio.CancelScope() as self._waiting:
                    deliveries = await self._receive()
                await self._work(deliveries)
        except (QueueClosed, QueueFenced) as error:
            # Not a fault of this consumer: there is nothing left for it to do.
            logger.info("%r ends: %s", self, error)
        finally:
            self._ended.set()

    async def _receive(self) -> list[Delivery]:
        try:
            return await self._queue.receive_batch(self._prefetch, visibility=self._visibility)
        except PersistenceError as error:
            # A new consumer would find the same store, and use up restarts. The queue asks it again after a second.
            logger.warning("%r waits for the store: %s", self, error)
            return []

    async def _work(self, deliveries: list[Delivery]) -> None:
        started = 0
        try:
            for delivery in deliveries:
                if self._retiring:
                    break
                started += 1
                await self._handle(delivery)
                self._handled += 1
        finally:
            for number, delivery in enumerate(deliveries, 1):
                delivery.abandon(started=number <= started)

    async def _handle(self, delivery: Delivery) -> None:
        try:
            await self._handler(delivery)
        except (MemoryError, trio.TrioInternalError):
            raise
        except RejectMessage as error:
            await _settled(delivery, delivery.reject(error))
        except Exception as error:
            logger.warning("%r failed: %r", delivery, error)
            await _settled(delivery, delivery.nack(error))
        else:
            if not delivery.settled:
                await _settled(delivery, delivery.ack())


async def _settled(delivery: Delivery, settling: Awaitable[None]) -> None:
    try:
        await settling
    except LeaseLost:
        # It was logged and counted; the message is somebody else's by now.
        return
    except PersistenceError as error:
        # It is given up, and so delivered again once the store can answer.
        logger.warning("%r could not be settled: %s", delivery, error)
