"""Several backends in one tree of paths, each below a prefix of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial

import attrs
import trio

from sapwood.errors import (
    BackendFailed,
    FileError,
    FileExists,
    FileMissing,
    InvalidOption,
    InvalidPath,
    ReadOnly,
    UnsavedFiles,
    VersionConflict,
)
from sapwood.files._across import UNDO_SECONDS, move_across
from sapwood.files._backend import (
    FileBackend,
    FileData,
    FileEntry,
    Listing,
    MountInfo,
    SavingBackend,
    Skipped,
    Unsaved,
    check_apart,
    is_at_or_below,
    missing,
    seconds_to_save,
)
from sapwood.files._paths import FilePath, caseless_key, normalise, parents


@attrs.frozen
class Mount:
    """A backend and how it is mounted.

    Attributes:
        backend: Where the files below the mount's prefix are kept.
        read_only: Refuse every change below the prefix with `ReadOnly`, and leave its files out of the quota.
    """

    backend: FileBackend
    read_only: bool = False


@attrs.frozen
class _Place:
    """Where a path leads: the mount's prefix, the mount, and the path within it (empty: the mount itself)."""

    prefix: str
    mount: Mount
    inner: FilePath


class Mounts:
    """A backend made of backends: the longest prefix that holds a path says whose it is.

    Each mount has versions and directories of its own. What lies in a backend below the prefix of another mount is
    hidden by that mount, and a listing names it under `skipped`. A mount point cannot be a file, moved or deleted.

    **Moves** within a mount are those of its backend. From one mount to another each file is copied, read again and
    compared, and only when all copies are durable the originals are deleted. An error before the first deletion takes
    the copies back; a crash leaves files under both names, and none under neither.

    If one mount cannot answer, a listing raises `BackendFailed` that names the mount, as does whatever concerns it.

    Args:
        mounts: Backends by prefix, such as `{"": SQLiteBackend(...), "docs": Mount(DirectoryBackend(...),
            read_only=True)}`. Without a backend for the root (`""`), paths outside all prefixes have no place.
        moves_across: Whether files may be moved from one mount to another. Default true.

    Raises:
        InvalidOption: if there is none, two prefixes differ only by case, or one backend is given twice.
        InvalidPath: if a prefix is no usable path.
    """

    def __init__(self, mounts: Mapping[str, Mount | FileBackend], *, moves_across: bool = True) -> None:
        if not mounts:
            raise InvalidOption('Mounts: expected backends by prefix, such as {"": MemoryBackend(...)}; got none')
        self._mounts: dict[str, Mount] = {}
        for prefix, each in mounts.items():
            top = prefix.rstrip("/")
            name = str(normalise(top)) if top else ""
            other = next((known for known in self._mounts if caseless_key(known) == caseless_key(name)), None)
            if other is not None:
                raise InvalidOption(f"Mounts: expected different prefixes; {name!r} and {other!r} are one")
            self._mounts[name] = each if isinstance(each, Mount) else Mount(each)
        if len({id(mount.backend) for mount in self._mounts.values()}) < len(self._mounts):
            raise InvalidOption("Mounts: expected a backend of its own for each prefix; got one backend twice")
        self.moves_across = moves_across
        self._by_length = sorted(self._mounts, key=len, reverse=True)
        self._points = {caseless_key(prefix): prefix for prefix in self._mounts if prefix}
        # Directories that a mount lies in or at, by caseless key: their one spelling.
        self._spellings: dict[str, str] = {}
        for prefix in self._points.values():
            for path in (*parents(FilePath(prefix)), prefix):
                spelling = self._spellings.setdefault(caseless_key(path), path)
                if spelling != path:
                    raise InvalidOption(f"Mounts: expected one spelling of {spelling!r}; got {path!r} in {prefix!r}")

    @property
    def mounts(self) -> tuple[MountInfo, ...]:
        """The mounts in the order of their prefixes."""
        return tuple(
            MountInfo(prefix, mount.read_only, type(mount.backend).__name__)
            for prefix, mount in sorted(self._mounts.items())
        )

    @property
    def closes_within(self) -> float:
        """Seconds that `close` spends on saving at most; the mounts are closed at the same time."""
        return max(seconds_to_save(mount.backend) for mount in self._mounts.values())

    async def open(self) -> None:
        """Open all backends; if one cannot be opened, close the others again."""
        opened: list[FileBackend] = []
        try:
            for prefix, mount in self._mounts.items():
                with _relocated(prefix):
                    await mount.backend.open()
                opened.append(mount.backend)
        except BaseException:
            with trio.move_on_after(UNDO_SECONDS, shield=True):
                for backend in opened:
                    await backend.close()
            raise

    async def close(self) -> None:
        """Close all backends, at the same time, also if one of them fails to.

        Raises:
            UnsavedFiles: naming everything that could not be saved.
        """
        unsaved: list[tuple[str, str]] = []
        failures: list[FileError] = []

        async def close(prefix: str, backend: FileBackend) -> None:
            try:
                with _relocated(prefix):
                    await backend.close()
            except UnsavedFiles as error:
                unsaved.extend(error.files)
            except FileError as error:
                failures.append(error)

        await _all_of([partial(close, prefix, mount.backend) for prefix, mount in self._mounts.items()])
        if unsaved:
            raise UnsavedFiles(sorted(unsaved))
        if failures:
            raise failures[0]

    async def list(self) -> Listing:
        """Return the files of all mounts, and where the mounts are."""
        entries: list[FileEntry] = []
        skipped: list[Skipped] = []
        for prefix, mount in self._mounts.items():
            with _relocated(prefix):
                listing = await mount.backend.list()
            skipped += [attrs.evolve(each, name=_joined(prefix, each.name)) for each in listing.skipped]
            heads = self._heads(prefix)
            for entry in listing.entries:
                # Most names share no first segment with a mount, and are not worth a closer look.
                is_suspect = heads and _head(entry.path) in heads
                problem = self._hidden(prefix, _joined(prefix, entry.path)) if is_suspect else None
                if problem is None:
                    entries.append(_outer(prefix, entry))
                else:
                    skipped.append(Skipped(_joined(prefix, entry.path), problem))
        entries.sort(key=lambda entry: entry.path)
        return Listing(tuple(entries), tuple(skipped), self.mounts)

    async def stat(self, path: FilePath) -> FileEntry:
        """Return what is known of a file."""
        place = self._existing(path)
        with _relocated(place.prefix, place.inner):
            return _outer(place.prefix, await place.mount.backend.stat(place.inner))

    async def read(self, path: FilePath) -> FileData:
        """Return a file with its content."""
        place = self._existing(path)
        with _relocated(place.prefix, place.inner):
            file = await place.mount.backend.read(place.inner)
        return FileData(_outer(place.prefix, file.entry), file.data)

    async def write(self, path: FilePath, data: bytes, *, expected_version: int | None = None) -> FileEntry:
        """Create or replace a file."""
        place = self._writable(path)
        with _relocated(place.prefix, place.inner):
            entry = await place.mount.backend.write(place.inner, data, expected_version=expected_version)
        return _outer(place.prefix, entry)

    async def delete(self, path: FilePath, *, expected_version: int | None = None) -> None:
        """Remove a file."""
        place = self._existing(path)
        _refuse_if_read_only(path, place)
        with _relocated(place.prefix, place.inner):
            await place.mount.backend.delete(place.inner, expected_version=expected_version)

    async def move(
        self, source: FilePath, target: FilePath, *, expected_version: int | None = None
    ) -> tuple[FileEntry, ...]:
        """Rename a file or a directory, also from one mount to another.

        Raises:
            InvalidPath: also if a mount lies at `source` or below it.
            ReadOnly: also if one of the mounts is read-only, or `moves_across` is false and the mounts differ.
        """
        check_apart(source, target)
        mounted = next((prefix for prefix in self._points.values() if is_at_or_below(prefix, source)), None)
        if mounted is not None:
            raise InvalidPath(source, f"is or holds the mount {mounted!r}, which cannot be moved; move what lies in it")
        origin, goal = self._existing(source), self._writable(target)
        _refuse_if_read_only(source, origin)
        if origin.mount is goal.mount:
            with _relocated(origin.prefix, origin.inner, goal.inner):
                moved = await origin.mount.backend.move(origin.inner, goal.inner, expected_version=expected_version)
            return tuple(_outer(origin.prefix, entry) for entry in moved)
        if not self.moves_across:
            raise ReadOnly(
                source,
                f"lies in {_named(origin.prefix)} and {target!r} in {_named(goal.prefix)}; copy it and delete it",
            )
        return await move_across(self, source, target, expected_version)

    # --- saving later -----------------------------------------------------------------------------

    def unsaved(self) -> tuple[Unsaved, ...]:
        """Return the files of all mounts that are not saved."""
        found = [
            attrs.evolve(each, path=FilePath(_joined(prefix, each.path)))
            for prefix, backend in self._saving()
            for each in backend.unsaved()
        ]
        return tuple(sorted(found, key=lambda each: each.path))

    async def flush(self, seconds: float = 0.0) -> tuple[Unsaved, ...]:
        """Save everything in all mounts; see `SavingBackend`."""
        await _all_of([partial(backend.flush, seconds) for _, backend in self._saving()])
        return self.unsaved()

    async def keep_saving(self) -> None:
        """Save files of all mounts when their time has come, until cancelled."""
        await _all_of([backend.keep_saving for _, backend in self._saving()])
        await trio.sleep_forever()

    def _saving(self) -> tuple[tuple[str, SavingBackend], ...]:
        return tuple(
            (prefix, mount.backend)
            for prefix, mount in self._mounts.items()
            if isinstance(mount.backend, SavingBackend)
        )

    # --- finding the mount ------------------------------------------------------------------------

    def _place(self, path: FilePath) -> _Place | None:
        prefix = next((prefix for prefix in self._by_length if is_at_or_below(path, prefix)), None)
        if prefix is None:
            return None
        inner = path if not prefix else path[len(prefix) + 1 :]
        return _Place(prefix, self._mounts[prefix], FilePath(inner))

    def _existing(self, path: FilePath) -> _Place:
        place = self._place(path)
        if place is None or not place.inner or self._hidden(place.prefix, path) is not None:
            raise missing(path)
        return place

    def _writable(self, path: FilePath) -> _Place:
        place = self._place(path)
        if place is not None and place.mount.read_only:
            _refuse_if_read_only(path, place)
        key = caseless_key(path)
        for name in (*parents(path), path):
            spelling = self._spellings.get(caseless_key(name))
            if spelling is not None and spelling != name:
                raise FileExists(path, f"differs only by case from {spelling!r}, where a mount is; use that spelling")
        if key in self._spellings:
            raise FileExists(path, "is a mount, or a directory that holds one")
        if place is None:
            names = ", ".join(map(repr, sorted(self._mounts)))
            raise ReadOnly(path, f"lies in no mount; there are {names}")
        return place

    def _heads(self, prefix: str) -> set[str]:
        """Return the keys of the first segments, below a mount, of the mounts that lie within it."""
        start = len(prefix) + 1 if prefix else 0
        return {_head(point[start:]) for point in self._points.values() if point.startswith(_joined(prefix, ""))}

    def _hidden(self, prefix: str, path: str) -> str | None:
        """Say which mount hides a file that lies in the mount of `prefix`, or None."""
        for name in (*parents(FilePath(path)), path):
            point = self._spellings.get(caseless_key(name))
            if point is None or len(point) <= len(prefix):
                continue
            if caseless_key(name) in self._points or name == path:
                return f"is hidden by the mount at {point!r}"
        return None


