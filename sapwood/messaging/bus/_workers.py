"""Workers: the supervised actors that run plain functions as handlers of messages."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import attrs
import trio

from sapwood.actors import Actor, Failure, MailboxOptions, Timer, handle, message
from sapwood.errors import CodecError
from sapwood.messaging.bus._dead_letters import DeadReason
from sapwood.messaging.bus._desk import HANDLED_NOW, Desk
from sapwood.messaging.bus._directory import Consumer
from sapwood.messaging.bus._log import bound_to
from sapwood.messaging.bus._options import BatchOptions
from sapwood.messaging.envelope import Envelope, size_of
from sapwood.supervision import ChildSpec, DynamicSupervisor, child


@attrs.frozen(eq=False)
class Handled:
    """A handler returned; what a worker answers."""

    value: Any


@attrs.frozen(eq=False)
class NotHandled:
    """A handler did not, and a dead letter has been made; what a worker answers.

    Attributes:
        reason: That of the dead letter.
        text: For the report.
        error: What the handler raised, without its traceback; None if it did not run.
    """

    reason: DeadReason
    text: str
    error: Exception | None = None


@message("messaging.bus.retire")
class Retire:
    """Tells a worker of a handler that was unregistered to end once nothing waits for it."""


@message("messaging.bus.flush")
class Flush:
    """Tells a worker that its batch has waited long enough."""


class Worker(Actor):
    """Runs a handler, one message at a time, and keeps what it raises from harming anybody else (S1-018).

    Args:
        desk: The desk of the bus.
        consumer: The handler.
        slot: Which of its workers this is.
    """

    def __init__(self, desk: Desk, consumer: Consumer, slot: int) -> None:
        self.desk = desk
        self.consumer = consumer
        self.slot = slot
        self.function: Any = consumer.function

    def on_start(self) -> None:
        self.desk.directory.note_worker(self.consumer, self.slot, self.ref)

    @handle
    def retire(self, message: Retire) -> None:
        self.stop()

    def refuse(self, envelope: Envelope[Any]) -> NotHandled | None:
        """Say why a message is not handled at all, checked again at this end (S1-004)."""
        if self.consumer.removed:
            return self.not_handled(envelope, "recipient_down", f"{self.consumer.participant!r} was unregistered")
        if self.desk.dropping:
            return self.not_handled(envelope, "unread", "the bus was stopped before its turn came")
        if envelope.expired(self.desk.environment):
            return self.not_handled(envelope, "expired", f"it waited {envelope.age_ms(self.desk.environment):.0f} ms")
        accepts = self.consumer.options.accepts
        if accepts is not None and not isinstance(envelope.payload, accepts):
            names = ", ".join(cls.__name__ for cls in accepts)
            return self.not_handled(envelope, "unhandled", f"expected {names}; got {type(envelope.payload).__name__}")
        try:
            size_of(envelope)
        except CodecError as error:
            return self.not_handled(envelope, "handler_failed", f"it does not fit its schema any more: {error}")
        return None

    def not_handled(
        self, envelope: Envelope[Any], reason: DeadReason, detail: str, error: Exception | None = None
    ) -> NotHandled:
        """Make the dead letter."""
        self.desk.failed(envelope, self.consumer, reason, detail)
        return NotHandled(reason, detail, error)

    def raised(self, envelope: Envelope[Any], error: Exception) -> NotHandled:
        """Make the dead letter of a message whose handler raised."""
        Failure(error)  # cuts it loose from its traceback, so that no variable of the handler stays alive
        who = f"Handler {self.consumer.number} on {self.consumer.participant!r}"
        return self.not_handled(envelope, "handler_failed", f"{who} raised {type(error).__name__}: {error}", error)

    def done(self, envelope: Envelope[Any], value: Any, waited: float, begun: float) -> Handled:
        """Count a message that was handled."""
        took = (self.desk.environment.monotonic() - begun) * 1000
        self.desk.handled(envelope, self.consumer, waited, took)
        return Handled(value)

    @contextmanager
    def handling(self, *envelopes: Envelope[Any]) -> Generator[None]:
        """Run a handler as part of the chain of its message; if it is ended meanwhile, that is a dead letter."""
        self.consumer.running[self.slot] += len(envelopes)
        # A batch has many chains, and so none.
        only = envelopes[0] if len(envelopes) == 1 else None
        token = HANDLED_NOW.set(only)
        ended = True
        try:
            with bound_to(only) if only is not None else nullcontext():
                yield
            ended = False
        except Exception:
            ended = False
            raise
        finally:
            HANDLED_NOW.reset(token)
            self.consumer.running[self.slot] -= len(envelopes)
            if ended:
                for envelope in envelopes:
                    self.consumer.lettered.append(envelope.message_id)
                    self.not_handled(envelope, "interrupted", f"{self.ref.label} was ended while it handled it")
            self.desk.progress()


class PlainWorker(Worker):
    """Runs a plain function."""

    @handle(Envelope)
    def take(self, envelope: Envelope[Any]) -> Handled | NotHandled:
        refused = self.refuse(envelope)
        if refused is not None:
            return refused
        begun = self.desk.environment.monotonic()
        waited = envelope.age_ms(self.desk.environment)
        try:
            with self.handling(envelope):
                value = self.function(envelope)
                if inspect.iscoroutine(value):
                    value.close()
                    raise TypeError("it returned a coroutine; register an async function instead")  # noqa: TRY301
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            return self.raised(envelope, error)
        return self.done(envelope, value, waited, begun)


class AsyncWorker(Worker):
    """Runs an async function, for no longer than its time-out."""

    @handle(Envelope)
    async def take(self, envelope: Envelope[Any]) -> Handled | NotHandled:
        refused = self.refuse(envelope)
        if refused is not None:
            await trio.lowlevel.checkpoint()
            return refused
        begun = self.desk.environment.monotonic()
        waited = envelope.age_ms(self.desk.environment)
        limit = self.consumer.options.timeout
        value: Any = None
        try:
            with self.handling(envelope), trio.move_on_after(float("inf") if limit is None else limit) as scope:
                value = await self.function(envelope)
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            return self.raised(envelope, error)
        if scope.cancelled_caught:
            return self.raised(envelope, TimeoutError(f"it ran for more than {limit} s"))
        return self.done(envelope, value, waited, begun)


class BatchWorker(Worker):
    """Collects messages and runs a function, plain or async, with a tuple of them (S2-038).

    Messages that still wait for a batch when the worker is stopped are dead letters.
    """

    def __init__(self, desk: Desk, consumer: Consumer, slot: int) -> None:
        super().__init__(desk, consumer, slot)
        # Kept with the handler: what a killed worker had collected is taken over by its next incarnation.
        assert isinstance(consumer.options, BatchOptions)
        self.options = consumer.options
        self.batch = consumer.batches.setdefault(slot, [])
        self.timer: Timer | None = None

    def on_start(self) -> None:
        super().on_start()
        if self.batch:
            self.timer = self.send_after(self.options.seconds, Flush())

    @handle(Envelope)
    async def take(self, envelope: Envelope[Any]) -> NotHandled | None:
        refused = self.refuse(envelope)
        if refused is not None:
            await trio.lowlevel.checkpoint()
            return refused
        self.batch.append((envelope, self.reply_later()))
        if len(self.batch) >= self.options.size:
            await self._flush()
        elif self.timer is None:
            self.timer = self.send_after(self.options.seconds, Flush())
        return None

    @handle
    async def flush(self, message: Flush) -> None:
        await self._flush()

    async def on_stop(self, reason: object) -> None:
        await trio.lowlevel.cancel_shielded_checkpoint()
        for envelope, reply in self.batch:
            reply(self.not_handled(envelope, "unread", f"{self.ref.label} ended before its batch was full"))
        self.batch.clear()

    async def _flush(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        batch = self.batch[:]
        self.batch.clear()
        if not batch:
            await trio.lowlevel.checkpoint()
            return
        envelopes = tuple(envelope for envelope, _ in batch)
        begun = self.desk.environment.monotonic()
        waited = [envelope.age_ms(self.desk.environment) for envelope in envelopes]
        limit = self.consumer.options.timeout
        value: Any = None
        failure: Exception | None = None
        try:
            with self.handling(*envelopes), trio.move_on_after(float("inf") if limit is None else limit) as scope:
                value = self.function(envelopes)
                if inspect.isawaitable(value):
                    value = await value
            if scope.cancelled_caught:
                failure = TimeoutError(f"it ran for more than {limit} s")
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            failure = error
        if failure is not None:
            for envelope, reply in batch:
                reply(self.raised(envelope, failure))
            return
        for (envelope, reply), wait in zip(batch, waited, strict=True):
            reply(self.done(envelope, value, wait, begun))


def worker_spec(desk: Desk, consumer: Consumer, slot: int) -> ChildSpec:
    """Describe one worker of a handler."""
    options = consumer.options
    function: Any = consumer.function
    kind: type[Worker] = PlainWorker
    if isinstance(options, BatchOptions):
        kind = BatchWorker
    elif inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004  # its kind is asked for, not whether it is callable
        kind = AsyncWorker
    mailbox = MailboxOptions(capacity=options.capacity) if options.capacity is not None else None
    label = f"{desk.options.name}/{consumer.participant}/{consumer.number}.{slot + 1}"
    return child(cast("Any", kind), desk, consumer, slot, id=label, restart="transient", mailbox=mailbox)


class Workers(DynamicSupervisor):
    """Supervises the workers of one bus."""

    def __init__(self, desk: Desk, *, restarts: int, period: float) -> None:
        super().__init__(restarts=restarts, period=period)
        self._desk = desk

    async def on_start(self) -> None:
        await trio.lowlevel.checkpoint()
        self._desk.home = self.ref
