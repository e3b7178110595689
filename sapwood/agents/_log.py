"""The log: the one owner of a conversation's state, who writes every change before anybody sees it."""

from __future__ import annotations

from typing import Final

import trio

from sapwood.actors import Environment
from sapwood.agents._announce import announce, announce_end, announce_status
from sapwood.agents._publisher import Publisher
from sapwood.conversation import State, journal
from sapwood.errors import CodecError, StoreUnavailable
from sapwood.persistence import Claim, JournalStore, SnapshotPolicy

COMMIT_WITHIN: Final = 60.0
"""Seconds that one commit may take before the store counts as gone."""


class Log:
    """The journal of one conversation, as its present owner writes it.

    `commit` makes events durable, then applies them, then announces them, one commit at a time. It cannot be
    cancelled half-way, because then nobody would know what the journal holds. After a failed commit the log is
    broken: the server has to end, and the next one reads what is there.

    Attributes:
        state: The conversation; always the fold of what is durable.
        seq: Sequence number of the last event.
        epoch: The fencing token of this owner.
    """

    def __init__(
        self,
        store: JournalStore,
        claim: Claim,
        environment: Environment,
        publisher: Publisher,
        policy: SnapshotPolicy,
    ) -> None:
        state = claim.snapshot if isinstance(claim.snapshot, State) else State()
        self.state = journal.fold(state, (entry.event for entry in claim.tail))
        self.seq = claim.seq
        self.epoch = claim.epoch
        self.agent_id = claim.agent_id
        self._store = store
        self._environment = environment
        self._publisher = publisher
        self._policy = policy
        self._snapshot_seq = claim.snapshot_seq
        self._lock = trio.Lock()
        self._broken: Exception | None = None
        publisher.state = self.state

    async def commit(self, *events: journal.JournalEvent) -> None:
        """Write events, all or none, and let them take effect in order.

        Raises:
            StaleEpoch: if another server has claimed the conversation; this one must stop.
            StoreUnavailable: if the store cannot write, or an earlier commit failed.
            CodecError: if an event cannot be stored; nothing was written, and the log goes on.
        """
        if not events:
            await trio.lowlevel.checkpoint()
            return
        async with self._lock:
            if self._broken is not None:
                raise self._broken
            await self._append(events)
            before = self.state
            for event in events:
                old = self.state
                self.state = self._publisher.state = journal.apply(old, event)
                announce(self._publisher, event, old, self.state)
            announce_status(self._publisher, before, self.state)
            for event in events:
                if isinstance(event, journal.RunFinished):
                    announce_end(self._publisher, event, before)
            if self._policy.is_due(seq=self.seq, snapshot_seq=self._snapshot_seq):
                await self.snapshot()

    async def _append(self, events: tuple[journal.JournalEvent, ...]) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + COMMIT_WITHIN):
            try:
                self.seq = await self._store.append(
                    self.agent_id, epoch=self.epoch, expected_seq=self.seq, events=events
                )
            except CodecError:
                raise
            except Exception as error:
                self._broken = error
                raise
            return
        self._broken = StoreUnavailable("journal", f"did not answer within {COMMIT_WITHIN:g} s")
        raise self._broken

    async def snapshot(self) -> None:
        """Save the state and drop the events that no kept snapshot needs; a failure is no harm and is tried later."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + COMMIT_WITHIN):
            await self._store.save_snapshot(self.agent_id, epoch=self.epoch, seq=self.seq, state=self.state)
            self._snapshot_seq = self.seq
            await self._store.compact(self.agent_id, epoch=self.epoch)

    async def release(self) -> None:
        """Note in the store that this owner has stopped cleanly."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + COMMIT_WITHIN):
            async with self._lock:
                if self._broken is None:
                    await self._store.release(self.agent_id, epoch=self.epoch)
