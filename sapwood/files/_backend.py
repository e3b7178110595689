"""The protocol of backends: where the files of one scope are kept."""

from __future__ import annotations

from hashlib import sha256
from typing import Protocol

import attrs

from sapwood.errors import FileExists, FileMissing, VersionConflict
from sapwood.files._paths import FilePath


@attrs.frozen
class FileEntry:
    """What is known of a file without its content.

    Attributes:
        path: Where it is.
        version: Rises with every change of this file and never restarts, also not after a deletion.
        size: Bytes.
        modified: Wall-clock time of the last change, in seconds since 1970 UTC.
        sha256: Hash of the content, 64 hex digits.
    """

    path: FilePath
    version: int
    size: int
    modified: float
    sha256: str


@attrs.frozen
class FileData:
    """A file with its content."""

    entry: FileEntry
    data: bytes


@attrs.frozen
class Skipped:
    """Something that lies in the place of a file and is not offered as one, and why."""

    name: str
    reason: str


@attrs.frozen
class Listing:
    """All files of a backend in the order of their paths, and what it does not offer as a file."""

    entries: tuple[FileEntry, ...]
    skipped: tuple[Skipped, ...] = ()


class FileBackend(Protocol):
    """Keeps the files of one scope. One `FileTree` uses it, and makes one change at a time.

    Every change is atomic: it happens whole, or raises and changes nothing. A change is durable when the call
    returns, as far as the backend is durable at all. All methods raise `BackendFailed` if the backend cannot answer;
    that is never the same as `FileMissing`.

    A cancelled change may have happened; whatever is asked afterwards sees whether it did.

    `expected_version` is a condition checked together with the change: None accepts any state, 0 demands that there is
    no such file, any other number demands exactly this version. A version expected of an absent file is a conflict.
    """

    async def open(self) -> None:
        """Make ready, and mend what a crash left behind; opening an open backend does nothing."""
        ...

    async def close(self) -> None:
        """Release what is held; closing a closed backend does nothing."""
        ...

    async def list(self) -> Listing:
        """Return all files as they are now."""
        ...

    async def stat(self, path: FilePath) -> FileEntry:
        """Return what is known of a file.

        Raises:
            FileMissing: if there is no such file.
        """
        ...

    async def read(self, path: FilePath) -> FileData:
        """Return a file, its content and its version taken at one moment.

        Raises:
            FileMissing: if there is no such file.
        """
        ...

    async def write(self, path: FilePath, data: bytes, *, expected_version: int | None = None) -> FileEntry:
        """Create or replace a file and return its new entry.

        Raises:
            VersionConflict: if the file is not at the expected version.
            FileExists: if version 0 was expected and there is such a file, or if a name is in the way.
            ReadOnly: if the backend refuses changes.
            QuotaExceeded: if there is no room.
        """
        ...

    async def delete(self, path: FilePath, *, expected_version: int | None = None) -> None:
        """Remove a file.

        Raises:
            FileMissing: if there is no such file.
            VersionConflict: if the file is not at the expected version.
            ReadOnly: if the backend refuses changes.
        """
        ...


def check_expected(path: FilePath, found: int | None, expected: int | None) -> None:
    """Hold a write against the version that was found (None: no such file).

    Raises:
        VersionConflict: if they differ.
        FileExists: if version 0 was expected and there is a file.
    """
    if expected is None or expected == (found or 0):
        return
    if expected == 0:
        raise FileExists(path, f"exists already, at version {found}; edit it, or write it with this version")
    raise VersionConflict(path, expected, found or 0)


def check_deletable(path: FilePath, found: int | None, expected: int | None) -> int:
    """Hold a deletion against the version that was found, and return that version.

    Raises:
        FileMissing: if there is no file and no version was expected.
        VersionConflict: if the versions differ.
    """
    if found is None:
        raise VersionConflict(path, expected, 0) if expected else missing(path)
    if expected is not None and expected != found:
        raise VersionConflict(path, expected, found)
    return found


def missing(path: str) -> FileMissing:
    """Return the error for a file that is not there."""
    return FileMissing(path, "there is no such file; list the files to see their names")


def digest(data: bytes) -> str:
    """Return the hash that entries carry."""
    return sha256(data).hexdigest()
