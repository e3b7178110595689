"""The filesystem actor: every request answered, refusals too; faults of the backend end it and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Crashed, Ref
from sapwood.actors import ActorSystem, RealEnvironment, SimulatedEnvironment, open_system
from sapwood.errors import (
    ActorDown,
    BackendFailed,
    EditMismatch,
    FileExists,
    FileMissing,
    InvalidOption,
    InvalidPath,
    InvalidPattern,
    PathDenied,
    QuotaExceeded,
    UnsavedFiles,
    VersionConflict,
)
from sapwood.files import FileBackend, FileEntry, FileOptions, FilePath, MemoryBackend, Quota, Saving, normalise
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
from sapwood.files._server import FileSystemServer


@pytest.fixture
async def system(autojump_clock: MockClock) -> AsyncIterator[ActorSystem]:
    async with open_system(SimulatedEnvironment()) as system:
        yield system


async def serve(system: ActorSystem, backend: FileBackend | None = None, **options: Any) -> Ref:
    made = backend or MemoryBackend(system.environment)
    return await system.spawn(FileSystemServer, lambda: made, FileOptions(**options))


async def test_each_request_is_carried_out_and_answered(system: ActorSystem, autojump_clock: MockClock) -> None:
    server = await serve(system)
    entry = await server.ask(WriteFile("notes/a.md", "one\ntwo\n"))
    assert (entry.path, entry.version, entry.size) == ("notes/a.md", 1, 8)
    assert (await server.ask(ReadFile("notes/a.md", 2, 1))).lines == ("two",)
    done = await server.ask(EditFile("notes/a.md", "two", "2", expected_version=1))
    assert (done.replacements, done.line, done.entry.version) == (1, 2, 2)
    assert [match.line for match in (await server.ask(SearchFiles("2"))).matches] == [2]
    assert [each.path for each in (await server.ask(ListFiles("**/*.md"))).entries] == ["notes/a.md"]
    assert (await server.ask(GetFileStatistics())).files == 1
    assert await server.ask(StatFile("notes/a.md")) == done.entry
    lines = await server.ask(InsertLines("notes/a.md", 0, "zero\n", 2))
    lines = await server.ask(ReplaceLines("notes/a.md", 2, 3, "rest", lines.entry.version))
    assert (await server.ask(ReadBytes("notes/a.md"))).data == b"zero\nrest\n"
    moved = await server.ask(MoveFile("notes", "old", None))
    assert [each.path for each in moved.entries] == ["old/a.md"]
    assert await server.ask(FlushFiles()) == ()
    assert (await server.ask(WriteBytes("notes/a.md", b"\xff", 0))).size == 1
    await server.ask(DeleteFile("old/a.md"))
    await server.ask(DeleteFile("notes/a.md"))
    assert (await server.ask(ListFiles())).total == 0


@pytest.mark.row("AR-22.20")
@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (ReadFile("none.md"), FileMissing),
        (ReadFile("a.md", 0), InvalidOption),
        (ReadFile("../a.md"), InvalidPath),
        (WriteFile("a.md", "x", 7), VersionConflict),
        (WriteFile("a.md", "x", 0), FileExists),
        (WriteFile("big.md", "x" * 200), QuotaExceeded),
        (WriteFile("secret/a.md", "x"), PathDenied),
        (EditFile("a.md", "q", "x"), EditMismatch),
        (EditFile("a.md", "", "x"), InvalidOption),
        (DeleteFile("none.md"), FileMissing),
        (StatFile("none.md"), FileMissing),
        (ReadBytes("none.md"), FileMissing),
        (WriteBytes("big.md", b"x" * 200), QuotaExceeded),
        (ReplaceLines("a.md", 1, 1, "x", 7), VersionConflict),
        (ReplaceLines("a.md", 1, 9, "x", 1), InvalidOption),
        (InsertLines("a.md", 9, "x", 1), InvalidOption),
        (MoveFile("a.md", "secret/a.md"), PathDenied),
        (MoveFile("none.md", "b.md"), FileMissing),
        (DeleteFile("a.md", 3), VersionConflict),
        (SearchFiles("(", regular=True), InvalidPattern),
        (SearchFiles("x", max_results=0), InvalidOption),
        (ListFiles("**", 0), InvalidOption),
    ],
)
async def test_a_refusal_is_the_answer_and_changes_nothing(
    system: ActorSystem, autojump_clock: MockClock, request_: Any, error: type[Exception]
) -> None:
    server = await serve(system, limits=Quota(max_file_bytes=100), deny=("secret/**",))
    await server.ask(WriteFile("a.md", "kept"))
    before = await server.ask(ListFiles())
    with pytest.raises(error):
        await server.ask(request_)
    assert server.alive
    assert await server.ask(ListFiles()) == before


async def test_requests_are_carried_out_one_at_a_time_in_order(system: ActorSystem, autojump_clock: MockClock) -> None:
    server = await serve(system)
    await server.ask(WriteFile("a.md", "0"))

    async def raise_by_one() -> None:
        while True:
            text = await server.ask(ReadFile("a.md"))
            entry = await server.ask(GetFileStatistics())
            assert entry.files == 1
            number = int(text.lines[0])
            try:
                await server.ask(WriteFile("a.md", str(number + 1), text.version))
            except VersionConflict:
                continue
            return

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(raise_by_one)
    assert (await server.ask(ReadFile("a.md"))).lines == ("10",)


class Faulty(MemoryBackend):
    """Fails to list from the second time on, or at once."""

    def __init__(self, fault: Exception, *, at_once: bool = False) -> None:
        super().__init__(RealEnvironment())
        self.fault = fault
        self.good = 0 if at_once else 1
        self.closed = 0

    async def list(self) -> Any:
        self.good -= 1
        if self.good < 0:
            raise self.fault
        return await super().list()

    async def close(self) -> None:
        self.closed += 1
        await super().close()


async def test_a_backend_that_cannot_answer_is_an_answer_and_one_with_a_fault_ends_the_server(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    failing = await serve(system, Faulty(BackendFailed("x", "disk full")))
    with pytest.raises(BackendFailed, match="disk full"):
        await failing.ask(GetFileStatistics())
    assert failing.alive

    backend = Faulty(ZeroDivisionError("a fault"))
    broken = await serve(system, backend)
    with pytest.raises(ActorDown):
        await broken.ask(GetFileStatistics())
    reason = await broken.wait_stopped()
    assert isinstance(reason, Crashed)
    assert isinstance(reason.exception, ZeroDivisionError)
    assert backend.closed == 1


@pytest.mark.row("AR-24.50")
@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
async def test_edits_that_wait_are_saved_however_the_server_ends(
    system: ActorSystem, autojump_clock: MockClock, how: str
) -> None:
    backend = Faulty(ZeroDivisionError("a fault"))
    backend.good = 2
    server = await system.spawn(FileSystemServer, lambda: backend, FileOptions(saving=Saving(debounce=60.0)))
    await server.ask(WriteFile("a.md", "one"))
    assert (await server.ask(WriteFile("a.md", "two"))).state == "dirty"
    match how:
        case "stop":
            await server.stop()
        case "kill":
            server.kill()
        case _:
            await server.ask(ListFiles())
            with pytest.raises(ActorDown):
                await server.ask(ListFiles())
    await server.wait_stopped()
    assert (await backend.read(normalise("a.md"))).data == b"two"
    assert backend.closed == 1


@pytest.mark.row("AR-22.20")
async def test_edits_that_cannot_be_saved_at_the_stop_make_the_end_a_crash_that_names_them(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    class Full(MemoryBackend):
        async def write(
            self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
        ) -> FileEntry:
            if expected_version:
                raise QuotaExceeded(path, "the disk has no room")
            return await super().write(path, data, expected_version=expected_version, version=version)

    saving = Saving(debounce=1.0, stop_within=2.0)
    server = await system.spawn(FileSystemServer, lambda: Full(system.environment), FileOptions(saving=saving))
    await server.ask(WriteFile("a.md", "one"))
    await server.ask(WriteFile("a.md", "two"))
    await trio.sleep(1.5)
    entry = await server.ask(StatFile("a.md"))
    assert (entry.state, entry.problem) == ("failed", "the disk has no room")
    (unsaved,) = await server.ask(FlushFiles(0.5))
    assert unsaved.attempts >= 2
    begun = trio.current_time()
    with pytest.raises(ActorDown, match="its last edits are not saved"):
        await server.stop()
    reason = await server.wait_stopped()
    assert trio.current_time() - begun <= 2.1
    assert isinstance(reason, Crashed)
    assert isinstance(reason.exception, UnsavedFiles)
    assert reason.exception.files == (("a.md", "the disk has no room"),)


async def test_a_fault_in_the_saver_ends_the_server_and_what_waits_is_saved(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    class Flawed(MemoryBackend):
        flawed = True

        async def write(
            self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
        ) -> FileEntry:
            if expected_version and self.flawed:
                self.flawed = False
                raise ZeroDivisionError("a fault")
            return await super().write(path, data, expected_version=expected_version, version=version)

    backend = Flawed(system.environment)
    server = await system.spawn(FileSystemServer, lambda: backend, FileOptions(saving=Saving(debounce=1.0)))
    await server.ask(WriteFile("a.md", "one"))
    await server.ask(WriteFile("a.md", "two"))
    with trio.fail_after(60):
        reason = await server.wait_stopped()
    assert isinstance(reason, Crashed)
    assert isinstance(reason.exception, ZeroDivisionError)
    assert (await backend.read(normalise("a.md"))).data == b"two"


@pytest.mark.parametrize("how", ["stop", "kill", "crash", "never started"])
async def test_the_backend_is_closed_however_the_server_ends_and_made_anew_at_the_next_start(
    system: ActorSystem, autojump_clock: MockClock, how: str
) -> None:
    made: list[Faulty] = []

    def make() -> Faulty:
        made.append(Faulty(ZeroDivisionError("a fault"), at_once=how == "never started"))
        return made[-1]

    for count in (1, 2):
        if how == "never started":
            with pytest.raises(ZeroDivisionError):
                await system.spawn(FileSystemServer, make)
        else:
            server = await system.spawn(FileSystemServer, make)
            match how:
                case "stop":
                    await server.stop()
                case "kill":
                    server.kill()
                case _:
                    with pytest.raises(ActorDown):
                        await server.ask(GetFileStatistics())
            await server.wait_stopped()
        assert [backend.closed for backend in made] == [1] * count
