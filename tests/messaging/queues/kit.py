"""Records and helpers that the tests of queues share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sapwood.actors import record
from sapwood.messaging.queues import Delivery, Queue, QueueEvent, QueueOptions
from sapwood.supervision import Backoff

AT_ONCE = Backoff(initial=0.001, factor=1.0, maximum=0.001, jitter=0.0)


@record("test.queues.job")
class Job:
    number: int
    text: str = ""


class Events:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[QueueEvent] = []

    def __call__(self, event: QueueEvent) -> None:
        self.heard.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.heard if isinstance(event, kind)]


def quick(**options: Any) -> QueueOptions:
    """Options whose retries come at once."""
    given: dict[str, Any] = {"retry": AT_ONCE, **options}
    return QueueOptions(**given)


def payloads(deliveries: Iterable[Delivery]) -> list[Any]:
    return [delivery.payload for delivery in deliveries]


async def ack_all(deliveries: Iterable[Delivery]) -> None:
    for delivery in deliveries:
        await delivery.ack()


async def drain(queue: Queue, limit: int = 1000) -> list[Any]:
    """Take and acknowledge what can be delivered now."""
    found: list[Any] = []
    while deliveries := await queue.poll(limit):
        found += payloads(deliveries)
        await ack_all(deliveries)
    return found
