"""A backend that puts off saving: many edits of one file become one write."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import attrs
import trio

from sapwood.actors import Environment
from sapwood.errors import FileError, FileMissing, InvalidOption, InvalidPath, ReadOnly, UnsavedFiles, VersionConflict
from sapwood.files._backend import (
    FileData,
    FileEntry,
    Listing,
    ReservingBackend,
    Unsaved,
    check_deletable,
    check_expected,
    digest,
    is_at_or_below,
)
from sapwood.files._paths import FilePath, normalise
from sapwood.files._saving import SaveConflict, Saving

LOGGER: Final = logging.getLogger("sapwood.files")

_VERSIONS_AT_ONCE = 1000
_CLOSE_SECONDS = 5.0
_TIME_UP = "the time was up"


@attrs.define
class _Pending:
    file: FileData
    base: int
    first: float
    due: float
    attempts: int = 0
    problem: str = ""

    @property
    def entry(self) -> FileEntry:
        return attrs.evolve(self.file.entry, state="failed" if self.attempts else "dirty", problem=self.problem)


class BufferedBackend:
    """Holds edits of existing files back and saves them when no more come; everything else is saved at once.

    | Change | Saved |
    |---|---|
    | a new file | before the call returns |
    | an edit of an existing file | `debounce` seconds after the last one, `at_latest` after the first |
    | a deletion | before the call returns; unsaved edits of the file go with it |
    | a move | before the call returns, after the unsaved edits of what is moved |

    Until then the `state` of the file's entry is `dirty`; after a failed attempt it is `failed`, with the `problem`,
    while attempts go on with growing delays. Every reader sees the unsaved content.

    **What may be lost.** If the process dies, edits that were not saved are lost, and each file has the content that
    was saved last; its versions do not start over, as versions are set aside before they are shown. `close` saves what
    is left within `stop_within` seconds; what it could not save it logs as an error by name, raises as `UnsavedFiles`,
    and still has if it is opened again.

    **Somebody else's changes.** If the file was changed behind this backend before an edit was saved, theirs stays,
    and the edit is kept beside it as `<name>.unsaved-<version>`; see `conflicts`.

    Somebody must run `keep_saving`, as a filesystem of the runtime does; otherwise only `flush` and `close` save.

    Args:
        backend: Where files are saved, such as a `DirectoryBackend`. No other may use it.
        environment: Time, and randomness of the delays.
        saving: When to save.
    """

    def __init__(self, backend: ReservingBackend, environment: Environment, saving: Saving | None = None) -> None:
        if not callable(getattr(backend, "reserve", None)):
            raise InvalidOption(
                f"BufferedBackend: expected a backend that sets versions aside, with `reserve`; got"
                f" {type(backend).__name__}: to put off saving in a part of Mounts, wrap the backend that is mounted"
            )
        self.saving = saving if saving is not None else Saving()
        self._backend = backend
        self._environment = environment
        # Held by every change and every save, so that none works on what another is about to replace.
        self._lock = trio.Lock()
        self._pending: dict[FilePath, _Pending] = {}
        self._wake = trio.Event()
        self._next, self._last = 1, 0
        self._conflicts: list[SaveConflict] = []

    @property
    def conflicts(self) -> tuple[SaveConflict, ...]:
        """The edits that were kept as files of their own, oldest first."""
        return tuple(self._conflicts)

    @property
    def closes_within(self) -> float:
        """Seconds that `close` spends on saving at most."""
        return self.saving.stop_within

    async def open(self) -> None:
        """Open the backend."""
        await self._backend.open()

    async def close(self) -> None:
        """Save what is left and close the backend.

        Raises:
            UnsavedFiles: naming what could not be saved in time; it is kept in memory.
        """
        try:
            with trio.move_on_after(self.saving.stop_within):
                await self.flush(self.saving.stop_within)
        except BaseException:
            self._log_unsaved()
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self._backend.close()
            raise
        self._log_unsaved()
        await self._backend.close()
        left = self.unsaved()
        if left:
            raise UnsavedFiles([(each.path, each.problem or _TIME_UP) for each in left])

    async def list(self) -> Listing:
        """Return all files, unsaved content included."""
        async with self._lock:
            listing = await self._backend.list()
            entries = {entry.path: entry for entry in listing.entries}
            entries.update({path: pending.entry for path, pending in self._pending.items()})
            return attrs.evolve(listing, entries=tuple(entries[path] for path in sorted(entries)))

    async def stat(self, path: FilePath) -> FileEntry:
        """Return what is known of a file, and whether it is saved."""
        pending = self._pending.get(path)
        if pending is None:
            return await self._backend.stat(path)
        await trio.lowlevel.checkpoint()
        return pending.entry

    async def read(self, path: FilePath) -> FileData:
        """Return a file with its newest content."""
        pending = self._pending.get(path)
        if pending is None:
            return await self._backend.read(path)
        await trio.lowlevel.checkpoint()
        return FileData(pending.entry, pending.file.data)

    async def write(self, path: FilePath, data: bytes, *, expected_version: int | None = None) -> FileEntry:
        """Save a new file, or note an edit of an existing one."""
        async with self._lock:
            pending = self._pending.get(path)
            found = await self._saved_version(path) if pending is None else pending.file.entry.version
            check_expected(path, found, expected_version)
            if found is None:
                # The backend alone knows what versions the name had before.
                return await self._backend.write(path, data, expected_version=expected_version)
            version = await self._new_version(path, found)
            unsaved = sum(len(other.file.data) for other in self._pending.values() if other is not pending)
            if unsaved + len(data) > self.saving.max_unsaved_bytes:
                return await self._save_at_once(path, data, expected_version, version)
            entry = FileEntry(path, version, len(data), self._environment.wall(), digest(data))
            return self._hold(pending, FileData(entry, bytes(data)), found)

    async def delete(self, path: FilePath, *, expected_version: int | None = None) -> None:
        """Remove a file and what is unsaved of it."""
        async with self._lock:
            pending = self._pending.get(path)
            if pending is None:
                await self._backend.delete(path, expected_version=expected_version)
                return
            check_deletable(path, pending.file.entry.version, expected_version)
            try:
                base = None if expected_version is None else pending.base
                await self._backend.delete(path, expected_version=base)
            except VersionConflict as conflict:
                raise VersionConflict(path, pending.file.entry.version, conflict.found) from None
            except FileMissing:
                pass  # somebody else removed it; what is unsaved of it was to go as well
            self._pending.pop(path, None)

    async def move(
        self, source: FilePath, target: FilePath, *, expected_version: int | None = None
    ) -> tuple[FileEntry, ...]:
        """Save what is moved, and move it.

        Raises:
            FileError: as the save did, if it failed; nothing is moved then.
        """
        async with self._lock:
            for path in [path for path in self._pending if is_at_or_below(path, source)]:
                await self._try(path)
                if path in self._pending:
                    raise UnsavedFiles([(path, self._pending[path].problem)])
            return await self._backend.move(source, target, expected_version=expected_version)

    # --- saving -----------------------------------------------------------------------------------

    def unsaved(self) -> tuple[Unsaved, ...]:
        """Return the files that are not saved."""
        return tuple(
            Unsaved(path, entry.version, entry.size, entry.state, pending.attempts, pending.problem)
            for path, pending in sorted(self._pending.items())
            for entry in [pending.entry]
        )

    async def flush(self, seconds: float = 0.0) -> tuple[Unsaved, ...]:
        """Save everything now; what fails is tried again for so many seconds. Return what is still not saved."""
        end = self._environment.monotonic() + seconds
        await self._save(list(self._pending))
        while self._pending:
            due = min(pending.due for pending in self._pending.values())
            if due >= end:
                break
            await trio.sleep_until(due)
            now = self._environment.monotonic()
            await self._save([path for path, pending in self._pending.items() if pending.due <= now])
        return self.unsaved()

    async def keep_saving(self) -> None:
        """Save files when their time has come, until cancelled."""
        while True:
            now = self._environment.monotonic()
            await self._save([path for path, pending in self._pending.items() if pending.due <= now])
            next_due = min((pending.due for pending in self._pending.values()), default=float("inf"))
            self._wake = trio.Event()
            with trio.move_on_at(next_due):
                await self._wake.wait()

    async def _save_at_once(self, path: FilePath, data: bytes, expected: int | None, version: int) -> FileEntry:
        """Save an edit in place of what waits; if a version was expected, only onto what that is based on."""
        pending = self._pending.get(path)
        base = expected if pending is None or expected is None else pending.base
        try:
            entry = await self._backend.write(path, data, expected_version=base, version=version)
        except VersionConflict as conflict:
            raise VersionConflict(path, expected or 0, conflict.found) from None
        self._pending.pop(path, None)
        return entry

    async def _save(self, paths: Iterable[FilePath]) -> None:
        for path in paths:
            async with self._lock:
                await self._try(path)

    async def _try(self, path: FilePath) -> None:
        """Make one attempt to save a file; only a holder of the lock calls it."""
        pending = self._pending.get(path)
        if pending is None:
            return
        try:
            await self._attempt(path, pending)
        except FileError as error:
            if not pending.attempts:
                LOGGER.warning("%r is not saved at version %d: %s", path, pending.file.entry.version, error.problem)
            pending.attempts += 1
            pending.problem = error.problem
            delay = self.saving.backoff.delay(pending.attempts, self._environment.random)
            pending.due = self._environment.monotonic() + delay
        else:
            del self._pending[path]

    async def _attempt(self, path: FilePath, pending: _Pending) -> None:
        mine = pending.file.entry.version
        try:
            await self._backend.write(path, pending.file.data, expected_version=pending.base, version=mine)
        except VersionConflict as conflict:
            if conflict.found != mine:
                await self._keep_beside(path, pending, conflict.found)
            elif pending.attempts:
                # An attempt that failed has changed the file all the same, perhaps not durably: once more.
                again = await self._new_version(path, mine)
                await self._backend.write(path, pending.file.data, expected_version=mine, version=again)
            # Otherwise an attempt that was cancelled had gone through.

    async def _keep_beside(self, path: FilePath, pending: _Pending, found: int) -> None:
        version = pending.file.entry.version
        name = _name_beside(path, version)
        if await self._digest(name) != pending.file.entry.sha256:  # else an earlier attempt made it
            await self._backend.write(name, pending.file.data, expected_version=0)
        self._conflicts.append(SaveConflict(path, version, found, name))
        LOGGER.warning("%r was changed by somebody else; version %d is kept as %r", path, version, name)

    async def _digest(self, path: FilePath) -> str | None:
        try:
            return (await self._backend.stat(path)).sha256
        except FileMissing:
            return None

    def _log_unsaved(self) -> None:
        left = self.unsaved()
        if left:
            LOGGER.error("%d files are not saved: %s", len(left), ", ".join(map(_described, left)))

    # --- within -----------------------------------------------------------------------------------

    def _hold(self, pending: _Pending | None, file: FileData, found: int) -> FileEntry:
        now = self._environment.monotonic()
        if pending is None:
            pending = _Pending(file, found, now, now + self.saving.debounce)
            self._pending[file.entry.path] = pending
        else:
            pending.file = file
        if not pending.attempts:
            pending.due = min(now + self.saving.debounce, pending.first + self.saving.at_latest)
        self._wake.set()
        return pending.entry

    async def _saved_version(self, path: FilePath) -> int | None:
        try:
            return (await self._backend.stat(path)).version
        except FileMissing:
            return None

    async def _new_version(self, path: FilePath, above: int) -> int:
        if self._next > self._last or self._next <= above:
            try:
                self._next = await self._backend.reserve(_VERSIONS_AT_ONCE)
            except ReadOnly as refusal:
                raise ReadOnly(path, refusal.problem) from None
            self._last = self._next + _VERSIONS_AT_ONCE - 1
        version, self._next = self._next, self._next + 1
        return version


def _name_beside(path: FilePath, version: int) -> FilePath:
    try:
        return normalise(f"{path}.unsaved-{version}")
    except InvalidPath:  # too long
        return normalise(f"unsaved-{version}")


def _described(unsaved: Unsaved) -> str:
    return f"{unsaved.path!r} at version {unsaved.version} ({unsaved.problem or _TIME_UP})"
