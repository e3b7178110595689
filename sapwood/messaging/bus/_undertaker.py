"""Undertakers: they show the dead letters of a durable queue in the office of the bus."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import trio

from sapwood.actors import Ref, message
from sapwood.errors import DeadLetterMissing, PersistenceError, QueueError, ReferenceStoreError
from sapwood.messaging.bus._dead_letters import DeadLetter, DeadReason
from sapwood.messaging.bus._desk import Desk
from sapwood.messaging.bus._directory import Consumer
from sapwood.messaging.bus._durable_sending import let_go
from sapwood.messaging.bus._log import log_warning
from sapwood.messaging.bus._reports import Answered
from sapwood.messaging.bus._reports import Delivery as Outcome
from sapwood.messaging.envelope import Envelope
from sapwood.messaging.queues import AppendFailed, Buried, Queue, QueueEvent
from sapwood.messaging.queues import DeadLetter as QueueLetter
from sapwood.messaging.queues import DeadReason as QueueReason

PAGE: Final = 100
"""Dead letters that are read at a time."""

REASONS: Final[dict[QueueReason, DeadReason]] = {
    "recipient_unknown": "unknown_recipient",
    "no_instance": "recipient_down",
    "expired": "expired",
    "delivery_failed": "handler_failed",
    "rejected": "unhandled",
    "overflow": "overflow",
    "unreadable": "unhandled",
}
"""Reason of a dead letter of a queue: that of the bus."""


@message("messaging.bus.discard")
class Discard:
    """Tells a host that somebody let a dead letter go."""

    letter: DeadLetter
    seq: int


class Undertaker:
    """Passes the dead letters of one handler's queue on; the queue stays the one record of them.

    Args:
        desk: The desk of the bus.
        consumer: The handler.
    """

    def __init__(self, desk: Desk, consumer: Consumer) -> None:
        self._desk = desk
        self._consumer = consumer
        self._died = trio.Event()
        # Dead letters that the office has not been shown; 0 stands for all.
        self._buried: set[int] = set()

    def hear(self, event: QueueEvent) -> None:
        """Take an event of the queue."""
        match event:
            case Buried(seq=seq):
                self._buried.add(seq)
                self._died.set()
            case AppendFailed(message=message, error=error):
                self._desk.failed(message.payload, self._consumer, "not_stored", str(error))
            case _:
                pass

    def look(self) -> None:
        """Look at all dead letters again."""
        self._buried.add(0)
        self._died.set()

    async def show_next(self, queue: Queue, host: Ref) -> None:
        """Wait for dead letters, and show them."""
        await self._died.wait()
        self._died = trio.Event()
        buried, self._buried = self._buried, set()
        if 0 in buried:
            await self.show_all(queue, host)
        for seq in sorted(buried - {0}):
            with suppress(DeadLetterMissing):
                self._show(queue, host, await queue.dead_letters.get(seq))

    async def show_all(self, queue: Queue, host: Ref) -> None:
        """Show all dead letters of the queue; those that the office has already stay as they are."""
        after = 0
        while True:
            letters = await queue.dead_letters.list(after=after, limit=PAGE)
            for letter in letters:
                self._show(queue, host, letter)
            if len(letters) < PAGE:
                return
            after = letters[-1].seq

    async def discard(self, queue: Queue, letter: DeadLetter, seq: int) -> None:
        """Let a dead letter go, and its payload with it; what cannot be now is shown again in the next life."""
        self._consumer.dead.pop(letter.id, None)
        try:
            await queue.dead_letters.discard(seq)
            await let_go(self._desk, letter.original, self._consumer)
        except (QueueError, PersistenceError, ReferenceStoreError) as error:
            log_warning("a dead letter was not let go", letter=letter.id, error=str(error))

    def _show(self, queue: Queue, host: Ref, letter: QueueLetter) -> None:
        desk, consumer = self._desk, self._consumer
        if letter.message is None:
            log_warning(
                "a dead letter cannot be read, and stays in its queue",
                queue=queue.name,
                seq=letter.seq,
                error=letter.detail,
            )
            return
        envelope: Envelope[Any] = letter.message.message.payload
        reason = REASONS[letter.reason]
        shown = DeadLetter(
            id=f"dead_{queue.name}/{letter.seq}",
            original=envelope,
            target=consumer.participant,
            reason=reason,
            detail=letter.detail,
            first_seen=letter.first_attempt_at or letter.dead_at,
            last_attempt=letter.last_attempt_at or letter.dead_at,
        )
        consumer.dead[shown.id] = letter.seq
        if desk.office.show(shown, lambda: host.tell(Discard(shown, letter.seq))):
            desk.buried(shown)
        failed = Outcome(consumer.participant, consumer.number, "failed", letter.detail, reason)
        error = consumer.errors.pop(envelope.message_id, None)
        consumer.settle(envelope.message_id, Answered(failed, error=error))
