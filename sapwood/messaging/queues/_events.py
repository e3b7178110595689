"""What a queue reports while it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from sapwood.messaging.queues._dead_rows import DeadLetter
from sapwood.messaging.queues._messages import Message


@attrs.frozen
class Buried:
    """A message became a dead letter.

    Attributes:
        queue: Name of the queue.
        seq: Sequence number of the message.
        reason: Why, see `REASONS`.
        detail: What its last receiver said.
    """

    queue: str
    seq: int
    reason: str
    detail: str


@attrs.frozen
class DeadLetterAlert:
    """A message has been dead for longer than `alert_after`, all tries of the queue itself included (S3-111)."""

    letter: DeadLetter


@attrs.frozen
class SenderNotice:
    """The queue has given a message up and will not try again; `letter.message.message.sender` is to know (S3-111)."""

    letter: DeadLetter


@attrs.frozen
class AppendFailed:
    """A message given to `append_nowait` could not be stored, and never will be.

    Attributes:
        queue: Name of the queue.
        message: The message.
        error: What stands against it.
    """

    queue: str
    message: Message
    error: Exception


QueueEvent: TypeAlias = Buried | DeadLetterAlert | SenderNotice | AppendFailed

QueueListener: TypeAlias = Callable[[QueueEvent], None]
"""Takes the events of a queue, in its task: quick, never blocking. Events are told and never stored as messages, so a
listener that fails can make no new dead letters (BR-44)."""
