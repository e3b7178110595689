"""The log: the one owner of a conversation's state, who writes every change before anybody sees it."""

from __future__ import annotations

from typing import Final

import trio

from sapwood.agents._announce import Step, announce, steps_of
from sapwood.agents._notes import take_notes
from sapwood.agents._publisher import Publisher
from sapwood.conversation import State, journal, transcript_of
from sapwood.errors import CodecError, PersistenceError, StaleEpoch, StoreUnavailable
from sapwood.persistence import AgentPersistence, Claim, SnapshotPolicy

COMMIT_WITHIN: Final = 30.0
"""Seconds that one commit may take before the store counts as gone; well below what askers wait for."""

MESSAGES_PER_EVENT: Final = 2
"""How many messages a snapshot may write for each event since the last one, so that a long history costs no more."""


class Log:
    """The journal of one conversation, as its present owner writes it.

    `commit` makes events durable, then applies them, then announces them, one commit at a time. It cannot be
    cancelled half-way, because then nobody would know what the journal holds. After a failed commit the log is
    broken: the server has to end, and the next one reads what is there.

    Attributes:
        state: The conversation; always the fold of what is durable.
        seq: Sequence number of the last event.
        epoch: The fencing token of this owner.
        broken: Why nothing can be written any more; None while it can.
        snapshot_problem: Why the last snapshot could not be saved; empty if it could.
    """

    def __init__(self, store: AgentPersistence, claim: Claim, publisher: Publisher, policy: SnapshotPolicy) -> None:
        loaded = claim.snapshot if isinstance(claim.snapshot, State) else State()
        steps = steps_of(loaded, [entry.event for entry in claim.tail])
        self.state = steps[-1].after if steps else loaded
        self.seq = claim.seq
        self.epoch = claim.epoch
        self.agent_id = claim.agent_id
        self.broken: Exception | None = None
        self.snapshot_problem = ""
        self._store = store
        self._publisher = publisher
        self._policy = policy
        self._snapshot_seq = claim.snapshot_seq
        self._lock = trio.Lock()
        untold = publisher.attach(self.state, self.epoch, self.seq)
        if 0 < untold <= len(steps):
            announce(publisher, steps[-untold:])

    async def commit(self, *events: journal.JournalEvent) -> None:
        """Write events, all or none, and let them take effect in order.

        A cancelled caller writes nothing, or gets to the end.

        Raises:
            StaleEpoch: if another server has claimed the conversation; this one must stop.
            StoreUnavailable: if the store cannot write, or an earlier commit failed.
            CodecError: if an event cannot be stored; nothing was written, and the log goes on.
        """
        if not events:
            await trio.lowlevel.checkpoint()
            return
        async with self._lock:
            if self.broken is not None:
                raise self.broken
            steps = steps_of(self.state, events)
            await self._append(events, steps)
            self.state = self._publisher.state = steps[-1].after
            self._publisher.journal_seq = self.seq
            if self._publisher.debugged:
                take_notes(self._publisher, steps, self.seq)
            announce(self._publisher, steps)
            if self._wants_snapshot():
                await self._snapshot()

    async def _append(self, events: tuple[journal.JournalEvent, ...], steps: list[Step]) -> None:
        at = self._publisher.wall()
        lines = [line for step in steps for line in transcript_of(step.before, step.event, step.after, at)]
        with trio.CancelScope(shield=True, deadline=trio.current_time() + COMMIT_WITHIN):
            try:
                self.seq = await self._store.append(
                    self.agent_id, epoch=self.epoch, expected_seq=self.seq, events=events, lines=lines
                )
            except CodecError:
                raise
            except Exception as error:
                self.broken = error
                raise
            return
        self.broken = StoreUnavailable("journal", f"did not answer within {COMMIT_WITHIN:g} s")
        raise self.broken

    def _wants_snapshot(self) -> bool:
        due = self._policy.is_due(seq=self.seq, snapshot_seq=self._snapshot_seq)
        return due and MESSAGES_PER_EVENT * (self.seq - self._snapshot_seq) >= len(self.state.messages)

    async def _snapshot(self) -> None:
        """Save the state and drop the events that no kept snapshot needs.

        What was committed stays so if this fails: the journal holds it all, and after as many events again another
        attempt is made.
        """
        self._snapshot_seq = self.seq
        self.snapshot_problem = f"the store did not answer within {COMMIT_WITHIN:g} s"
        with trio.CancelScope(shield=True, deadline=trio.current_time() + COMMIT_WITHIN):
            try:
                await self._store.save_snapshot(self.agent_id, epoch=self.epoch, seq=self.seq, state=self.state)
                await self._store.compact(self.agent_id, epoch=self.epoch)
            except PersistenceError as error:
                self.snapshot_problem = str(error)
                if isinstance(error, StaleEpoch):
                    self.broken = error
            else:
                self.snapshot_problem = ""

    async def release(self) -> None:
        """Note in the store that this owner has stopped cleanly.

        Raises:
            PersistenceError: if that cannot be noted; nothing is lost.
        """
        with trio.CancelScope(shield=True, deadline=trio.current_time() + COMMIT_WITHIN):
            async with self._lock:
                if self.broken is None:
                    await self._store.release(self.agent_id, epoch=self.epoch)
