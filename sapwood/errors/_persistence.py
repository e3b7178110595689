"""Errors of the store."""

from __future__ import annotations

from sapwood.errors._root import SapwoodError


class PersistenceError(SapwoodError):
    """Something about the store. A key or agent that is merely absent is an answer, not one of these."""


class StoreUnavailable(PersistenceError):
    """The store cannot answer now: locked, read-only, full, closed. Must never be read as "nothing stored"."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"store {store}: {reason}")
        self.store = store
        self.reason = reason


class StoreCorrupt(PersistenceError):
    """The file is not a Sapwood store, or SQLite finds it damaged; nothing was changed."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"store {store} cannot be read: {reason}")
        self.store = store
        self.reason = reason


class FutureVersion(PersistenceError):
    """A record or schema is newer than this code; it is refused and left as it is."""

    def __init__(self, name: str, found: int, known: int) -> None:
        super().__init__(f"{name} has version {found}; this code knows up to {known}: upgrade before opening it")
        self.name = name
        self.found = found
        self.known = known


class StaleEpoch(PersistenceError):
    """Another server claimed the agent since; the append was refused and its sender must stop itself.

    Attributes:
        agent_id: The agent.
        held: The epoch the caller holds.
        current: The epoch in the store.
    """

    def __init__(self, agent_id: str, held: int, current: int) -> None:
        super().__init__(
            f"agent {agent_id!r} was claimed with epoch {current} after this server's {held}; stop this server"
        )
        self.agent_id = agent_id
        self.held = held
        self.current = current


class SequenceConflict(PersistenceError):
    """An append expected the journal to end elsewhere; nothing was written."""

    def __init__(self, agent_id: str, expected: int, found: int) -> None:
        super().__init__(f"journal of {agent_id!r} ends at {found}, not at {expected}; reload before appending")
        self.agent_id = agent_id
        self.expected = expected
        self.found = found


class CodecError(PersistenceError):
    """A value cannot be written or a record cannot be read; `path` says where, as in `state.messages[3].meta.x`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class RecordCorrupt(PersistenceError):
    """A stored record of an agent cannot be read, or is gone; nothing was changed and the agent may not start afresh.

    The bytes were copied to the table `quarantine`, with the reason; the record itself stays where it was.

    Attributes:
        agent_id: The agent.
        seq: Sequence number of the event, or of the snapshot.
        source: `journal` or `snapshots`: the table.
        reason: What is wrong with it.
    """

    def __init__(self, agent_id: str, seq: int, source: str, reason: str) -> None:
        super().__init__(
            f"record {seq} of {agent_id!r} in {source}: {reason}; mend or remove it before the agent can run"
        )
        self.agent_id = agent_id
        self.seq = seq
        self.source = source
        self.reason = reason
