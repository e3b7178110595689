"""The files of one scope as tools see them: paths checked, limits kept, changes atomic."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Self

import trio

from sapwood.actors import Environment
from sapwood.errors import (
    BackendFailed,
    EditMismatch,
    FileExists,
    FileMissing,
    InvalidOption,
    InvalidPath,
    NotText,
    PathDenied,
    QuotaExceeded,
    ReadOnly,
    VersionConflict,
)
from sapwood.files._backend import FileBackend, FileData, FileEntry, Skipped
from sapwood.files._glob import Glob
from sapwood.files._inventory import Inventory
from sapwood.files._paths import DenyRules, FilePath, normalise
from sapwood.files._quota import Quota, require_range
from sapwood.files._results import FileEdit, FileList, FileStatistics
from sapwood.files._search import Searcher, SearchMatch, SearchResult, Stop
from sapwood.files._text import FileText, decode, encode, plan_replacement, slice_lines

_SECONDS_PER_FILE = 1.0
_CLOSE_SECONDS = 10.0
_ENTRIES_PER_TURN = 1000
_MAX_CONTEXT_LINES = 50


class FileTree:
    """The files of one scope, for the tools of all agents that share it.

    Every path goes through `normalise` and the deny rules, whichever method it is given to. Case is kept and matters,
    and names that differ only by case are refused on creation, so files can move to a disk that ignores case (BR-37).
    Directories exist as far as files lie in them.

    Changes are made one at a time. Each is atomic: it is done, durably, when the call returns, or it raised and
    changed nothing (with the one exception that `DirectoryBackend` names). Nothing is buffered, so a failed save is
    seen by whoever saved, and the same call may simply be made again (AR-22.20). A cancelled call may have made its
    change.

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

    def __init__(
        self,
        backend: FileBackend,
        environment: Environment,
        *,
        limits: Quota | None = None,
        deny: Iterable[str] = (),
        read_only: bool = False,
        search_seconds: float = 5.0,
    ) -> None:
        self.limits = limits if limits is not None else Quota()
        self.read_only = read_only
        self._backend = backend
        self._environment = environment
        self._deny = DenyRules(deny)
        self._search_seconds = search_seconds
        self._lock = trio.Lock()
        self._is_open = False
        # Only a holder of the lock changes it.
        self._inventory = Inventory(self._deny)
        self._changes = 0
        self._refused = 0

    async def open(self) -> None:
        """Open the backend and list its files; contents are read when they are needed.

        Before this and after `close` every other method raises `BackendFailed`. `async with tree:` calls both.
        """
        async with self._lock:
            await self._backend.open()
            self._is_open = True
            await self._refresh()

    async def close(self) -> None:
        """Close the backend; every change is durable already."""
        async with self._lock:
            self._is_open = False
            self._inventory.certain = False
            await self._backend.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(deadline=self._environment.monotonic() + _CLOSE_SECONDS, shield=True):
            await self.close()

    # --- reading ----------------------------------------------------------------------------------

    async def ls(self, pattern: str = "**", *, limit: int = 1000) -> FileList:
        """List the files that a glob matches; see `Glob`. Denied files are left out.

        Args:
            pattern: `*.md`, `notes/**`, `**/*.{py,pyi}`, or the name of a directory for all below it.
            limit: Entries to return at most.

        Raises:
            InvalidPattern: if the pattern is no usable glob.
            InvalidOption: if `limit` is less than 1.
        """
        require_range("limit", limit, 1)
        matching = await self._matching(pattern)
        return FileList(tuple(matching[:limit]), len(matching))

    async def read(self, path: str, *, start_line: int = 1, limit: int = 2000) -> FileText:
        """Read a range of lines.

        Args:
            path: The file.
            start_line: First line, from 1. Beyond the end there are no lines; `total_lines` tells.
            limit: Lines to return at most.

        Raises:
            FileMissing: if there is no such file.
            NotText: if it is not UTF-8.
            InvalidOption: if `start_line` or `limit` is less than 1.
        """
        require_range("start_line", start_line, 1)
        require_range("limit", limit, 1)
        file = self._admit(path)
        with self._explaining(file):
            data = await self._backend.read(file)
        return slice_lines(data.entry, decode(file, data.data), start_line, limit)

    async def stat(self, path: str) -> FileEntry:
        """Return version, size, time and hash of a file.

        Raises:
            FileMissing: if there is no such file.
        """
        file = self._admit(path)
        with self._explaining(file):
            return await self._backend.stat(file)

    async def search(
        self,
        pattern: str,
        path_glob: str = "**",
        *,
        regular: bool = False,
        case_sensitive: bool = True,
        max_results: int = 50,
        context_lines: int = 0,
    ) -> SearchResult:
        """Find the lines that hold a text or match a regular expression, file by file in the order of paths.

        Guaranteed: the loop stays free, as matching runs in a thread that lets others run; one file takes at most 1 s
        and a search about `search_seconds`, measured in real time; what was not searched is named in the result.

        Args:
            pattern: What to find, at most 1,000 characters.
            path_glob: Which files to search.
            regular: Read the pattern as a regular expression.
            case_sensitive: Whether case counts.
            max_results: Lines to return at most, up to 1,000.
            context_lines: Lines to return above and below each, up to 50.

        Raises:
            InvalidPattern: if `pattern` or `path_glob` cannot be used.
            InvalidOption: if a number is out of its range.
        """
        require_range("max_results", max_results, 1, 1000)
        require_range("context_lines", context_lines, 0, _MAX_CONTEXT_LINES)
        searcher = Searcher(pattern, regular=regular, case_sensitive=case_sensitive)
        files = await self._matching(path_glob)
        begun = self._environment.stopwatch()
        matches: list[SearchMatch] = []
        skipped: list[Skipped] = []
        searched = 0
        stopped: Stop = "end"
        for entry in files:
            left = self._search_seconds - (self._environment.stopwatch() - begun)
            if left <= 0:
                stopped = "time_limit"
                break
            # One match more than wanted tells a search that ends there from one that was cut.
            wanted = max_results + 1 - len(matches)
            if not wanted:
                break
            try:
                file = await self._backend.read(entry.path)
                seconds = min(left, _SECONDS_PER_FILE)
                matches += await self._environment.in_thread(
                    _search_file, searcher, file, wanted, context_lines, seconds
                )
                searched += 1
            except FileMissing:
                continue
            except (NotText, InvalidPath, QuotaExceeded) as error:
                skipped.append(Skipped(entry.path, error.problem))
            except TimeoutError:
                skipped.append(Skipped(entry.path, "the pattern took too long on this file; write a simpler one"))
        if len(matches) > max_results:
            stopped = "max_results"
        return SearchResult(tuple(matches[:max_results]), searched, tuple(skipped), stopped)

    async def statistics(self) -> FileStatistics:
        """Return how much there is and what is hidden."""
        async with self._lock:
            await self._refresh()
            inventory = self._inventory
            return FileStatistics(
                files=len(inventory.entries),
                total_bytes=inventory.total_bytes,
                denied=inventory.denied,
                skipped=inventory.skipped,
                limits=self.limits,
                changes=self._changes,
                refused=self._refused,
            )

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

    # --- within -----------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if not self._is_open:
            raise BackendFailed(".", "the filesystem is not open; call open() first, or use it in `async with`")

    def _admit(self, path: str) -> FilePath:
        self._require_open()
        file = normalise(path)
        rule = self._deny.match(file)
        if rule is not None:
            raise PathDenied(file, rule)
        return file

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

    @contextmanager
    def _explaining(self, file: FilePath) -> Generator[None]:
        """Add to "no such file" what may have been meant."""
        try:
            yield
        except FileMissing:
            other = self._inventory.index.other_spelling(file)
            if other is not None and other != file:
                raise FileMissing(file, f"there is no such file, but there is {other!r}; case matters") from None
            if self._inventory.index.is_directory(file):
                raise FileMissing(file, "is a directory; list it to see its files") from None
            raise

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
        self.limits.check(file, old, size, files=len(inventory.entries), total_bytes=inventory.total_bytes)

    async def _matching(self, pattern: str) -> list[FileEntry]:
        glob = Glob(pattern)
        async with self._lock:
            await self._refresh()
            visible = self._inventory.visible()
        matching: list[FileEntry] = []
        for begin in range(0, len(visible), _ENTRIES_PER_TURN):
            matching += [entry for entry in visible[begin : begin + _ENTRIES_PER_TURN] if glob.matches(entry.path)]
            await trio.lowlevel.checkpoint()
        return matching

    async def _refresh(self) -> None:
        self._require_open()
        self._inventory.certain = False
        self._inventory.take(await self._backend.list())


def _search_file(searcher: Searcher, file: FileData, limit: int, context: int, seconds: float) -> list[SearchMatch]:
    text = decode(file.entry.path, file.data)
    return searcher.search(file.entry.path, file.entry.version, text, limit=limit, context=context, seconds=seconds)
