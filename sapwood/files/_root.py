"""A real directory and no way out of it: every component is opened relative to its parent, and no link is followed."""

from __future__ import annotations

import errno
import os
import stat
import sys
import unicodedata
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

import attrs

from sapwood.errors import BackendFailed, FileError, FileExists, InvalidPath, QuotaExceeded
from sapwood.files._backend import Skipped, missing
from sapwood.files._paths import RESERVED_PREFIX, FilePath, caseless_key, normalise

if sys.platform != "win32":
    import fcntl


def _flag(name: str) -> int:
    # Windows lacks most of them; there `DirectoryBackend.open` refuses before any is used.
    return int(getattr(os, name, 0))


NOFOLLOW = _flag("O_NOFOLLOW") | _flag("O_CLOEXEC")
OPEN_DIRECTORY = os.O_RDONLY | _flag("O_DIRECTORY") | NOFOLLOW
# Without O_NONBLOCK, opening a FIFO that took the place of a file would wait for its other end.
_OPEN_FILE = os.O_RDONLY | _flag("O_NONBLOCK") | _flag("O_NOCTTY") | NOFOLLOW
_CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW

TEMPORARY_PREFIX = f"{RESERVED_PREFIX}-"
_CHUNK = 1 << 20
_READ_ATTEMPTS = 3


@attrs.frozen
class Place:
    """Where a file lies or will lie: an open directory, the name stored in it, and the file's state if it exists."""

    directory: int
    name: str
    found: os.stat_result | None


@attrs.frozen
class Found:
    """A regular file met while walking; `read` works until the walk goes on."""

    path: FilePath
    state: os.stat_result
    read: Callable[[], tuple[bytes, os.stat_result]]


class Root:
    """Operations below one directory. All of them block.

    Args:
        path: The directory; a link in the path to it is followed, none below it is.
        max_file_bytes: Larger files are not read.
    """

    def __init__(self, path: str, max_file_bytes: int) -> None:
        self.path = path
        self.max_file_bytes = max_file_bytes
        self.fd = os.open(path, os.O_RDONLY | _flag("O_DIRECTORY") | _flag("O_CLOEXEC"))
        state = os.fstat(self.fd)
        self.identity = (state.st_dev, state.st_ino)

    def close(self) -> None:
        """Close the directory."""
        os.close(self.fd)

    @contextmanager
    def place(self, path: FilePath, *, create: bool = False) -> Generator[Place]:
        """Open the directory of a file and look for the file.

        With `create`, missing directories are made, names in the way are refused, and what was made is taken back if
        the block raises.

        Raises:
            FileMissing: if a directory is missing (without `create`).
            FileExists: if another name is in the way (with `create`).
            InvalidPath: if a component is a link or a special file, or the file has several hard links.
        """
        with self.parent(path, create=create) as (directory, last):
            yield _place(path, directory, last, create=create)

    @contextmanager
    def parent(self, path: FilePath, *, create: bool = False) -> Generator[tuple[int, str]]:
        """Open the directory that a name lies in; yield it and the last segment. Raises as `place`."""
        *directories, last = path.split("/")
        opened = [os.open(".", OPEN_DIRECTORY, dir_fd=self.fd)]
        made: list[tuple[int, str]] = []
        try:
            for segment in directories:
                opened.append(_enter(path, opened[-1], segment, made if create else None))
            yield opened[-1], last
        except BaseException:
            for directory, name in reversed(made):
                _quietly_remove_directory(directory, name)
            raise
        finally:
            for fd in opened:
                os.close(fd)

    def remove_empty_directories(self, path: FilePath) -> None:
        """Remove the directories above a deleted file as far as they are empty; failing to is no error."""
        segments = path.split("/")[:-1]
        opened = [os.open(".", OPEN_DIRECTORY, dir_fd=self.fd)]
        names: list[str] = []
        try:
            for segment in segments:
                names.append(_stored_name(path, opened[-1], segment, create=False) or segment)
                opened.append(_open_directory(path, opened[-1], names[-1], create=False))
            while names and not _names(opened[len(names)]):
                os.rmdir(names[-1], dir_fd=opened[len(names) - 1])
                names.pop()
        except (OSError, FileError):
            return
        finally:
            for fd in opened:
                os.close(fd)

    def read(self, path: FilePath, place: Place) -> tuple[bytes, os.stat_result]:
        """Return the content of a file and its state, both of one moment."""
        return _read(path, place.directory, place.name, self.max_file_bytes)

    def check_size(self, path: FilePath, size: int) -> None:
        """Refuse to write what could not be read again.

        Raises:
            QuotaExceeded: if a file of this size is too large.
        """
        if size > self.max_file_bytes:
            raise _too_large(path, size, self.max_file_bytes)

    def walk(self, skipped: list[Skipped], leftovers: Callable[[int, str], None]) -> Generator[Found]:
        """Yield every file below the root once, in no particular order.

        Args:
            skipped: Receives what is not offered as a file.
            leftovers: Called for a temporary file of an unfinished write, with its directory and name.
        """
        fd = os.open(".", OPEN_DIRECTORY, dir_fd=self.fd)
        try:
            yield from self._walk(fd, "", skipped, leftovers)
        finally:
            os.close(fd)

    def _walk(
        self, directory: int, prefix: str, skipped: list[Skipped], leftovers: Callable[[int, str], None]
    ) -> Generator[Found]:
        taken: set[str] = set()
        # A name that is stored in normal form C comes before its other spellings, as in `_stored_name`.
        names = sorted(_names(directory), key=lambda name: (unicodedata.normalize("NFC", name) != name, name))
        for name in names:
            if name.startswith(TEMPORARY_PREFIX):
                leftovers(directory, name)
                continue
            if not prefix and name == RESERVED_PREFIX:
                continue
            shown = prefix + name.encode("utf-8", "backslashreplace").decode()
            try:
                path = normalise(prefix + name)
                if path in taken:
                    raise InvalidPath(path, "is another spelling of a name beside it")
                taken.add(path)
                state = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if stat.S_ISDIR(state.st_mode):
                    yield from self._walk_into(path, directory, name, skipped, leftovers)
                    continue
                require_plain_file(path, state)
                if state.st_size > self.max_file_bytes:
                    raise _too_large(path, state.st_size, self.max_file_bytes)
                yield Found(path, state, partial(_read, path, directory, name, self.max_file_bytes))
            except FileNotFoundError:
                continue
            except FileError as error:
                skipped.append(Skipped(shown, error.problem))
            except PermissionError as error:
                skipped.append(Skipped(shown, error.strerror or "permission denied"))

    def _walk_into(
        self, path: FilePath, directory: int, name: str, skipped: list[Skipped], leftovers: Callable[[int, str], None]
    ) -> Generator[Found]:
        child = _open_directory(path, directory, name, create=False)
        try:
            yield from self._walk(child, f"{path}/", skipped, leftovers)
        finally:
            os.close(child)


