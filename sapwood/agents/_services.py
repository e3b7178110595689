"""What the servers of agents need of the runtime around them."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sapwood.files import FileService
from sapwood.persistence import JournalStore, SnapshotPolicy


@attrs.frozen
class Services:
    """What a server needs of the runtime around it.

    Attributes:
        journal: Returns the present journals.
        files: Finds filesystems.
        owner: Name under which conversations are claimed.
        snapshots: When snapshots are saved.
    """

    journal: Callable[[], JournalStore]
    files: FileService
    owner: str
    snapshots: SnapshotPolicy
