"""A backend that keeps files in memory."""

from __future__ import annotations

import attrs
import trio

from sapwood.actors import Environment
from sapwood.errors import FileExists
from sapwood.files._backend import (
    FileData,
    FileEntry,
    Listing,
    check_apart,
    check_deletable,
    check_expected,
    digest,
    is_at_or_below,
    missing,
    moved_path,
)
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
        # Highest version of any file deleted or moved so far, or set aside; whatever changes is given a higher one.
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

    async def write(
        self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
    ) -> FileEntry:
        await trio.lowlevel.checkpoint()
        found = self._version(path)
        check_expected(path, found, expected_version)
        collision = self._index.collision(path) if found is None else None
        if collision is not None:
            raise FileExists(path, collision)
        given = max(self._floor, found or 0) + 1 if version is None else version
        entry = FileEntry(path, given, len(data), self._environment.wall(), digest(data))
        self._files[path] = FileData(entry, bytes(data))
        self._index.add(path)
        return entry

    async def delete(self, path: FilePath, *, expected_version: int | None = None) -> None:
        await trio.lowlevel.checkpoint()
        found = check_deletable(path, self._version(path), expected_version)
        self._floor = max(self._floor, found)
        del self._files[path]
        self._index.remove(path)

    async def move(
        self, source: FilePath, target: FilePath, *, expected_version: int | None = None
    ) -> tuple[FileEntry, ...]:
        await trio.lowlevel.checkpoint()
        check_apart(source, target)
        found = self._version(source)
        paths = [path for path in sorted(self._files) if is_at_or_below(path, source)]
        if expected_version is not None or not paths:
            check_deletable(source, found, expected_version)
        collision = self._index.move_collision(source, target)
        if collision is not None:
            raise FileExists(target, collision)
        self._floor = max(self._floor, *(self._files[path].entry.version for path in paths))
        entries: list[FileEntry] = []
        for path in paths:
            old = self._files.pop(path)
            self._index.remove(path)
            entry = attrs.evolve(old.entry, path=moved_path(path, source, target), version=self._floor + 1)
            self._files[entry.path] = FileData(entry, old.data)
            self._index.add(entry.path)
            entries.append(entry)
        return tuple(entries)

    async def reserve(self, count: int) -> int:
        await trio.lowlevel.checkpoint()
        first = max([self._floor, *(file.entry.version for file in self._files.values())]) + 1
        self._floor = first + count - 1
        return first

    def _version(self, path: FilePath) -> int | None:
        file = self._files.get(path)
        return None if file is None else file.entry.version
