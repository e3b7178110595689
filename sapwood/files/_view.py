"""The reading half of a filesystem: lists, lines, search and statistics."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Self

import trio

from sapwood.actors import Environment
from sapwood.errors import BackendFailed, FileMissing, InvalidPath, NotText, PathDenied, QuotaExceeded
from sapwood.files._backend import FileBackend, FileData, FileEntry, SavingBackend, Skipped, seconds_to_save
from sapwood.files._glob import Glob
from sapwood.files._inventory import Inventory
from sapwood.files._paths import DenyRules, FilePath, normalise
from sapwood.files._quota import Quota, require_range
from sapwood.files._results import FileList, FileStatistics
from sapwood.files._search import Searcher, SearchMatch, SearchResult, Stop
from sapwood.files._text import FileText, decode, slice_lines

_SECONDS_PER_FILE = 1.0
_CLOSE_SECONDS = 10.0
_ENTRIES_PER_TURN = 1000
_MAX_CONTEXT_LINES = 50


class FileView:
    """What can be asked of the files of one scope; `FileTree` adds the changes."""

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

        Before this and after `close` every other method raises `BackendFailed`. `async with tree:` calls both, and
        raises `BackendFailed` if closing takes longer than 10 s, beside what a `BufferedBackend` has for saving.
        """
        async with self._lock:
            await self._backend.open()
            self._is_open = True
            await self._refresh()

    async def close(self) -> None:
        """Close the backend. Every change is durable already, except what a `BufferedBackend` held back.

        Raises:
            UnsavedFiles: naming what could not be saved in time.
        """
        async with self._lock:
            self._is_open = False
            self._inventory.certain = False
            await self._backend.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        within = _CLOSE_SECONDS + seconds_to_save(self._backend)
        with trio.CancelScope(deadline=self._environment.monotonic() + within, shield=True) as scope:
            await self.close()
        if scope.cancelled_caught:
            raise BackendFailed(".", f"did not close within {within:g} s")

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
        return FileList(tuple(matching[:limit]), len(matching), self._inventory.mounts)

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

    async def read_bytes(self, path: str) -> FileData:
        """Read a whole file, which need not be text.

        Raises:
            FileMissing: if there is no such file.
        """
        file = self._admit(path)
        with self._explaining(file):
            return await self._backend.read(file)

    async def stat(self, path: str) -> FileEntry:
        """Return version, size, time and hash of a file, and whether it is saved.

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
                counted_files=inventory.counted_files,
                counted_bytes=inventory.counted_bytes,
                denied=inventory.denied,
                skipped=inventory.skipped,
                limits=self.limits,
                changes=self._changes,
                refused=self._refused,
                mounts=inventory.mounts,
                unsaved=self._backend.unsaved() if isinstance(self._backend, SavingBackend) else (),
            )

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
