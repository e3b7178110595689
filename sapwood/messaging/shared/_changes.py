"""Changes of shared memory, as watchers and logs see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from sapwood.messaging.shared._values import VersionedValue


@attrs.frozen
class Written:
    """A key has a new version.

    Attributes:
        seq: Number of the change in its store: each is greater than the one before.
        value: The new version.
    """

    seq: int
    value: VersionedValue

    @property
    def key(self) -> str:
        """The key."""
        return self.value.key


@attrs.frozen
class Deleted:
    """A key was deleted.

    Attributes:
        seq: Number of the change in its store.
        key: The key.
        version: Its last version; if it is written again, that will be the next one (S1-039).
        agent_id: Who deleted it.
    """

    seq: int
    key: str
    version: int
    agent_id: str


@attrs.frozen
class Missed:
    """The watcher was too slow, and changes that it should have seen were dropped; go on from `snapshot`.

    Attributes:
        seq: Number of the last change that `snapshot` includes; every later one follows.
        count: How many changes were dropped; None if the store cannot tell.
        snapshot: What is there now, of the keys that are watched.
    """

    seq: int
    count: int | None
    snapshot: Mapping[str, VersionedValue]


Change: TypeAlias = Written | Deleted | Missed
"""What a watcher gets. Match on it and close with `assert_never`."""


@attrs.frozen
class WriteRecord:
    """One entry of the write log (S1-046).

    Attributes:
        key: The key.
        agent_id: Who wrote.
        version: The version that is there now; of a deletion, the last one.
        timestamp_ns: Wall clock, in nanoseconds since 1970 UTC.
        outcome: `written`, `deleted`, or `superseded` if the current value won.
        batch: Whether it was part of a batch.
    """

    key: str
    agent_id: str
    version: int
    timestamp_ns: int
    outcome: Literal["written", "deleted", "superseded"]
    batch: bool = False


@attrs.frozen
class ReadRecord:
    """One entry of the read log (S1-046).

    Attributes:
        key: The key.
        agent_id: Who read; empty if it did not say.
        version: The version that was read; None if the key was absent.
        timestamp_ns: Wall clock, in nanoseconds since 1970 UTC.
        batch: Whether it was read together with other keys.
    """

    key: str
    agent_id: str
    version: int | None
    timestamp_ns: int
    batch: bool = False


@attrs.frozen
class SharedStatistics:
    """What a store holds and has done (S1-046).

    Attributes:
        keys_count: Keys that have a value.
        total_reads: Keys read, absent ones included.
        total_writes: Versions written.
        deletes: Keys deleted.
        conflicts: Calls refused with `ConflictError`.
        superseded: Writes that lost against the current value.
        watchers: Watches that are open.
    """

    keys_count: int
    total_reads: int
    total_writes: int
    deletes: int
    conflicts: int
    superseded: int
    watchers: int
