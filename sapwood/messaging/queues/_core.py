"""What all parts of an open queue share: its store, its clock, its counts, and what wakes it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable
from typing import TypeVar

import trio

from sapwood.actors import Environment
from sapwood.errors import LeaseLost, QueueClosed, QueueFenced
from sapwood.messaging.queues._events import Buried, QueueEvent, QueueListener
from sapwood.messaging.queues._ledger import Death, Head, Transaction
from sapwood.messaging.queues._options import QueueOptions
from sapwood.messaging.queues._statistics import Counts
from sapwood.persistence import StoreEngine

T = TypeVar("T")

logger = logging.getLogger("sapwood.queues")


class Core:
    """The shared part of one open queue.

    Attributes:
        changed: Whether messages may have become ready since the last step.
        wake: Set when the dispatcher has something to do.
        room: Set, and replaced, when messages have left the queue.
        timer: When on the queue's clock the dispatcher must step next; 0.0 for now.
        refusal: Why no more calls are taken; None while the queue is open here.
    """

    def __init__(
        self,
        store: StoreEngine,
        environment: Environment,
        head: Head,
        options: QueueOptions,
        listener: QueueListener | None,
    ) -> None:
        self.store = store
        self.environment = environment
        self.head = head
        self.options = options
        self.listener = listener
        self.counts = Counts(environment.monotonic())
        self.changed = True
        self.wake = trio.Event()
        self.room = trio.Event()
        self.timer = 0.0
        self.refusal: QueueClosed | QueueFenced | None = None
        # From the opening on the clock follows the monotonic one: a wall clock that jumps moves no time-out (BR-77).
        self._offset = environment.wall() - environment.monotonic()

    def now(self) -> float:
        """Return the time on the queue's clock, in seconds."""
        return self.environment.monotonic() + self._offset

    def transaction(self, connection: sqlite3.Connection, now: float, wall: float) -> Transaction:
        """Return the transaction that a connection has open, as one on this queue."""
        return Transaction(connection, self.head, self.options, now, wall)

    async def write(self, operation: Callable[[Transaction], T]) -> T:
        """Run a function in a transaction that is durable on return.

        Raises:
            QueueClosed: if the queue was closed.
            QueueFenced: if it was opened elsewhere since.
        """
        await self.check()
        now, wall = self.now(), self.environment.wall()
        try:
            return await self.store.write(lambda connection: operation(self.transaction(connection, now, wall)))
        except QueueFenced as error:
            self.refuse(error)
            raise

    async def read(self, operation: Callable[[Transaction], T]) -> T:
        """Run a function on one consistent snapshot."""
        await self.check()
        now, wall = self.now(), self.environment.wall()
        return await self.store.read(lambda connection: operation(self.transaction(connection, now, wall)))

    async def check(self) -> None:
        """Refuse a call that came too late, after a checkpoint as every call makes one."""
        if self.refusal is not None:
            await trio.lowlevel.checkpoint()
            self.check_nowait()

    def check_nowait(self) -> None:
        """Refuse a call that came too late.

        Raises:
            QueueClosed: if the queue was closed.
            QueueFenced: if it was opened elsewhere since.
        """
        match self.refusal:
            case QueueFenced(held=held, current=current):
                raise QueueFenced(self.head.name, held, current)
            case QueueClosed():
                raise QueueClosed(self.head.name)
            case None:
                return

    def refuse(self, refusal: QueueClosed | QueueFenced) -> None:
        """Take no more calls."""
        if self.refusal is None:
            self.refusal = refusal
        self.wake.set()
        self.make_room()

    def signal(self, *, at: float | None = None) -> None:
        """Have the dispatcher look: now, or at a time of the queue's clock."""
        if at is None:
            self.changed = True
            self.wake.set()
        elif at < self.timer:
            self.timer = at
            self.wake.set()

    def make_room(self) -> None:
        """Wake the senders that wait for room."""
        self.room.set()
        self.room = trio.Event()

    def count(self, name: str, number: int = 1) -> None:
        """Count something."""
        self.counts.add(name, number, self.environment.monotonic())

    def lost(self, error: LeaseLost) -> None:
        """Count a settlement that came too late."""
        self.count("refused")
        logger.warning("%s", error)

    def buried(self, letters: Iterable[Death]) -> None:
        """Count, log and tell of messages that became dead letters (S2-046). Their payload is never logged."""
        for seq, reason, detail in letters:
            self.count("dead")
            if reason == "expired":
                self.count("expired")
            logger.warning("queue %r: message %d is a dead letter (%s): %s", self.head.name, seq, reason, detail)
            self.tell(Buried(self.head.name, seq, reason, detail))
            self.timer = 0.0
            self.wake.set()
            self.make_room()

    def tell(self, event: QueueEvent) -> bool:
        """Pass an event to the listener; a failure of it is counted and logged, and harms nothing else (BR-44)."""
        if self.listener is None:
            return True
        try:
            self.listener(event)
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            self.count("listener_failures")
            logger.warning("queue %r: its listener failed with %r", self.head.name, error)
            return False
        return True
