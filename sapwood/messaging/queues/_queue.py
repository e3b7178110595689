"""The work queue: durable, with competing receivers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, final

import trio

from sapwood.actors import Environment, single_exceptions_bare
from sapwood.errors import InvalidOption, PersistenceError, QueueClosed, QueueFull
from sapwood.messaging.queues._appending import SHED, Appended, append
from sapwood.messaging.queues._archive import export_lines, import_lines, read_lines, write_lines
from sapwood.messaging.queues._core import Core, logger
from sapwood.messaging.queues._dead_letters import DeadLetters
from sapwood.messaging.queues._delivery import Delivery
from sapwood.messaging.queues._dispatcher import Dispatcher
from sapwood.messaging.queues._events import QueueListener
from sapwood.messaging.queues._ledger import Head, Lease, Transaction
from sapwood.messaging.queues._log import LogReader, check_name
from sapwood.messaging.queues._messages import Message, Outgoing, prepare
from sapwood.messaging.queues._options import QueueOptions, is_count, is_seconds
from sapwood.messaging.queues._outbox import Outbox
from sapwood.messaging.queues._replay import replay
from sapwood.messaging.queues._schema import QUEUES_SCHEMA
from sapwood.messaging.queues._settling import give_back
from sapwood.messaging.queues._statistics import QueueStatistics, measure
from sapwood.messaging.queues._times import claim
from sapwood.persistence import StoreEngine

CLOSE_BUDGET: Final = 10.0
"""Seconds that closing may take to store what `append_nowait` took, a cancelled run included."""


@final
class Queue:
    """An open queue. `open_queue` makes it; its `async with` block is its life.

    A message is durable when `append` returns, and stays until one receiver settles it or it becomes a dead letter.
    Messages are delivered in the order of `QueueOptions.ordering`; receivers that wait are served in turn.

    Attributes:
        name: Its name.
        options: How it behaves.
        dead_letters: What could not be delivered.
        log: The messages themselves, the settled ones for their retention.
    """

    def __init__(self, core: Core, dispatcher: Dispatcher) -> None:
        self.name = core.head.name
        self.options = core.options
        self.dead_letters = DeadLetters(core)
        self.log = LogReader(core.store, core.environment, self.name)
        self._core = core
        self._dispatcher = dispatcher
        self._line = trio.Lock()
        self._outbox = Outbox(core, self._append)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} epoch {self._core.head.epoch}>"

    @property
    def environment(self) -> Environment:
        """Its source of time, randomness, ids and threads."""
        return self._core.environment

    # --- senders ----------------------------------------------------------------------------------

    async def append(self, message: Message | object) -> Appended:
        """Append one message; it is durable on return. Waits for room if the queue is full and `overflow` is `wait`.

        Args:
            message: A `Message`, or a bare payload: bytes, or an instance of a class made with `@record`.

        Raises:
            InvalidMessage, CodecError: if it cannot be stored; raised before anything is queued.
            MessageIdConflict: if its id was used for another message within the window.
            QueueFull: if there is no room and `overflow` is `reject`.
            QueueClosed, QueueFenced: if the queue is not open here any more.
            StoreUnavailable: if the store cannot write; nothing was. A caller that was cancelled cannot know: it
                sends the message again with its id, and a queue with a window tells the repeat.
        """
        return (await self.append_many([message]))[0]

    async def append_many(self, messages: Sequence[Message | object]) -> list[Appended]:
        """Append all messages next to one another, or none, in one transaction (S2-038).

        Raises:
            InvalidOption: if there are more than the queue may ever hold.
            Exception: as `append`.
        """
        core = self._core
        outgoing = [prepare(message, core.environment) for message in messages]
        capacity, overflow = self.options.capacity, self.options.overflow
        if capacity is not None and overflow in ("wait", "reject") and len(outgoing) > capacity:
            raise InvalidOption(
                f"append_many: expected at most the queue's capacity of {capacity} messages; got {len(outgoing)}"
            )
        if overflow != "wait" or capacity is None:
            return await self._append(outgoing)
        if not self._line.locked():
            try:
                return await self._append(outgoing)
            except QueueFull:
                pass
        # Those who wait stand in line, so that a large batch is not overtaken for ever by small ones.
        async with self._line:
            while True:
                room = core.room
                try:
                    return await self._append(outgoing)
                except QueueFull:
                    await room.wait()

    def append_nowait(self, message: Message | object) -> None:
        """Take a message without waiting; it is stored soon, in order, with others that wait (S2-035).

        It is not durable on return: `flush` waits until it is. One that turns out not to be storable is counted
        as `unsaved`, and told to the listener as `AppendFailed`.

        Raises:
            InvalidMessage, CodecError: if it cannot be stored.
            QueueFull: if 10,000 such messages wait.
            QueueClosed, QueueFenced: if the queue is not open here any more.
        """
        self._core.check_nowait()
        outgoing = prepare(message, self._core.environment)
        self._outbox.put(outgoing)

    async def flush(self) -> None:
        """Wait until everything given to `append_nowait` is durable, or was reported as unsaved."""
        await self._core.check()
        await self._outbox.empty()

    # --- receivers --------------------------------------------------------------------------------

    async def receive(self, *, visibility: float | None = None) -> Delivery:
        """Wait for the next message.

        Its attempt is durable before this returns, so a process that dies of a message cannot do so for ever.

        Args:
            visibility: Seconds to settle it; None for the queue's own.

        Raises:
            QueueClosed, QueueFenced: if the queue is not open here any more.
            StoreUnavailable: if the store cannot answer.
        """
        (delivery,) = await self._receive(1, visibility, waits=True)
        return delivery

    async def receive_batch(self, limit: int, *, visibility: float | None = None) -> list[Delivery]:
        """Wait for messages and take what is there, 1 to `limit` of them; otherwise as `receive`.

        The time-out of all begins at once, and a crash counts as an attempt of each: take what is soon done.
        """
        return await self._receive(limit, visibility, waits=True)

    async def poll(self, limit: int = 1, *, visibility: float | None = None) -> list[Delivery]:
        """Take up to `limit` messages that can be delivered now; none if there is none. Otherwise as `receive`."""
        return await self._receive(limit, visibility, waits=False)

    # --- looking, replaying, keeping --------------------------------------------------------------

    async def depth(self) -> int:
        """Return how many messages are not settled, those in flight included and dead letters not."""
        return await self._core.read(
            lambda tx: int(tx.execute("SELECT depth FROM queues WHERE queue_id = ?").fetchone()[0])
        )

    async def statistics(self) -> QueueStatistics:
        """Return the figures of the queue; counts every live message, so ask every second and not for each one."""
        receivers, core = len(self._dispatcher.receivers), self._core
        now = core.environment.monotonic()
        return await core.read(lambda tx: measure(tx, receivers, core.counts, now))

    async def replay(self, *, after: int = 0, since: float | None = None, until: float | None = None) -> int:
        """Make settled messages of the log live again, in their old order; return how many (S2-044).

        Those that are live or dead stay as they are. Effects made with `ack_with` are not made again as long as their
        marks are kept: a replay restores what is missing, and doubles nothing.

        Args:
            after: Only messages with sequence numbers above this.
            since: Only messages appended at this wall-clock time or later, in seconds since 1970 UTC.
            until: Only messages appended before this wall-clock time.

        Raises:
            QueueFull: if the queue's capacity does not allow it; nothing was changed.
        """
        count = await self._core.write(lambda tx: replay(tx, after, since, until))
        self._core.signal()
        self._core.signal(at=0.0)
        return count

    async def export_to(self, path: str | Path) -> int:
        """Write the messages of the queue to a file of JSON lines, as of one moment; return how many (S2-045).

        A file that is there is replaced only when the new one is complete. What is remembered of ids and effects is
        not part of it: `back_up` copies that as well.

        Raises:
            OSError: if the file cannot be written.
        """
        lines = await self._core.read(export_lines)
        await self.environment.in_thread(write_lines, Path(path), lines)
        return len(lines) - 2

    async def import_from(self, path: str | Path) -> int:
        """Read a file that `export_to` wrote into this queue, which must be new; return how many messages.

        Deliveries that were under way at the export count as failed.

        Raises:
            ArchiveInvalid: if the file is damaged, cut short or of another kind; nothing was changed.
            InvalidOption: if the queue has had messages.
            OSError: if the file cannot be read.
        """
        archive = await self.environment.in_thread(read_lines, self.name, Path(path))
        await self._core.write(partial(import_lines, archive=archive))
        self._core.signal()
        self._core.signal(at=0.0)
        return len(archive.messages)

    # --- inside -----------------------------------------------------------------------------------

    async def _receive(self, limit: int, visibility: float | None, *, waits: bool) -> list[Delivery]:
        if not is_count(limit, 1):
            raise InvalidOption(f"limit: expected at least 1 message; got {limit!r}")
        seconds = self.options.visibility if visibility is None else visibility
        if not is_seconds(seconds):
            raise InvalidOption(f"visibility: expected seconds > 0; got {seconds!r}")
        return await self._dispatcher.receive(limit, seconds, waits=waits)

    async def _append(self, outgoing: Sequence[Outgoing]) -> list[Appended]:
        core = self._core
        appended, shed = await core.write(lambda tx: append(tx, outgoing))
        self._note(outgoing, appended)
        core.count("shed", len(shed))
        core.buried((seq, "overflow", SHED) for seq in shed)
        return appended

    def _note(self, outgoing: Sequence[Outgoing], appended: Sequence[Appended]) -> None:
        core, now = self._core, self._core.now()
        core.count("duplicates", sum(one.duplicate for one in appended))
        core.count("appended", sum(not one.duplicate for one in appended))
        for out in outgoing:
            message = out.message
            ttl = message.ttl if message.ttl is not None else self.options.ttl
            if ttl is not None:
                core.signal(at=now + ttl)
            if message.delay:
                core.signal(at=now + message.delay)
            if message.deliver_at is not None:
                core.signal(at=0.0)
        core.signal()

    async def _close(self, done: trio.CancelScope) -> None:
        """Store what waits, take no more calls, and give back what no handler has seen; `open_queue` calls it."""
        core = self._core
        deadline = self.environment.monotonic() + CLOSE_BUDGET
        with trio.CancelScope(shield=True, deadline=deadline):
            await self._outbox.empty()
        self._outbox.give_up()
        core.refuse(QueueClosed(self.name))
        with trio.CancelScope(shield=True, deadline=deadline + CLOSE_BUDGET):
            await self._dispatcher.stopped.wait()
            unseen = [lease for lease, reason in self._dispatcher.leases.collect() if reason is None]
            if unseen:
                await self._give_back(unseen)
        done.cancel()

    async def _give_back(self, leases: Sequence[Lease]) -> None:
        core, now, wall = self._core, self._core.now(), self.environment.wall()
        try:
            await core.store.write(
                lambda connection: [give_back(core.transaction(connection, now, wall), lease) for lease in leases]
            )
        except PersistenceError as error:
            # The next opening brings them back, as an attempt.
            logger.warning("queue %r: messages could not be given back: %s", self.name, error)


@asynccontextmanager
async def open_queue(
    store: StoreEngine,
    environment: Environment,
    name: str,
    options: QueueOptions | None = None,
    *,
    owner: str = "",
    on_event: QueueListener | None = None,
) -> AsyncGenerator[Queue]:
    """Open a queue for the length of an `async with` block, creating it if there is none.

    One opening at a time owns a queue. A later one, in this process or another, takes it over: deliveries that were
    under way are over at once, and the former owner's every call is refused with `QueueFenced`. So after a crash
    nothing waits for a time-out. Receivers in several processes on one queue are not supported; a receiver that waits
    on a queue that was taken over learns so when its owner next touches the store for it.

    On leaving the block receivers get `QueueClosed`. Stop them first: what they hold then comes back with the next
    opening, as an attempt.

    Args:
        store: An open store; `open_memory_store` for queues that end with the process.
        environment: Source of time, randomness and ids.
        name: Name of the queue; 1 to 512 characters.
        options: How it behaves.
        owner: Who opens it, for people who inspect the store.
        on_event: Is told of dead letters, alerts and notices to senders.

    Raises:
        InvalidOption: if the name is none.
        FutureVersion: if a newer Sapwood made the tables.
        StoreUnavailable: if the store cannot answer.
    """
    options = options or QueueOptions()
    check_name(name)
    await store.migrate(QUEUES_SCHEMA)
    now, wall = environment.wall(), environment.wall()

    unclaimed = Head(0, name, 0)
    head, lost = await store.write(
        lambda connection: claim(Transaction(connection, unclaimed, options, now, wall), owner)
    )
    core = Core(store, environment, head, options, on_event)
    dispatcher = Dispatcher(core)
    queue = Queue(core, dispatcher)
    core.buried(lost)
    with single_exceptions_bare():
        async with trio.open_nursery() as nursery:
            # Shielded, so that what was accepted is finished although the block is cancelled; `close` ends it.
            scope = trio.CancelScope(shield=True)
            nursery.start_soon(_serve, queue, dispatcher, scope)
            try:
                yield queue
            finally:
                await queue._close(scope)  # noqa: ASYNC102  # shields itself, for a bounded time


async def _serve(queue: Queue, dispatcher: Dispatcher, scope: trio.CancelScope) -> None:
    with scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dispatcher.run)
            nursery.start_soon(queue._outbox.run)
