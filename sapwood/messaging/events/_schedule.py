"""The schedule of deliveries: which one is next, and who has a place among the concurrent handlers."""

from __future__ import annotations

import heapq
from collections import deque

import trio

from sapwood.messaging.events._delivery import Delivery, Subscriber
from sapwood.messaging.events._event import EventPriority


class Schedule:
    """Orders what waits by priority and age; a handler has at most one delivery at a time.

    Invariant: the first delivery of every handler that has some and runs none is in the heap, besides entries that are
    out of date and skipped.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._taken = 0
        self._heap: list[tuple[int, int, int, Subscriber]] = []
        self._pushes = 0
        self._resuming: deque[trio.Event] = deque()
        self._waiting: dict[Delivery, None] = {}
        self.running = 0

    @property
    def waiting(self) -> int:
        """Deliveries that wait for their turn."""
        return len(self._waiting)

    def add(self, delivery: Delivery) -> None:
        """Have a delivery wait for its turn."""
        self._waiting[delivery] = None
        subscriber = delivery.subscriber
        heapq.heappush(subscriber.waiting, (*delivery.rank, delivery))
        if subscriber.running is None and subscriber.waiting[0][2] is delivery:
            self._push(subscriber)

    def next(self) -> Delivery | None:
        """Take the next delivery that may begin now; None if there is none.

        A critical one needs no place. One that nobody wants any more is returned as well, without a place.
        """
        while self._heap:
            priority, seq, _, subscriber = self._heap[0]
            if subscriber.running is not None or not subscriber.waiting or subscriber.waiting[0][:2] != (priority, seq):
                heapq.heappop(self._heap)
                continue
            delivery = subscriber.waiting[0][2]
            if delivery.wanted and priority != EventPriority.CRITICAL:
                if self._taken >= self._places:
                    return None
                self._taken += 1
                delivery.has_slot = True
            heapq.heappop(self._heap)
            heapq.heappop(subscriber.waiting)
            del self._waiting[delivery]
            self.running += 1
            subscriber.running = delivery
            return delivery
        return None

    def end(self, delivery: Delivery) -> None:
        """Give back the place of a delivery whose handler has ended, and let its handler have the next one."""
        self.running -= 1
        self.give_back(delivery)
        subscriber = delivery.subscriber
        subscriber.running = None
        if subscriber.waiting:
            self._push(subscriber)

    def give_back(self, delivery: Delivery) -> None:
        """Free a delivery's place, if it has one; a handler that comes back from waiting gets it first."""
        if not delivery.has_slot:
            return
        delivery.has_slot = False
        if self._resuming:
            self._resuming.popleft().set()
        else:
            self._taken -= 1

    async def take_back(self, delivery: Delivery) -> None:
        """Wait for a place for a handler that goes on after it waited for others."""
        if self._taken < self._places:
            self._taken += 1
        else:
            event = trio.Event()
            self._resuming.append(event)
            try:
                await event.wait()
            except trio.Cancelled:
                if event.is_set():
                    delivery.has_slot = True
                    self.give_back(delivery)
                else:
                    self._resuming.remove(event)
                raise
        delivery.has_slot = True

    def drain(self) -> list[Delivery]:
        """Take all that waits, in order."""
        found = sorted(self._waiting, key=lambda delivery: delivery.rank)
        for delivery in found:
            delivery.subscriber.waiting.clear()
        self._waiting.clear()
        return found

    def _push(self, subscriber: Subscriber) -> None:
        priority, seq, _ = subscriber.waiting[0]
        self._pushes += 1
        heapq.heappush(self._heap, (priority, seq, self._pushes, subscriber))
