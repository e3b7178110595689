"""A directory while a backend has it open: every method blocks and runs in a thread."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar, TypeVarTuple, Unpack
from weakref import WeakValueDictionary

import attrs

from sapwood.errors import BackendFailed, FileError, FileMissing, ReadOnly
from sapwood.files._backend import (
    FileData,
    FileEntry,
    Listing,
    Skipped,
    check_apart,
    check_deletable,
    check_expected,
    digest,
    is_at_or_below,
    missing,
    moved_path,
)
from sapwood.files._ledger import Floor, Gone, Ledger, Record
from sapwood.files._oserrors import translated
from sapwood.files._paths import RESERVED_PREFIX, FilePath
from sapwood.files._root import (
    OPEN_DIRECTORY,
    Place,
    Root,
    find,
    free_name,
    quietly_unlink,
    sync,
    write_temporary,
)

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


_writers: WeakValueDictionary[tuple[int, int], OpenDirectory] = WeakValueDictionary()
"""The open writer of each root of this process, by device and inode."""


def _fence_former(root: Root) -> None:
    former = _writers.pop(root.identity, None)
    if former is not None:
        former.close()


def open_directory(path: str, *, writable: bool, max_file_bytes: int, max_files: int) -> OpenDirectory:
    """Open a root, fence off the former writer in this process, and list the root once. Blocks.

    Raises:
        BackendFailed: as `DirectoryBackend.open`.
        ReadOnly: likewise.
    """
    if os.open not in os.supports_dir_fd:
        raise BackendFailed(path, "needs a POSIX system; use another backend here")
    with translated(path, changing=writable):
        root = Root(path, max_file_bytes)
        try:
            if writable:
                _fence_former(root)
            private = _open_private(root, writable=writable)
        except BaseException:
            root.close()
            raise
        try:
            ledger = Ledger(private, writable=writable)
        except BaseException:
            root.close()
            _close(private)
            raise
        opened = OpenDirectory(root, private, ledger, writable=writable, max_files=max_files)
        try:
            opened.list_files()
        except BaseException:
            opened.close()
            raise
        if writable:
            _writers[root.identity] = opened
        return opened


def call(state: OpenDirectory, function: Callable[[OpenDirectory, Unpack[Ts]], T], *args: *Ts) -> T:
    """Run an operation on an open directory unless a successor has taken it.

    Raises:
        BackendFailed: if one has.
    """
    with state.turn:
        if state.closed:
            raise BackendFailed(state.root.path, "was opened anew by another backend, which has it now; stop this one")
        return function(state, *args)


@attrs.frozen
class Content:
    """What a file is to hold, the name that it is written under first, and the time it gets."""

    data: bytes
    temporary: str
    modified_ns: int


class OpenDirectory:
    """The backend while it is open; all methods block and are called one at a time."""

    def __init__(self, root: Root, private: int | None, ledger: Ledger, *, writable: bool, max_files: int) -> None:
        self.root = root
        self.private = private
        self.ledger = ledger
        self.writable = writable
        self.max_files = max_files
        self.closed = False
        # Held during an operation, so that a successor does not take the root away in the middle of one.
        self.turn = threading.Lock()

    def close(self) -> None:
        """Release the root and its lock; closing twice does nothing."""
        with self.turn:
            if not self.closed:
                self.closed = True
                self.ledger.close()
                _close(self.private)
                self.root.close()

    def __del__(self) -> None:
        self.close()

    def list_files(self) -> Listing:
        with translated(self.root.path, changing=False):
            skipped: list[Skipped] = []
            changed: list[Record] = []
            entries: dict[FilePath, FileEntry] = {}
            # No write is under way while a listing is, so every temporary file is the leftover of a crash.
            clean = quietly_unlink if self.writable else _leave
            with closing(self.root.walk(skipped, clean)) as files:
                for file in files:
                    if len(entries) == self.max_files:
                        raise BackendFailed(self.root.path, f"holds more than {self.max_files} files; narrow the root")
                    record = self.ledger.records.get(file.path)
                    if record is None or record.signature != _signature(file.state):
                        try:
                            data, state = file.read()
                        except FileMissing:
                            continue
                        except (FileError, OSError) as error:
                            reason = error.problem if isinstance(error, FileError) else error.strerror
                            skipped.append(Skipped(file.path, reason or "cannot be read"))
                            continue
                        record = self._recognise(file.path, digest(data), state)
                        changed.append(record)
                    entries[file.path] = _entry(record)
            gone = [Gone(path, known.version) for path, known in self.ledger.records.items() if path not in entries]
            self.ledger.append([*changed, *gone])
            return Listing(tuple(entries[path] for path in sorted(entries)), tuple(skipped))

    def stat(self, path: FilePath) -> FileEntry:
        with translated(path, changing=False), self.root.place(path) as place:
            if place.found is None:
                raise missing(path)
            known = self.ledger.records.get(path)
            if known is not None and known.signature == _signature(place.found):
                return _entry(known)
            return self._look(path, place).entry

    def read(self, path: FilePath) -> FileData:
        with translated(path, changing=False), self.root.place(path) as place:
            if place.found is None:
                raise missing(path)
            return self._look(path, place)

    def write(self, path: FilePath, content: Content, expected: int | None, version: int | None) -> FileEntry:
        data = content.data
        self._refuse_if_read_only(path)
        self.root.check_size(path, len(data))
        with translated(path, changing=True), self.root.place(path, create=True) as place:
            found = None if place.found is None else self._look(path, place).entry.version
            check_expected(path, found, expected)
            mode = None if place.found is None else stat.S_IMODE(place.found.st_mode)
            forget: Callable[[], None] | None = None
            try:
                state = write_temporary(place.directory, content.temporary, data, mode, content.modified_ns)
                given = self.ledger.next_version(path) if version is None else version
                record = Record(path, given, *_signature(state), digest(data))
                forget = self.ledger.append([record])
                os.rename(content.temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
            except BaseException:
                if forget is not None:
                    forget()
                quietly_unlink(place.directory, content.temporary)
                raise
            _sync_change(path, place.directory)
        self._compact()
        return _entry(record)

    def delete(self, path: FilePath, expected: int | None) -> None:
        self._refuse_if_read_only(path)
        with translated(path, changing=True):
            try:
                with self.root.place(path) as place:
                    found = None if place.found is None else self._look(path, place).entry.version
                    version = check_deletable(path, found, expected)
                    forget = self.ledger.append([Gone(path, version)])
                    try:
                        os.unlink(place.name, dir_fd=place.directory)
                    except BaseException:
                        forget()
                        raise
                    _sync_change(path, place.directory)
            except FileMissing:
                check_deletable(path, None, expected)
                raise
        self.root.remove_empty_directories(path)
        self._compact()

    def move(self, source: FilePath, target: FilePath, expected: int | None) -> tuple[FileEntry, ...]:
        self._refuse_if_read_only(source)
        check_apart(source, target)
        with translated(source, changing=True):
            try:
                with self.root.parent(source) as (origin, segment):
                    place = find(source, origin, segment)
                    moving = self._records_of(source, place, expected)
                    with self.root.parent(target, create=True) as (directory, last):
                        same = source.rpartition("/")[0] == target.rpartition("/")[0]
                        name = free_name(target, directory, last, place.name if same else None)
                        added = self._renumbered(moving, source, target)
                        forget = self.ledger.append([*(Gone(each.path, each.version) for each in moving), *added])
                        try:
                            os.rename(place.name, name, src_dir_fd=origin, dst_dir_fd=directory)
                        except BaseException:
                            forget()
                            raise
                        _sync_change(target, directory)
                    _sync_change(source, origin)
            except FileMissing:
                check_deletable(source, None, expected)
                raise
        self.root.remove_empty_directories(source)
        self._compact()
        return tuple(_entry(record) for record in sorted(added, key=lambda record: record.path))

    def reserve(self, count: int) -> int:
        self._refuse_if_read_only(FilePath(self.root.path))
        with translated(self.root.path, changing=True):
            first = max([self.ledger.floor, *(record.version for record in self.ledger.records.values())]) + 1
            self.ledger.append([Floor(first + count - 1)])
        return first

    def _records_of(self, source: FilePath, place: Place, expected: int | None) -> list[Record]:
        """Return the records of a file, or of all files below a directory, after a look at their contents."""
        if place.found is not None and stat.S_ISDIR(place.found.st_mode):
            if expected is not None:
                check_deletable(source, None, expected)
            paths = [entry.path for entry in self.list_files().entries if is_at_or_below(entry.path, source)]
            if not paths:
                raise missing(source)
            return [self.ledger.records[path] for path in paths]
        check_deletable(source, self._look(source, place).entry.version, expected)
        return [self.ledger.records[source]]

    def _renumbered(self, moving: list[Record], source: FilePath, target: FilePath) -> list[Record]:
        version = max([self.ledger.floor, *(record.version for record in moving)]) + 1
        return [attrs.evolve(each, path=moved_path(each.path, source, target), version=version) for each in moving]

    def _look(self, path: FilePath, place: Place) -> FileData:
        data, state = self.root.read(path, place)
        record = self._recognise(path, digest(data), state)
        if record != self.ledger.records.get(path):
            self.ledger.append([record])
        return FileData(_entry(record), data)

    def _recognise(self, path: FilePath, sha256: str, state: os.stat_result) -> Record:
        known = self.ledger.records.get(path)
        same = known is not None and known.sha256 == sha256
        version = known.version if known is not None and same else self.ledger.next_version(path)
        return Record(path, version, *_signature(state), sha256)

    def _compact(self) -> None:
        # The change itself is done; an outdated line more or less is no reason to report a failure.
        try:
            if self.ledger.wants_compaction:
                self.ledger.compact()
        except OSError:
            return

    def _refuse_if_read_only(self, path: FilePath) -> None:
        if not self.writable:
            raise ReadOnly(path, "the directory was opened read-only")


def _open_private(root: Root, *, writable: bool) -> int | None:
    if writable:
        try:
            os.mkdir(RESERVED_PREFIX, 0o700, dir_fd=root.fd)
        except FileExistsError:
            pass
        else:
            sync(root.fd)
    try:
        private = os.open(RESERVED_PREFIX, OPEN_DIRECTORY, dir_fd=root.fd)
    except FileNotFoundError:
        return None
    if not writable or sys.platform == "win32":
        return private
    try:
        # The lock lives as long as this open directory, and ends with the process however it ends.
        fcntl.flock(private, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(private)
        raise BackendFailed(
            root.path, "is open for writing in another process; one at a time may write to a root"
        ) from None
    except BaseException:
        os.close(private)
        raise
    return private


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _leave(_directory: int, _name: str) -> None:
    return


def _sync_change(path: FilePath, directory: int) -> None:
    try:
        sync(directory)
    except OSError as error:
        raise BackendFailed(path, f"was changed, but the disk did not confirm that it is durable: {error}") from error


def _signature(state: os.stat_result) -> tuple[int, int, int]:
    return state.st_size, state.st_mtime_ns, state.st_ino


def _entry(record: Record) -> FileEntry:
    return FileEntry(record.path, record.version, record.size, record.modified_ns / 1e9, record.sha256)
