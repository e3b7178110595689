"""Copying the files of a filesystem into a real directory."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial

import attrs

from sapwood.actors import Environment
from sapwood.errors import FileError, FileExists, FileMissing
from sapwood.files._backend import FileData, FileEntry, Skipped, digest
from sapwood.files._oserrors import translated
from sapwood.files._paths import FilePath
from sapwood.files._root import TEMPORARY_PREFIX, Root, quietly_unlink, sync, write_temporary
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
class _Step:
    entry: FileEntry
    action: Action
    there: str | None


async def export_directory(
    files: FileStore,
    directory: str | os.PathLike[str],
    environment: Environment,
    *,
    pattern: str = "**",
    conflicts: Conflicts = "fail",
    dry_run: bool = False,
) -> TransferReport:
    """Copy files of a filesystem into a real directory, each under the path that it has.

    First everything is compared; with `conflicts="fail"` a file of another content in the directory refuses the export
    before anything is written. Then each file is written beside its target, synced, and renamed, so a crash leaves
    each file old or new. Links and special files in the directory are never followed or replaced; such a file is
    `failed` in the report. What else lies in the directory stays. POSIX only.

    Args:
        files: The filesystem. Files that a deny rule hides are not exported.
        directory: The directory, which must exist.
        environment: Threads, time, and names of temporary files.
        pattern: Glob of the files to copy.
        conflicts: What to do with a file that is there with another content.
        dry_run: Only say what would be done.

    Raises:
        FileExists: if files with another content are there and `conflicts` is `fail`.
        BackendFailed: if the directory or the filesystem cannot be read.
        InvalidPattern, InvalidOption: if an argument cannot be used.
    """
    check_policy(conflicts)
    root = os.fspath(directory)
    await environment.in_thread(_require_directory, root)
    steps: list[_Step] = []
    failed: list[Skipped] = []
    different: list[FilePath] = []
    for entry in (await files.ls(pattern, limit=ANY)).entries:
        try:
            there = await environment.in_thread(_digest_there, root, entry.path)
        except FileError as error:
            failed.append(Skipped(entry.path, error.problem))
            continue
        action = decide(there, entry.sha256, conflicts)
        if action is None:
            different.append(entry.path)
        else:
            steps.append(_Step(entry, action, there))
    refuse(different)
    done: list[Transferred] = []
    for step in steps:
        if not dry_run and step.action in {"create", "replace"}:
            try:
                file = await files.read_bytes(step.entry.path)
                temporary = environment.new_id(TEMPORARY_PREFIX)
                await environment.in_thread(partial(_write, root, file, step.there, temporary))
            except FileError as error:
                failed.append(Skipped(step.entry.path, error.problem))
                continue
        done.append(Transferred(step.entry.path, step.action, step.entry.size))
    return TransferReport(tuple(done), (), tuple(failed), dry_run)


def _require_directory(root: str) -> None:
    with translated(root, changing=False):
        Root(root, 1).close()


def _digest_there(root: str, path: FilePath) -> str | None:
    with translated(path, changing=False), closing(Root(root, ANY)) as opened:
        try:
            with opened.place(path) as place:
                return None if place.found is None else digest(opened.read(path, place)[0])
        except FileMissing:
            return None


def _write(root: str, file: FileData, there: str | None, temporary: str) -> None:
    path = file.entry.path
    with (
        translated(path, changing=True),
        closing(Root(root, ANY)) as opened,
        opened.place(path, create=True) as place,
    ):
        found = None if place.found is None else digest(opened.read(path, place)[0])
        if found != there:
            raise FileExists(path, "was changed in the directory while the files were exported; export them again")
        mode = None if place.found is None else place.found.st_mode
        try:
            write_temporary(place.directory, temporary, file.data, mode, int(file.entry.modified * 1e9))
            os.rename(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
        except BaseException:
            quietly_unlink(place.directory, temporary)
            raise
        sync(place.directory)
