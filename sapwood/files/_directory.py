"""A backend on a real directory: atomic writes, and no way out of its root."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple, Unpack

import trio

from sapwood.actors import Environment
from sapwood.errors import BackendFailed
from sapwood.files._backend import FileData, FileEntry, Listing
from sapwood.files._open_directory import Content, OpenDirectory, call, open_directory
from sapwood.files._paths import FilePath
from sapwood.files._root import TEMPORARY_PREFIX

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DirectoryBackend:
    """Keeps files in a directory of the machine. POSIX only.

    A write goes to a temporary file beside its target, is synced, and renamed over the target; then the directory is
    synced. After a crash a file has its old content or its new one, and leftover temporary files are removed by
    `open`. Only if that last sync of the directory fails does `BackendFailed` mean that the change is visible but not
    known to be durable.

    Every component of a path is opened relative to its parent without following links. Symbolic links, special files
    and files with several hard links are neither read nor replaced, and a listing names them under `skipped`, as it
    does names that `normalise` refuses, files larger than `max_file_bytes` and directories without permission.

    Versions are kept in `.sapwood/` below the root, which no path can name. A file that somebody else changed, found by
    its size, time and inode and confirmed by its hash, gets a higher version; a read or a check of `expected_version`
    always looks at the content itself. What cannot be closed without the help of the other program is the moment
    between that check and the rename.

    One process at a time may open a root for writing. Within the process the backend that was opened last has it: its
    owner is the restarted incarnation of an actor that was killed without closing, and whatever the former one still
    tries is refused.

    Empty directories do not exist for the filesystem: they are made and removed as files need them.

    Args:
        root: An existing directory. It is not created, so that a disk that is not mounted does not look empty.
        environment: Threads, time and names of temporary files.
        read_only: Refuse changes, and write nothing at all below the root. Versions noted by an earlier writer are
            read; later ones count in memory only.
        max_file_bytes: Larger files are not offered. Default 64 MiB.
        max_files: A root with more files is refused when it is listed. Default 100,000.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        environment: Environment,
        *,
        read_only: bool = False,
        max_file_bytes: int = 64 << 20,
        max_files: int = 100_000,
    ) -> None:
        self.root = os.fspath(root)
        self.read_only = read_only
        self._environment = environment
        self._max_file_bytes = max_file_bytes
        self._max_files = max_files
        # One operation at a time, waiting as tasks rather than in threads.
        self._lock = trio.Lock()
        self._state: OpenDirectory | None = None

    async def open(self) -> None:
        """Open the root, take its lock, read the versions and remove leftovers of unfinished writes.

        Raises:
            BackendFailed: if the root is no directory, another process has it open for writing, it holds too many
                files, or the versions are damaged.
            ReadOnly: if the root cannot be written to and `read_only` was not given.
        """
        async with self._lock:
            if self._state is None:
                self._state = await self._environment.in_thread(
                    partial(
                        open_directory,
                        self.root,
                        writable=not self.read_only,
                        max_file_bytes=self._max_file_bytes,
                        max_files=self._max_files,
                    )
                )

    async def close(self) -> None:
        """Release the root."""
        async with self._lock:
            state, self._state = self._state, None
            if state is not None:
                await self._environment.in_thread(state.close)

    async def list(self) -> Listing:
        """Return all files as they are on the disk now, and what is not offered as one."""
        return await self._run(OpenDirectory.list_files)

    async def stat(self, path: FilePath) -> FileEntry:
        """Return what is known of a file."""
        return await self._run(OpenDirectory.stat, path)

    async def read(self, path: FilePath) -> FileData:
        """Return a file with its content."""
        return await self._run(OpenDirectory.read, path)

    async def write(
        self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
    ) -> FileEntry:
        """Create or replace a file; the permissions of a replaced file are kept."""
        temporary = self._environment.new_id(TEMPORARY_PREFIX)
        modified_ns = int(self._environment.wall() * 1e9)
        content = Content(data, temporary, modified_ns)
        return await self._run(OpenDirectory.write, path, content, expected_version, version)

    async def delete(self, path: FilePath, *, expected_version: int | None = None) -> None:
        """Remove a file, and the directories that it leaves empty."""
        await self._run(OpenDirectory.delete, path, expected_version)

    async def move(
        self, source: FilePath, target: FilePath, *, expected_version: int | None = None
    ) -> tuple[FileEntry, ...]:
        """Rename a file or a directory, in one step of the disk; what a listing skips below a directory moves along.

        After a crash everything lies under the old name or everything under the new one. A name that another program
        makes between the check and the rename is replaced.
        """
        return await self._run(OpenDirectory.move, source, target, expected_version)

    async def reserve(self, count: int) -> int:
        """Set versions aside; see `ReservingBackend`."""
        return await self._run(OpenDirectory.reserve, count)

    async def _run(self, function: Callable[[OpenDirectory, Unpack[Ts]], T], *args: *Ts) -> T:
        async with self._lock:
            if self._state is None:
                raise BackendFailed(self.root, "the directory is not open; call open() first")
            return await self._environment.in_thread(call, self._state, function, *args)
