"""What a host's own store must do so that conversations can live in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import attrs

from sapwood.persistence._protocols import Entry, JournalStore


@attrs.frozen
class Stored:
    """What is stored of an agent, read without claiming it.

    Attributes:
        agent_id: The agent.
        epoch: Epoch of the last claim.
        snapshot: The newest readable state, or None if none was saved.
        snapshot_seq: Sequence number that `snapshot` includes; without one, where the journal begins.
        tail: All events after `snapshot_seq`, in order.
        seq: Sequence number of the last event.
    """

    agent_id: str
    epoch: int
    snapshot: Any
    snapshot_seq: int
    tail: tuple[Entry, ...]
    seq: int


@attrs.frozen
class Missing:
    """The store has answered: nothing at all is stored of the agent. Only then may a state be started from scratch."""

    agent_id: str


LoadOutcome: TypeAlias = Stored | Missing
"""What loading finds. That the store cannot tell is neither: it is `StoreUnavailable`, `RecordCorrupt` or
`FutureVersion`."""


@attrs.frozen
class NumberedLine:
    """One line of a transcript.

    Attributes:
        number: Its place: 1, 2, 3 … without gaps.
        line: The record.
    """

    number: int
    line: Any


class AgentPersistence(JournalStore, Protocol):
    """Everything that agents need of a store: journals, epochs and snapshots, and a transcript for people.

    `sapwood.testing.AgentPersistenceSuite` tells whether an implementation keeps these promises. Every call may raise
    `StoreUnavailable`, which never means that nothing is stored.
    """

    async def append(
        self,
        agent_id: str,
        *,
        epoch: int,
        expected_seq: int,
        events: Sequence[object],
        lines: Sequence[object] = (),
    ) -> int:
        """Append all events and lines of the transcript or none; see `JournalStore.append`."""
        ...

    async def create(
        self, agent_id: str, *, owner: str, events: Sequence[object], lines: Sequence[object] = ()
    ) -> None:
        """Write the beginning of an agent of which nothing is stored, as a claim, an append and a release in one step.

        Raises:
            AgentExists: if something is stored of it; nothing was changed, and whoever holds it still does.
            CodecError: if something cannot be stored; likewise.
        """
        ...

    async def load(self, agent_id: str) -> LoadOutcome:
        """Return what is stored of an agent; claims nothing, and disturbs nobody who holds it.

        Raises:
            RecordCorrupt: if a record cannot be read.
            FutureVersion: if newer code wrote a record.
        """
        ...

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
            RecordCorrupt: if a line cannot be read.
            FutureVersion: if newer code wrote one.
        """
        ...
