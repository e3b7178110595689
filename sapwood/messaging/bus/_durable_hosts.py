"""Hosts: the supervised actors that hold the queues of participants, and run their handlers from them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import trio

from sapwood.actors import (
    Actor,
    ExitReason,
    Failure,
    Ignore,
    StartResult,
    TaskDone,
    end_like,
    handle,
)
from sapwood.errors import (
    DeadLetterMissing,
    LeaseLost,
    PersistenceError,
    QueueClosed,
    QueueError,
    QueueFenced,
    ReferenceStoreError,
    RejectMessage,
)
from sapwood.messaging.bus._desk import HANDLED_NOW, Desk
from sapwood.messaging.bus._directory import Consumer
from sapwood.messaging.bus._durable_sending import let_go, restore
from sapwood.messaging.bus._log import bound_to, log_warning
from sapwood.messaging.bus._reports import Answered
from sapwood.messaging.bus._reports import Delivery as Outcome
from sapwood.messaging.bus._undertaker import Discard, Undertaker
from sapwood.messaging.bus._workers import Retire
from sapwood.messaging.envelope import Envelope
from sapwood.messaging.queues import (
    Delivery,
    Queue,
    QueueOptions,
    open_queue,
)
from sapwood.supervision import Backoff, ChildSpec, child

VISIBILITY: Final = 30.0
"""Seconds after which a message is delivered again whose host stands still; a handler may run longer."""

RETRY_STORE: Final = 1.0
"""Seconds until dead letters are looked at again after the store could not answer."""

_DELIVERY: ContextVar[Delivery | None] = ContextVar("sapwood_bus_delivery", default=None)


def current_delivery() -> Delivery:
    """Return the delivery whose handler runs here: its attempt, its idempotency key, and `ack_with`.

    Raises:
        LookupError: outside the handler of a participant with durable delivery.
    """
    delivery = _DELIVERY.get()
    if delivery is None:
        raise LookupError(
            "current_delivery: expected to be called by a handler that was registered with "
            'HandlerOptions(delivery="at_least_once") or "effectively_once"'
        )
    return delivery


class Host(Actor):
    """Holds the queue of one handler open, runs the handler for each message, and passes its dead letters on.

    The queue is the one record of its dead letters; the office of the bus shows them.
    """

    def __init__(self, desk: Desk, consumer: Consumer) -> None:
        self.desk = desk
        self.consumer = consumer
        self.function: Any = consumer.function
        self.queue: Queue | None = None
        self._ready = trio.Event()
        self._ended = trio.Event()
        self.undertaker = Undertaker(desk, consumer)
        self._retiring = False
        self._idlers: set[trio.CancelScope] = set()
        self._in_hand: set[Delivery] = set()
        self._failure: Exception | None = None

    async def on_start(self) -> StartResult:
        if self.consumer.removed:
            # It was to be restarted when the participant left.
            await trio.lowlevel.checkpoint()
            return Ignore()
        self.desk.directory.note_worker(self.consumer, 0, self.ref)
        self.start_task(self._run, name="queue")
        await self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return None

    async def on_stop(self, reason: ExitReason) -> None:
        """Take nothing more, and let the handlers that run end, within the shutdown time of the supervisor."""
        self._retire()
        await self._ended.wait()

    @handle
    def retire(self, message: Retire) -> None:
        self.stop()

    @handle
    def run_ended(self, message: TaskDone) -> None:
        end_like(self, message)

    @handle
    async def discard(self, message: Discard) -> None:
        if self.queue is not None:
            await self.undertaker.discard(self.queue, message.letter, message.seq)

    # --- the queue --------------------------------------------------------------------------------

    async def _run(self) -> None:
        desk, consumer = self.desk, self.consumer
        try:
            assert desk.options.queues is not None
            name = f"{desk.options.name}/{consumer.participant}/{consumer.number}"
            store, environment = desk.options.queues(), desk.environment
            async with open_queue(store, environment, name, self._options(), on_event=self.undertaker.hear) as queue:
                self.queue = queue
                await self.undertaker.show_all(queue, self.ref)
                consumer.served_elsewhere = False
                consumer.look = self.undertaker.look
                consumer.open(queue)
                self._ready.set()
                try:
                    await self._serve_all(queue)
                finally:
                    consumer.close(queue)
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._ready.set()
            self._ended.set()

    async def _serve_all(self, queue: Queue) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._undertake, queue)
            nursery.start_soon(self._extend)
            async with trio.open_nursery() as workers:
                for _ in range(self.consumer.options.workers):
                    workers.start_soon(self._serve, queue)
            nursery.cancel_scope.cancel()

    def _options(self) -> QueueOptions:
        options = self.consumer.options
        return QueueOptions(
            mode=options.delivery,
            ordering=options.order,
            capacity=options.capacity,
            max_attempts=options.attempts,
            retry=options.retry,
            dead_retries=0,
            visibility=VISIBILITY,
        )

    async def _serve(self, queue: Queue) -> None:
        while not self._retiring:
            delivery: Delivery | None = None
            try:
                with trio.CancelScope() as scope:
                    self._idlers.add(scope)
                    delivery = await self._receive(queue)
                self._idlers.discard(scope)
                if delivery is not None:
                    self._in_hand.add(delivery)
                    await self._work(delivery)
            except (QueueClosed, QueueFenced) as error:
                self._leave(error)
                return
            finally:
                if delivery is not None:
                    self._in_hand.discard(delivery)
                    delivery.abandon()

    async def _receive(self, queue: Queue) -> Delivery | None:
        try:
            return await queue.receive()
        except PersistenceError as error:
            # A restart would find the same store, and use up restarts of the bus. The queue asks it again by itself.
            log_warning("a queue waits for its store", participant=self.consumer.participant, error=str(error))
            return None

    async def _undertake(self, queue: Queue) -> None:
        try:
            while True:
                try:
                    await self.undertaker.show_next(queue, self.ref)
                except PersistenceError as error:
                    log_warning("dead letters wait for the store", queue=queue.name, error=str(error))
                    self.undertaker.look()
                    await trio.sleep(RETRY_STORE)
        except (QueueClosed, QueueFenced) as error:
            self._leave(error)

    def _leave(self, error: QueueError) -> None:
        """Give the queue up: somebody else has opened it, and the participant is theirs now."""
        if not self.consumer.served_elsewhere:
            self.consumer.served_elsewhere = True
            self.consumer.open(None)
            log_warning("a participant is served elsewhere", participant=self.consumer.participant, error=str(error))
        self._retire()

    def _retire(self) -> None:
        self._retiring = True
        for scope in self._idlers:
            scope.cancel()

    async def _extend(self) -> None:
        """Keep deliveries for as long as their handlers run."""
        while True:
            await trio.sleep(VISIBILITY / 3)
            for delivery in self._in_hand:
                try:
                    delivery.extend()
                except LeaseLost as error:
                    log_warning("a message is delivered again while its handler runs", error=str(error))

    async def _work(self, delivery: Delivery) -> None:
        stored: Envelope[Any] = delivery.payload
        begun = self.desk.environment.monotonic()
        waited = stored.age_ms(self.desk.environment)
        envelope, value = stored, None
        try:
            envelope = await restore(self.desk, stored)
            value = await self._call(delivery, envelope)
            if not delivery.settled:
                await delivery.ack()
        except (MemoryError, trio.TrioInternalError):
            raise
        except RejectMessage as error:
            await _settled(delivery, partial(delivery.reject, error))
            return
        except Exception as error:
            # A handler may use other queues; only what its own says of this delivery is not its failure.
            if isinstance(error, QueueError) and self.queue is not None and error.queue == self.queue.name:
                if not isinstance(error, LeaseLost):
                    raise
                log_warning("a message goes to another", message_id=stored.message_id, error=str(error))
                return
            if not delivery.acknowledged:
                await self._failed(delivery, stored, error)
                return
            # The message is done, whatever went wrong afterwards.
            log_warning("a handler raised after its ack", message_id=stored.message_id, error=repr(error))
        if not delivery.acknowledged:
            # The handler gave it back or refused it: it comes again, or is a dead letter, and still needs its payload.
            return
        self.consumer.errors.pop(stored.message_id, None)
        took = (self.desk.environment.monotonic() - begun) * 1000
        self.desk.handled(envelope, self.consumer, waited, took)
        done = Outcome(self.consumer.participant, self.consumer.number, "handled")
        self.consumer.settle(stored.message_id, Answered(done, value))
        await self._release(stored)

    async def _failed(self, delivery: Delivery, stored: Envelope[Any], error: Exception) -> None:
        log_warning("a durable message failed", message_id=stored.message_id, attempt=delivery.attempt,
                    error=f"{type(error).__name__}: {error}")  # fmt: skip
        # Cut loose from its traceback, so that no variable of the handler stays alive.
        cut = Failure(error).error
        if not delivery.settled:
            self.consumer.errors[stored.message_id] = cut
        await _settled(delivery, partial(delivery.nack, error))

    async def _call(self, delivery: Delivery, envelope: Envelope[Any]) -> Any:
        options = self.consumer.options
        if options.accepts is not None and not isinstance(envelope.payload, options.accepts):
            names = ", ".join(cls.__name__ for cls in options.accepts)
            raise RejectMessage(f"expected {names}; got {type(envelope.payload).__name__}")
        limit = float("inf") if options.timeout is None else options.timeout
        value: Any = None
        with self._handling(envelope, delivery), trio.move_on_after(limit) as scope:
            value = self.function(envelope)
            if inspect.isawaitable(value):
                value = await value
        if scope.cancelled_caught:
            raise TimeoutError(f"it ran for more than {limit} s")
        return value

    @contextmanager
    def _handling(self, envelope: Envelope[Any], delivery: Delivery) -> Generator[None]:
        self.consumer.running[0] += 1
        chain, current = HANDLED_NOW.set(envelope), _DELIVERY.set(delivery)
        try:
            with bound_to(envelope):
                yield
        finally:
            _DELIVERY.reset(current)
            HANDLED_NOW.reset(chain)
            self.consumer.running[0] -= 1
            self.desk.progress()

    async def _release(self, stored: Envelope[Any]) -> None:
        try:
            await let_go(self.desk, stored, self.consumer)
        except ReferenceStoreError as error:
            # Its hold ends by itself, after `hold` seconds.
            log_warning("a payload is held on", message_id=stored.message_id, error=str(error))


async def _settled(delivery: Delivery, settle: Callable[[], Awaitable[None]]) -> None:
    try:
        if not delivery.settled:
            await settle()
    except (LeaseLost, DeadLetterMissing) as error:
        log_warning("a message is somebody else's by now", error=str(error))
    except PersistenceError as error:
        # It is given up, and so delivered again once the store can answer.
        log_warning("a message could not be settled", seq=delivery.seq, error=str(error))


def host_spec(desk: Desk, consumer: Consumer) -> ChildSpec:
    """Describe the host of a handler with durable delivery."""
    label = f"{desk.options.name}/{consumer.participant}/{consumer.number}"
    backoff = Backoff(initial=0.1, factor=2.0, maximum=5.0, jitter=0.2)
    return child(Host, desk, consumer, id=label, restart="transient", backoff=backoff)
