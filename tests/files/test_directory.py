"""The backend on a real directory: no way out of it, and nothing half done."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from sapwood.actors import RealEnvironment
from sapwood.errors import (
    BackendFailed,
    FileError,
    FileExists,
    FileMissing,
    InvalidPath,
    QuotaExceeded,
    ReadOnly,
    VersionConflict,
)
from sapwood.files import DirectoryBackend, FileTree, normalise

F = normalise("dir/f.txt")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
async def backend(root: Path, environment: RealEnvironment) -> AsyncIterator[DirectoryBackend]:
    made = DirectoryBackend(root, environment)
    await made.open()
    yield made
    await made.close()


def on_disk(root: Path) -> dict[str, bytes | None]:
    """Return what lies below a directory, links as None, the private part left out."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in sorted(root.rglob("*"))
        if not path.is_dir() and ".sapwood" not in path.parts
    }


async def reopen(backend: DirectoryBackend) -> None:
    """Forget everything that is not on the disk."""
    await backend.close()
    await backend.open()


# --- no way out -------------------------------------------------------------------------------


async def refuse_everything(backend: DirectoryBackend, path: str, error: type[FileError], reason: str) -> None:
    name = normalise(path)
    calls: list[Callable[[], Any]] = [
        lambda: backend.read(name),
        lambda: backend.stat(name),
        lambda: backend.write(name, b"attack"),
        lambda: backend.write(name, b"attack", expected_version=0),
        lambda: backend.delete(name),
        lambda: backend.move(name, normalise("stolen")),
    ]
    for call in calls:
        with pytest.raises(error, match=reason):
            await call()


@pytest.mark.row("BR-37")
async def test_a_symbolic_link_is_never_followed_neither_as_file_nor_as_directory(
    backend: DirectoryBackend, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "file").symlink_to(outside / "secret")
    (root / "dangling").symlink_to(outside / "new")
    (root / "folder").symlink_to(outside)
    (root / "inside").symlink_to(root)
    (root / "sub").mkdir()
    (root / "sub" / "up").symlink_to("..")

    for path in ("file", "dangling", "folder", "folder/secret", "folder/new", "inside/x", "sub/up/x"):
        await refuse_everything(backend, path, InvalidPath, "symbolic link, which is never followed")

    listing = await backend.list()
    assert listing.entries == ()
    assert {skipped.name for skipped in listing.skipped} == {"file", "dangling", "folder", "inside", "sub/up"}
    assert all("symbolic link" in skipped.reason for skipped in listing.skipped)
    assert on_disk(outside) == {"secret": b"secret"}


