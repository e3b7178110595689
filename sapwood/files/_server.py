"""The filesystem actor: one for each scope, shared by all agents that name it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias, cast

import attrs
import trio

from sapwood.actors import Actor, Crashed, ExitReason, Failure, TaskDone, handle
from sapwood.errors import FileError, InvalidOption, UnsavedFiles
from sapwood.files._backend import FileBackend, FileData, FileEntry, ReservingBackend, Unsaved
from sapwood.files._buffer import BufferedBackend
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
from sapwood.files._text import FileText
from sapwood.files._tree import FileTree

BackendFactory: TypeAlias = Callable[[], FileBackend]
"""Makes the backend anew at every start of the actor."""


CLOSE_WITHIN: Final = 10.0
"""Seconds that closing the backend may take."""


@attrs.frozen
class FileOptions:
    """How the files of a scope are kept.

    Attributes:
        limits: The quota; None for the default one.
        deny: Globs of paths that no tool may touch; see `DenyRules`.
        read_only: Refuse every change.
        saving: Put off the saving of edits; None saves before a change is answered.
    """

    limits: Quota | None = None
    deny: tuple[str, ...] = ()
    read_only: bool = False
    saving: Saving | None = None


class FileSystemServer(Actor):
    """Serves the files of one scope, one request at a time; a refused request changes nothing and is answered.

    Lives apart from the agents that use it (S4-057) and has no state of its own: what its backend holds is there
    again after a restart. If saving is put off, what is not saved is saved when it stops, is killed or crashes. What
    could not be saved then is logged by name, and makes an orderly end a crash with `UnsavedFiles`.
    """

    def __init__(self, backend: BackendFactory, options: FileOptions | None = None) -> None:
        self._factory = backend
        self._options = options if options is not None else FileOptions()
        self._tree: FileTree | None = None
        self._failure: Exception | None = None
        self._is_closed = False

    async def on_start(self) -> None:
        options = self._options
        backend = self._factory()
        if options.saving is not None:
            backend = BufferedBackend(cast("ReservingBackend", backend), self.environment, options.saving)
        tree = self._tree = FileTree(
            backend, self.environment, limits=options.limits, deny=options.deny, read_only=options.read_only
        )
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
            await tree.keep_saving()
        except Exception as error:
            if settled.is_set():
                raise
            # Raised again by `on_start`, which makes it the reason why the start failed.
            self._failure = error
        finally:
            settled.set()
            within = CLOSE_WITHIN + (0.0 if self._options.saving is None else self._options.saving.stop_within)
            # Closes after a kill, which skips `on_stop`. What is not saved was logged, and nobody is left to be told.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + within), suppress(UnsavedFiles):
                if not self._is_closed:
                    await tree.close()

    async def on_stop(self, reason: ExitReason) -> None:
        try:
            await self._files.close()
        except UnsavedFiles:
            self._is_closed = True
            if not isinstance(reason, Crashed):
                raise
        self._is_closed = True

    @handle
    def saver_ended(self, done: TaskDone) -> None:
        """End with the task that keeps the backend open: a fault in it must not leave edits waiting for ever."""
        self.stop(done.reason)

    def format_state(self) -> str:
        return f"options={self._options}"

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
                case_sensitive=message.case_sensitive,
                max_results=message.max_results,
                context_lines=message.context_lines,
            )
        except (FileError, InvalidOption) as error:
            return Failure(error)

    @handle
    async def stat_file(self, message: StatFile) -> FileEntry | Failure:
        try:
            return await self._files.stat(message.path)
        except FileError as error:
            return Failure(error)

    @handle
    async def read_bytes(self, message: ReadBytes) -> FileData | Failure:
        try:
            return await self._files.read_bytes(message.path)
        except FileError as error:
            return Failure(error)

    @handle
    async def write_bytes(self, message: WriteBytes) -> FileEntry | Failure:
        try:
            return await self._files.write_bytes(message.path, message.data, expected_version=message.expected_version)
        except (FileError, InvalidOption) as error:
            return Failure(error)

    @handle
    async def replace_lines(self, message: ReplaceLines) -> FileEdit | Failure:
        try:
            return await self._files.replace_lines(
                message.path, message.first, message.last, message.content, expected_version=message.expected_version
            )
        except (FileError, InvalidOption) as error:
            return Failure(error)

    @handle
    async def insert_lines(self, message: InsertLines) -> FileEdit | Failure:
        try:
            return await self._files.insert_lines(
                message.path, message.after, message.content, expected_version=message.expected_version
            )
        except (FileError, InvalidOption) as error:
            return Failure(error)

    @handle
    async def move_file(self, message: MoveFile) -> FileMove | Failure:
        try:
            return await self._files.move(message.source, message.target, expected_version=message.expected_version)
        except (FileError, InvalidOption) as error:
            return Failure(error)

    @handle
    async def flush_files(self, message: FlushFiles) -> tuple[Unsaved, ...] | Failure:
        try:
            return await self._files.flush(message.seconds)
        except FileError as error:
            return Failure(error)

    @handle
    async def get_statistics(self, message: GetFileStatistics) -> FileStatistics | Failure:
        try:
            return await self._files.statistics()
        except FileError as error:
            return Failure(error)
