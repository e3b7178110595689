"""The runner: gives waiting events to handlers, and contains what they raise."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, Final, TypeAlias

import trio

from sapwood.actors import Cell, Environment, Priority, Ref
from sapwood.errors import ActorDown
from sapwood.messaging.events._delivery import Delivery, Publication, Status, Subscriber
from sapwood.messaging.events._event import AgentEvent
from sapwood.messaging.events._history import History
from sapwood.messaging.events._options import EventBusOptions
from sapwood.messaging.events._report import EventDeadLetter, HandlerResult
from sapwood.messaging.events._schedule import Schedule
from sapwood.messaging.events._table import SubscriptionTable

YIELD_EVERY: Final = 64
"""Plain handlers that run one after the other before others get a turn."""

FATAL: Final = (MemoryError, trio.TrioInternalError)

INSIDE: ContextVar[Delivery | None] = ContextVar("sapwood_event_delivery", default=None)
"""The delivery whose handler runs here, tasks that it started included."""

EventObserver: TypeAlias = Callable[[AgentEvent, HandlerResult], None]


class Runner:
    """Runs handlers while `run` runs; what waits meanwhile, and when it runs again, is kept."""

    def __init__(
        self,
        environment: Environment,
        options: EventBusOptions,
        table: SubscriptionTable,
        history: History,
        observer: EventObserver | None,
    ) -> None:
        self.schedule = Schedule(options.max_concurrent_handlers)
        self.handled = self.failed = self.dead = 0
        self.observer_error: Exception | None = None
        self._environment = environment
        self._options = options
        self._table = table
        self._history = history
        self._observer = observer
        self._nursery: trio.Nursery | None = None
        self._base: Context | None = None
        self._wake = trio.Event()
        self._idle = trio.Event()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and no handler runs."""
        return not self.schedule.waiting and not self.schedule.running

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
        """Be ready to run handlers; yield the function that delivers until it is cancelled."""
        self._base = copy_context()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for subscriber in self._table:
                    self.watch(subscriber)
                yield partial(self._deliver, nursery)
        finally:
            self._nursery = None
            self._base = None

    async def _deliver(self, nursery: trio.Nursery) -> None:
        while True:
            self._wake = trio.Event()
            await self._pump(nursery)
            await self._wake.wait()

    async def wait_idle(self) -> None:
        """Wait until nothing waits and no handler runs."""
        await trio.lowlevel.checkpoint()
        while not self.idle:
            await self._idle.wait()

    def wake(self) -> None:
        """Have the schedule looked at."""
        self._wake.set()

    def close(self) -> None:
        """Settle all that waits as `closed`."""
        for delivery in self.schedule.drain():
            self._settle(delivery, "closed", None)
        self._tell_idle()

    def detached(self) -> Context:
        """Return a context with the caller's variables, in which no actor of the kernel is held up."""
        context = self._base.copy() if self._base is not None else Context()
        for variable, value in copy_context().items():
            if not isinstance(value, Cell):
                context.run(variable.set, value)
        return context

    async def _pump(self, nursery: trio.Nursery) -> None:
        begun = 0
        while (delivery := self.schedule.next()) is not None:
            self._begin(delivery, nursery)
            begun += 1
            if begun % YIELD_EVERY == 0:
                await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    def _begin(self, delivery: Delivery, nursery: trio.Nursery) -> None:
        subscriber = delivery.subscriber
        if not delivery.wanted:
            self._finish(delivery, "unsubscribed", None)
        elif isinstance(subscriber.handler, Ref):
            self._tell(delivery, subscriber.handler)
        elif subscriber.is_async:
            self._spawn(delivery, nursery, None)
        else:
            self._call_plain(delivery, nursery)

    def _tell(self, delivery: Delivery, ref: Ref) -> None:
        delivery.attempts = 1
        event = delivery.publication.event
        error: Exception | None = None if ref.alive else ActorDown(ref.label, ref.exit_reason)
        if error is None:
            try:
                ref.tell(event.copied(), priority=Priority(int(event.priority)))
            except FATAL:
                self._put_back(delivery)
                raise
            except Exception as raised:
                error = raised
        self._count(delivery, error)
        self._finish(delivery, "success" if error is None else "error", error)

    def _call_plain(self, delivery: Delivery, nursery: trio.Nursery) -> None:
        handler = delivery.subscriber.handler
        context = self._context_of(delivery)
        while True:
            delivery.attempts += 1
            error: Exception | None = None
            try:
                result: Any = context.run(handler, delivery.publication.event.copied())
            except FATAL:
                self._put_back(delivery)
                raise
            except Exception as raised:
                error = raised
            except BaseException:
                self._put_back(delivery)
                raise
            else:
                if isawaitable(result):
                    delivery.attempts -= 1
                    self._spawn(delivery, nursery, result)
                    return
            self._count(delivery, error)
            if error is None or delivery.attempts >= delivery.max_attempts or not delivery.wanted:
                self._finish(delivery, "success" if error is None else "error", error)
                return

    def _spawn(self, delivery: Delivery, nursery: trio.Nursery, begun: Awaitable[Any] | None) -> None:
        start = partial(nursery.start_soon, name=f"event handler {delivery.subscriber.name}")
        self._context_of(delivery).run(start, self._call_async, delivery, begun)

    async def _call_async(self, delivery: Delivery, begun: Awaitable[Any] | None) -> None:
        ended = False
        try:
            while True:
                delivery.attempts += 1
                error = await self._attempt(delivery, begun)
                begun = None
                self._count(delivery, error)
                if error is None or delivery.attempts >= delivery.max_attempts or not delivery.wanted:
                    ended = True
                    self._finish(delivery, "success" if error is None else "error", error)
                    return
                if delivery.lent:
                    # It was cut off while it waited for an event of its own.
                    delivery.lent = False
                    await self.schedule.take_back(delivery)
        finally:
            if not ended:
                self._put_back(delivery)

    def _put_back(self, delivery: Delivery) -> None:
        # The bus is stopped or restarted: the handler will be called again (S1-055).
        self.schedule.end(delivery)
        delivery.attempts = 0
        delivery.lent = False
        self.schedule.add(delivery)

    async def _attempt(self, delivery: Delivery, begun: Awaitable[Any] | None) -> Exception | None:
        timeout = self._options.handler_timeout
        try:
            with trio.move_on_after(float("inf") if timeout is None else timeout) as limit:
                await (begun if begun is not None else delivery.subscriber.handler(delivery.publication.event.copied()))
        except FATAL:
            raise
        except Exception as error:
            return error
        if limit.cancelled_caught:
            return TimeoutError(f"did not end within {timeout:g} s")
        return None

    def _context_of(self, delivery: Delivery) -> Context:
        context = delivery.publication.context.copy()
        context.run(INSIDE.set, delivery)
        return context

    def _count(self, delivery: Delivery, error: Exception | None) -> None:
        if error is None:
            self.handled += 1
        else:
            self.failed += 1
            delivery.publication.errors += 1

    def _finish(self, delivery: Delivery, status: Status, error: Exception | None) -> None:
        self.schedule.end(delivery)
        self._wake.set()
        self._settle(delivery, status, error)
        self._tell_idle()

    def _tell_idle(self) -> None:
        if self.idle:
            self._idle.set()
            self._idle = trio.Event()

    def _settle(self, delivery: Delivery, status: Status, error: Exception | None) -> None:
        publication = delivery.publication
        last = publication.settle(delivery, status, error)
        if status != "success":
            self._tell_observer(publication.event, publication.results[delivery])
        if last:
            self._end(publication)

    def _end(self, publication: Publication) -> None:
        closed = any(result.status == "closed" for result in publication.results.values())
        if closed or publication.errors >= self._options.error_threshold:
            self.dead += 1
            self._history.dead_letters.append(
                EventDeadLetter(
                    publication.event,
                    "closed" if closed else "errors",
                    publication.ordered_results,
                    self._environment.wall(),
                )
            )
        publication.done.set()

    def _tell_observer(self, event: AgentEvent, result: HandlerResult) -> None:
        if self._observer is None:
            return
        try:
            self._observer(event.copied(), result)
        except FATAL:
            raise
        except Exception as error:
            self._observer = None
            self.observer_error = error

    # --- actors -----------------------------------------------------------------------------------

    def watch(self, subscriber: Subscriber) -> None:
        if isinstance(subscriber.handler, Ref) and subscriber.watch is None and self._base is not None:
            assert self._nursery is not None
            subscriber.watch = trio.CancelScope()
            # Not in the caller's context: the actor that subscribes does not wait for anybody's end.
            start = partial(self._nursery.start_soon, name=f"watch on {subscriber.name}")
            self._base.copy().run(start, self._await_end, subscriber, subscriber.handler, subscriber.watch)

    async def _await_end(self, subscriber: Subscriber, ref: Ref, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await ref.wait_stopped()
                for entry in tuple(subscriber.subscriptions.values()):
                    self._table.remove(entry)
                self._wake.set()
        finally:
            subscriber.watch = None
