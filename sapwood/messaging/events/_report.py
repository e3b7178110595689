"""What becomes of a published event."""

from __future__ import annotations

from typing import Literal

import attrs

from sapwood.messaging.events._event import AgentEvent


@attrs.frozen
class HandlerResult:
    """What one handler made of one event (S1-028).

    Attributes:
        handler: Name of the handler.
        topic: The pattern under which it was subscribed; the most exact one if there are several.
        status: `success`; `error` if its last attempt failed; `unsubscribed` if its subscription ended before its turn;
            `closed` if the bus was closed before its turn.
        error: What it raised last, as `Type: text`; empty if it raised nothing.
        attempts: How often it was called.
    """

    handler: str
    topic: str
    status: Literal["success", "error", "unsubscribed", "closed"]
    error: str = ""
    attempts: int = 1


@attrs.frozen
class PublishReport:
    """What became of one published event (S1-028).

    Attributes:
        event_id: Id of the event.
        event_type: Its type.
        dispatched_count: Handlers that it was given to.
        results: What each of them made of it, in the order of their subscription.
    """

    event_id: str
    event_type: str
    dispatched_count: int
    results: tuple[HandlerResult, ...]


@attrs.frozen
class EventDeadLetter:
    """An event that failed too often, or could not be delivered (S1-029).

    Attributes:
        event: The event.
        reason: `errors` if its handlers failed as often as the threshold says, `closed` if the bus was closed before it
            was handled.
        results: What each handler made of it, as far as they had their turn.
        at: Wall clock, in seconds since 1970 UTC.
    """

    event: AgentEvent
    reason: Literal["errors", "closed"]
    results: tuple[HandlerResult, ...]
    at: float


@attrs.frozen
class EventStatistics:
    """Counters of an event bus (S1-033).

    Attributes:
        events_published: Events published, replays not included.
        events_handled: Calls of handlers that succeeded.
        events_failed: Calls of handlers that failed.
        events_unmatched: Events for which nobody was subscribed.
        dead_letter_count: Events that became dead letters, those not kept any more included.
        waiting: Deliveries that wait for their turn.
        running: Handlers that run now.
        subscriptions: Subscriptions that exist.
    """

    events_published: int
    events_handled: int
    events_failed: int
    events_unmatched: int
    dead_letter_count: int
    waiting: int
    running: int
    subscriptions: int
