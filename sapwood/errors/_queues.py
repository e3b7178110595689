"""Errors of durable queues."""

from __future__ import annotations

from sapwood.errors._root import SapwoodError


class QueueError(SapwoodError):
    """Something about a queue; `queue` is its name."""

    def __init__(self, queue: str, problem: str) -> None:
        super().__init__(f"queue {queue!r}: {problem}")
        self.queue = queue
        self.problem = problem


class QueueFull(QueueError):
    """The queue has no room for the messages; none of them was stored.

    Attributes:
        capacity: Messages that it may hold, those being worked on included.
        depth: Messages that it held.
    """

    def __init__(self, queue: str, capacity: int, depth: int) -> None:
        super().__init__(queue, f"holds {depth} of {capacity} messages; wait with `append`, or raise its capacity")
        self.capacity = capacity
        self.depth = depth


class QueueClosed(QueueError):
    """The queue was closed; nothing was done."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, "is closed; open it with `open_queue`")


class QueueFenced(QueueError):
    """Somebody else opened the queue since; whoever gets this must stop working on it.

    Attributes:
        held: Epoch of the caller.
        current: Epoch in the store.
    """

    def __init__(self, queue: str, held: int, current: int) -> None:
        super().__init__(queue, f"was opened elsewhere with epoch {current}, after this one's {held}; stop this one")
        self.held = held
        self.current = current


class LeaseLost(QueueError):
    """The delivery is not the caller's any more; what it asked for was not done.

    Attributes:
        seq: Sequence number of the message.
        attempt: Number of the delivery that was lost.
    """

    def __init__(self, queue: str, seq: int, attempt: int, reason: str) -> None:
        super().__init__(queue, f"delivery {attempt} of message {seq} is over: {reason}")
        self.seq = seq
        self.attempt = attempt
        self.reason = reason


class MessageIdConflict(QueueError):
    """A message id was used again, within its window, for a message with another content; nothing was stored.

    Attributes:
        id: The message id.
        seq: Sequence number of the message that has it.
    """

    def __init__(self, queue: str, message_id: str, seq: int) -> None:
        super().__init__(
            queue, f"message id {message_id!r} belongs to message {seq}, which says something else; use a new id"
        )
        self.id = message_id
        self.seq = seq


class DeadLetterMissing(QueueError):
    """There is no dead letter with this sequence number; it was requeued or discarded meanwhile."""

    def __init__(self, queue: str, seq: int) -> None:
        super().__init__(queue, f"has no dead letter {seq}; look at `dead_letters.list()`")
        self.seq = seq


class ArchiveInvalid(QueueError):
    """An exported file cannot be read in; nothing was changed.

    Attributes:
        line: Number of the offending line, from 1.
    """

    def __init__(self, queue: str, line: int, problem: str) -> None:
        super().__init__(queue, f"line {line} of the archive: {problem}")
        self.line = line


class RejectMessage(SapwoodError):
    """Raised by the handler of a message that can never be handled: it becomes a dead letter without a retry."""
