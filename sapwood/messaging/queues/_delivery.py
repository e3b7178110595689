"""A delivery: one message in the hands of one receiver."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

import attrs

from sapwood.errors import InvalidOption, LeaseLost
from sapwood.messaging.queues._ledger import Lease, Transaction, check_epoch
from sapwood.messaging.queues._messages import Message
from sapwood.messaging.queues._options import is_seconds
from sapwood.messaging.queues._settling import acknowledge, fail, reject
from sapwood.messaging.queues._taking import Taken

if TYPE_CHECKING:
    from sapwood.messaging.queues._core import Core
    from sapwood.messaging.queues._dispatcher import Leases

T = TypeVar("T")

RETENTION_GRAIN = 60.0
"""Seconds by which retention may be longer than asked for, so that what ends at about the same time goes together."""


@attrs.frozen
class Effect(Generic[T]):
    """What `Delivery.ack_with` came to.

    Attributes:
        done: True: the operation ran, and is committed. False: it was committed for this message before, and was
            not run again.
        value: What the operation returned; None if it was not run.
    """

    done: bool
    value: T | None


@final
class Delivery:
    """One message, leased to one receiver, until it is settled or its visibility time-out passes.

    Exactly one settlement counts; one that comes too late is refused with `LeaseLost` and changes nothing. A queue
    makes deliveries; they cannot be made otherwise.

    Attributes:
        seq: Sequence number of the message.
        at: Wall clock when it was appended, in seconds since 1970 UTC.
        message: The message.
        attempt: Number of this delivery, from 1.
        requeues: Times that the message came back from the dead letters by itself.
        redelivered: Whether a handler may have had the message before: a failed delivery, a dead letter, a replay.
        settled: Whether it was settled or given up through this object.
        acknowledged: Whether it was settled as done through this object.
    """

    def __init__(self, core: Core, leases: Leases, taken: Taken) -> None:
        self.seq = taken.stored.seq
        self.at = taken.stored.at
        self.message: Message = taken.stored.message
        self.attempt = taken.lease.attempt
        self.requeues = taken.requeues
        self.redelivered = taken.redelivered
        self.settled = self.acknowledged = False
        self._core = core
        self._leases = leases
        self._lease: Lease = taken.lease

    def __repr__(self) -> str:
        return f"<Delivery {self.attempt} of message {self.seq} of queue {self._core.head.name!r}>"

    @property
    def payload(self) -> Any:
        """What the message carries."""
        return self.message.payload

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for all deliveries of the message, for systems that tell repeats by one."""
        return f"{self._core.head.name}:{self.message.id}"

    async def ack(self) -> None:
        """Settle the message: it is done. Durable on return.

        Raises:
            LeaseLost: if the delivery is over; the message is or will be delivered again.
            QueueFenced: if the queue was opened elsewhere since.
            StoreUnavailable: if that could not be stored; the delivery still holds.
        """
        await self._settle(lambda tx: acknowledge(tx, self._lease), "acknowledged")

    async def ack_with(self, operation: Callable[[sqlite3.Connection], T], *, consumer: str = "default") -> Effect[T]:
        """Commit the receiver's own writes and the settlement together, once for each message id (S2-032).

        The operation is a plain function of a connection to the queue's store, as for `Store.write`. In one
        transaction it is checked that the delivery still holds, the operation runs, the message is settled, and it
        is marked as done by this consumer. So there is no moment at which one is durable and another is not. If the
        mark is there already, because a sender repeated the message or it was replayed, the operation is not run.

        It cannot do so for anything outside this store: give `idempotency_key` to the other side instead. Marks are
        kept as long as ids are remembered (`dedup_window`), at least for the queue's retention.

        Args:
            operation: Makes the receiver's writes.
            consumer: Whose effect it is; different consumers of one message are told apart by this name.

        Raises:
            LeaseLost, QueueFenced, StoreUnavailable: as `ack`; none of the writes is stored.
            Exception: what the operation raises; none of its writes is stored, and the delivery still holds.
        """

        def together(tx: Transaction) -> Effect[T]:
            acknowledge(tx, self._lease)
            until = tx.now + max(tx.options.window, tx.options.retention)
            fresh = tx.execute(
                "INSERT OR IGNORE INTO queue_effects (queue_id, consumer, id, until) VALUES (?, ?, ?, ?)",
                consumer,
                self.message.id,
                until,
            ).rowcount
            return Effect(True, operation(tx.connection)) if fresh else Effect(False, None)  # noqa: FBT003

        return await self._settle(together, "acknowledged")

    async def nack(self, error: object = "", *, delay: float | None = None) -> None:
        """Say that handling failed: the message is delivered again, or is dead if it had all its attempts.

        Args:
            error: What went wrong; kept with the dead letter.
            delay: Seconds until it is delivered again; None for the queue's backoff.

        Raises:
            LeaseLost, QueueFenced, StoreUnavailable: as `ack`.
        """
        core = self._core
        if delay is None:
            delay = core.options.retry.delay(self.attempt, core.environment.random)
        elif not is_seconds(delay, zero=True):
            raise InvalidOption(f"nack delay: expected None or seconds >= 0; got {delay!r}")
        detail = describe(error)
        reason = await self._settle(lambda tx: fail(tx, self._lease, detail, delay), "failed")
        if reason is not None:
            core.buried([(self.seq, reason, detail)])
        else:
            core.signal(at=core.now() + delay)

    async def reject(self, reason: object = "") -> None:
        """Say that the message can never be handled: it becomes a dead letter without a retry.

        Raises:
            LeaseLost, QueueFenced, StoreUnavailable: as `ack`.
        """
        detail = describe(reason)
        await self._settle(lambda tx: reject(tx, self._lease, detail), "rejected")
        self._core.buried([(self.seq, "rejected", detail)])

    async def check(self) -> None:
        """Check that the delivery still holds.

        Raises:
            LeaseLost, QueueFenced: if it does not.
        """
        await self._core.read(check_epoch)
        if self.settled or not self._leases.holds(self._lease):
            raise self._over()

    def extend(self, seconds: float | None = None) -> None:
        """Begin the visibility time-out anew: `seconds` from now, or the queue's own time.

        Raises:
            LeaseLost: if the delivery is over.
        """
        seconds = self._core.options.visibility if seconds is None else seconds
        if not is_seconds(seconds):
            raise InvalidOption(f"extend: expected seconds > 0; got {seconds!r}")
        if self.settled or not self._leases.extend(self._lease, seconds):
            raise self._over()

    def abandon(self, *, started: bool = True) -> None:
        """Give the message up without waiting: it is delivered again soon. For clean-up when cancelled.

        Args:
            started: False if no handler has seen it; then the attempt does not count.
        """
        if not self.settled:
            self.settled = True
            self._leases.abandon(self._lease, started=started)

    async def _settle(self, operation: Callable[[Transaction], T], name: str) -> T:
        if self.settled:
            await self._core.check()
            raise self._over()
        try:
            value = await self._core.write(operation)
        except LeaseLost as error:
            self.settled = True
            self._core.lost(error)
            raise
        self.settled = True
        self.acknowledged = name == "acknowledged"
        self._leases.forget(self._lease)
        core = self._core
        core.count(name)
        core.make_room()
        if core.options.ordering == "partitioned":
            core.signal()
        core.signal(at=core.now() + core.options.retention + RETENTION_GRAIN)
        return value

    def _over(self) -> LeaseLost:
        error = LeaseLost(self._core.head.name, self.seq, self.attempt, "it was settled or given up")
        self._core.lost(error)
        return error


def describe(error: object) -> str:
    """Return what is kept of an error or a reason."""
    return f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