async def test_pipes_sockets_and_devices_are_refused_without_opening_them(
    backend: DirectoryBackend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(root)  # the path of a socket must be short
        listener.bind("socket")
        with trio.fail_after(10):
            await refuse_everything(backend, "pipe", InvalidPath, "named pipe")
            await refuse_everything(backend, "socket", InvalidPath, "socket")
            assert {skipped.name for skipped in (await backend.list()).skipped} == {"pipe", "socket"}


async def test_a_file_with_a_second_hard_link_is_refused_until_it_is_alone(
    backend: DirectoryBackend, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_text("outside")
    os.link(tmp_path / "outside", root / "f")
    await refuse_everything(backend, "f", InvalidPath, "2 hard links")
    assert [skipped.name for skipped in (await backend.list()).skipped] == ["f"]
    assert (tmp_path / "outside").read_text() == "outside"

    (tmp_path / "outside").unlink()
    assert (await backend.read(normalise("f"))).data == b"outside"


async def test_a_directory_is_no_file_and_its_files_stay(backend: DirectoryBackend) -> None:
    await backend.write(F, b"x")
    for call in (backend.read(normalise("dir")), backend.stat(normalise("dir")), backend.delete(normalise("dir"))):
        with pytest.raises(FileMissing):
            await call
    with pytest.raises(FileExists, match="is a directory"):
        await backend.write(normalise("dir"), b"attack")
    with pytest.raises(FileExists, match=r"'f\.txt' is a file"):
        await backend.write(normalise("dir/f.txt/below"), b"attack")
    assert (await backend.read(F)).data == b"x"


class Swap:
    """Stands for the module `os` and runs something just before a call, as an attacker beside the process would."""

    def __init__(self, name: str, action: Callable[[], object], *, when: Callable[..., bool] = lambda *_: True) -> None:
        self._name = name
        self._action: Callable[[], object] | None = action
        self._when = when

    def __getattr__(self, name: str) -> Any:
        original = getattr(os, name)
        if name != self._name:
            return original

        def call(*arguments: Any, **keywords: Any) -> Any:
            if self._action is not None and self._when(*arguments):
                action, self._action = self._action, None
                action()
            return original(*arguments, **keywords)

        return call

    @property
    def done(self) -> bool:
        return self._action is None


class Replaced:
    """Stands for the module `os` with one function replaced."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function

    def __getattr__(self, name: str) -> Any:
        return self._function if name == self._name else getattr(os, name)


def replace_by_link(path: Path, target: Path) -> Callable[[], None]:
    def action() -> None:
        path.rename(path.with_name("moved"))
        path.symlink_to(target)

    return action


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    made = tmp_path / "outside"
    made.mkdir()
    (made / "f.txt").write_bytes(b"outside")
    return made


def instead_of_os(monkeypatch: pytest.MonkeyPatch, stand_in: object) -> None:
    for module in ("_root", "_open_directory", "_ledger"):
        monkeypatch.setattr(f"sapwood.files.{module}.os", stand_in)


@pytest.mark.parametrize("call", ["read", "stat", "write", "delete"])
async def test_a_directory_swapped_for_a_link_between_look_and_open_leads_nowhere(
    backend: DirectoryBackend, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    await backend.write(F, b"inside")
    swap = Swap("open", replace_by_link(root / "dir", outside), when=lambda name, *_: name == "dir")
    instead_of_os(monkeypatch, swap)

    arguments = (F, b"attack") if call == "write" else (F,)
    with pytest.raises(InvalidPath, match="symbolic link"):
        await getattr(backend, call)(*arguments)

    assert swap.done
    assert on_disk(outside) == {"f.txt": b"outside"}
    assert (root / "moved" / "f.txt").read_bytes() == b"inside"


async def test_a_file_swapped_for_a_link_between_look_and_open_is_not_read(
    backend: DirectoryBackend, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.write(F, b"inside")
    swap = Swap("open", replace_by_link(root / F, outside / "f.txt"), when=lambda name, *_: name == "f.txt")
    instead_of_os(monkeypatch, swap)

    with pytest.raises(InvalidPath, match="never followed"):
        await backend.read(F)
    assert swap.done


async def test_a_file_swapped_for_a_pipe_between_look_and_open_is_not_read(
    backend: DirectoryBackend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.write(F, b"inside")

    def swap_for_pipe() -> None:
        (root / F).unlink()
        os.mkfifo(root / F)

    instead_of_os(monkeypatch, Swap("open", swap_for_pipe, when=lambda name, *_: name == "f.txt"))
    with trio.fail_after(10), pytest.raises(InvalidPath, match="named pipe"):
        await backend.read(F)


async def test_a_file_swapped_for_a_link_just_before_the_rename_loses_the_link_and_not_its_target(
    backend: DirectoryBackend, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.write(F, b"inside")
    swap = Swap("rename", replace_by_link(root / F, outside / "f.txt"))
    instead_of_os(monkeypatch, swap)

    await backend.write(F, b"new")

    assert swap.done
    assert on_disk(outside) == {"f.txt": b"outside"}
    assert not (root / F).is_symlink()
    assert (root / F).read_bytes() == b"new"


async def test_a_directory_swapped_for_a_link_just_before_the_rename_keeps_the_write_where_it_was_opened(
    backend: DirectoryBackend, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.write(F, b"inside")
    instead_of_os(monkeypatch, Swap("rename", replace_by_link(root / "dir", outside)))

    await backend.write(F, b"new")

    assert on_disk(outside) == {"f.txt": b"outside"}
    assert (root / "moved" / "f.txt").read_bytes() == b"new"


async def test_a_private_directory_that_is_a_link_is_refused_at_open(
    root: Path, outside: Path, environment: RealEnvironment
) -> None:
    (root / ".sapwood").symlink_to(outside)
    with pytest.raises(BackendFailed):
        await DirectoryBackend(root, environment).open()
    assert on_disk(outside) == {"f.txt": b"outside"}


@pytest.mark.row("BR-38")
async def test_names_that_the_rules_refuse_are_named_as_skipped(backend: DirectoryBackend, root: Path) -> None:
    (root / "a\u202eb").write_text("x")
    (root / "trailing.").write_text("x")
    os.close(os.open(os.fsencode(root) + b"/\xff\xfe", os.O_CREAT | os.O_WRONLY))
    (root / "ok").write_text("x")

    listing = await backend.list()

    assert [entry.path for entry in listing.entries] == ["ok"]
    reasons = {skipped.name: skipped.reason for skipped in listing.skipped}
    assert set(reasons) == {"a\u202eb", "trailing.", "\\udcff\\udcfe"}
    assert "lone surrogate" in reasons["\\udcff\\udcfe"]


# --- Unicode and case on the disk ---------------------------------------------------------------


@pytest.mark.row("BR-38")
async def test_a_file_that_lies_decomposed_on_the_disk_is_reached_in_either_form(
    backend: DirectoryBackend, root: Path
) -> None:
    (root / "U\u0308b").mkdir()
    (root / "U\u0308b" / "e\u0301").write_bytes(b"one")
    path = normalise("\xdcb/\xe9")

    assert [entry.path for entry in (await backend.list()).entries] == [path]
    assert (await backend.read(path)).data == b"one"
    await backend.write(path, b"two")
    assert on_disk(root) == {"U\u0308b/e\u0301": b"two"}
    await backend.delete(path)
    assert on_disk(root) == {}


@pytest.mark.row("BR-38")
async def test_of_two_forms_on_the_disk_the_composed_one_counts_and_the_other_is_named(
    backend: DirectoryBackend, root: Path
) -> None:
    (root / "\xe9").write_bytes(b"composed")
    (root / "e\u0301").write_bytes(b"decomposed")
    listing = await backend.list()
    assert [entry.path for entry in listing.entries] == ["\xe9"]
    assert [(skipped.name, "another spelling" in skipped.reason) for skipped in listing.skipped] == [("e\u0301", True)]
    assert (await backend.read(normalise("\xe9"))).data == b"composed"


@pytest.mark.row("BR-37")
async def test_a_name_on_the_disk_in_another_case_is_neither_reached_nor_doubled(
    backend: DirectoryBackend, root: Path
) -> None:
    (root / "Notes").mkdir()
    (root / "Notes" / "Todo.md").write_text("x")
    with pytest.raises(FileMissing):
        await backend.read(normalise("notes/todo.md"))
    for path in ("notes/other.md", "Notes/TODO.md", "NOTES"):
        with pytest.raises(FileExists, match="only by case"):
            await backend.write(normalise(path), b"y")
    assert on_disk(root) == {"Notes/Todo.md": b"x"}


# --- changes from outside -----------------------------------------------------------------------


async def test_a_file_changed_from_outside_gets_a_higher_version(backend: DirectoryBackend, root: Path) -> None:
    await backend.write(F, b"one")
    (root / F).write_bytes(b"two")
    assert (await backend.stat(F)).version == 2
    with pytest.raises(VersionConflict):
        await backend.write(F, b"lost", expected_version=1)
    assert (await backend.read(F)).data == b"two"
    (root / F).write_bytes(b"three")
    assert [entry.version for entry in (await backend.list()).entries] == [3]


async def test_a_change_that_keeps_size_and_time_is_seen_before_it_is_overwritten(
    backend: DirectoryBackend, root: Path
) -> None:
    await backend.write(F, b"one")
    state = (root / F).stat()
    (root / F).write_bytes(b"two")
    os.utime(root / F, ns=(state.st_mtime_ns, state.st_mtime_ns))
    with pytest.raises(VersionConflict) as caught:
        await backend.write(F, b"lost", expected_version=1)
    assert caught.value.found == 2
    assert (root / F).read_bytes() == b"two"


async def test_a_file_changed_in_place_while_it_is_read_is_read_again(
    backend: DirectoryBackend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.write(F, b"aaaabbbb")
    monkeypatch.setattr("sapwood.files._root._CHUNK", 4)
    reads = 0

    def at_the_second_read(*_: object) -> bool:
        nonlocal reads
        reads += 1
        return reads == 2

    instead_of_os(monkeypatch, Swap("read", lambda: (root / F).write_bytes(b"ccccdddd"), when=at_the_second_read))
    assert (await backend.read(F)).data == b"ccccdddd"


async def test_a_file_that_never_stops_changing_is_not_read_in_pieces(
    backend: DirectoryBackend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.write(F, b"aaaa")
    calls = 0

    def change_and_read(fd: int, length: int) -> bytes:
        nonlocal calls
        calls += 1
        if calls % 2:
            with (root / F).open("ab") as file:
                file.write(b"b")
        return os.read(fd, length)

    instead_of_os(monkeypatch, Replaced("read", change_and_read))
    with pytest.raises(BackendFailed, match="keeps being changed"):
        await backend.read(F)


async def test_touching_a_file_is_no_change(backend: DirectoryBackend, root: Path) -> None:
    await backend.write(F, b"one")
    os.utime(root / F, (1, 1))
    assert (await backend.stat(F)).version == 1


async def test_a_file_removed_and_made_anew_from_outside_gets_a_higher_version(
    backend: DirectoryBackend, root: Path
) -> None:
    for _ in range(3):
        await backend.write(F, b"one")
    (root / F).unlink()
    assert (await backend.list()).entries == ()
    (root / F).write_bytes(b"anew")
    assert (await backend.stat(F)).version > 3


@pytest.mark.row("S4-061")
async def test_files_and_versions_outlive_the_backend(
    backend: DirectoryBackend, root: Path, environment: RealEnvironment
) -> None:
    for number in range(3):
        await backend.write(F, str(number).encode())
    await backend.write(normalise("gone"), b"x")
    await backend.write(normalise("gone"), b"x")
    await backend.delete(normalise("gone"))

    await reopen(backend)
    assert [(entry.path, entry.version) for entry in (await backend.list()).entries] == [(F, 3)]
    assert (await backend.write(normalise("gone"), b"back")).version == 3
    assert (await backend.write(F, b"next", expected_version=3)).version == 4


async def test_a_file_changed_while_nobody_watched_gets_a_higher_version(
    backend: DirectoryBackend, root: Path, environment: RealEnvironment
) -> None:
    await backend.write(F, b"one")
    await backend.close()
    (root / F).write_bytes(b"two")
    await reopen(backend)
    assert (await backend.read(F)).entry.version == 2


# --- opening ----------------------------------------------------------------------------------


async def test_a_root_that_is_missing_or_no_directory_is_refused_and_not_made(
    tmp_path: Path, environment: RealEnvironment
) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(BackendFailed, match=r"ENOENT|ENOTDIR"):
            await DirectoryBackend(path, environment).open()
    assert not (tmp_path / "missing").exists()


async def test_an_operation_before_open_says_so(root: Path, environment: RealEnvironment) -> None:
    with pytest.raises(BackendFailed, match=r"call open\(\) first"):
        await DirectoryBackend(root, environment).list()


OPENER = """
import sys, trio
from sapwood.actors import RealEnvironment
from sapwood.files import DirectoryBackend
from sapwood.errors import BackendFailed

async def main():
    reader = DirectoryBackend(sys.argv[1], RealEnvironment(), read_only=True)
    await reader.open()
    print(len((await reader.list()).entries), "files")
    await reader.close()
    try:
        await DirectoryBackend(sys.argv[1], RealEnvironment()).open()
    except BackendFailed as error:
        print(error)
    else:
        print("opened")

trio.run(main)
"""


async def test_only_one_process_may_write_to_a_root_at_a_time_while_others_read(
    backend: DirectoryBackend, root: Path
) -> None:
    await backend.write(F, b"x")
    refused = await trio.to_thread.run_sync(run_script, OPENER, root)
    await backend.close()
    opened = await trio.to_thread.run_sync(run_script, OPENER, root)

    assert refused.stdout.startswith("1 files\n"), refused.stderr
    assert "is open for writing in another process" in refused.stdout
    assert opened.stdout == "1 files\nopened\n", opened.stderr


async def test_the_backend_opened_last_has_the_root_and_the_former_is_refused(
    backend: DirectoryBackend, root: Path, environment: RealEnvironment
) -> None:
    await backend.write(F, b"one")
    successor = DirectoryBackend(root, environment)
    await successor.open()
    await successor.write(F, b"two", expected_version=1)

    for call in (backend.write(F, b"lost"), backend.read(F), backend.list(), backend.delete(F)):
        with pytest.raises(BackendFailed, match="was opened anew"):
            await call
    read = await successor.read(F)
    assert (read.data, read.entry.version) == (b"two", 2)

    await backend.close()
    await successor.write(F, b"three", expected_version=2)
    await successor.close()


async def test_a_backend_that_is_dropped_without_closing_gives_its_root_free(
    root: Path, environment: RealEnvironment
) -> None:
    before = len([*Path("/dev/fd").iterdir()])
    for _ in range(3):
        backend = DirectoryBackend(root, environment)
        await backend.open()
        await backend.write(F, b"x")
        del backend
    gc.collect()
    assert len([*Path("/dev/fd").iterdir()]) == before
    opened = await trio.to_thread.run_sync(run_script, OPENER, root)
    assert opened.stdout == "1 files\nopened\n", opened.stderr


async def test_leftovers_of_unfinished_writes_are_removed_at_open(
    backend: DirectoryBackend, root: Path, environment: RealEnvironment
) -> None:
    await backend.write(F, b"x")
    leftover = root / "dir" / f".sapwood-{'0' * 32}"
    leftover.write_bytes(b"half")
    await reopen(backend)
    assert not leftover.exists()
    assert (await backend.list()).skipped == ()


async def test_a_damaged_ledger_is_refused_with_its_line_and_a_torn_end_is_not(
    backend: DirectoryBackend, root: Path, environment: RealEnvironment
) -> None:
    await backend.write(F, b"one")
    await backend.write(F, b"two")
    await backend.close()
    ledger = root / ".sapwood" / "versions.jsonl"
    good = ledger.read_bytes()

    ledger.write_bytes(good[:-10])
    await reopen(backend)
    assert (await backend.read(F)).entry.version == 2
    assert (await backend.write(F, b"three")).version == 3
    await backend.close()

    # A torn end that is longer than the line which takes its place.
    ledger.write_bytes(good + b'["put","' + b"x" * 1000)
    await backend.open()
    await backend.write(F, b"four")
    await reopen(backend)
    assert (await backend.read(F)).data == b"four"
    await backend.close()

    for damaged, line in [(good.replace(b'"put"', b'"pot"', 1), 2), (b"[]\n" + good, 1), (b'["x"]\n', 1)]:
        ledger.write_bytes(damaged)
        with pytest.raises(BackendFailed, match=f"line {line} is damaged"):
            await DirectoryBackend(root, environment).open()
        assert ledger.read_bytes() == damaged
    ledger.write_bytes(good.replace(b'versions",1]', b'versions",2]'))
    with pytest.raises(BackendFailed, match="format 2, this code knows 1"):
        await DirectoryBackend(root, environment).open()


async def test_a_failed_write_leaves_no_trace_in_the_ledger(
    backend: DirectoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        instead_of_os(patched, Fault("rename", 1, errno.EIO))
        with pytest.raises(BackendFailed):
            await backend.write(normalise("x" * 200), b"x")
    await backend.write(normalise("y"), b"y")
    await reopen(backend)
    assert [(entry.path, entry.version) for entry in (await backend.list()).entries] == [("y", 1)]


async def test_the_ledger_does_not_grow_with_the_number_of_writes(
    root: Path, environment: RealEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.files._ledger._SPARE_LINES", 20)
    backend = DirectoryBackend(root, environment)
    await backend.open()
    for number in range(200):
        await backend.write(F, str(number).encode())
    await backend.delete(F)
    lines = (root / ".sapwood" / "versions.jsonl").read_text().splitlines()
    assert len(lines) < 40
    await reopen(backend)
    assert (await backend.write(F, b"x")).version == 201


async def test_a_read_only_backend_writes_nothing_at_all(root: Path, environment: RealEnvironment) -> None:
    (root / "f").write_bytes(b"x")
    leftover = root / f".sapwood-{'0' * 32}"
    leftover.write_bytes(b"half")
    backend = DirectoryBackend(root, environment, read_only=True)
    await backend.open()
    assert [entry.path for entry in (await backend.list()).entries] == ["f"]
    for call in (backend.write(normalise("f"), b"y"), backend.delete(normalise("f"))):
        with pytest.raises(ReadOnly, match="opened read-only"):
            await call
    await backend.close()
    assert sorted(path.name for path in root.iterdir()) == [leftover.name, "f"]


async def test_files_that_are_too_large_or_too_many_are_said_to_be(root: Path, environment: RealEnvironment) -> None:
    (root / "large").write_bytes(b"x" * 11)
    (root / "small").write_bytes(b"x" * 10)
    backend = DirectoryBackend(root, environment, max_file_bytes=10)
    await backend.open()
    listing = await backend.list()
    assert [entry.path for entry in listing.entries] == ["small"]
    assert [skipped.name for skipped in listing.skipped] == ["large"]
    for call in (backend.read(normalise("large")), backend.write(normalise("large"), b"y")):
        with pytest.raises(QuotaExceeded, match="11 bytes long; files of more than 10 are neither"):
            await call
    with pytest.raises(QuotaExceeded, match="11 bytes long"):
        await backend.write(normalise("new"), b"x" * 11)
    await backend.close()
    with pytest.raises(BackendFailed, match="more than 1 files"):
        await DirectoryBackend(root, environment, max_files=1, max_file_bytes=100).open()


# --- writing ----------------------------------------------------------------------------------


async def test_the_permissions_of_a_replaced_file_are_kept_without_special_bits(
    backend: DirectoryBackend, root: Path
) -> None:
    await backend.write(F, b"#!/bin/sh")
    (root / F).chmod(0o4750)
    await backend.write(F, b"#!/bin/sh\n")
    assert stat.S_IMODE((root / F).stat().st_mode) == 0o750


async def test_directories_are_made_for_files_and_removed_with_the_last_one(
    backend: DirectoryBackend, root: Path
) -> None:
    await backend.write(normalise("a/b/c/f"), b"x")
    await backend.write(normalise("a/g"), b"x")
    await backend.delete(normalise("a/b/c/f"))
    assert not (root / "a" / "b").exists()
    await backend.delete(normalise("a/g"))
    assert [path.name for path in root.iterdir()] == [".sapwood"]


async def test_an_empty_directory_on_the_disk_is_in_nobodys_way(backend: DirectoryBackend, root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    await backend.write(normalise("a"), b"now a file")
    assert on_disk(root) == {"a": b"now a file"}


FAULTS = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES]
ERRORS = {
    errno.ENOSPC: (QuotaExceeded, "no room: No space left on device .ENOSPC."),
    errno.EDQUOT: (QuotaExceeded, "EDQUOT"),
    errno.EIO: (BackendFailed, "EIO"),
    errno.EROFS: (ReadOnly, "EROFS"),
    errno.EACCES: (ReadOnly, "EACCES"),
}


class Fault:
    """Stands for the module `os` and fails the n-th call of one function."""

    def __init__(self, name: str, number: int, code: int) -> None:
        self._name = name
        self._left = number
        self._code = code

    def __getattr__(self, name: str) -> Any:
        original = getattr(os, name)
        if name != self._name:
            return original

        def call(*arguments: Any, **keywords: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                raise OSError(self._code, os.strerror(self._code))
            return original(*arguments, **keywords)

        return call

    @property
    def hit(self) -> bool:
        return self._left <= 0


# Each step of a write: the function, and which of its calls. The last sync, of the directory, is a case of its own.
STEPS = [
    ("rename", 1),
    ("open", 1),
    ("mkdir", 1),
    ("fsync", 1),
    ("open", 2),
    ("open", 3),
    ("write", 1),
    ("utime", 1),
    ("fsync", 2),
    ("pwrite", 1),
    ("fsync", 3),
]


@pytest.mark.row("AR-22.20")
@pytest.mark.parametrize("code", FAULTS)
@pytest.mark.parametrize("step", STEPS)
async def test_a_failure_at_any_step_before_the_rename_changes_nothing_and_names_the_cause(
    backend: DirectoryBackend, root: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[str, int], code: int
) -> None:
    await backend.write(normalise("other"), b"other")
    fault = Fault(*step, code)
    error, reason = ERRORS[code]
    with monkeypatch.context() as patched:
        instead_of_os(patched, fault)
        with pytest.raises(error, match=reason):
            await backend.write(F, b"new")
    assert fault.hit
    assert sorted(path.name for path in root.iterdir()) == [".sapwood", "other"]
    assert [(entry.path, entry.version) for entry in (await backend.list()).entries] == [("other", 1)]

    assert (await backend.write(F, b"again")).version == 1
    await reopen(backend)
    assert {entry.path: entry.version for entry in (await backend.list()).entries} == {"other": 1, F: 1}


@pytest.mark.parametrize(
    ("function", "number"), [("write", 1), ("fsync", 1), ("pwrite", 1), ("fsync", 2), ("rename", 1)]
)
async def test_a_failed_overwrite_leaves_the_old_content_at_its_version(
    backend: DirectoryBackend, root: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: int
) -> None:
    await backend.write(F, b"old")
    before = await backend.list()
    with monkeypatch.context() as patched:
        instead_of_os(patched, Fault(function, number, errno.ENOSPC))
        with pytest.raises(QuotaExceeded):
            await backend.write(F, b"new")
    assert await backend.list() == before
    assert on_disk(root) == {F: b"old"}
    assert (await backend.write(F, b"new", expected_version=1)).version == 2


@pytest.mark.parametrize(("function", "number"), [("pwrite", 1), ("fsync", 1), ("rename", 1), ("mkdir", 1)])
@pytest.mark.parametrize("source", [F, "dir"])
async def test_a_failed_move_leaves_everything_at_its_name_and_version(
    backend: DirectoryBackend, root: Path, monkeypatch: pytest.MonkeyPatch, *, source: str, function: str, number: int
) -> None:
    await backend.write(F, b"old")
    before = await backend.list()
    with monkeypatch.context() as patched:
        instead_of_os(patched, Fault(function, number, errno.ENOSPC))
        with pytest.raises(QuotaExceeded):
            await backend.move(normalise(source), normalise("new/name"))
    assert await backend.list() == before
    assert on_disk(root) == {F: b"old"}
    assert not (root / "new").exists()
    await reopen(backend)
    (entry,) = (await backend.list()).entries
    assert (await backend.move(normalise(source), normalise("new/name")))[0].version > entry.version


async def test_what_a_listing_skips_below_a_directory_moves_along(backend: DirectoryBackend, root: Path) -> None:
    await backend.write(F, b"x")
    (root / "dir" / "link").symlink_to("/etc/passwd")
    (entry,) = await backend.move(normalise("dir"), normalise("other"))
    assert entry.path == "other/f.txt"
    assert on_disk(root) == {"other/f.txt": b"x", "other/link": None}


async def test_a_move_looks_at_what_somebody_else_did_before(backend: DirectoryBackend, root: Path) -> None:
    await backend.write(F, b"mine")
    (root / F).write_bytes(b"theirs")
    with pytest.raises(VersionConflict, match="is at version 2, but version 1"):
        await backend.move(F, normalise("g.txt"), expected_version=1)
    (entry,) = await backend.move(F, normalise("g.txt"), expected_version=2)
    assert ((await backend.read(entry.path)).data, entry.version) == (b"theirs", 3)
    await reopen(backend)
    assert await backend.stat(entry.path) == entry


@pytest.mark.parametrize(("function", "number"), [("pwrite", 1), ("fsync", 1), ("unlink", 1)])
async def test_a_failed_deletion_leaves_the_file_at_its_version(
    backend: DirectoryBackend, root: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: int
) -> None:
    await backend.write(F, b"old")
    with monkeypatch.context() as patched:
        instead_of_os(patched, Fault(function, number, errno.EIO))
        with pytest.raises(BackendFailed, match="EIO"):
            await backend.delete(F)
    assert on_disk(root) == {F: b"old"}
    assert (await backend.write(F, b"new", expected_version=1)).version == 2


async def test_a_directory_sync_that_fails_after_the_rename_is_said_to_have_changed_the_file(
    backend: DirectoryBackend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.write(F, b"old")
    with monkeypatch.context() as patched:
        instead_of_os(patched, Fault("fsync", 3, errno.EIO))
        with pytest.raises(BackendFailed, match="was changed, but the disk did not confirm"):
            await backend.write(F, b"new")
    read = await backend.read(F)
    assert (read.data, read.entry.version) == (b"new", 2)


async def test_a_name_that_the_disk_finds_too_long_is_refused(
    backend: DirectoryBackend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead_of_os(monkeypatch, Fault("rename", 1, errno.ENAMETOOLONG))
    with pytest.raises(InvalidPath, match="ENAMETOOLONG"):
        await backend.write(F, b"new")
    assert on_disk(root) == {}


async def test_a_file_that_cannot_be_read_is_not_missing(
    backend: DirectoryBackend, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.write(F, b"x")
    instead_of_os(monkeypatch, Fault("read", 1, errno.EIO))
    with pytest.raises(BackendFailed, match="EIO"):
        await backend.read(F)


# --- crashes ----------------------------------------------------------------------------------

CRASH = """
import os, sys, trio
from sapwood.actors import RealEnvironment
from sapwood.files import DirectoryBackend, normalise
import sapwood.files._root as r, sapwood.files._open_directory as d, sapwood.files._ledger as l

class Crash:
    left = int(sys.argv[2])
    def __getattr__(self, name):
        original = getattr(os, name)
        if name not in ("write", "fsync", "utime", "pwrite", "rename", "mkdir", "ftruncate"):
            return original
        def call(*arguments, **keywords):
            Crash.left -= 1
            if Crash.left == 0:
                os.kill(os.getpid(), 9)
            return original(*arguments, **keywords)
        return call

async def main():
    backend = DirectoryBackend(sys.argv[1], RealEnvironment())
    await backend.open()
    r.os = d.os = l.os = Crash()
    await backend.write(normalise("dir/f.txt"), b"new", expected_version=1)
    print("written", flush=True)

trio.run(main)
"""


def run_script(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=False
    )


async def test_a_crash_at_each_step_of_a_write_leaves_the_old_content_or_the_new(
    backend: DirectoryBackend, root: Path, environment: RealEnvironment
) -> None:
    await backend.write(F, b"old")
    seen: set[bytes] = set()
    for step in range(1, 20):
        await backend.close()
        done = await trio.to_thread.run_sync(run_script, CRASH, root, step)
        await reopen(backend)
        read = await backend.read(F)
        seen.add(read.data)
        assert on_disk(root) == {F: read.data}
        if done.returncode == 0:
            assert (read.data, read.entry.version) == (b"new", 2)
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert read.data in (b"old", b"new")
        # The version may be 1 only with the content that had it.
        assert (read.entry.version == 1) <= (read.data == b"old")
        await backend.delete(F)
        await backend.close()
        (root / ".sapwood" / "versions.jsonl").unlink()
        await backend.open()
        await backend.write(F, b"old")
    else:
        pytest.fail("the write never came to its end")
    assert seen == {b"old", b"new"}


WRITER = """
import sys, trio
from sapwood.actors import RealEnvironment
from sapwood.files import DirectoryBackend, normalise

async def main():
    backend = DirectoryBackend(sys.argv[1], RealEnvironment())
    await backend.open()
    number = 0
    while True:
        number += 1
        entry = await backend.write(normalise("dir/f.txt"), (str(number) + "\\n").encode() * 5000)
        print(entry.version, entry.sha256, flush=True)

trio.run(main)
"""


async def test_a_writer_killed_at_any_moment_leaves_a_whole_file_and_no_version_is_used_twice(
    root: Path, environment: RealEnvironment
) -> None:
    shown: dict[int, str] = {}
    for kill in range(20):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, root], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for _ in range(1 + kill % 5):
            version, sha256 = writer.stdout.readline().split()
            assert shown.setdefault(int(version), sha256) == sha256
        writer.kill()
        for line in writer.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                version, sha256 = line.split()
                assert shown.setdefault(int(version), sha256) == sha256
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL

        backend = DirectoryBackend(root, environment)
        await backend.open()
        read = await backend.read(F)
        lines = read.data.splitlines()
        assert len(lines) == 5000
        assert len(set(lines)) == 1
        assert read.entry.version >= max(shown)
        assert shown.setdefault(read.entry.version, read.entry.sha256) == read.entry.sha256
        assert list(on_disk(root)) == [F]
        await backend.close()


UNPRIVILEGED = """
import os, sys, trio
from sapwood.actors import RealEnvironment
from sapwood.errors import ReadOnly
from sapwood.files import DirectoryBackend, normalise

async def main():
    backend = DirectoryBackend(sys.argv[1], RealEnvironment())
    if sys.argv[2] == "after":
        await backend.open()
    if os.geteuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    if sys.argv[2] == "before":
        try:
            await backend.open()
        except ReadOnly as error:
            print(error)
        return
    for path in ("dir/f.txt", "new"):
        try:
            await backend.write(normalise(path), b"x")
        except ReadOnly as error:
            print(error)
    try:
        await backend.delete(normalise("dir/f.txt"))
    except ReadOnly as error:
        print(error)

trio.run(main)
"""


@pytest.mark.parametrize(("when", "refusals"), [("after", 3), ("before", 1)])
async def test_a_directory_without_write_permission_refuses_changes_by_name(
    backend: DirectoryBackend, root: Path, tmp_path: Path, when: str, refusals: int
) -> None:
    await backend.write(F, b"old")
    await backend.close()
    for folder in (root, *root.parents):
        if tmp_path.parent.parent in folder.parents or folder == tmp_path.parent.parent:
            folder.chmod(0o755)
    (root / "dir").chmod(0o555)
    if os.geteuid() != 0:
        root.chmod(0o555)
    done = await trio.to_thread.run_sync(run_script, UNPRIVILEGED, root, when)
    root.chmod(0o755)
    (root / "dir").chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the directory refuses changes: Permission denied (EACCES)") == refusals
    assert on_disk(root) == {F: b"old"}


# --- through the tree ---------------------------------------------------------------------------


async def test_a_tree_shows_what_the_directory_skips(root: Path, environment: RealEnvironment) -> None:
    (root / "f").write_text("x")
    (root / "link").symlink_to("f")
    tree = FileTree(DirectoryBackend(root, environment), environment)
    await tree.open()
    statistics = await tree.statistics()
    assert (statistics.files, [skipped.name for skipped in statistics.skipped]) == (1, ["link"])
    await tree.close()
    with pytest.raises(BackendFailed, match="not open"):
        await tree.read("f")
