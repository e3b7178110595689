"""When to save a snapshot."""

from __future__ import annotations

import attrs

from sapwood.errors import InvalidOption


@attrs.frozen
class SnapshotPolicy:
    """Decides when the events since the last snapshot are worth another one.

    Attributes:
        every: Events after which a snapshot is due; the most a restart has to replay, give or take one append.
    """

    every: int = 200

    def __attrs_post_init__(self) -> None:
        if self.every < 1:
            raise InvalidOption(f"SnapshotPolicy.every: expected at least 1 event; got {self.every!r}")

    def is_due(self, *, seq: int, snapshot_seq: int) -> bool:
        """Return whether a journal that ends at `seq`, with its last snapshot at `snapshot_seq`, wants one."""
        return seq - snapshot_seq >= self.every
