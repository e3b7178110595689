"""The journal of a store: events, snapshots and epochs of agents."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import final

import attrs

from sapwood.actors import Environment
from sapwood.errors import AgentExists, InvalidOption, RecordCorrupt, SequenceConflict, StaleEpoch, StoreUnavailable
from sapwood.persistence._agent_persistence import LoadOutcome, Missing, NumberedLine, Stored
from sapwood.persistence._protocols import AgentRow, Claim, Entry, StoreEngine
from sapwood.persistence._rows import (
    Head,
    Loaded,
    Row,
    Unreadable,
    decode_row,
    entries_of,
    insert,
    load,
    quarantine,
    read_events,
    read_head,
    read_snapshots,
)
from sapwood.persistence._transcripts import Line, insert_lines, lines_of, read_lines

AGENTS = """
    SELECT agent_id, epoch, owner, last_seq, at, released,
        (SELECT max(seq) FROM snapshots WHERE snapshots.agent_id = agents.agent_id)
    FROM agents WHERE NOT deleted ORDER BY agent_id
"""


@final
class Journal:
    """Journals of all agents of one store; see `AgentPersistence` for what each call promises.

    Args:
        store: An open store.
        environment: Door to the wall clock.
    """

    def __init__(self, store: StoreEngine, environment: Environment) -> None:
        self._store = store
        self._environment = environment

    async def claim(self, agent_id: str, *, owner: str) -> Claim:
        """Raise the agent's epoch by one and return what is stored.

        From then on every append with an older epoch is refused, in this process and in others.

        Args:
            agent_id: The agent; 1 to 512 characters.
            owner: Who claims it, for people who inspect the store.

        Raises:
            RecordCorrupt: if a record cannot be read or is missing. Its bytes are copied to quarantine; the epoch
                stays, so whoever held the agent still does.
            FutureVersion: if newer code wrote a record; the epoch stays.
            StoreUnavailable: if the store cannot answer.
        """
        _check_name("agent_id", agent_id)
        _check_name("owner", owner)
        while True:
            loaded = await self._store.read(lambda connection: load(connection, agent_id))
            await self._quarantine(loaded.unreadable, loaded.failure)
            if loaded.failure is not None:
                raise loaded.failure
            claimant = _Claimant(agent_id, owner, self._environment.wall())
            claim = await self._store.write(partial(_take_over, claimant=claimant, loaded=loaded))
            if claim is not None:
                return claim

    async def append(
        self,
        agent_id: str,
        *,
        epoch: int,
        expected_seq: int,
        events: Sequence[object],
        lines: Sequence[object] = (),
    ) -> int:
        """Append all events or none, and return the new last sequence number once they are durable.

        Lines go to the end of the transcript in the same step. Without events it only checks that the caller still
        holds the agent.

        Raises:
            CodecError: if an event cannot be stored; raised before anything is queued.
            StaleEpoch: if `epoch` is not the agent's.
            SequenceConflict: if the journal does not end at `expected_seq`.
            StoreUnavailable: if the store cannot write; nothing was.
        """
        _check_name("agent_id", agent_id)
        at = self._environment.wall()
        rows = [Row.of(agent_id, seq, epoch, at, event) for seq, event in enumerate(events, expected_seq + 1)]
        batch = _Batch(agent_id, epoch, expected_seq, at, rows, lines_of(lines))
        return await self._store.write(lambda connection: _append(connection, batch))

    async def create(
        self, agent_id: str, *, owner: str, events: Sequence[object], lines: Sequence[object] = ()
    ) -> None:
        """Write the beginning of an agent of which nothing is stored, as a claim, an append and a release in one step.

        Raises:
            AgentExists: if something is stored of it; nothing was changed, and whoever holds it still does.
            CodecError: if something cannot be stored; raised before anything is queued.
            StoreUnavailable: if the store cannot write; nothing was.
        """
        _check_name("agent_id", agent_id)
        _check_name("owner", owner)
        claimant = _Claimant(agent_id, owner, self._environment.wall())
        lines_of(events)
        await self._store.write(partial(_create, claimant=claimant, events=events, lines=lines_of(lines)))

    async def load(self, agent_id: str) -> LoadOutcome:
        """Return what is stored of an agent; claims nothing, and disturbs nobody who holds it.

        Raises:
            RecordCorrupt: if a record cannot be read or is missing. Its bytes are copied to quarantine.
            FutureVersion: if newer code wrote a record.
            StoreUnavailable: if the store cannot answer.
        """
        _check_name("agent_id", agent_id)
        loaded = await self._store.read(lambda connection: load(connection, agent_id))
        await self._quarantine(loaded.unreadable, loaded.failure)
        if loaded.failure is not None:
            raise loaded.failure
        if loaded.head is None or (loaded.snapshot is None and not loaded.tail):
            return Missing(agent_id)
        head = loaded.head
        return Stored(agent_id, head.epoch, loaded.snapshot, loaded.snapshot_seq, loaded.tail, head.last_seq)

    async def read_transcript(
        self, agent_id: str, *, after: int = 0, before: int | None = None, limit: int = 100, last: bool = False
    ) -> list[NumberedLine]:
        """Return up to `limit` lines with numbers above `after` and below `before`, in order.

        Args:
            agent_id: The agent; an unknown one has no lines.
            after: Number that the lines come after.
            before: Number that they come before; None for no such limit.
            limit: Most lines to return.
            last: Return the last ones of them instead of the first ones.

        Raises:
            RecordCorrupt: if a line cannot be read; its bytes are copied to quarantine.
            FutureVersion: if newer code wrote one.
            StoreUnavailable: if the store cannot answer.
        """
        _check_name("agent_id", agent_id)
        if limit < 1:
            raise InvalidOption(f"limit: expected at least 1 line; got {limit!r}")
        rows = await self._store.read(
            lambda connection: read_lines(connection, agent_id, after, before, limit, last=last)
        )
        found: list[NumberedLine] = []
        for row in rows:
            line = decode_row("transcript", row)
            if isinstance(line, Unreadable):
                failure = line.error()
                await self._quarantine([line], failure)
                raise failure
            found.append(NumberedLine(row.seq, line))
        return found

    async def save_snapshot(self, agent_id: str, *, epoch: int, seq: int, state: object) -> None:
        """Save the state that the events up to `seq` fold to; one for the same `seq` is replaced.

        Raises:
            CodecError: if the state cannot be stored; raised before anything is queued.
            StaleEpoch: if `epoch` is not the agent's.
            SequenceConflict: if the journal does not reach to `seq`, or a newer snapshot exists.
            StoreUnavailable: if the store cannot write; nothing was.
        """
        _check_name("agent_id", agent_id)
        row = Row.of(agent_id, seq, epoch, self._environment.wall(), state)
        await self._store.write(lambda connection: _save_snapshot(connection, row))

    async def compact(self, agent_id: str, *, epoch: int, keep: int = 2) -> int:
        """Drop all but the newest `keep` snapshots and the events that the oldest of these includes.

        Every kept snapshot can still be restored to the end of the journal. Without a snapshot nothing is dropped.

        Returns:
            How many events were dropped.

        Raises:
            StaleEpoch: if `epoch` is not the agent's.
            RecordCorrupt: if a snapshot to keep was damaged; nothing is dropped.
            StoreUnavailable: if the store cannot write; nothing was.
        """
        _check_name("agent_id", agent_id)
        if keep < 1:
            raise InvalidOption(f"keep: expected at least 1 snapshot; got {keep!r}")
        return await self._store.write(lambda connection: _compact(connection, agent_id, epoch, keep))

    async def read(self, agent_id: str, *, after: int = 0, limit: int = 1000) -> list[Entry]:
        """Return up to `limit` events with sequence numbers above `after`, in order; needs no claim.

        An unknown agent has none. Events that compaction dropped are not there any more: the first one returned
        may be above `after` + 1.

        Raises:
            RecordCorrupt: if one of them cannot be read; its bytes are copied to quarantine.
            FutureVersion: if newer code wrote one.
            StoreUnavailable: if the store cannot answer.
        """
        _check_name("agent_id", agent_id)
        if limit < 1:
            raise InvalidOption(f"limit: expected at least 1 event; got {limit!r}")

        def operation(connection: sqlite3.Connection) -> tuple[list[Entry], Unreadable | RecordCorrupt | None]:
            rows = read_events(connection, agent_id, after, limit)
            return entries_of(rows, rows[0].seq - 1 if rows else 0)

        entries, problem = await self._store.read(operation)
        if isinstance(problem, Unreadable):
            failure = problem.error()
            await self._quarantine([problem], failure)
            raise failure
        if problem is not None:
            raise problem
        return entries

    async def agents(self) -> list[AgentRow]:
        """Return all agents that are stored, by id.

        Raises:
            StoreUnavailable: if the store cannot answer.
        """
        return await self._store.read(agent_rows)

    async def release(self, agent_id: str, *, epoch: int) -> None:
        """Note that the owner has stopped cleanly; a later append takes the note back.

        Raises:
            StaleEpoch: if `epoch` is not the agent's.
            StoreUnavailable: if the store cannot write.
        """
        _check_name("agent_id", agent_id)
        at = self._environment.wall()

        def operation(connection: sqlite3.Connection) -> None:
            _check_epoch(connection, agent_id, epoch)
            connection.execute("UPDATE agents SET released = 1, at = ? WHERE agent_id = ?", (at, agent_id))

        await self._store.write(operation)

    async def delete(self, agent_id: str, *, epoch: int | None = None) -> bool:
        """Delete everything that is stored of an agent and fence off its owner; return False if there was nothing.

        A tombstone stays: sequence numbers and epochs go on where they were when the id is used again. Bytes in
        quarantine stay too.

        Args:
            agent_id: The agent.
            epoch: Epoch of the caller; None deletes whoever holds the agent.

        Raises:
            StaleEpoch: if `epoch` is not the agent's.
            StoreUnavailable: if the store cannot write; nothing was.
        """
        _check_name("agent_id", agent_id)
        at = self._environment.wall()
        return await self._store.write(lambda connection: _delete(connection, agent_id, epoch, at))

    async def _quarantine(self, unreadable: Sequence[Unreadable], failure: RecordCorrupt | None) -> None:
        if not unreadable:
            return
        at = self._environment.wall()
        try:
            await self._store.write(lambda connection: quarantine(connection, unreadable, at))
        except StoreUnavailable as error:
            if failure is None:
                raise
            failure.add_note(f"its bytes could not be copied to quarantine: {error}")


def agent_rows(connection: sqlite3.Connection) -> list[AgentRow]:
    """Return all agents that are stored, by id."""
    return [
        AgentRow(agent_id, epoch, owner, seq, at, snapshot_seq, bool(released))
        for agent_id, epoch, owner, seq, at, released, snapshot_seq in connection.execute(AGENTS)
    ]


def _check_name(what: str, value: str) -> None:
    # SQLite would refuse a lone surrogate, and end the text at a NUL in some tools.
    if not value or len(value) > 512 or "\x00" in value or not _is_utf8(value):
        raise InvalidOption(f"{what}: expected 1 to 512 characters without NUL and lone surrogates; got {value!r:.80}")


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_epoch(connection: sqlite3.Connection, agent_id: str, epoch: int) -> Head:
    head = read_head(connection, agent_id)
    if head is None or head.epoch != epoch or head.deleted:
        raise StaleEpoch(agent_id, epoch, 0 if head is None else head.epoch)
    return head


@attrs.frozen
class _Claimant:
    agent_id: str
    owner: str
    at: float


def _take_over(connection: sqlite3.Connection, claimant: _Claimant, loaded: Loaded) -> Claim | None:
    """Raise the epoch, or return None if what was loaded is no longer the beginning of what is stored."""
    agent_id, owner, at = claimant.agent_id, claimant.owner, claimant.at
    head = read_head(connection, agent_id)
    if head is None:
        connection.execute("INSERT INTO agents (agent_id, epoch, owner, at) VALUES (?, 1, ?, ?)", (agent_id, owner, at))
        return Claim(agent_id, 1, None, 0, (), 0, fresh=True, clean=True)
    if loaded.head is None or loaded.head.epoch != head.epoch:
        return None
    # The former owner may have gone on between the two transactions.
    newer, problem = entries_of(read_events(connection, agent_id, loaded.head.last_seq), loaded.head.last_seq)
    if problem is not None or loaded.head.last_seq + len(newer) != head.last_seq:
        return None
    connection.execute(
        "UPDATE agents SET epoch = epoch + 1, owner = ?, at = ?, released = 0, deleted = 0 WHERE agent_id = ?",
        (owner, at, agent_id),
    )
    tail = (*loaded.tail, *newer)
    return Claim(
        agent_id,
        head.epoch + 1,
        loaded.snapshot,
        loaded.snapshot_seq,
        tail,
        head.last_seq,
        fresh=loaded.snapshot is None and not tail,
        clean=head.released or head.deleted,
    )


@attrs.frozen
class _Batch:
    agent_id: str
    epoch: int
    expected_seq: int
    at: float
    rows: Sequence[Row]
    lines: Sequence[Line] = ()


def _append(connection: sqlite3.Connection, batch: _Batch) -> int:
    updated = connection.execute(
        "UPDATE agents SET last_seq = last_seq + ?, at = ?, released = 0"
        " WHERE agent_id = ? AND epoch = ? AND last_seq = ? AND NOT deleted",
        (len(batch.rows), batch.at, batch.agent_id, batch.epoch, batch.expected_seq),
    )
    if updated.rowcount != 1:
        head = _check_epoch(connection, batch.agent_id, batch.epoch)
        raise SequenceConflict(batch.agent_id, batch.expected_seq, head.last_seq)
    insert(connection, "journal", batch.rows)
    insert_lines(connection, batch.agent_id, batch.epoch, batch.at, batch.lines)
    return batch.expected_seq + len(batch.rows)


def _create(
    connection: sqlite3.Connection, claimant: _Claimant, events: Sequence[object], lines: Sequence[Line]
) -> None:
    agent_id, at = claimant.agent_id, claimant.at
    head = read_head(connection, agent_id)
    if head is not None and not head.deleted and head.last_seq > head.base_seq:
        raise AgentExists(agent_id)
    if head is not None and not head.deleted and read_snapshots(connection, agent_id, limit=1):
        raise AgentExists(agent_id)
    claim = _take_over(connection, claimant, Loaded(head, snapshot_seq=0 if head is None else head.last_seq))
    assert claim is not None
    rows = [Row.of(agent_id, seq, claim.epoch, at, event) for seq, event in enumerate(events, claim.seq + 1)]
    _append(connection, _Batch(agent_id, claim.epoch, claim.seq, at, rows, lines))
    connection.execute("UPDATE agents SET released = 1 WHERE agent_id = ?", (agent_id,))


def _save_snapshot(connection: sqlite3.Connection, row: Row) -> None:
    head = _check_epoch(connection, row.agent_id, row.epoch)
    if not head.base_seq <= row.seq <= head.last_seq:
        raise SequenceConflict(row.agent_id, row.seq, head.last_seq)
    newest = read_snapshots(connection, row.agent_id, limit=1)
    if newest and newest[0].seq > row.seq:
        raise SequenceConflict(row.agent_id, row.seq, newest[0].seq)
    insert(connection, "snapshots", [row])


def _compact(connection: sqlite3.Connection, agent_id: str, epoch: int, keep: int) -> int:
    _check_epoch(connection, agent_id, epoch)
    kept = read_snapshots(connection, agent_id, limit=keep)
    if not kept:
        return 0
    for row in kept:
        problem = row.problem()
        if problem is not None:
            raise RecordCorrupt(agent_id, row.seq, "snapshots", problem)
    connection.execute("DELETE FROM snapshots WHERE agent_id = ? AND seq < ?", (agent_id, kept[-1].seq))
    return connection.execute("DELETE FROM journal WHERE agent_id = ? AND seq <= ?", (agent_id, kept[-1].seq)).rowcount


def _delete(connection: sqlite3.Connection, agent_id: str, epoch: int | None, at: float) -> bool:
    if epoch is not None:
        _check_epoch(connection, agent_id, epoch)
    buried = connection.execute(
        "UPDATE agents SET epoch = epoch + 1, base_seq = last_seq, at = ?, deleted = 1"
        " WHERE agent_id = ? AND NOT deleted",
        (at, agent_id),
    )
    connection.execute("DELETE FROM journal WHERE agent_id = ?", (agent_id,))
    connection.execute("DELETE FROM snapshots WHERE agent_id = ?", (agent_id,))
    connection.execute("DELETE FROM transcript WHERE agent_id = ?", (agent_id,))
    return buried.rowcount == 1
