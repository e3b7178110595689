"""The service that finds or starts the filesystem of a scope, and the client for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from sapwood.actors import Ref, Request
from sapwood.errors import ActorDown, RegistryUnavailable
from sapwood.files._backend import FileBackend, FileData, FileEntry, Unsaved
from sapwood.files._paths import DenyRules
from sapwood.files._quota import Quota
from sapwood.files._requests import (
    DeleteFile,
    EditFile,
    FlushFiles,
    GetFileStatistics,
    InsertLines,
    ListFiles,
    MoveFile,
    ReadBytes,
    ReadFile,
    ReplaceLines,
    SearchFiles,
    StatFile,
    WriteBytes,
    WriteFile,
)
from sapwood.files._results import FileEdit, FileList, FileMove, FileStatistics
from sapwood.files._saving import Saving
from sapwood.files._search import SearchResult
from sapwood.files._server import FileOptions, FileSystemServer
from sapwood.files._sqlite import Scope, scope_key
from sapwood.files._text import FileText
from sapwood.registry import Key, Lookup, Registry, Unavailable
from sapwood.supervision import child

T = TypeVar("T")

BackendOfScope = Callable[[Scope], FileBackend]

ANSWER_WITHIN = 30.0
"""Seconds that one operation may take, queueing behind others of its scope included."""

STOP_WITHIN = 5.0
"""Seconds that a filesystem may take to stop, beside those for saving what was put off."""

RECOVERY_WITHIN = 5.0
"""Seconds that a call waits for a registry that is coming back."""

_PASSING = ("starting", "registry_down", "recovering")
_ASK_AGAIN = 0.05
_READS = frozenset({ListFiles, ReadFile, ReadBytes, SearchFiles, StatFile, GetFileStatistics})


class FileService:
    """Finds the filesystem of a scope, and starts it where there is none.

    Args:
        registry: Where filesystems are registered, as `("files", *scope)`.
        home: The dynamic supervisor that they are started under, or None while there is none.
        backend: Makes the backend of a scope that was not given another one.
    """

    def __init__(self, registry: Registry, home: Callable[[], Ref | None], backend: BackendOfScope) -> None:
        self._registry = registry
        self._home = home
        self._backend = backend
        self._configured: dict[Scope, tuple[BackendOfScope, FileOptions]] = {}

    def configure(
        self,
        scope: Scope,
        backend: BackendOfScope | None = None,
        *,
        limits: Quota | None = None,
        deny: tuple[str, ...] = (),
        read_only: bool = False,
        saving: Saving | None = None,
    ) -> None:
        """Say how a scope's files are kept, before its filesystem is started first.

        Args:
            scope: Whose files, such as `("user", 1)`.
            backend: Makes their backend, such as a `Mounts`; None for the store of the runtime.
            limits: The quota; None for the default one.
            deny: Globs of paths that no tool may touch.
            read_only: Refuse every change.
            saving: Put off the saving of edits, as `BufferedBackend` does; None saves before a change is answered.

        Raises:
            InvalidOption: if the scope is no tuple that begins with its kind.
            InvalidPattern: if a deny rule is no usable glob.
        """
        scope_key(scope)
        DenyRules(deny)
        self._configured[scope] = (backend or self._backend, FileOptions(limits, deny, read_only, saving))

    def lookup(self, scope: Scope) -> Lookup[Ref]:
        """Say whether the filesystem of a scope runs, without starting it."""
        return self._registry.lookup_nowait(self._key(scope))

    def client(self, scope: Scope) -> FileClient:
        """Return a client for a scope; its filesystem is started by the first call that needs it (S4-060)."""
        scope_key(scope)
        return FileClient(self, scope)

    async def find(self, scope: Scope) -> Ref:
        """Return the filesystem of a scope, starting it if nothing runs.

        While the registry recovers it waits, up to `RECOVERY_WITHIN` seconds: an agent whose tool asks meanwhile is
        about to be stopped, and goes on with the same call when it is back.

        Raises:
            RegistryUnavailable: if the registry cannot tell for longer, or the runtime is stopping.
            ChildFailed: if it cannot be started, as when its backend cannot be opened.
        """
        backend, options = self._configured.get(scope, (self._backend, FileOptions()))
        # Saving what was put off may take its own time; the rest of the stop the usual one.
        shutdown = STOP_WITHIN + (options.saving.stop_within if options.saving is not None else 0.0)
        spec = child(
            FileSystemServer,
            lambda: backend(scope),
            options,
            id="filesystem",
            restart="transient",
            shutdown=shutdown,
        )
        key = self._key(scope)
        found = await self._registry.get_or_start(key, spec, under=self._home())
        with trio.move_on_after(RECOVERY_WITHIN):
            while isinstance(found, Unavailable) and found.reason in _PASSING:
                await trio.sleep(_ASK_AGAIN)
                found = await self._registry.get_or_start(key, spec, under=self._home())
        if isinstance(found, Unavailable):
            raise RegistryUnavailable(f"find the files of {scope!r}", found.reason, found.retry_after)
        return found.ref

    def _key(self, scope: Scope) -> Key:
        return ("files", *scope)


class FileClient:
    """The files of one scope, from outside. Methods are those of `FileTree` and raise the same errors.

    Beside these, any method may raise `RegistryUnavailable`, `ActorDown` if the filesystem ends meanwhile (the change
    may have been made), and `AskTimeout`.
    """

    def __init__(self, service: FileService, scope: Scope) -> None:
        self._service = service
        self.scope = scope

    async def _ask(self, request: Request[T], within: float = ANSWER_WITHIN) -> T:
        ref = await self._service.find(self.scope)
        try:
            return await ref.ask(request, timeout=within)
        except ActorDown:
            if type(request) not in _READS:
                raise
        # It ended meanwhile. Reading once more does no harm; whether a change was made nobody knows.
        ref = await self._service.find(self.scope)
        return await ref.ask(request, timeout=within)

    async def ls(self, pattern: str = "**", *, limit: int = 1000) -> FileList:
        """List the files that a glob matches."""
        return await self._ask(ListFiles(pattern, limit))

    async def read(self, path: str, *, start_line: int = 1, limit: int = 2000) -> FileText:
        """Read a range of lines."""
        return await self._ask(ReadFile(path, start_line, limit))

    async def write(self, path: str, content: str, *, expected_version: int | None = None) -> FileEntry:
        """Create a file or replace its whole content."""
        return await self._ask(WriteFile(path, content, expected_version))

    async def edit(
        self, path: str, old: str, new: str, *, replace_all: bool = False, expected_version: int | None = None
    ) -> FileEdit:
        """Replace a text that occurs exactly once, or all its occurrences."""
        return await self._ask(EditFile(path, old, new, replace_all, expected_version))

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """Remove a file."""
        await self._ask(DeleteFile(path, expected_version))

    async def search(
        self,
        pattern: str,
        path: str = "**",
        *,
        regular: bool = False,
        case_sensitive: bool = True,
        max_results: int = 50,
        context_lines: int = 0,
    ) -> SearchResult:
        """Find the lines that hold a text or match a regular expression."""
        return await self._ask(SearchFiles(pattern, path, regular, case_sensitive, max_results, context_lines))

    async def stat(self, path: str) -> FileEntry:
        """Return version, size, time and hash of a file, and whether it is saved."""
        return await self._ask(StatFile(path))

    async def read_bytes(self, path: str) -> FileData:
        """Read a whole file, which need not be text."""
        return await self._ask(ReadBytes(path))

    async def write_bytes(self, path: str, data: bytes, *, expected_version: int | None = None) -> FileEntry:
        """Create a file or replace its whole content by bytes."""
        return await self._ask(WriteBytes(path, data, expected_version))

    async def replace_lines(self, path: str, first: int, last: int, content: str, *, expected_version: int) -> FileEdit:
        """Replace a range of lines by other lines, or by none."""
        return await self._ask(ReplaceLines(path, first, last, content, expected_version))

    async def insert_lines(self, path: str, after: int, content: str, *, expected_version: int) -> FileEdit:
        """Insert lines after a line, or with 0 before the first one."""
        return await self._ask(InsertLines(path, after, content, expected_version))

    async def move(self, source: str, target: str, *, expected_version: int | None = None) -> FileMove:
        """Give a file, or a directory with all files below it, another name."""
        return await self._ask(MoveFile(source, target, expected_version))

    async def flush(self, seconds: float = 0.0) -> tuple[Unsaved, ...]:
        """Save what is held back; return what is still not saved. Other requests of the scope wait meanwhile."""
        return await self._ask(FlushFiles(seconds), ANSWER_WITHIN + seconds)

    async def statistics(self) -> FileStatistics:
        """Return how much there is and what is hidden."""
        return await self._ask(GetFileStatistics())
