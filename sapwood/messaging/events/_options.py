"""Options of the event bus."""

from __future__ import annotations

import attrs

from sapwood.errors import InvalidOption


@attrs.frozen(kw_only=True)
class EventBusOptions:
    """How an event bus behaves.

    Attributes:
        max_concurrent_handlers: Handlers that run at once, critical events not counted (S1-025).
        max_history: Events kept for queries and replays (S1-030).
        error_threshold: Failed calls of handlers, over all handlers of an event, that make it a dead letter (S1-029).
        max_dead_letters: Dead letters kept.
        handler_timeout: Seconds that one call of an async handler may take; None for no limit.

    Raises:
        InvalidOption: if a value is out of its range.
    """

    max_concurrent_handlers: int = 10
    max_history: int = 5_000
    error_threshold: int = 3
    max_dead_letters: int = 1_000
    handler_timeout: float | None = 30.0

    def __attrs_post_init__(self) -> None:
        for option, least in (
            ("max_concurrent_handlers", 1),
            ("max_history", 0),
            ("error_threshold", 1),
            ("max_dead_letters", 0),
        ):
            value = getattr(self, option)
            if not isinstance(value, int) or value < least:
                raise InvalidOption(f"event bus {option}: expected a whole number from {least}; got {value!r}")
        timeout = self.handler_timeout
        if timeout is not None and (not isinstance(timeout, int | float) or not timeout > 0):
            raise InvalidOption(f"event bus handler_timeout: expected None or seconds > 0; got {timeout!r}")