@lru_cache(1024)
def _key_of_segment(segment: str) -> str:
    return caseless_key(segment)


def _head(path: str) -> str:
    return _key_of_segment(path.partition("/")[0])


def _refuse_if_read_only(path: FilePath, place: _Place) -> None:
    if place.mount.read_only:
        raise ReadOnly(path, f"{_named(place.prefix)} is read-only")


def _named(prefix: str) -> str:
    return f"the mount {prefix!r}" if prefix else "the mount of the root"


def _joined(prefix: str, path: str) -> str:
    return f"{prefix}/{path}" if prefix else path


def _outer(prefix: str, entry: FileEntry) -> FileEntry:
    return attrs.evolve(entry, path=FilePath(_joined(prefix, entry.path))) if prefix else entry


@contextmanager
def _relocated(prefix: str, *inner: str) -> Generator[None]:
    """Give the errors of a mounted backend the paths of the whole tree, and failures the mount's name.

    Args:
        prefix: The mount's prefix.
        inner: The paths within the mount that the call is about; a failure may name something else, such as a store.
    """
    try:
        yield
    except VersionConflict as error:
        raise VersionConflict(_joined(prefix, error.path), error.expected, error.found) from None
    except UnsavedFiles as error:
        raise UnsavedFiles([(_joined(prefix, path), problem) for path, problem in error.files]) from None
    except BackendFailed as error:
        path = _joined(prefix, error.path) if error.path in inner else error.path
        raise BackendFailed(path, f"{_named(prefix)}: {error.problem}") from error
    except FileMissing as error:
        raise missing(_joined(prefix, error.path)) from None
    except (FileError, InvalidPath) as error:
        if not prefix:
            raise
        raise type(error)(_joined(prefix, error.path), error.problem) from None


async def _all_of(calls: Iterable[Callable[[], Awaitable[object]]]) -> None:
    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(call)
