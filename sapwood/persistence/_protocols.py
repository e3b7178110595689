"""What a store engine and a journal must do, whatever they are built on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import attrs

from sapwood.persistence._migrations import MigrationSet

T = TypeVar("T")


@attrs.frozen
class StoreStatistics:
    """What a store has done and has to do.

    Attributes:
        name: The path as it was given.
        state: `open`, `closing`, `closed` or `failed`.
        pending: Write operations that wait for the writer.
        writes: Write operations that were committed.
        failed_writes: Write operations whose caller got an exception.
        commits: Transactions committed; far fewer than `writes` when many wait at once.
        largest_batch: Most operations that ever shared a transaction.
        reads: Read operations begun.
        checkpoints: Times the write-ahead log was emptied because it had reached its limit.
        wal_bytes: Size of the write-ahead log after the last commit, in bytes.
    """

    name: str
    state: str
    pending: int
    writes: int
    failed_writes: int
    commits: int
    largest_batch: int
    reads: int
    checkpoints: int
    wal_bytes: int


class StoreEngine(Protocol):
    """A transactional store with one writer that speaks SQLite's SQL; another database implements `JournalStore`.

    All calls are checkpoints and end: none waits for ever.
    """

    @property
    def name(self) -> str:
        """How errors call the store."""
        ...

    async def write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in a transaction and return its result once that is durable."""
        ...

    async def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function on one consistent snapshot and return its result."""
        ...

    async def migrate(self, migrations: MigrationSet) -> None:
        """Bring the schema of one part of the store up to date."""
        ...

    def statistics(self) -> StoreStatistics:
        """Return what the store has done and has to do."""
        ...


@attrs.frozen
class Entry:
    """One event of a journal.

    Attributes:
        seq: Its place: 1, 2, 3 … without gaps, for ever, through deletion too.
        epoch: Epoch of the server that wrote it.
        at: Wall clock of the writer, in seconds since 1970 UTC; for display, order is by `seq` alone (BR-77).
        event: The record.
    """

    seq: int
    epoch: int
    at: float
    event: Any


@attrs.frozen
class Claim:
    """What a server gets when it claims an agent.

    Attributes:
        agent_id: The agent.
        epoch: The fencing token: every append carries it, and a later claim makes it stale.
        snapshot: The newest readable state, or None if none was saved.
        snapshot_seq: Sequence number that `snapshot` includes; without one, where the journal begins.
        tail: All events after `snapshot_seq`, in order.
        seq: Sequence number of the last event; what the first append expects.
        fresh: Whether nothing at all is stored. Only then may a state be started from scratch (S4-038).
        clean: Whether the former owner released the agent, as opposed to crashing; True if there was none.
    """

    agent_id: str
    epoch: int
    snapshot: Any
    snapshot_seq: int
    tail: tuple[Entry, ...]
    seq: int
    fresh: bool
    clean: bool


@attrs.frozen
class AgentRow:
    """What is stored of one agent, without its events.

    Attributes:
        agent_id: The agent.
        epoch: Epoch of the last claim.
        owner: Who claimed it last.
        seq: Sequence number of the last event.
        at: Wall clock of the last claim, append or release, in seconds since 1970 UTC.
        snapshot_seq: Sequence number of the newest snapshot, or None.
        released: Whether its owner gave it up cleanly.
    """

    agent_id: str
    epoch: int
    owner: str
    seq: int
    at: float
    snapshot_seq: int | None
    released: bool


class JournalStore(Protocol):
    """Per agent an append-only journal of events, snapshots, and an epoch that fences off former owners.

    Every call may raise `StoreUnavailable`, which never means that nothing is stored.
    """

    async def claim(self, agent_id: str, *, owner: str) -> Claim:
        """Raise the agent's epoch by one and return what is stored.

        Raises:
            RecordCorrupt: if a record cannot be read. The epoch stays, so whoever held the agent still does.
            FutureVersion: if newer code wrote a record. The epoch stays.
        """
        ...

    async def append(self, agent_id: str, *, epoch: int, expected_seq: int, events: Sequence[object]) -> int:
        """Append all events or none, and return the new last sequence number once they are durable.

        Raises:
            CodecError: if an event cannot be stored; raised before anything is queued.
            StaleEpoch: if `epoch` is not the agent's.
            SequenceConflict: if the journal does not end at `expected_seq`.
        """
        ...

    async def save_snapshot(self, agent_id: str, *, epoch: int, seq: int, state: object) -> None:
        """Save the state that the events up to `seq` fold to.

        Raises:
            CodecError: if the state cannot be stored; raised before anything is queued.
            StaleEpoch: if `epoch` is not the agent's.
            SequenceConflict: if the journal does not reach to `seq`, or a newer snapshot exists.
        """
        ...

    async def compact(self, agent_id: str, *, epoch: int, keep: int = 2) -> int:
        """Drop all but the newest `keep` snapshots and the events that the oldest of these includes.

        Every kept snapshot can still be restored to the end of the journal. Without a snapshot nothing is dropped.

        Returns:
            How many events were dropped.

        Raises:
            StaleEpoch: if `epoch` is not the agent's.
        """
        ...

    async def read(self, agent_id: str, *, after: int = 0, limit: int = 1000) -> list[Entry]:
        """Return up to `limit` events with sequence numbers above `after`, in order; needs no claim.

        Raises:
            RecordCorrupt: if a record cannot be read.
            FutureVersion: if newer code wrote a record.
        """
        ...

    async def agents(self) -> list[AgentRow]:
        """Return all agents that are stored, by id."""
        ...

    async def release(self, agent_id: str, *, epoch: int) -> None:
        """Note that the owner has stopped cleanly.

        Raises:
            StaleEpoch: if `epoch` is not the agent's.
        """
        ...

    async def delete(self, agent_id: str, *, epoch: int | None = None) -> bool:
        """Delete everything that is stored of an agent and fence off its owner; return False if there was nothing.

        A tombstone stays: sequence numbers and epochs go on where they were when the id is used again.

        Args:
            agent_id: The agent.
            epoch: Epoch of the caller; None deletes whoever holds the agent.

        Raises:
            StaleEpoch: if `epoch` is not the agent's.
        """
        ...
