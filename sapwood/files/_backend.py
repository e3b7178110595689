"""The protocol of backends: where the files of one scope are kept."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import attrs

from sapwood.errors import FileExists, FileMissing, InvalidPath, VersionConflict
from sapwood.files._paths import FilePath

SaveState: TypeAlias = Literal["saved", "dirty", "failed"]
"""`saved`: as durable as the backend is; `dirty`: waits to be saved; `failed`: the last attempt failed, more follow."""


@attrs.frozen
class FileEntry:
    """What is known of a file without its content.

    Attributes:
        path: Where it is.
        version: Rises with every change of this file and never restarts, also not after a deletion.
        size: Bytes.
        modified: Wall-clock time of the last change, in seconds since 1970 UTC.
        sha256: Hash of the content, 64 hex digits.
        state: Whether this content is saved. Other than `saved` only where saving was put off; see `BufferedBackend`.
        problem: Why the last attempt to save it failed; empty unless `state` is `failed`.
    """

    path: FilePath
    version: int
    size: int
    modified: float
    sha256: str
    state: SaveState = "saved"
    problem: str = ""


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
class MountInfo:
    """A place where another backend is mounted.

    Attributes:
        prefix: The directory it takes; empty for the root.
        read_only: Whether it refuses changes. Its files do not count against the quota then.
        kind: Name of the backend's class.
    """

    prefix: str
    read_only: bool
    kind: str


@attrs.frozen
class Listing:
    """All files of a backend in the order of their paths, and what it does not offer as a file.

    Attributes:
        entries: The files.
        skipped: What lies in the place of files and is not offered as one.
        mounts: Where other backends are mounted, in the order of their prefixes; none for a plain backend.
    """

    entries: tuple[FileEntry, ...]
    skipped: tuple[Skipped, ...] = ()
    mounts: tuple[MountInfo, ...] = ()


@attrs.frozen
class Unsaved:
    """A file whose present content is not saved.

    Attributes:
        path: The file.
        version: Version of the content that waits.
        size: Its bytes.
        state: `dirty` or `failed`.
        attempts: Attempts to save it that have failed.
        problem: Why the last one failed, or an empty text.
    """

    path: FilePath
    version: int
    size: int
    state: SaveState
    attempts: int = 0
    problem: str = ""


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

    async def move(
        self, source: FilePath, target: FilePath, *, expected_version: int | None = None
    ) -> tuple[FileEntry, ...]:
        """Give a file, or a directory with all files below it, another name; return the new entries by path.

        Content stays. Each file gets a version above all that its old and its new name ever had.

        Raises:
            FileMissing: if there is neither a file nor a directory of the name `source`.
            FileExists: if there is a file or directory of the name `target`, or a name is in the way.
            VersionConflict: if `source` is no file at the expected version.
            InvalidPath: if one of the two lies below the other.
            ReadOnly: if the backend refuses changes.
        """
        ...


class ReservingBackend(FileBackend, Protocol):
    """A backend whose versions may be given out before what they stand for is saved."""

    async def reserve(self, count: int) -> int:
        """Set versions aside, durably, and return the first of them.

        They are above all versions given so far, and what the backend gives by itself from now on is above them.
        """
        ...

    async def write(
        self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
    ) -> FileEntry:
        """As `FileBackend.write`; `version` is a version set aside that the file gets."""
        ...


@runtime_checkable
class SavingBackend(Protocol):
    """A backend that puts off saving, or has parts that do."""

    def unsaved(self) -> tuple[Unsaved, ...]:
        """Return the files that are not saved, in the order of their paths."""
        ...

    async def flush(self, seconds: float = 0.0) -> tuple[Unsaved, ...]:
        """Save everything now; what fails is tried again for so many seconds. Return what is still not saved."""
        ...

    async def keep_saving(self) -> None:
        """Save files when their time has come, until cancelled."""
        ...


def seconds_to_save(backend: FileBackend) -> float:
    """Return how long closing a backend may spend on saving what it held back; 0 where saving is not put off."""
    return float(getattr(backend, "closes_within", 0.0))


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


def check_apart(source: str, target: str) -> None:
    """Refuse a move of which one end lies below the other.

    Raises:
        InvalidPath: if one does.
    """
    if target.startswith(f"{source}/") or source.startswith(f"{target}/"):
        raise InvalidPath(source, f"cannot be moved to {target!r}: one lies below the other; move it elsewhere first")


def moved_path(path: str, source: str, target: str) -> FilePath:
    """Return where a file at or below `source` comes to lie."""
    return FilePath(target + path[len(source) :])


def is_at_or_below(path: str, top: str) -> bool:
    """Say whether a path is `top` or lies below it; everything lies below an empty one."""
    return not top or path == top or path.startswith(f"{top}/")


def missing(path: str) -> FileMissing:
    """Return the error for a file that is not there."""
    return FileMissing(path, "there is no such file; list the files to see their names")


def digest(data: bytes) -> str:
    """Return the hash that entries carry."""
    return sha256(data).hexdigest()
