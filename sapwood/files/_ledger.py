"""The ledger of versions: what a directory backend must remember beside the files themselves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import TypeAlias

import attrs

from sapwood.errors import BackendFailed
from sapwood.files._paths import FilePath
from sapwood.files._root import NOFOLLOW, sync

_FORMAT = 1
_HEADER = f'["sapwood.files.versions",{_FORMAT}]\n'
_NAME = "versions.jsonl"
_SPARE_LINES = 4096


@attrs.frozen
class Record:
    """The version of a file and how to recognise that somebody else changed it."""

    path: FilePath
    version: int
    size: int
    modified_ns: int
    inode: int
    sha256: str

    @property
    def signature(self) -> tuple[int, int, int]:
        """What `stat` says of the unchanged file."""
        return self.size, self.modified_ns, self.inode


@attrs.frozen
class Gone:
    """A file that was removed at this version."""

    path: FilePath
    version: int


@attrs.frozen
class Floor:
    """Every version that is given from now on is above this one."""

    version: int


Line: TypeAlias = "Record | Gone | Floor"


class Ledger:
    """An append-only file of records, synced before any version in it is shown. All methods block.

    A record is written before the change that it describes, so a crash between the two leaves a record whose hash the
    file does not have: the file counts as changed and its version rises once more. No version is ever shown for two
    contents.

    Args:
        directory: An open directory, or None to remember in memory only, starting from nothing.
        writable: Whether the file may be changed; otherwise new records stay in memory.

    Raises:
        BackendFailed: if the file is damaged or of a newer format.
        OSError: if it cannot be read or written.
    """

    def __init__(self, directory: int | None, *, writable: bool) -> None:
        self.records: dict[FilePath, Record] = {}
        self.floor = 0
        self._directory = directory
        self._fd: int | None = None
        self._end = 0
        self._lines = 0
        self._torn = False
        if directory is None:
            return
        access = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        try:
            fd = os.open(_NAME, access | NOFOLLOW, 0o600, dir_fd=directory)
        except FileNotFoundError:
            return
        try:
            self._load(fd)
        except BaseException:
            os.close(fd)
            raise
        if not writable:
            os.close(fd)
            return
        self._fd = fd
        self._torn = True

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def next_version(self, path: FilePath) -> int:
        """Return the version that the next change of a file gets."""
        known = self.records.get(path)
        return max(self.floor, 0 if known is None else known.version) + 1

    def append(self, lines: Iterable[Line]) -> Callable[[], None]:
        """Remember lines durably; return a function that forgets them again.

        Raises:
            OSError: if they could not be written; nothing is remembered then.
        """
        added = list(lines)
        before = {line.path: self.records.get(line.path) for line in added if not isinstance(line, Floor)}
        floor, end, count = self.floor, self._end, self._lines

        def undo() -> None:
            self.floor, self._end, self._lines = floor, end, count
            for path, record in before.items():
                if record is None:
                    self.records.pop(path, None)
                else:
                    self.records[path] = record
            self._torn = True

        if not added:
            return undo
        try:
            self._write("".join(map(_encode, added)).encode())
        except OSError:
            undo()
            raise
        for line in added:
            self._apply(line)
        self._lines += len(added)
        return undo

    def compact(self) -> None:
        """Write the file anew with one line for each file."""
        if self._fd is None or self._directory is None:
            return
        temporary = f"{_NAME}.new"
        text = _HEADER + _encode(Floor(self.floor)) + "".join(map(_encode, self.records.values()))
        access = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        fd = os.open(temporary, access | NOFOLLOW, 0o600, dir_fd=self._directory)
        try:
            _write_all(fd, text.encode(), 0)
            sync(fd)
            os.rename(temporary, _NAME, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except BaseException:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd, self._end, self._lines, self._torn = fd, len(text.encode()), 2 + len(self.records), False
        sync(self._directory)

    @property
    def wants_compaction(self) -> bool:
        """Whether most lines of the file are outdated."""
        return self._fd is not None and self._lines > 4 * len(self.records) + _SPARE_LINES

    def _write(self, data: bytes) -> None:
        if self._fd is None:
            return
        if self._torn:
            os.ftruncate(self._fd, self._end)
            self._torn = False
        if self._end == 0:
            data = _HEADER.encode() + data
        self._torn = True
        _write_all(self._fd, data, self._end)
        sync(self._fd)
        if self._end == 0 and self._directory is not None:
            sync(self._directory)
        self._torn = False
        self._end += len(data)

    def _load(self, fd: int) -> None:
        with open(fd, "rb", closefd=False) as file:
            for number, line in enumerate(file, 1):
                # A line without its end is a write that a crash cut short, and was never acted upon.
                if not line.endswith(b"\n"):
                    break
                try:
                    self._read_line(number, json.loads(line))
                except (ValueError, TypeError, KeyError, UnicodeDecodeError) as error:
                    raise BackendFailed(
                        f".sapwood/{_NAME}",
                        f"line {number} is damaged ({error}); to go on without the versions so far, move it away",
                    ) from error
                self._end += len(line)
                self._lines += 1

    def _read_line(self, number: int, value: object) -> None:
        match value:
            case ["sapwood.files.versions", int(found)] if number == 1:
                if found != _FORMAT:
                    raise ValueError(f"format {found}, this code knows {_FORMAT}")
            case ["floor", int(floor)] if number > 1:
                self._apply(Floor(floor))
            case ["put", str(path), int(version), int(size), int(modified), int(inode), str(sha)] if number > 1:
                self._apply(Record(FilePath(path), version, size, modified, inode, sha))
            case ["gone", str(path), int(version)] if number > 1:
                self._apply(Gone(FilePath(path), version))
            case _:
                raise ValueError("expected a header first, then floor, put or gone")

    def _apply(self, line: Line) -> None:
        if isinstance(line, Record):
            self.records[line.path] = line
            return
        if isinstance(line, Gone):
            self.records.pop(line.path, None)
        self.floor = max(self.floor, line.version)


def _encode(line: Line) -> str:
    match line:
        case Record():
            values = ["put", line.path, line.version, line.size, line.modified_ns, line.inode, line.sha256]
        case Gone():
            values = ["gone", line.path, line.version]
        case Floor():
            values = ["floor", line.version]
    return json.dumps(values, ensure_ascii=False) + "\n"


def _write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written
