"""The filesystem actor: one for each scope, shared by all agents that name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import trio

from sapwood.actors import Actor, Failure, Request, handle, message
from sapwood.errors import FileError, InvalidOption
from sapwood.files._backend import FileBackend, FileEntry
from sapwood.files._quota import Quota
from sapwood.files._results import FileEdit, FileList, FileStatistics
from sapwood.files._search import SearchResult
from sapwood.files._text import FileText
from sapwood.files._tree import FileTree

BackendFactory: TypeAlias = Callable[[], FileBackend]
"""Makes the backend anew at every start of the actor."""


CLOSE_WITHIN: Final = 10.0
"""Seconds that closing the backend may take."""


@message("files.list")
class ListFiles(Request[FileList]):
    """See `FileTree.ls`."""

    pattern: str = "**"
    limit: int = 1000


@message("files.read")
class ReadFile(Request[FileText]):
    """See `FileTree.read`."""

    path: str
    start_line: int = 1
    limit: int = 2000


@message("files.write")
class WriteFile(Request[FileEntry]):
    """See `FileTree.write`."""

    path: str
    content: str
    expected_version: int | None = None


@message("files.edit")
class EditFile(Request[FileEdit]):
    """See `FileTree.edit`."""

    path: str
    old: str
    new: str
    replace_all: bool = False
    expected_version: int | None = None


@message("files.delete")
class DeleteFile(Request[None]):
    """See `FileTree.delete`."""

    path: str
    expected_version: int | None = None


@message("files.search")
class SearchFiles(Request[SearchResult]):
    """See `FileTree.search`."""

    pattern: str
    path: str = "**"
    regular: bool = False
    max_results: int = 50
    context_lines: int = 0


@message("files.statistics")
class GetFileStatistics(Request[FileStatistics]):
    """See `FileTree.statistics`."""


class FileSystemServer(Actor):
    """Serves the files of one scope, one request at a time; a refused request changes nothing and is answered.

    Lives apart from the agents that use it (S4-057) and has no state of its own: what its backend holds is there
    again after a restart.
    """

    def __init__(self, backend: BackendFactory, limits: Quota | None = None, deny: tuple[str, ...] = ()) -> None:
        self._factory = backend
        self._limits = limits
        self._deny = deny
        self._tree: FileTree | None = None
        self._failure: Exception | None = None

    async def on_start(self) -> None:
        tree = self._tree = FileTree(self._factory(), self.environment, limits=self._limits, deny=self._deny)
        settled = trio.Event()
        self.start_task(self._keep_open, tree, settled, name="backend")
        await settled.wait()
        if self._failure is not None:
            raise self._failure

    async def _keep_open(self, tree: FileTree, settled: trio.Event) -> None:
        """Keep the backend open; the kernel ends an actor's tasks in every case, so a kill leaves nothing open."""
        try:
            await tree.open()
            settled.set()
            await trio.sleep_forever()
        except Exception as error:
            # Raised again by `on_start`, which makes it the reason why the start failed.
            self._failure = error
        finally:
            settled.set()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_WITHIN):
                await tree.close()

    def format_state(self) -> str:
        return f"limits={self._limits}"

    @property
    def _files(self) -> FileTree:
        assert self._tree is not None
        return self._tree

    @handle
    async def list_files(self, message: ListFiles) -> FileList | Failure:
        try:
            return await self._files.ls(message.pattern, limit=message.limit)
        except (FileError, InvalidOption) as error:
            return Failure(error)

    @handle
    async def read_file(self, message: ReadFile) -> FileText | Failure:
        try:
            return await self._files.read(message.path, start_line=message.start_line, limit=message.limit)
        except (FileError, InvalidOption) as error:
            return Failure(error)

    @handle
    async def write_file(self, message: WriteFile) -> FileEntry | Failure:
        try:
            return await self._files.write(message.path, message.content, expected_version=message.expected_version)
        except (FileError, InvalidOption) as error:
            return Failure(error)

    @handle
    async def edit_file(self, message: EditFile) -> FileEdit | Failure:
        try:
            return await self._files.edit(
                message.path,
                message.old,
                message.new,
                replace_all=message.replace_all,
                expected_version=message.expected_version,
            )
        except (FileError, InvalidOption) as error:
            return Failure(error)

    @handle
    async def delete_file(self, message: DeleteFile) -> Failure | None:
        try:
            await self._files.delete(message.path, expected_version=message.expected_version)
        except (FileError, InvalidOption) as error:
            return Failure(error)
        return None

    @handle
    async def search_files(self, message: SearchFiles) -> SearchResult | Failure:
        try:
            return await self._files.search(
                message.pattern,
                message.path,
                regular=message.regular,
                max_results=message.max_results,
                context_lines=message.context_lines,
            )
        except (FileError, InvalidOption) as error:
            return Failure(error)

    @handle
    async def get_statistics(self, message: GetFileStatistics) -> FileStatistics | Failure:
        try:
            return await self._files.statistics()
        except FileError as error:
            return Failure(error)
