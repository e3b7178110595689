"""A backend that keeps files in memory."""

from __future__ import annotations

import trio

from sapwood.actors import Environment
from sapwood.errors import FileExists
from sapwood.files._backend import FileData, FileEntry, Listing, check_deletable, check_expected, digest, missing
from sapwood.files._paths import FilePath, PathIndex


class MemoryBackend:
    """Keeps files in memory; they are gone with the object. Closing keeps them.

    Args:
        environment: Source of the time of changes.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._files: dict[FilePath, FileData] = {}
        self._index = PathIndex()
        # Highest version of any file deleted so far; new files start above it, so no version ever comes back.
        self._floor = 0

    async def open(self) -> None:
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()

    async def list(self) -> Listing:
        await trio.lowlevel.checkpoint()
        return Listing(tuple(self._files[path].entry for path in sorted(self._files)))

    async def stat(self, path: FilePath) -> FileEntry:
        return (await self.read(path)).entry

    async def read(self, path: FilePath) -> FileData:
        await trio.lowlevel.checkpoint()
        file = self._files.get(path)
        if file is None:
            raise missing(path)
        return file

    async def write(self, path: FilePath, data: bytes, *, expected_version: int | None = None) -> FileEntry:
        await trio.lowlevel.checkpoint()
        found = self._version(path)
        check_expected(path, found, expected_version)
        collision = self._index.collision(path) if found is None else None
        if collision is not None:
            raise FileExists(path, collision)
        version = (self._floor if found is None else found) + 1
        entry = FileEntry(path, version, len(data), self._environment.wall(), digest(data))
        self._files[path] = FileData(entry, bytes(data))
        self._index.add(path)
        return entry

    async def delete(self, path: FilePath, *, expected_version: int | None = None) -> None:
        await trio.lowlevel.checkpoint()
        found = check_deletable(path, self._version(path), expected_version)
        self._floor = max(self._floor, found)
        del self._files[path]
        self._index.remove(path)

    def _version(self, path: FilePath) -> int | None:
        file = self._files.get(path)
        return None if file is None else file.entry.version
