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
    VersionConflict,
)
from sapwood.files import FileBackend, MemoryBackend, Quota
from sapwood.files._server import (
    DeleteFile,
    EditFile,
    FileSystemServer,
    GetFileStatistics,
    ListFiles,
    ReadFile,
    SearchFiles,
    WriteFile,
)


@pytest.fixture
async def system(autojump_clock: MockClock) -> AsyncIterator[ActorSystem]:
    async with open_system(SimulatedEnvironment()) as system:
        yield system


async def serve(system: ActorSystem, backend: FileBackend | None = None, **options: Any) -> Ref:
    made = backend or MemoryBackend(system.environment)
    return await system.spawn(FileSystemServer, lambda: made, options.get("limits"), options.get("deny", ()))


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
    await server.ask(DeleteFile("notes/a.md", 2))
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
