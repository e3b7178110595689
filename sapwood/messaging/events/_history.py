"""What the bus remembers: the last events, and those that became dead letters."""

from __future__ import annotations

from collections import deque

from sapwood.errors import InvalidOption
from sapwood.messaging.events._event import AgentEvent
from sapwood.messaging.events._patterns import check_pattern, matches
from sapwood.messaging.events._report import EventDeadLetter


class History:
    """The last events and dead letters, oldest dropped first (S1-030)."""

    def __init__(self, max_history: int, max_dead_letters: int) -> None:
        self.events: deque[AgentEvent] = deque(maxlen=max_history)
        self.dead_letters: deque[EventDeadLetter] = deque(maxlen=max_dead_letters)

    def query(self, event_type: str | None, source_agent: str | None, limit: int) -> list[AgentEvent]:
        """Return the newest events that match, oldest first (S1-031).

        Raises:
            InvalidOption: if the pattern or the limit cannot work.
        """
        pattern = check_pattern(event_type) if event_type is not None else "*"
        if not isinstance(limit, int) or limit < 0:
            raise InvalidOption(f"limit: expected a whole number from 0; got {limit!r}")
        found: list[AgentEvent] = []
        for event in reversed(self.events):
            if len(found) == limit:
                break
            if matches(pattern, event.event_type) and source_agent in (None, event.source_agent):
                found.append(event.copied())
        return found[::-1]
