"""The service: finds or starts the filesystem of a scope, one for each, apart from whoever uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from sapwood import NotRunning, Ref, Running, Runtime, Unavailable, open_runtime
from sapwood.actors import SimulatedEnvironment
from sapwood.errors import (
    ActorDown,
    BackendFailed,
    ChildFailed,
    FileMissing,
    InvalidOption,
    QuotaExceeded,
    ReadOnly,
    RegistryUnavailable,
)
from sapwood.files import DirectoryBackend, FileEntry, FilePath, MemoryBackend, Mount, Mounts, Quota, Saving, Scope


@pytest.fixture
async def runtime(tmp_path: Path, autojump_clock: MockClock) -> AsyncIterator[Runtime]:
    environment = SimulatedEnvironment()
    async with open_runtime(store=tmp_path / "store.db", environment=environment, signals=False) as runtime:
        yield runtime


class FullDisk(MemoryBackend):
    """Memory without room, while it is told so."""

    is_full = False

    async def write(
        self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
    ) -> FileEntry:
        if self.is_full:
            await trio.lowlevel.checkpoint()
            raise QuotaExceeded(path, "the disk is full")
        return await super().write(path, data, expected_version=expected_version, version=version)


@pytest.mark.row("S4-060", "S4-047")
async def test_the_first_call_starts_the_filesystem_and_many_at_once_start_one(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    client = runtime.files.client(("user", 1))
    assert runtime.files.lookup(("user", 1)) == NotRunning()

    async def write(number: int) -> None:
        await client.write(f"{number}.md", str(number))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(write, number)
    assert list(runtime.registry.running("files")) == [("files", "user", 1)]
    assert (await client.ls()).total == 20
    assert (await client.statistics()).files == 20


@pytest.mark.row("S4-058", "AR-24.55")
async def test_two_scopes_know_nothing_of_each_other(runtime: Runtime, autojump_clock: MockClock) -> None:
    scopes: list[Scope] = [("user", 1), ("user", 2), ("project", 1), ("project", 1, "docs"), ("agent", "c1")]
    for scope in scopes:
        await runtime.files.client(scope).write("a.md", repr(scope))
    for scope in scopes:
        assert (await runtime.files.client(scope).read("a.md")).lines == (repr(scope),)


async def test_the_client_does_all_that_a_tree_does(runtime: Runtime, autojump_clock: MockClock) -> None:
    client = runtime.files.client(("user", 1))
    await client.write("a.md", "one\n", expected_version=0)
    done = await client.edit("a.md", "one", "two", expected_version=1)
    assert done.entry.version == 2
    assert [match.text for match in (await client.search("two")).matches] == ["two"]
    assert await client.stat("a.md") == done.entry
    await client.insert_lines("a.md", 1, "three\n", expected_version=2)
    lines = await client.replace_lines("a.md", 1, 1, "2", expected_version=3)
    assert (await client.read_bytes("a.md")).data == b"2\nthree\n"
    assert (await client.search("THREE", case_sensitive=False)).matches[0].line == 2
    moved = await client.move("a.md", "b.md", expected_version=lines.entry.version)
    await client.write_bytes("a.md", b"two\n")
    assert await client.flush() == ()
    await client.delete("b.md", expected_version=moved.entries[0].version)
    await client.delete("a.md")
    with pytest.raises(FileMissing):
        await client.read("a.md")


@pytest.mark.row("S4-057", "AR-24.54")
async def test_a_filesystem_that_crashes_is_restarted_and_one_that_was_stopped_is_not(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    client = runtime.files.client(("user", 1))
    await client.write("a.md", "kept")
    first = await runtime.files.find(("user", 1))
    first.kill()
    await trio.sleep(1)
    found = runtime.files.lookup(("user", 1))
    assert isinstance(found, Running)
    assert found.ref is not first
    assert (await client.read("a.md")).lines == ("kept",)

    await found.ref.stop()
    await trio.sleep(1)
    assert runtime.files.lookup(("user", 1)) == NotRunning()
    assert (await client.read("a.md")).lines == ("kept",)


@pytest.mark.row("S4-061")
async def test_a_scope_is_kept_as_the_host_says(runtime: Runtime, autojump_clock: MockClock, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    environment = runtime.environment
    runtime.files.configure(
        ("project", 42),
        lambda scope: DirectoryBackend(root, environment),
        limits=Quota(max_file_bytes=10),
        deny=(".env",),
    )
    client = runtime.files.client(("project", 42))
    await client.write("a.md", "x")
    assert (root / "a.md").read_text() == "x"
    with pytest.raises(QuotaExceeded):
        await client.write("b.md", "x" * 11)
    with pytest.raises(Exception, match="denied"):
        await client.write(".env", "x")


async def test_a_scope_may_have_several_backends_be_read_only_or_save_later(
    runtime: Runtime, autojump_clock: MockClock, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "manual.md").write_text("how to")
    environment = runtime.environment
    runtime.files.configure(
        ("project", 1),
        lambda scope: Mounts(
            {
                "": MemoryBackend(environment),
                "docs": Mount(DirectoryBackend(root, environment, read_only=True), read_only=True),
            }
        ),
    )
    client = runtime.files.client(("project", 1))
    assert (await client.read("docs/manual.md")).lines == ("how to",)
    with pytest.raises(ReadOnly, match="the mount 'docs' is read-only"):
        await client.write("docs/manual.md", "x")

    runtime.files.configure(("user", 2), read_only=True)
    with pytest.raises(ReadOnly):
        await runtime.files.client(("user", 2)).write("a.md", "x")

    runtime.files.configure(("user", 3), saving=Saving(debounce=2.0))
    later = runtime.files.client(("user", 3))
    await later.write("a.md", "one")
    assert (await later.write("a.md", "two")).state == "dirty"
    assert [each.path for each in (await later.statistics()).unsaved] == ["a.md"]
    await trio.sleep(3)
    assert (await later.stat("a.md")).state == "saved"


async def test_a_flush_may_take_longer_than_any_other_request(runtime: Runtime, autojump_clock: MockClock) -> None:
    disk = FullDisk(runtime.environment)
    runtime.files.configure(("user", 4), lambda scope: disk, saving=Saving(debounce=600.0))
    client = runtime.files.client(("user", 4))
    await client.write("a.md", "one")
    await client.write("a.md", "two")
    disk.is_full = True
    begun = trio.current_time()
    assert [each.path for each in await client.flush(60.0)] == ["a.md"]
    assert 30.0 < trio.current_time() - begun <= 60.0
    disk.is_full = False
    assert await client.flush(60.0) == ()


@pytest.mark.row("AR-24.50")
async def test_edits_that_wait_are_in_the_store_after_the_runtime_has_stopped(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    for expected in ("none", "one", "two"):
        environment = SimulatedEnvironment()
        async with open_runtime(store=tmp_path / "s.db", environment=environment, signals=False) as runtime:
            runtime.files.configure(("user", 1), saving=Saving(debounce=600.0))
            client = runtime.files.client(("user", 1))
            if expected == "none":
                await client.write("a.md", "none")
            assert (await client.read("a.md")).lines == (expected,)
            following = {"none": "one", "one": "two", "two": "three"}[expected]
            assert (await client.write("a.md", following)).state == "dirty"


async def test_limits_alone_leave_the_backend_as_it_is(runtime: Runtime, autojump_clock: MockClock) -> None:
    runtime.files.configure(("user", 1), limits=Quota(max_files=1))
    client = runtime.files.client(("user", 1))
    await client.write("a.md", "x")
    with pytest.raises(QuotaExceeded):
        await client.write("b.md", "x")


@pytest.mark.row("S4-045", "AR-24.40", "AR-24.41")
async def test_nothing_is_started_while_the_registry_cannot_tell(runtime: Runtime, autojump_clock: MockClock) -> None:
    runtime.registry.drain()
    assert runtime.files.lookup(("user", 1)) == Unavailable("draining")
    with pytest.raises(RegistryUnavailable, match="draining"):
        await runtime.files.client(("user", 1)).ls()


async def test_a_call_waits_for_a_registry_that_is_coming_back(runtime: Runtime, autojump_clock: MockClock) -> None:
    client = runtime.files.client(("user", 1))
    await client.write("a.md", "kept")
    for owner in [node.ref for node in runtime.tree().walk() if node.kind == "Partition"]:
        owner.kill()
    await trio.testing.wait_all_tasks_blocked()
    assert (await client.read("a.md")).lines == ("kept",)


async def test_a_read_is_asked_again_when_the_filesystem_ends_meanwhile_and_a_change_is_not(
    runtime: Runtime, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = runtime.files.client(("user", 1))
    await client.write("a.md", "kept")
    ref = await runtime.files.find(("user", 1))
    dead = [ref]
    find = runtime.files.find

    async def find_the_dead_first(scope: Scope) -> Ref:
        return dead.pop() if dead else await find(scope)

    monkeypatch.setattr(runtime.files, "find", find_the_dead_first)
    await ref.stop()
    assert (await client.read("a.md")).lines == ("kept",)
    dead.append(ref)
    with pytest.raises(ActorDown):
        await client.write("a.md", "lost?")


async def test_a_backend_that_cannot_be_opened_is_no_empty_filesystem(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Locked(MemoryBackend):
        async def open(self) -> None:
            raise BackendFailed("store", "locked")

    environment = runtime.environment
    runtime.files.configure(("user", 1), lambda scope: Locked(environment))
    for _ in range(2):
        with pytest.raises(ChildFailed, match="locked"):
            await runtime.files.client(("user", 1)).ls()
    assert runtime.files.lookup(("user", 1)) == NotRunning()


@pytest.mark.parametrize("scope", ["user", (), (1, "user"), None, ["user", 1]])
async def test_what_is_no_scope_is_refused(runtime: Runtime, autojump_clock: MockClock, scope: Any) -> None:
    await trio.lowlevel.checkpoint()
    with pytest.raises(InvalidOption, match='expected a tuple such as \\("user", 1\\)'):
        runtime.files.client(scope)
    with pytest.raises(InvalidOption, match="filesystem scope"):
        runtime.files.configure(scope)
