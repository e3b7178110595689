"""The table of subscriptions: which handlers take an event of a type."""

from __future__ import annotations

from collections.abc import Iterator

from sapwood.errors import AlreadySubscribed
from sapwood.messaging.events._delivery import Subscriber, SubscriptionEntry, identity_of, new_subscriber
from sapwood.messaging.events._patterns import candidates


class SubscriptionTable:
    """Subscriptions by pattern and by handler; nothing of one that has ended stays behind (BR-80)."""

    def __init__(self) -> None:
        self._by_pattern: dict[str, dict[object, SubscriptionEntry]] = {}
        self._subscribers: dict[object, Subscriber] = {}
        self._next_order = 0

    def __len__(self) -> int:
        return sum(len(subscriber.subscriptions) for subscriber in self._subscribers.values())

    def __iter__(self) -> Iterator[Subscriber]:
        return iter(tuple(self._subscribers.values()))

    def add(self, pattern: str, handler: object, attempts: int) -> SubscriptionEntry:
        """Add a subscription.

        Raises:
            AlreadySubscribed: if the handler has this very pattern (S1-024).
            InvalidOption: if the handler can be neither called nor told.
        """
        subscriber = self._subscribers.get(identity_of(handler))
        if subscriber is None:
            subscriber = new_subscriber(handler, self._next_order)
        elif pattern in subscriber.subscriptions:
            raise AlreadySubscribed(pattern)
        self._next_order += 1
        entry = SubscriptionEntry(pattern, subscriber, attempts)
        self._subscribers[subscriber.identity] = subscriber
        subscriber.subscriptions[pattern] = entry
        self._by_pattern.setdefault(pattern, {})[subscriber.identity] = entry
        return entry

    def find(self, pattern: str, handler: object) -> SubscriptionEntry | None:
        """Return the subscription of a handler under a pattern, or None."""
        return self._by_pattern.get(pattern, {}).get(identity_of(handler))

    def remove(self, entry: SubscriptionEntry) -> bool:
        """Remove a subscription; say whether it was there."""
        if not entry.active:
            return False
        entry.active = False
        subscriber, pattern = entry.subscriber, entry.pattern
        del subscriber.subscriptions[pattern]
        del self._by_pattern[pattern][subscriber.identity]
        if not self._by_pattern[pattern]:
            del self._by_pattern[pattern]
        if not subscriber.subscriptions:
            del self._subscribers[subscriber.identity]
            if subscriber.watch is not None:
                subscriber.watch.cancel()
        return True

    def matching(self, event_type: str) -> list[tuple[Subscriber, tuple[SubscriptionEntry, ...]]]:
        """Return the handlers for a type, each once, in the order of their subscription (S1-026)."""
        found: dict[Subscriber, list[SubscriptionEntry]] = {}
        for pattern in candidates(event_type):
            for entry in self._by_pattern.get(pattern, {}).values():
                found.setdefault(entry.subscriber, []).append(entry)
        ordered = sorted(found.items(), key=lambda item: item[0].order)
        return [(subscriber, tuple(entries)) for subscriber, entries in ordered]
