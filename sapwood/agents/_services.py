"""What the servers of agents need of the runtime around them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from sapwood.agents._sub_agent_homes import SubAgentHomes
from sapwood.agents._waits import Waits
from sapwood.conversation import State, journal
from sapwood.files import FileService
from sapwood.persistence import AgentPersistence, SnapshotPolicy
from sapwood.tools import ResultStore

Opening = Callable[[State], Awaitable[Sequence[journal.JournalEvent]]]
"""Returns what a conversation begins with, given what is stored of it; nothing if it has begun."""


async def no_opening(_: State) -> Sequence[journal.JournalEvent]:
    """Return nothing: a conversation that no factory makes begins empty."""
    await trio.lowlevel.checkpoint()
    return ()


@attrs.frozen
class Services:
    """What a server needs of the runtime around it.

    Attributes:
        journal: Returns the present store of conversations.
        files: Finds filesystems.
        owner: Name under which conversations are claimed.
        snapshots: When snapshots are saved.
        results: Where the whole of large results is kept; None if nowhere, so that they are cut.
        opening: Says what a conversation begins with.
        unwatched_after: Seconds after which a server stops that nobody watches and that has nothing to do; None for
            never.
        sub_agents: Where sub-agents live; the sessions of the runtime set it.
        waits: Which run waits for which conversation; the sessions of the runtime set it.
    """

    journal: Callable[[], AgentPersistence]
    files: FileService
    owner: str
    snapshots: SnapshotPolicy
    results: ResultStore | None = None
    opening: Opening = no_opening
    unwatched_after: float | None = None
    sub_agents: SubAgentHomes | None = None
    waits: Waits | None = None
