"""The event bus: agents publish what happened, and whoever subscribed is told."""

from __future__ import annotations

import copy
from contextvars import Context, copy_context
from inspect import isawaitable
from threading import get_ident
from typing import Any, Final, Literal

import trio

from sapwood.actors import Environment, RealEnvironment, Ref
from sapwood.errors import EventBusClosed, EventCycle, InvalidOption, WrongThread
from sapwood.messaging.events._delivery import (
    Delivery,
    Handler,
    Publication,
    Status,
    SubscriptionEntry,
    find_cycle,
    new_subscriber,
)
from sapwood.messaging.events._event import AgentEvent, check_event
from sapwood.messaging.events._history import History
from sapwood.messaging.events._options import EventBusOptions
from sapwood.messaging.events._patterns import check_pattern
from sapwood.messaging.events._report import EventDeadLetter, EventStatistics, HandlerResult, PublishReport
from sapwood.messaging.events._runner import FATAL, INSIDE, EventObserver, Runner
from sapwood.messaging.events._table import SubscriptionTable


class Subscription:
    """One handler under one pattern, until it is ended."""

    __slots__ = ("_bus", "_entry")

    def __init__(self, bus: EventBus, entry: SubscriptionEntry) -> None:
        self._bus = bus
        self._entry = entry

    @property
    def pattern(self) -> str:
        """The pattern."""
        return self._entry.pattern

    @property
    def active(self) -> bool:
        """Whether it has not ended."""
        return self._entry.active

    def unsubscribe(self) -> bool:
        """End it; say whether it was active. No call under it starts afterwards; one that runs goes on."""
        return self._bus._remove(self._entry)


