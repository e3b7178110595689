"""What the methods of a filesystem answer."""

from __future__ import annotations

import attrs

from sapwood.files._backend import FileEntry, Skipped
from sapwood.files._quota import Quota


@attrs.frozen
class FileList:
    """The files that a pattern matches, in the order of their paths.

    Attributes:
        entries: At most as many as were asked for.
        total: How many the pattern matches.
    """

    entries: tuple[FileEntry, ...]
    total: int


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
class FileStatistics:
    """The state of a filesystem.

    Attributes:
        files: Number of files, denied ones included.
        total_bytes: Their size.
        denied: How many of them a deny rule hides.
        skipped: What lies in the backend and is not offered as a file.
        limits: The quota.
        changes: Writes, edits and deletions since the start that succeeded.
        refused: Those that raised an error and changed nothing.
    """

    files: int
    total_bytes: int
    denied: int
    skipped: tuple[Skipped, ...]
    limits: Quota
    changes: int
    refused: int
