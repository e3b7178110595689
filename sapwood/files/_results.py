"""What the methods of a filesystem answer."""

from __future__ import annotations

import attrs

from sapwood.files._backend import FileEntry, MountInfo, Skipped, Unsaved
from sapwood.files._paths import FilePath
from sapwood.files._quota import Quota


@attrs.frozen
class FileList:
    """The files that a pattern matches, in the order of their paths.

    Attributes:
        entries: At most as many as were asked for.
        total: How many the pattern matches.
        mounts: Where other backends are mounted; none in a filesystem with a single one.
    """

    entries: tuple[FileEntry, ...]
    total: int
    mounts: tuple[MountInfo, ...] = ()


@attrs.frozen
class FileEdit:
    """What an edit did.

    Attributes:
        entry: The file as it is now.
        replacements: How many places were replaced.
        line: Number of the line where the first one starts.
    """

    entry: FileEntry
    replacements: int
    line: int


@attrs.frozen
class FileMove:
    """What a move did.

    Attributes:
        source: The old name.
        target: The new name.
        entries: The files that were moved, under their new names.
    """

    source: FilePath
    target: FilePath
    entries: tuple[FileEntry, ...]


@attrs.frozen
class FileStatistics:
    """The state of a filesystem.

    Attributes:
        files: Number of files, denied ones included.
        total_bytes: Their size.
        counted_files: Number of files that count against the quota: all but those of read-only mounts.
        counted_bytes: Their size.
        denied: How many of them a deny rule hides.
        skipped: What lies in the backend and is not offered as a file.
        limits: The quota.
        changes: Writes, edits, moves and deletions since the start that succeeded.
        refused: Those that raised an error and changed nothing.
        mounts: Where other backends are mounted.
        unsaved: Files whose present content is not saved, and why.
    """

    files: int
    total_bytes: int
    counted_files: int
    counted_bytes: int
    denied: int
    skipped: tuple[Skipped, ...]
    limits: Quota
    changes: int
    refused: int
    mounts: tuple[MountInfo, ...] = ()
    unsaved: tuple[Unsaved, ...] = ()