class EventBus:
    """Passes events to the handlers that subscribed to their type.

    `async with open_event_bus() as bus` runs one for the length of a block; `child(bus.run)` makes one a child of a
    supervisor. The bus keeps its subscriptions, history and waiting deliveries when it is restarted; a handler that was
    running then is called again, so delivery is at least once.

    The rules:

    - An event goes to those who are subscribed at the moment of `publish`. One who unsubscribes before its turn is not
      called; one who subscribes later is not called for this event.
    - A handler gets one event at a time: those of one priority in the order of publishing, also where a handler
      publishes itself; higher priorities first.
    - Different handlers run at the same time, up to `max_concurrent_handlers`. A handler that waits for an event that
      it published gives its place up meanwhile.
    - Handlers never run inside `publish_nowait`, and what they raise reaches no publisher and no other handler.
    - A publisher that is cancelled while it waits has published all the same.

    Args:
        environment: Source of time and ids; None for the real world.
        options: How it behaves; None for the defaults.
        observer: Told the event and the result of every delivery that is no success, at once; must be quick. One that
            raises is not told any more; see `observer_error`.
    """

    def __init__(
        self,
        environment: Environment | None = None,
        options: EventBusOptions | None = None,
        *,
        observer: EventObserver | None = None,
    ) -> None:
        self.options: Final = options if options is not None else EventBusOptions()
        self._environment = environment if environment is not None else RealEnvironment()
        self._table = SubscriptionTable()
        self._history = History(self.options.max_history, self.options.max_dead_letters)
        self._runner = Runner(self._environment, self.options, self._table, self._history, observer)
        self._state: Literal["new", "running", "down", "closed"] = "new"
        self._thread = 0
        self._seq = self._published = self._unmatched = 0

    @property
    def observer_error(self) -> Exception | None:
        """What the observer raised, if it did."""
        return self._runner.observer_error

    # --- subscriptions ----------------------------------------------------------------------------

    def subscribe(self, pattern: str, handler: Handler, *, attempts: int = 1) -> Subscription:
        """Have a handler called for every event whose type matches (S1-023, S1-034).

        Args:
            pattern: An exact type, a prefix such as `"trade.*"`, or `"*"`.
            handler: A plain or async function of one event, or the ref of an actor that handles `AgentEvent`. An actor
                is told the event, and its subscriptions end with it.
            attempts: How often a handler that fails is called for one event, at once again.

        Raises:
            AlreadySubscribed: if the handler is subscribed to this very pattern (S1-024).
            InvalidOption: if an argument cannot work.
            EventBusClosed: if the bus was closed.
            WrongThread: if called outside the thread that runs the bus.
        """
        self._check("subscribe")
        check_pattern(pattern)
        if not isinstance(attempts, int) or attempts < 1:
            raise InvalidOption(f"subscribe attempts: expected a whole number from 1; got {attempts!r}")
        entry = self._table.add(pattern, handler, attempts)
        self._runner.watch(entry.subscriber)
        return Subscription(self, entry)

    def unsubscribe(self, pattern: str, handler: Handler) -> bool:
        """End a subscription; say whether there was one. No call under it starts afterwards; one that runs goes on."""
        self._check("unsubscribe")
        entry = self._table.find(pattern, handler)
        return entry is not None and self._remove(entry)

    def _remove(self, entry: SubscriptionEntry) -> bool:
        removed = self._table.remove(entry)
        self._runner.wake()
        return removed

    # --- publishing -------------------------------------------------------------------------------

    async def publish(self, event: AgentEvent) -> PublishReport:
        """Publish an event, wait until every handler has had it, and return what became of it (S1-025, S1-028).

        Raises:
            EventCycle: if a handler publishes to itself this way, directly or through others; nothing is published.
            InvalidOption: if it is no event that can be published.
            EventBusClosed: if the bus does not run.
            WrongThread: if called outside the thread that runs the bus.
        """
        self._check("publish")
        checked = check_event(event)
        waiter = INSIDE.get()
        if waiter is not None and waiter.runner is self._runner and waiter.subscriber.running is waiter:
            return await self._publish_inside(checked, waiter)
        publication = self._enqueue(checked, copy_context())
        await trio.lowlevel.checkpoint()
        await publication.done.wait()
        return publication.report()

    async def _publish_inside(self, event: AgentEvent, waiter: Delivery) -> PublishReport:
        subscriber = waiter.subscriber
        targets = [target for target, _ in self._table.matching(event.event_type)]
        chain = find_cycle(targets, subscriber)
        if chain is not None:
            raise EventCycle(event.event_type, chain)
        publication = self._enqueue(event, copy_context())
        subscriber.awaiting.append(publication)
        waiter.waits += 1
        if waiter.has_slot:
            self._runner.schedule.give_back(waiter)
            waiter.lent = True
        self._runner.wake()
        try:
            await trio.lowlevel.checkpoint()
            await publication.done.wait()
        finally:
            subscriber.awaiting.remove(publication)
            waiter.waits -= 1
        if waiter.lent and not waiter.waits:
            waiter.lent = False
            await self._runner.schedule.take_back(waiter)
            if waiter.waits:
                # Another task of the handler has begun to wait meanwhile, and needs the place for its event.
                self._runner.schedule.give_back(waiter)
                waiter.lent = True
                self._runner.wake()
        return publication.report()

    def publish_nowait(self, event: AgentEvent) -> str:
        """Publish an event and go on at once; return its id. No handler runs before the caller's next checkpoint.

        Raises:
            InvalidOption: if it is no event that can be published.
            EventBusClosed: if the bus does not run.
            WrongThread: if called outside the thread that runs the bus.
        """
        self._check("publish_nowait")
        publication = self._enqueue(check_event(event), self._runner.detached())
        return publication.event.event_id

    def _enqueue(self, event: AgentEvent, context: Context) -> Publication:
        if self._state in ("new", "closed"):
            problem = "was closed" if self._state == "closed" else "does not run yet: use open_event_bus"
            raise EventBusClosed(f"publish {event.event_type!r}: the event bus {problem}")
        # Otherwise each event would keep the one in whose handler it was published, and so all before it.
        context.run(INSIDE.set, None)
        publication = Publication(event.stamped(self._environment), context)
        self._history.events.append(publication.event)
        self._published += 1
        self._seq += 1
        for subscriber, entries in self._table.matching(event.event_type):
            publication.deliveries.append(Delivery(publication, subscriber, entries, self._seq, self._runner))
        for delivery in publication.deliveries:
            self._runner.schedule.add(delivery)
        if not publication.deliveries:
            self._unmatched += 1
            publication.done.set()
        self._runner.wake()
        return publication

    # --- running ----------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver events until cancelled; start it as `child(bus.run)` or with `open_event_bus`.

        Raises:
            InvalidOption: if it runs already.
            EventBusClosed: if it was closed.
        """
        if self._state == "closed":
            raise EventBusClosed("run: the event bus was closed; make a new one")
        if self._state == "running":
            raise InvalidOption("run: expected an event bus that does not run; this one does")
        self._state = "running"
        self._thread = get_ident()
        try:
            async with self._runner.running() as deliver:
                task_status.started()
                await deliver()
        finally:
            self._state = "down"

    async def wait_idle(self) -> None:
        """Wait until every published event has been handled, those that handlers publish meanwhile included."""
        await self._runner.wait_idle()

    def close(self) -> None:
        """Refuse everything from now on; what still waits becomes dead letters and is reported as `closed`.

        Raises:
            InvalidOption: if it runs; cancel `run` first.
        """
        if self._state == "running":
            raise InvalidOption("close: expected an event bus that does not run; cancel bus.run first")
        self._state = "closed"
        self._runner.close()

    # --- looking back -----------------------------------------------------------------------------

    def get_history(
        self, event_type: str | None = None, *, source_agent: str | None = None, limit: int = 100
    ) -> list[AgentEvent]:
        """Return copies of the newest events that match, oldest first (S1-031).

        Args:
            event_type: A pattern as for `subscribe`; None for all.
            source_agent: Who published them; None for all.
            limit: How many at most.

        Raises:
            InvalidOption: if an argument cannot work.
        """
        return self._history.query(event_type, source_agent, limit)

    async def replay(
        self,
        handler: Handler,
        *,
        event_type: str | None = None,
        source_agent: str | None = None,
        limit: int = 100,
    ) -> tuple[HandlerResult, ...]:
        """Give the newest events that match to one handler, oldest first, one after the other (S1-032).

        They keep their ids and times, are not recorded again, and do not count. What the handler raises stands in its
        result, and the replay goes on.

        Raises:
            InvalidOption: if an argument cannot work.
        """
        subscriber = new_subscriber(handler, 0)
        await trio.lowlevel.checkpoint()
        results: list[HandlerResult] = []
        for event in self.get_history(event_type, source_agent=source_agent, limit=limit):
            error: Exception | None = None
            try:
                if isinstance(handler, Ref):
                    await handler.send(event)
                else:
                    result: Any = handler(event)
                    if isawaitable(result):
                        await result
            except FATAL:
                raise
            except Exception as raised:
                error = raised
            text = f"{type(error).__name__}: {error}" if error is not None else ""
            status: Status = "success" if error is None else "error"
            results.append(HandlerResult(subscriber.name, event_type or "*", status, text))
        return tuple(results)

    def dead_letters(self, limit: int = 100) -> list[EventDeadLetter]:
        """Return the newest dead letters, oldest first (S1-029, S1-056). Publish their events again to try again."""
        if not isinstance(limit, int) or limit < 0:
            raise InvalidOption(f"limit: expected a whole number from 0; got {limit!r}")
        letters = list(self._history.dead_letters)
        return [copy.deepcopy(letter) for letter in letters[len(letters) - min(limit, len(letters)) :]]

    def statistics(self) -> EventStatistics:
        """Return the counters (S1-033)."""
        return EventStatistics(
            events_published=self._published,
            events_handled=self._runner.handled,
            events_failed=self._runner.failed,
            events_unmatched=self._unmatched,
            dead_letter_count=self._runner.dead,
            waiting=self._runner.schedule.waiting,
            running=self._runner.schedule.running,
            subscriptions=len(self._table),
        )

    def _check(self, what: str) -> None:
        if self._state == "running" and get_ident() != self._thread:
            raise WrongThread(
                f"{what}: expected the thread that runs the event bus; from others write "
                f"  runtime.portal.call(bus.{what}, ...)"
            )
        if self._state == "closed" and what == "subscribe":
            raise EventBusClosed("subscribe: the event bus was closed")
