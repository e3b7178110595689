"""Copying a real directory into a filesystem."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial

import attrs

from sapwood.actors import Environment
from sapwood.errors import FileError, FileExists, FileMissing, QuotaExceeded
from sapwood.files._backend import FileEntry, Skipped, digest
from sapwood.files._glob import Glob
from sapwood.files._oserrors import translated
from sapwood.files._paths import FilePath, PathIndex, normalise
from sapwood.files._quota import Quota
from sapwood.files._root import Root
from sapwood.files._transfer import (
    ANY,
    Action,
    Conflicts,
    FileStore,
    Transferred,
    TransferReport,
    check_policy,
    decide,
    refuse,
)


@attrs.frozen
class _Found:
    """A file of the directory as it was when the import was planned."""

    source: FilePath
    size: int
    sha256: str


@attrs.frozen
class _Step:
    found: _Found
    target: FilePath
    action: Action
    version: int


async def import_directory(
    files: FileStore,
    directory: str | os.PathLike[str],
    environment: Environment,
    *,
    into: str = "",
    pattern: str = "**",
    conflicts: Conflicts = "fail",
    dry_run: bool = False,
    limits: Quota | None = None,
) -> TransferReport:
    """Copy the files of a real directory into a filesystem.

    First everything is looked at; what would exceed a limit or, with `conflicts="fail"`, meet another content refuses
    the import before anything is changed. Then the files are written one after another, each atomically and only if
    the target is still at the version that was seen. A file that fails is in the report and the others go on.

    Links are never followed, neither as files nor as directories; they, special files, files with several hard links
    and names that `normalise` refuses are in the report under `skipped`. POSIX only.

    Args:
        files: The filesystem.
        directory: The directory, which must exist.
        environment: Threads.
        into: Directory of the filesystem to copy into; by default its root.
        pattern: Glob of the files of the directory to copy, as seen from it.
        conflicts: What to do with a file that is there with another content; see `decide` in the guide.
        dry_run: Only say what would be done.
        limits: Limits of what is read: larger files are skipped, more files or bytes are refused. Default `Quota()`.

    Raises:
        FileExists: if files with another content are there and `conflicts` is `fail`.
        QuotaExceeded: if a limit of the filesystem, or of `limits`, would be exceeded.
        BackendFailed: if the directory or the filesystem cannot be read.
        InvalidPath, InvalidPattern, InvalidOption: if an argument cannot be used.
    """
    check_policy(conflicts)
    glob = Glob(pattern)
    top = into.rstrip("/")
    prefix = f"{normalise(top)}/" if top else ""
    root = os.fspath(directory)
    found, skipped = await environment.in_thread(_look, root, glob, limits if limits is not None else Quota())
    steps, failed = await _planned(files, found, prefix, conflicts)
    done: list[Transferred] = []
    for step in steps:
        if not dry_run and step.action in {"create", "replace"}:
            try:
                data = await environment.in_thread(partial(_read, root, step.found))
                await files.write_bytes(step.target, data, expected_version=step.version)
            except FileError as error:
                failed.append(Skipped(step.target, error.problem))
                continue
        done.append(Transferred(step.target, step.action, step.found.size))
    return TransferReport(tuple(done), tuple(skipped), tuple(failed), dry_run)


async def _planned(
    files: FileStore, found: list[_Found], prefix: str, conflicts: Conflicts
) -> tuple[list[_Step], list[Skipped]]:
    """Decide about each file before any is written."""
    statistics = await files.statistics()
    count, total = statistics.counted_files, statistics.counted_bytes
    index = PathIndex(entry.path for entry in (await files.ls(limit=ANY)).entries)
    steps: list[_Step] = []
    failed: list[Skipped] = []
    different: list[FilePath] = []
    for each in found:
        try:
            target = normalise(prefix + each.source)
            old = await _stat(files, target, index)
        except FileError as error:
            failed.append(Skipped(prefix + each.source, error.problem))
            continue
        action = decide(None if old is None else old.sha256, each.sha256, conflicts)
        if action is None:
            different.append(target)
            continue
        if action in {"create", "replace"}:
            size = None if old is None else old.size
            statistics.limits.check(target, size, each.size, files=count, total_bytes=total)
            count, total = count + (size is None), total + each.size - (size or 0)
            index.add(target)
        steps.append(_Step(each, target, action, 0 if old is None else old.version))
    refuse(different)
    if failed and conflicts == "fail":
        raise FileExists(failed[0].name, f"{failed[0].reason}; nothing was copied")
    return steps, failed


async def _stat(files: FileStore, path: FilePath, index: PathIndex) -> FileEntry | None:
    """Return what is there, or None if a file can be made there."""
    try:
        return await files.stat(path)
    except FileMissing:
        collision = index.collision(path)
        if collision is not None:
            raise FileExists(path, collision) from None
        return None


def _look(root: str, glob: Glob, limits: Quota) -> tuple[list[_Found], list[Skipped]]:
    with translated(root, changing=False), closing(Root(root, limits.max_file_bytes)) as opened:
        skipped: list[Skipped] = []
        found: list[_Found] = []
        total = 0
        with closing(opened.walk(skipped, lambda _directory, _name: None)) as walk:
            for file in walk:
                if not glob.matches(file.path):
                    continue
                try:
                    data, _ = file.read()
                except FileError as error:
                    skipped.append(Skipped(file.path, error.problem))
                    continue
                total += len(data)
                if len(found) == limits.max_files or total > limits.max_total_bytes:
                    problem = f"holds more than {limits.max_files} files or {limits.max_total_bytes} bytes to import"
                    raise QuotaExceeded(root, f"{problem}; narrow the pattern or raise the limits")
                found.append(_Found(file.path, len(data), digest(data)))
        return sorted(found, key=lambda file: file.source), skipped


def _read(root: str, found: _Found) -> bytes:
    with (
        translated(found.source, changing=False),
        closing(Root(root, found.size)) as opened,
        opened.place(found.source) as place,
    ):
        data, _ = opened.read(found.source, place)
    if digest(data) != found.sha256:
        raise FileExists(found.source, "was changed while the directory was imported; import it again")
    return data