def _enter(path: FilePath, parent: int, segment: str, made: list[tuple[int, str]] | None) -> int:
    """Open the directory `segment`; make it if it is missing and there is a list to note it in."""
    name = _stored_name(path, parent, segment, create=made is not None)
    if name is None:
        if made is None:
            raise missing(path)
        name = segment
        os.mkdir(name, dir_fd=parent)
        made.append((parent, name))
        sync(parent)
    return _open_directory(path, parent, name, create=made is not None)


def _place(path: FilePath, directory: int, segment: str, *, create: bool) -> Place:
    name = _stored_name(path, directory, segment, create=create)
    if name is None:
        return Place(directory, segment, None)
    state = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISDIR(state.st_mode):
        require_plain_file(path, state)
        return Place(directory, name, state)
    if not create:
        raise missing(path)
    # There are no empty directories in a filesystem of paths: one on the disk is in nobody's way.
    if not _remove_if_empty(directory, name):
        raise FileExists(path, "is a directory")
    return Place(directory, segment, None)


def free_name(path: FilePath, directory: int, segment: str, moving: str | None) -> str:
    """Return the name under which `segment` can be made; an empty directory in its place is removed.

    Args:
        path: The path, for errors.
        directory: The open directory.
        segment: The wanted name.
        moving: A name in the same directory that is about to go, so that only its case may change; None for none.

    Raises:
        FileExists: if the name is taken or differs only by case from another one.
    """
    key = caseless_key(segment)
    other = next((name for name in _names(directory) if name != moving and caseless_key(name) == key), None)
    if other is None:
        return segment
    if unicodedata.normalize("NFC", other) != segment:
        raise FileExists(path, f"differs only by case from {other!r}; use that spelling or another name")
    state = os.stat(other, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISDIR(state.st_mode):
        raise FileExists(path, "exists already; delete it first, or choose another name")
    if not _remove_if_empty(directory, other):
        raise FileExists(path, "is a directory")
    return segment


def find(path: FilePath, directory: int, segment: str) -> Place:
    """Look for a file or a directory.

    Raises:
        FileMissing: if there is neither.
        InvalidPath: if it is a link or a special file, or a file with several hard links.
    """
    name = _stored_name(path, directory, segment, create=False)
    if name is None:
        raise missing(path)
    state = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISDIR(state.st_mode):
        require_plain_file(path, state)
    return Place(directory, name, state)


def _names(directory: int) -> list[str]:
    return os.listdir(directory)


def _stored_name(path: FilePath, directory: int, segment: str, *, create: bool) -> str | None:
    """Find how a directory spells a name; reading the names is right whatever the disk thinks of case."""
    names = _names(directory)
    if segment in names:
        return segment
    same = [name for name in names if unicodedata.normalize("NFC", name) == segment]
    if same:
        return min(same)
    if create:
        key = caseless_key(segment)
        other = next((name for name in names if caseless_key(name) == key), None)
        if other is not None:
            raise FileExists(path, f"differs only by case from {other!r}; use that spelling or another name")
    return None


def _open_directory(path: FilePath, parent: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, OPEN_DIRECTORY, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        state = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(state.st_mode):
            if create:
                raise FileExists(path, f"{name!r} is a file, so nothing can lie below it") from None
            raise missing(path) from None
        raise InvalidPath(path, f"{name!r} is {_kind(state)}, which is never followed") from None


def require_plain_file(path: FilePath, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise InvalidPath(path, f"is {_kind(state)}, which is never followed")
    # Another name of the same file may lie outside the root, and there is no way to find out.
    if state.st_nlink > 1:
        raise InvalidPath(
            path, f"has {state.st_nlink} hard links; some may lie outside the root, so copy the file first"
        )


def _kind(state: os.stat_result) -> str:
    return {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }.get(stat.S_IFMT(state.st_mode), "no regular file")


def _read(path: FilePath, directory: int, name: str, limit: int) -> tuple[bytes, os.stat_result]:
    for _ in range(_READ_ATTEMPTS):
        try:
            fd = os.open(name, _OPEN_FILE, dir_fd=directory)
        except FileNotFoundError:
            raise missing(path) from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise InvalidPath(path, "is a link or a special file, which is never followed") from None
            raise
        try:
            before = os.fstat(fd)
            require_plain_file(path, before)
            chunks: list[bytes] = []
            size = 0
            while chunk := os.read(fd, _CHUNK):
                size += len(chunk)
                if size > limit:
                    raise _too_large(path, max(size, before.st_size), limit)
                chunks.append(chunk)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, size):
            return b"".join(chunks), after
    raise BackendFailed(path, "keeps being changed by somebody else while it is read; try again")


def write_temporary(directory: int, name: str, data: bytes, mode: int | None, modified_ns: int) -> os.stat_result:
    """Write a new file whole and to the disk; return its state."""
    fd = os.open(name, _CREATE_FILE, 0o666, dir_fd=directory)
    try:
        if mode is not None:
            os.fchmod(fd, mode & 0o777)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.utime(fd, ns=(modified_ns, modified_ns))
        sync(fd)
        return os.fstat(fd)
    finally:
        os.close(fd)


def sync(fd: int) -> None:
    """Make what was written to a file or directory survive a power failure."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def quietly_unlink(directory: int, name: str) -> None:
    """Remove a file if it is there and can be removed."""
    try:
        os.unlink(name, dir_fd=directory)
    except OSError:
        return


def _quietly_remove_directory(directory: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=directory)
    except OSError:
        return


def _remove_if_empty(parent: int, name: str) -> bool:
    fd = os.open(name, OPEN_DIRECTORY, dir_fd=parent)
    try:
        for child in _names(fd):
            state = os.stat(child, dir_fd=fd, follow_symlinks=False)
            if not stat.S_ISDIR(state.st_mode) or not _remove_if_empty(fd, child):
                return False
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=parent)
    return True


def _too_large(path: FilePath, size: int, limit: int) -> QuotaExceeded:
    return QuotaExceeded(path, f"is {size} bytes long; files of more than {limit} are neither read nor written")
