"""Deliveries: one event on its way to one handler, and the publication that waits for all of them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import Context
from types import MethodType
from typing import Any, Literal, TypeAlias

import attrs
import trio

from sapwood.actors import Ref
from sapwood.errors import InvalidOption
from sapwood.messaging.events._event import AgentEvent
from sapwood.messaging.events._report import HandlerResult, PublishReport

Handler: TypeAlias = Callable[[AgentEvent], Awaitable[None] | None] | Ref
"""A plain or async function of one event, or an actor that handles `AgentEvent`."""

Status: TypeAlias = Literal["success", "error", "unsubscribed", "closed"]


@attrs.define(eq=False)
class Subscriber:
    """One handler, under however many patterns; it is given one event at a time.

    Attributes:
        identity: What makes it the same handler: the function, the bound object and function, or the ref.
        handler: The handler itself.
        name: What reports call it.
        order: Its place among all, by first subscription.
        subscriptions: Its subscriptions by pattern.
        waiting: Deliveries that wait, as a heap.
        running: The one that runs, or None.
        awaiting: Publications that the running handler waits for.
        watch: Ends the watch on the actor that it is.
    """

    identity: object
    handler: Any
    name: str
    order: int
    is_async: bool
    subscriptions: dict[str, SubscriptionEntry] = attrs.field(factory=dict[str, "SubscriptionEntry"])
    waiting: list[tuple[int, int, Delivery]] = attrs.field(factory=list[tuple[int, int, "Delivery"]])
    running: Delivery | None = None
    awaiting: list[Publication] = attrs.field(factory=list["Publication"])
    watch: trio.CancelScope | None = None


@attrs.define(eq=False)
class SubscriptionEntry:
    """One handler under one pattern."""

    pattern: str
    subscriber: Subscriber
    attempts: int
    active: bool = True


@attrs.define(eq=False)
class Delivery:
    """One event for one handler.

    Attributes:
        publication: What it belongs to.
        subscriber: The handler.
        entries: The subscriptions that matched, the most exact one first.
        seq: Number of the publication; order within one priority.
        runner: What runs it.
        attempts: Calls of the handler so far.
        lent: Whether it gave its place up while the handler waits.
        has_slot: Whether it holds a place among the concurrent handlers.
        waits: Publications that the handler waits for at this moment.
    """

    publication: Publication
    subscriber: Subscriber
    entries: tuple[SubscriptionEntry, ...]
    seq: int
    runner: object
    attempts: int = 0
    has_slot: bool = False
    lent: bool = False
    waits: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Place among what waits; the least comes first."""
        return int(self.publication.event.priority), self.seq

    @property
    def wanted(self) -> bool:
        """Whether a subscription that matched still exists."""
        return any(entry.active for entry in self.entries)

    @property
    def max_attempts(self) -> int:
        """How often the handler may be called."""
        return max(entry.attempts for entry in self.entries)


@attrs.define(eq=False)
class Publication:
    """One published event and what its handlers made of it."""

    event: AgentEvent
    context: Context
    errors: int = 0
    deliveries: list[Delivery] = attrs.field(factory=list[Delivery])
    results: dict[Delivery, HandlerResult] = attrs.field(factory=dict[Delivery, HandlerResult])
    done: trio.Event = attrs.field(factory=trio.Event)

    def settle(self, delivery: Delivery, status: Status, error: Exception | None) -> bool:
        """Note what became of a delivery; say whether it was the last one."""
        text = f"{type(error).__name__}: {error}" if error is not None else ""
        self.results[delivery] = HandlerResult(
            delivery.subscriber.name, delivery.entries[0].pattern, status, text, delivery.attempts
        )
        return len(self.results) == len(self.deliveries)

    @property
    def ordered_results(self) -> tuple[HandlerResult, ...]:
        """The results so far, in the order of subscription."""
        return tuple(self.results[delivery] for delivery in self.deliveries if delivery in self.results)

    def report(self) -> PublishReport:
        """Return the report; all deliveries are settled."""
        results = self.ordered_results
        given = sum(result.status in ("success", "error") for result in results)
        return PublishReport(self.event.event_id, self.event.event_type, given, results)


def identity_of(handler: object) -> object:
    """Return what makes two handlers the same: of bound methods, their object and function."""
    if isinstance(handler, MethodType):
        return id(handler.__self__), handler.__func__
    return handler if isinstance(handler, Ref) else id(handler)


def new_subscriber(handler: object, order: int) -> Subscriber:
    """Return a subscriber for a handler.

    Raises:
        InvalidOption: if it can be neither called nor told.
    """
    if isinstance(handler, Ref):
        return Subscriber(handler, handler, handler.label, order, is_async=False)
    if not callable(handler) or isinstance(handler, type):
        raise InvalidOption(f"subscribe: expected a function of one event, or a Ref; got {handler!r}")
    name = str(getattr(handler, "__qualname__", type(handler).__name__))
    called = getattr(type(handler), "__call__", None)  # noqa: B004  # of an object that can be called
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)
    return Subscriber(identity_of(handler), handler, name, order, is_async)


def find_cycle(targets: list[Subscriber], waiter: Subscriber) -> list[str] | None:
    """Return the names of the handlers that wait for each other if `waiter` waits for the targets, or None."""
    came_from: dict[Subscriber, Subscriber | None] = dict.fromkeys(targets)
    pending = list(came_from)
    while pending:
        at = pending.pop()
        if at is waiter:
            chain = [waiter.name]
            step: Subscriber | None = came_from[at]
            while step is not None:
                chain.append(step.name)
                step = came_from[step]
            return [waiter.name, *reversed(chain)]
        for publication in at.awaiting:
            for delivery in publication.deliveries:
                if delivery not in publication.results and delivery.subscriber not in came_from:
                    came_from[delivery.subscriber] = at
                    pending.append(delivery.subscriber)
    return None
