"""The files of one scope as tools see them: paths checked, limits kept, changes atomic."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from sapwood.errors import (
    EditMismatch,
    FileExists,
    FileMissing,
    InvalidOption,
    NotText,
    PathDenied,
    ReadOnly,
    VersionConflict,
)
from sapwood.files._backend import (
    FileData,
    FileEntry,
    SavingBackend,
    Unsaved,
    check_apart,
    is_at_or_below,
    moved_path,
)
from sapwood.files._lines import splice_lines
from sapwood.files._paths import FilePath, normalise
from sapwood.files._quota import require_range
from sapwood.files._results import FileEdit, FileMove
from sapwood.files._text import decode, encode, plan_replacement
from sapwood.files._view import FileView


class FileTree(FileView):
    """The files of one scope, for the tools of all agents that share it.

    Every path goes through `normalise` and the deny rules, whichever method it is given to. Case is kept and matters,
    and names that differ only by case are refused on creation, so files can move to a disk that ignores case (BR-37).
    Directories exist as far as files lie in them.

    Changes are made one at a time. Each is atomic: it is done, durably, when the call returns, or it raised and
    changed nothing (with the one exception that `DirectoryBackend` names). So a failed save is seen by whoever saved,
    and the same call may simply be made again (AR-22.20). Only a `BufferedBackend` puts saving off; the entry that a
    change returns says so. A cancelled call may have made its change.

    Any method may raise `BackendFailed` if the backend cannot answer, `InvalidPath` and `PathDenied`.

    Args:
        backend: Where the files are kept; the tree opens and closes it.
        environment: Time, and threads for searching.
        limits: The quota. Files that somebody else puts into the backend count from the next listing on.
        deny: Globs of paths that no method may touch, matched without regard to case; see `DenyRules`.
        read_only: Refuse every change with `ReadOnly`.
        search_seconds: How long one search may take. Default 5 s.

    Raises:
        InvalidPattern: if a deny rule is no usable glob.
    """

    # --- changing ---------------------------------------------------------------------------------

    async def write(self, path: str, content: str, *, expected_version: int | None = None) -> FileEntry:
        """Create a file or replace its whole content.

        Args:
            path: The file.
            content: Its new text, kept byte for byte.
            expected_version: Replace only this version; 0 means only create; None replaces whatever is there.

        Raises:
            VersionConflict: if the file is at another version, or absent although a version was expected.
            FileExists: if 0 was expected and the file exists, or another name is in the way.
            QuotaExceeded: if a limit would be exceeded or the disk is full.
            NotText: if the content holds a lone surrogate.
            ReadOnly: if changes are refused.
        """
        async with self._changing(path, expected_version) as file:
            return await self._put(file, encode(file, content), expected_version)

    async def create(self, path: str, content: str) -> FileEntry:
        """Create a file that does not exist yet.

        Raises:
            FileExists: if it exists, or another name is in the way.
            QuotaExceeded: if a limit would be exceeded or the disk is full.
            NotText: if the content holds a lone surrogate.
            ReadOnly: if changes are refused.
        """
        return await self.write(path, content, expected_version=0)

    async def edit(
        self, path: str, old: str, new: str, *, replace_all: bool = False, expected_version: int | None = None
    ) -> FileEdit:
        """Replace a text that occurs exactly once, or all its occurrences.

        In a file whose lines all end with CR LF, each line end in `old` and `new` stands for CR LF.

        Args:
            path: The file.
            old: What to replace; exact, blanks and case count.
            new: What to put there.
            replace_all: Replace every occurrence instead of demanding a single one.
            expected_version: Edit only this version; None edits whatever is there.

        Raises:
            FileMissing: if there is no such file.
            VersionConflict: if it is at another version, or changed while it was edited.
            EditMismatch: if `old` does not occur, or more often than once; says how often and where.
            InvalidOption: if `old` is empty or equals `new`.
            NotText: if the file is not UTF-8, or `new` holds a lone surrogate.
            QuotaExceeded: if a limit would be exceeded or the disk is full.
            ReadOnly: if changes are refused.
        """
        async with self._changing(path, expected_version) as file:
            data = await self._read_expected(file, expected_version)
            plan = plan_replacement(file, decode(file, data.data), old, new, replace_all=replace_all)
            encode(file, plan.new)
            self._check_quota(file, len(data.data) + plan.growth)
            text = decode(file, data.data).replace(plan.old, plan.new)
            entry = await self._put(file, encode(file, text), data.entry.version)
            return FileEdit(entry, plan.count, plan.line)

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """Remove a file.

        Args:
            path: The file.
            expected_version: Remove only this version; None removes whatever is there.

        Raises:
            FileMissing: if there is no such file.
            VersionConflict: if it is at another version.
            ReadOnly: if changes are refused.
        """
        async with self._changing(path, expected_version) as file:
            await self._backend.delete(file, expected_version=expected_version)
            self._inventory.remove(file)

    async def replace_lines(self, path: str, first: int, last: int, content: str, *, expected_version: int) -> FileEdit:
        """Replace a range of lines by other lines, or by none.

        Numbers of lines mean nothing without a version, as any change may shift them; so the version is demanded. If
        lines follow, or the last replaced one had an end, the last new one gets an end. In a file whose lines all end
        with CR LF, each line end in `content` stands for CR LF.

        Args:
            path: The file.
            first: First line to replace, from 1.
            last: Last line to replace.
            content: The new lines; empty removes the range.
            expected_version: The version whose lines were counted.

        Raises:
            FileMissing: if there is no such file.
            VersionConflict: if it is at another version, or changed while it was edited.
            InvalidOption: if there is no such range, or nothing would change.
            NotText: if the file is not UTF-8, or `content` holds a lone surrogate.
            QuotaExceeded: if a limit would be exceeded or the disk is full.
            ReadOnly: if changes are refused.
        """
        require_range("first", first, 1)
        require_range("last", last, first)
        return await self._splice(path, first, last, content, expected_version)

    async def insert_lines(self, path: str, after: int, content: str, *, expected_version: int) -> FileEdit:
        """Insert lines after a line, or with 0 before the first one.

        The line before them gets an end if it has none, and so do they if lines follow. Raises as `replace_lines`.

        Args:
            path: The file.
            after: Number of the line that they come after, from 0 to the number of lines.
            content: The new lines.
            expected_version: The version whose lines were counted.
        """
        require_range("after", after, 0)
        if not content:
            raise InvalidOption(f"insert into {path!r}: expected lines to insert; got an empty text")
        return await self._splice(path, after + 1, after, content, expected_version)

    async def move(self, source: str, target: str, *, expected_version: int | None = None) -> FileMove:
        """Give a file, or a directory with all files below it, another name.

        Nothing is ever replaced. Within one backend the move is atomic; between mounts see `Mounts`. Moving to the name
        it has does nothing. Of a name only the case may be changed.

        Args:
            source: The file or directory.
            target: Its new name.
            expected_version: Move only this version of a file; a directory has no version.

        Raises:
            FileMissing: if there is neither a file nor a directory of this name.
            FileExists: if there is something of the new name, or another name is in the way.
            VersionConflict: if the file is at another version, or absent although a version was expected.
            InvalidOption: if a version of a directory is expected.
            PathDenied: also if a deny rule holds for a file below it, under its old or its new name.
            InvalidPath: also if one name lies below the other, a file below would get too long a path, or `source` is
                or holds a mount.
            ReadOnly: if changes are refused.
        """
        async with self._changing(source, expected_version) as file:
            goal = self._admit(target)
            check_apart(file, goal)
            await self._refresh()
            paths = [path for path in self._inventory.entries if is_at_or_below(path, file)]
            for path in paths:
                for name in (path, normalise(moved_path(path, file, goal))):
                    rule = self._deny.match(name)
                    if rule is not None:
                        raise PathDenied(name, rule)
            if not paths and not expected_version:
                await self._backend.stat(file)
            known = self._inventory.entries.get(file)
            if paths and known is None and expected_version is not None:
                raise InvalidOption(f"move of {file!r}: a directory has no version; leave expected_version out")
            if expected_version is not None and (known is None or known.version != expected_version):
                raise VersionConflict(file, expected_version, 0 if known is None else known.version)
            if file == goal:
                return FileMove(file, goal, tuple(self._inventory.entries[path] for path in sorted(paths)))
            collision = self._inventory.index.move_collision(file, goal)
            if collision is not None:
                raise FileExists(goal, collision)
            entries = await self._backend.move(file, goal, expected_version=expected_version)
            for path in paths:
                self._inventory.remove(path)
            for entry in entries:
                self._inventory.put(entry)
            return FileMove(file, goal, entries)

    async def write_bytes(self, path: str, data: bytes, *, expected_version: int | None = None) -> FileEntry:
        """Create a file or replace its whole content by bytes, which need not be text; raises as `write`."""
        async with self._changing(path, expected_version) as file:
            return await self._put(file, data, expected_version)

    # --- saving later -----------------------------------------------------------------------------

    async def flush(self, seconds: float = 0.0) -> tuple[Unsaved, ...]:
        """Save what a `BufferedBackend` holds back; what fails is tried again for so many seconds.

        Returns:
            What is still not saved; empty where saving is not put off.
        """
        self._require_open()
        await trio.lowlevel.checkpoint()
        return await self._backend.flush(seconds) if isinstance(self._backend, SavingBackend) else ()

    async def keep_saving(self) -> None:
        """Save what a `BufferedBackend` holds back when its time has come, until cancelled."""
        if isinstance(self._backend, SavingBackend):
            await self._backend.keep_saving()
        await trio.sleep_forever()

    # --- within -----------------------------------------------------------------------------------

    def _refuse_if_read_only(self, file: FilePath) -> None:
        if self.read_only:
            raise ReadOnly(file, "this filesystem is read-only")

    @asynccontextmanager
    async def _changing(self, path: str, expected_version: int | None) -> AsyncGenerator[FilePath]:
        """Admit a path for a change and hold the lock; an error leaves doubts, so the next change lists anew."""
        try:
            file = self._admit(path)
            if expected_version is not None:
                require_range("expected_version", expected_version, 0)
            self._refuse_if_read_only(file)
            async with self._lock:
                if not self._inventory.certain:
                    await self._refresh()
                try:
                    with self._explaining(file):
                        yield file
                except (InvalidOption, NotText, EditMismatch):
                    raise
                except BaseException:
                    self._inventory.certain = False
                    raise
        except Exception:
            self._refused += 1
            raise
        self._changes += 1

    async def _splice(self, path: str, first: int, last: int, content: str, expected_version: int) -> FileEdit:
        require_range("expected_version", expected_version, 1)
        async with self._changing(path, expected_version) as file:
            data = await self._read_expected(file, expected_version)
            encode(file, content)
            text = splice_lines(file, decode(file, data.data), first, last, content)
            return FileEdit(await self._put(file, encode(file, text), expected_version), 1, first)

    async def _read_expected(self, file: FilePath, expected_version: int | None) -> FileData:
        try:
            data = await self._backend.read(file)
        except FileMissing:
            if expected_version:
                raise VersionConflict(file, expected_version, 0) from None
            raise
        if expected_version is not None and data.entry.version != expected_version:
            raise VersionConflict(file, expected_version, data.entry.version)
        return data

    async def _put(self, file: FilePath, data: bytes, expected_version: int | None) -> FileEntry:
        if file not in self._inventory.entries:
            collision = self._inventory.index.collision(file)
            if collision is not None:
                raise FileExists(file, collision)
        self._check_quota(file, len(data))
        entry = await self._backend.write(file, data, expected_version=expected_version)
        self._inventory.put(entry)
        return entry

    def _check_quota(self, file: FilePath, size: int) -> None:
        inventory = self._inventory
        known = inventory.entries.get(file)
        old = None if known is None else known.size
        self.limits.check(file, old, size, files=inventory.counted_files, total_bytes=inventory.counted_bytes)
