"""Moving files from one backend to another: copy, compare, and only then delete."""

from __future__ import annotations

import trio

from sapwood.errors import BackendFailed, FileError, FileExists, VersionConflict
from sapwood.files._backend import FileBackend, FileEntry, check_deletable, is_at_or_below, moved_path
from sapwood.files._paths import FilePath, normalise

UNDO_SECONDS = 5.0
"""Seconds that taking back a failed change may take."""


async def move_across(
    backend: FileBackend, source: FilePath, target: FilePath, expected_version: int | None
) -> tuple[FileEntry, ...]:
    """Move a file or directory between parts of a backend that share no transaction; raises as `FileBackend.move`.

    All copies are durable and compared before the first original is deleted. An error or a cancellation takes those
    copies back whose originals are certainly still there, so no file is ever left under neither name.

    Raises:
        BackendFailed: also if the move was made in part; the text says how far.
    """
    listed = (await backend.list()).entries
    if any(is_at_or_below(entry.path, target) for entry in listed):
        raise FileExists(target, "exists already; delete it first, or choose another name")
    files = [entry for entry in listed if is_at_or_below(entry.path, source)]
    if expected_version is not None or not files:
        own = next((entry.version for entry in files if entry.path == source), None)
        check_deletable(source, own, expected_version)
    # Originals that may be there still, and their copies.
    copies: list[tuple[FileEntry, FileEntry]] = []
    made: list[FileEntry] = []
    try:
        for entry in files:
            new = normalise(moved_path(entry.path, source, target))
            made.append(await _copy(backend, entry, new))
            copies.append((entry, made[-1]))
        for entry in files:
            await backend.delete(entry.path, expected_version=entry.version)
            del copies[0]
    except FileError as error:
        gone = len(made) - len(copies)
        with trio.move_on_after(UNDO_SECONDS, shield=True):
            await _take_back(backend, copies)
        if not gone and not copies:
            raise
        left = f"; these copies stay: {', '.join(copy.path for _, copy in copies)}" if copies else ""
        problem = f"moved {gone} of {len(files)} files to {target!r}, then: {error}{left}"
        raise BackendFailed(source, problem) from error
    except BaseException:
        with trio.move_on_after(UNDO_SECONDS, shield=True):
            await _take_back(backend, copies)
        raise
    return tuple(made)


async def _copy(backend: FileBackend, entry: FileEntry, new: FilePath) -> FileEntry:
    file = await backend.read(entry.path)
    if file.entry.version != entry.version:
        raise VersionConflict(entry.path, entry.version, file.entry.version)
    made = await backend.write(new, file.data, expected_version=0)
    try:
        is_same = (await backend.read(new)).data == file.data
    except BaseException:
        with trio.move_on_after(UNDO_SECONDS, shield=True):
            await _take_back(backend, [(entry, made)])
        raise
    if not is_same:
        await _take_back(backend, [(entry, made)])
        raise BackendFailed(new, "does not hold what was written to it")
    return made


async def _take_back(backend: FileBackend, copies: list[tuple[FileEntry, FileEntry]]) -> None:
    """Delete copies whose originals are there, and take them out of the list."""
    for pair in tuple(copies):
        original, copy = pair
        try:
            # A deletion that failed or was cancelled may have happened: the copy is then the only one there is.
            if (await backend.stat(original.path)).sha256 == copy.sha256:
                await backend.delete(copy.path, expected_version=copy.version)
                copies.remove(pair)
        except FileError:
            continue
