"""The dead letters of a queue: looking at them, bringing them back, and letting them go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import final

import attrs

from sapwood.errors import DeadLetterMissing, InvalidOption
from sapwood.messaging.queues._appending import append
from sapwood.messaging.queues._core import Core
from sapwood.messaging.queues._dead_rows import DeadLetter, dead_letter, dead_letters
from sapwood.messaging.queues._ledger import Transaction, check_epoch, close_log
from sapwood.messaging.queues._messages import Message, prepare
from sapwood.messaging.queues._options import QueueOptions, is_count
from sapwood.messaging.queues._reasons import REASONS, DeadReason
from sapwood.messaging.queues._settling import bury, revive


@final
class DeadLetters:
    """Dead letters of one queue (S2-029). They are rows beside the queue and no queue themselves.

    So they have no dead letters of their own, no capacity and no target to overflow into, and no circle of dead
    letters can exist. They stay until they are requeued or discarded.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    async def list(self, *, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """Return up to `limit` dead letters with sequence numbers above `after`, in order."""
        if not is_count(limit, 1):
            raise InvalidOption(f"limit: expected at least 1 dead letter; got {limit!r}")
        return await self._core.read(lambda tx: dead_letters(tx, after, limit))

    async def get(self, seq: int) -> DeadLetter:
        """Return one dead letter.

        Raises:
            DeadLetterMissing: if there is none with this sequence number.
        """
        letter = await self._core.read(lambda tx: dead_letter(tx, seq))
        if letter is None:
            raise DeadLetterMissing(self._core.head.name, seq)
        return letter

    async def add(self, message: Message | object, reason: DeadReason, detail: str = "") -> DeadLetter:
        """Store a message as a dead letter at once, which could not even be queued: nobody has its recipient's name.

        Raises:
            InvalidOption: if the reason does not exist.
            InvalidMessage, CodecError: if the message cannot be stored.
        """
        if reason not in REASONS:
            raise InvalidOption(f"dead letter reason: expected one of {', '.join(REASONS)}; got {reason!r}")
        core = self._core
        outgoing = prepare(message, core.environment)

        def write(tx: Transaction) -> DeadLetter:
            free = Transaction(tx.connection, tx.head, _without_limits(tx), tx.now, tx.wall)
            ((appended,), _) = append(free, [outgoing])
            bury(tx, appended.seq, reason, detail)
            letter = dead_letter(tx, appended.seq)
            assert letter is not None
            return letter

        letter = await core.write(write)
        core.buried([(letter.seq, reason, detail)])
        return letter

    async def requeue(self, *seqs: int) -> None:
        """Bring dead letters back as live messages, all or none; each has all its attempts and its old place.

        The queue's capacity does not hinder it.

        Raises:
            DeadLetterMissing: if there is none with one of these sequence numbers; nothing was changed.
        """
        await self._core.write(partial(_requeue, seqs=seqs))
        self._core.count("revived", len(seqs))
        self._core.signal()
        self._core.signal(at=0.0)

    async def discard(self, *seqs: int) -> None:
        """Let dead letters go, all or none; the log keeps their messages for its retention.

        Raises:
            DeadLetterMissing: if there is none with one of these sequence numbers; nothing was changed.
        """
        await self._core.write(partial(_discard, seqs=seqs))


def _without_limits(tx: Transaction) -> QueueOptions:
    return attrs.evolve(tx.options, capacity=None, dedup_window=None, mode="at_least_once")


def _requeue(tx: Transaction, seqs: Sequence[int]) -> None:
    check_epoch(tx)
    for seq in seqs:
        if not revive(tx, seq, by_itself=False):
            raise DeadLetterMissing(tx.head.name, seq)


def _discard(tx: Transaction, seqs: Sequence[int]) -> None:
    check_epoch(tx)
    for seq in seqs:
        if not tx.execute("DELETE FROM queue_dead WHERE queue_id = ? AND seq = ?", seq).rowcount:
            raise DeadLetterMissing(tx.head.name, seq)
        close_log(tx, seq)
