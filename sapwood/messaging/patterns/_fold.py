"""A state that is the fold of a durable log of events."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast
from zlib import crc32

import attrs
import trio

from sapwood.actors import Environment, wire_of
from sapwood.errors import InvalidOption, PersistenceError, RecordCorrupt, SequenceConflict
from sapwood.messaging.patterns._schema import PATTERNS_SCHEMA
from sapwood.messaging.queues import QUEUES_SCHEMA, MessageLog
from sapwood.persistence import StoreEngine, decode, encode

S = TypeVar("S")

PAGE: Final = 1000
"""Events read at a time."""

logger = logging.getLogger("sapwood.patterns")


@attrs.frozen
class Snapshots:
    """When the state is saved, so that a restart does not read the whole log.

    Attributes:
        every: Events after which it is saved.
        version: Raised when events are folded in another way; snapshots of other versions are not read.
    """

    every: int
    version: int = 1

    def __attrs_post_init__(self) -> None:
        for name in ("every", "version"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InvalidOption(f"snapshots {name}: expected an int >= 1; got {getattr(self, name)!r}")


class FoldedLog(Generic[S]):
    """A state and the log that it is the fold of.

    Invariant: `state` is the fold of the events up to `seq`, all of which are durable. An event that cannot be folded
    is not stored, so a log can always be read again.

    Args:
        store: An open store.
        environment: Source of time and ids.
        name: Name of the log.
        initial: State before the first event.
        evolve: Returns the state after an event; pure, and must not change the one it is given.
        snapshots: When the state is saved; None never saves it.

    Raises:
        InvalidOption: if the state is to be saved and is no record.

    Attributes:
        state: The state.
        seq: Sequence number of the last event in it; 0 if there was none.
    """

    def __init__(
        self,
        store: StoreEngine,
        environment: Environment,
        name: str,
        *,
        initial: S,
        evolve: Callable[[S, Any], S],
        snapshots: Snapshots | None = None,
    ) -> None:
        if snapshots is not None and wire_of(type(initial)) is None:
            raise InvalidOption(
                f"log {name!r}: expected a state made with @record, so that it can be saved; got {initial!r}: set "
                "snapshot_every = None to go without snapshots"
            )
        self.state = initial
        self.seq = 0
        self._initial = initial
        self._store = store
        self._log = MessageLog(store, environment, name)
        self._evolve = evolve
        self._snapshots = snapshots
        self._snapshot_seq = 0
        self._line = trio.Lock()
        self._opened = False
        # Whether an append was cut off, so that nobody knows whether it was stored.
        self._uncertain = False

    @property
    def name(self) -> str:
        """Name of the log."""
        return self._log.name

    async def load(self) -> None:
        """Read the newest snapshot and all events after it.

        Raises:
            RecordCorrupt: if events are missing.
            CodecError, FutureVersion: if an event cannot be read.
            StoreUnavailable: if the store cannot answer.
        """
        await self._store.migrate(QUEUES_SCHEMA)
        self.state, self.seq = self._initial, 0
        if self._snapshots is not None:
            await self._store.migrate(PATTERNS_SCHEMA)
            self.state, self.seq = await self._newest(self._snapshots.version)
            self._snapshot_seq = self.seq
        await self._catch_up()

    async def append(self, *events: object, expected_seq: int | None = None) -> int:
        """Store events, all or none, and fold them; return the new sequence number once they are durable.

        Events of several callers are stored one after the other, each folded into the state as it then is.

        Args:
            *events: Instances of classes made with `@record`.
            expected_seq: Sequence number of the state that the caller has seen; None for the one that there is now.

        Raises:
            SequenceConflict: if the state has gone on since, or somebody else has written to the log. Nothing was
                stored.
            CodecError, InvalidMessage: if an event cannot be stored.
            StoreUnavailable: if the store cannot write; nothing was.
            Exception: what `evolve` raised; nothing was stored.
        """
        async with self._line:
            if self._uncertain:
                await self._settle_doubt()
            if expected_seq is not None and expected_seq != self.seq:
                raise SequenceConflict(self.name, expected_seq, self.seq)
            state = self._fold(self.state, events)
            if not self._opened:
                await self._log.open()
                self._opened = True
            try:
                seq = await self._log.append(*events, expected_seq=self.seq)
            except trio.Cancelled:
                self._uncertain = True
                raise
            self.state, self.seq = state, seq
            await self._save()
            return seq

    async def _settle_doubt(self) -> None:
        """Find out what became of an append that was cut off; what was decided without it does not hold any more."""
        before = self.seq
        await self._catch_up()
        self._uncertain = False
        if self.seq != before:
            raise SequenceConflict(self.name, before, self.seq)

    def _fold(self, state: S, events: Sequence[Any]) -> S:
        for event in events:
            state = self._evolve(state, event)
        return state

    async def _catch_up(self) -> None:
        last = await self._log.last_seq()
        while self.seq < last:
            page = await self._log.read(after=self.seq, limit=PAGE)
            found = page[0].seq if page else last + 1
            if found != self.seq + 1:
                problem = f"the events from {self.seq + 1} to {found - 1} were removed, and no snapshot has them"
                raise RecordCorrupt(self.name, self.seq + 1, "queue_log", problem)
            for stored in page:
                self.state = self._evolve(self.state, stored.message.payload)
                self.seq = stored.seq

    async def _newest(self, version: int) -> tuple[S, int]:
        row = await self._store.read(
            lambda connection: connection.execute(
                "SELECT seq, checksum, state FROM pattern_snapshots WHERE log = ? AND version = ?", (self.name, version)
            ).fetchone()
        )
        if row is None:
            return self._initial, 0
        seq, checksum, body = row
        try:
            state: object = decode(body)
            fine = crc32(body) == checksum and isinstance(state, type(self._initial))
        except PersistenceError:
            state, fine = None, False
        if not fine:
            # All that it says stands in the log as well; if that was trimmed, reading it says so.
            logger.warning("log %r: its snapshot at %d cannot be read; all its events are folded again", self.name, seq)
            return self._initial, 0
        return cast("S", state), seq

    async def _save(self) -> None:
        rule = self._snapshots
        if rule is None or self.seq - self._snapshot_seq < rule.every:
            return
        seq = self.seq

        def write(connection: sqlite3.Connection, body: bytes) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO pattern_snapshots (log, seq, version, checksum, state) VALUES (?, ?, ?, ?, ?)",
                (self.name, seq, rule.version, crc32(body), body),
            )

        try:
            await self._store.write(partial(write, body=encode(self.state)))
        except PersistenceError as error:
            # The events are durable; the next append tries again.
            logger.warning("log %r: its snapshot at %d was not saved: %s", self.name, seq, error)
            return
        self._snapshot_seq = seq
