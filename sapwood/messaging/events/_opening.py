"""An event bus for the length of a block."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from sapwood.actors import Environment, single_exceptions_bare
from sapwood.messaging.events._bus import EventBus
from sapwood.messaging.events._options import EventBusOptions
from sapwood.messaging.events._runner import EventObserver


@asynccontextmanager
async def open_event_bus(
    environment: Environment | None = None,
    options: EventBusOptions | None = None,
    *,
    observer: EventObserver | None = None,
) -> AsyncGenerator[EventBus]:
    """Run an event bus for the length of an `async with` block.

    Leaving the block waits until every event that was published has been handled, those that handlers publish meanwhile
    included. Leaving it by an exception does not wait: what was not handled becomes dead letters.

    Args:
        environment: Source of time and ids; None for the real world.
        options: How it behaves; None for the defaults.
        observer: Told of deliveries that are no success; see `EventBus`.
    """
    bus = EventBus(environment, options, observer=observer)
    try:
        with single_exceptions_bare():
            async with trio.open_nursery() as nursery:
                await nursery.start(bus.run)
                yield bus
                await bus.wait_idle()
                nursery.cancel_scope.cancel()
    finally:
        bus.close()
