"""Commands and queries apart: a read model that follows the log of the write side."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import attrs
import trio

from sapwood.actors import Actor, Crashed, Killed, Reply, Request, TaskDone, TaskRef, handle, message
from sapwood.errors import InvalidOption, ProjectionBehind, RecordCorrupt, SequenceConflict
from sapwood.messaging.patterns._schema import PATTERNS_SCHEMA
from sapwood.messaging.queues import QUEUES_SCHEMA, LogReader, StoredMessage
from sapwood.persistence import StoreEngine

T = TypeVar("T")


@message("patterns.projection.reach")
class Reach(Request[int]):
    """Asks a projection to answer once it has reached a sequence number, with the one that it has reached.

    Attributes:
        seq: The sequence number, as `EventSourced.emit` returned it.
        within: Seconds after which it answers with `ProjectionBehind`; ask with a longer time-out.
    """

    seq: int
    within: float = 4.0


@message("patterns.projection.rebuild")
class Rebuild(Request[None]):
    """Asks a projection to forget what it has, and to read the log again from its beginning."""


@attrs.frozen(eq=False)
class _Waiting:
    seq: int
    until: float
    reply: Reply[Any]
    ready: Callable[[], object]


class Projection(Actor, ABC):
    """A read model that follows a log: it takes the queries, and the write side takes the commands (S2-056).

    Derive, say what its tables are (`reset`) and what each event makes of them (`project`), and handle queries with
    `self.answer`. Its position is committed in one transaction with what `project` wrote, so after a crash no event is
    left out and none is counted twice. The projection lags behind the log by a moment; a query that must see what was
    written up to a sequence number says so (`at_least`), and waits until that is there. It never waits for the
    interval then, and other queries go on meanwhile.

    An event that `project` fails on is not skipped: the projection crashes, and its supervisor decides.

    Class attributes:
        version: Raise it when `reset` or `project` change; the projection is then built anew when it starts.

    Args:
        store: The store that has the log and gets the tables.
        name: Name under which its position is kept; one projection at a time may run under it.
        log: Name of the log.
        interval: Seconds between two looks at the log when nobody asks.
        batch: Events that share a transaction.

    Raises:
        InvalidOption: if the interval is not above 0, or the batch is empty.

    Attributes:
        name: Its name.
        position: Sequence number of the last event that it contains.
    """

    version: ClassVar[int] = 1

    def __init__(self, store: StoreEngine, name: str, log: str, interval: float = 0.5, batch: int = 500) -> None:
        if not interval > 0 or batch < 1:
            raise InvalidOption(
                f"projection {name!r}: expected interval > 0 s and batch >= 1; got {interval!r} and {batch!r}"
            )
        self.name = name
        self.position = 0
        self._store = store
        self._log = log
        self._interval = interval
        self._batch = batch
        self._waiting: list[_Waiting] = []
        self._look = trio.Event()
        self._reading = trio.Lock()
        self._following: TaskRef | None = None

    @abstractmethod
    def reset(self, connection: sqlite3.Connection) -> None:
        """Make the tables anew, empty, also where older ones are there. Runs in the transaction of the position."""

    @abstractmethod
    def project(self, connection: sqlite3.Connection, stored: StoredMessage) -> None:
        """Write what an event, `stored.message.payload`, changes. Runs in the transaction of the position."""

    async def on_start(self) -> None:
        await self._store.migrate(QUEUES_SCHEMA)
        await self._store.migrate(PATTERNS_SCHEMA)
        self._reader = LogReader(self._store, self.environment, self._log)
        self.position = await self._store.write(self._prepare)
        self._following = self.start_task(self._follow, name="follow")

    def answer(self, read: Callable[[sqlite3.Connection], Any], *, at_least: int = 0, within: float = 4.0) -> None:
        """Answer the query that is being handled, from one consistent snapshot that has the events up to `at_least`.

        Call it in a handler of a request, which returns nothing then. If the projection is not that far within
        `within` seconds, the query fails with `ProjectionBehind`; if `read` raises, it fails with that.

        Args:
            read: A plain function of a connection that only reads.
            at_least: Sequence number that the answer must contain; 0 for whatever is there.
            within: Seconds to wait for it.
        """
        reply = self.reply_later()
        self._when(at_least, within, reply, lambda: self.start_task(self._answer, reply, read, name="answer"))

    @handle
    def reach(self, message: Reach) -> int:
        reply = self.reply_later()
        self._when(message.seq, message.within, reply, lambda: reply(self.position))
        return 0

    @handle
    async def rebuild(self, message: Rebuild) -> None:
        async with self._reading:
            await self._store.write(self._begin_anew)
            self.position = 0
        self._look.set()

    @handle
    def task_ended(self, message: TaskDone) -> None:
        if message.task is self._following:
            match message.reason:
                case Crashed(exception=Exception() as error):
                    raise error
                case reason:
                    self.stop(Killed() if not isinstance(reason, Crashed) else reason)

    def format_state(self) -> str:
        return f"name={self.name!r}, log={self._log!r}, position={self.position}, waiting={len(self._waiting)}"

    # --- inside -----------------------------------------------------------------------------------

    def _when(self, seq: int, within: float, reply: Reply[Any], ready: Callable[[], object]) -> None:
        if self.position >= seq:
            ready()
            return
        self._waiting.append(_Waiting(seq, self.environment.monotonic() + within, reply, ready))
        self._look.set()

    async def _answer(self, reply: Reply[Any], read: Callable[[sqlite3.Connection], Any]) -> None:
        try:
            reply(await self._store.read(read))
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            reply.fail(error)

    async def _follow(self) -> None:
        while True:
            self._look = trio.Event()
            async with self._reading:
                more = await self._step()
            self._serve()
            if not more:
                with trio.move_on_after(self._pause()):
                    await self._look.wait()

    def _pause(self) -> float:
        ends = [waiting.until - self.environment.monotonic() for waiting in self._waiting]
        return max(0.0, min([self._interval, *ends]))

    def _serve(self) -> None:
        now = self.environment.monotonic()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if self.position >= one.seq:
                one.ready()
            elif now >= one.until:
                one.reply.fail(ProjectionBehind(self.name, one.seq, self.position))
            else:
                self._waiting.append(one)

    async def _step(self) -> bool:
        """Take in the next events; say whether there may be more."""
        position = self.position
        page = await self._reader.read(after=position, limit=self._batch)
        if not page:
            return False
        if page[0].seq != position + 1:
            problem = f"the events from {position + 1} to {page[0].seq - 1} were removed before {self.name!r} read them"
            raise RecordCorrupt(self._log, position + 1, "queue_log", problem)
        await self._store.write(partial(self._take_in, page=page, position=position))
        self.position = page[-1].seq
        return len(page) == self._batch

    def _take_in(self, connection: sqlite3.Connection, page: Sequence[StoredMessage], position: int) -> None:
        moved = connection.execute(
            "UPDATE pattern_projections SET position = ? WHERE name = ? AND position = ? AND version = ?",
            (page[-1].seq, self.name, position, self.version),
        )
        if moved.rowcount != 1:
            # Somebody else runs under this name.
            found = connection.execute("SELECT position FROM pattern_projections WHERE name = ?", (self.name,))
            raise SequenceConflict(self.name, position, found.fetchone()[0])
        for stored in page:
            self.project(connection, stored)

    def _prepare(self, connection: sqlite3.Connection) -> int:
        row = connection.execute(
            "SELECT position FROM pattern_projections WHERE name = ? AND log = ? AND version = ?",
            (self.name, self._log, self.version),
        ).fetchone()
        if row is None:
            self._begin_anew(connection)
            return 0
        return int(row[0])

    def _begin_anew(self, connection: sqlite3.Connection) -> None:
        self.reset(connection)
        connection.execute(
            "INSERT OR REPLACE INTO pattern_projections (name, log, version, position) VALUES (?, ?, ?, 0)",
            (self.name, self._log, self.version),
        )
