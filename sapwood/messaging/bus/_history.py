"""History: the last messages that the bus took, and the trail of who did what."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from sapwood.errors import InvalidOption
from sapwood.messaging.bus._reports import DeliveryReport, Operation
from sapwood.messaging.envelope import Envelope


@attrs.frozen
class AuditRecord:
    """One operation, allowed or refused (S2-054).

    Attributes:
        at: Wall clock in seconds since 1970 UTC.
        actor: Who wanted it.
        operation: What.
        subject: The recipient, topic, pattern or name that it was about.
        outcome: `allowed` or `refused`.
        detail: Why it was refused, or the id of the message.
    """

    at: float
    actor: str
    operation: Operation
    subject: str
    outcome: str
    detail: str = ""


AuditSink: TypeAlias = Callable[[AuditRecord], None]


@attrs.frozen
class _Entry:
    envelope: Envelope[Any]
    recipients: frozenset[str]


class History:
    """The last messages, oldest dropped.

    Args:
        capacity: How many are kept.
    """

    def __init__(self, capacity: int) -> None:
        self._entries: deque[_Entry] = deque(maxlen=capacity)
        self.reports: deque[DeliveryReport] = deque(maxlen=capacity)

    def add(self, envelope: Envelope[Any], recipients: frozenset[str]) -> None:
        """Keep a message."""
        self._entries.append(_Entry(envelope, recipients))

    def query(
        self,
        *,
        agent: str | None = None,
        topic: str | None = None,
        kind: str | None = None,
        correlation_id: str | None = None,
        limit: int | None = 10,
    ) -> list[Envelope[Any]]:
        """Return the newest messages that fit, newest last (S2-016).

        Args:
            agent: Sender, or one of those who got it; None for all.
            topic: The topic; None for all.
            kind: The kind; None for all.
            correlation_id: The chain; None for all.
            limit: Most that are returned; None for all.

        Raises:
            InvalidOption: if the limit is no whole number >= 1.
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidOption(f"history: expected limit >= 1, or None; got {limit!r}")
        found = [
            entry.envelope
            for entry in self._entries
            if (agent is None or entry.envelope.sender == agent or agent in entry.recipients)
            and (topic is None or entry.envelope.topic == topic)
            and (kind is None or entry.envelope.kind == kind)
            and (correlation_id is None or entry.envelope.correlation_id == correlation_id)
        ]
        return found if limit is None else found[-limit:]

    def __len__(self) -> int:
        return len(self._entries)
