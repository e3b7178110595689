"""What is particular to files in a store."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from sapwood.actors import RealEnvironment
from sapwood.errors import BackendFailed, FileExists, InvalidOption, VersionConflict
from sapwood.files import FileTree, SQLiteBackend, normalise
from sapwood.persistence import MigrationSet, Store, StoreStatistics, open_store

F = normalise("f")


@pytest.fixture
async def store(tmp_path: Path, environment: RealEnvironment) -> AsyncIterator[Store]:
    async with open_store(tmp_path / "store.db", environment) as opened:
        yield opened


class Recording:
    """A store that notes its calls, and lets a write happen only after its caller is gone."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: list[str] = []
        self.hang = False

    @property
    def name(self) -> str:
        return self.store.name

    async def write(self, operation: Callable[[sqlite3.Connection], Any]) -> Any:
        self.calls.append("write")
        if self.hang:
            await trio.sleep_forever()
        return await self.store.write(operation)

    async def read(self, operation: Callable[[sqlite3.Connection], Any]) -> Any:
        self.calls.append("read")
        return await self.store.read(operation)

    async def migrate(self, migrations: MigrationSet) -> None:
        await self.store.migrate(migrations)

    def statistics(self) -> StoreStatistics:
        return self.store.statistics()


async def test_after_a_cancelled_write_a_read_waits_until_the_writer_has_passed_it(
    store: Store, environment: RealEnvironment
) -> None:
    recording = Recording(store)
    backend = SQLiteBackend(recording, ("user", 1), environment)
    await backend.open()
    recording.hang = True
    with trio.move_on_after(0.01):
        await backend.write(F, b"x")
    recording.hang = False
    await backend.list()
    await backend.list()
    assert recording.calls == ["write", "write", "read", "read"]


@pytest.mark.row("S4-058", "S4-059")
async def test_each_scope_has_files_and_versions_of_its_own(store: Store, environment: RealEnvironment) -> None:
    scopes: list[tuple[str | int, ...]] = [("user", 1), ("user", "1"), ("user", 12), ("project", 1), ("user",)]
    backends = [SQLiteBackend(store, scope, environment) for scope in scopes]
    for number, backend in enumerate(backends):
        await backend.open()
        for _ in range(number + 1):
            await backend.write(F, repr(backend.scope).encode())
    for number, backend in enumerate(backends):
        read = await backend.read(F)
        assert (read.data, read.entry.version) == (repr(backend.scope).encode(), number + 1)
        assert len((await backend.list()).entries) == 1
    await backends[0].delete(F)
    assert (await backends[1].stat(F)).version == 2


@pytest.mark.row("S4-059")
async def test_two_trees_on_one_scope_see_each_others_files(store: Store, environment: RealEnvironment) -> None:
    one, two = (FileTree(SQLiteBackend(store, ("project", 42), environment), environment) for _ in range(2))
    await one.open()
    await two.open()
    entry = await one.write("plan.md", "ours")
    assert (await two.read("plan.md")).lines == ("ours",)
    await two.edit("plan.md", "ours", "yours", expected_version=entry.version)
    with pytest.raises(VersionConflict):
        await one.write("plan.md", "mine", expected_version=entry.version)
    with pytest.raises(FileExists):
        await two.create("PLAN.md", "x")
    assert [entry.path for entry in (await one.ls()).entries] == ["plan.md"]


@pytest.mark.row("S4-061")
async def test_files_and_versions_outlive_the_store_object(tmp_path: Path, environment: RealEnvironment) -> None:
    for expected in (1, 3, 5):
        async with open_store(tmp_path / "store.db", environment) as store:
            backend = SQLiteBackend(store, ("user", 1), environment)
            await backend.open()
            assert (await backend.write(F, b"x")).version == expected
            await backend.write(F, b"y")
            await backend.delete(F)
        async with open_store(tmp_path / "store.db", environment) as store:
            backend = SQLiteBackend(store, ("user", 1), environment)
            await backend.open()
            assert (await backend.list()).entries == ()


@pytest.mark.parametrize(
    "scope", [(), ("a", None), ("a", 1.5), ("a", True), "user", ["user", 1], (("a",),), (1, "user")]
)
def test_a_scope_that_is_no_tuple_of_texts_and_numbers_is_refused(environment: RealEnvironment, scope: Any) -> None:
    store: Any = None
    with pytest.raises(InvalidOption, match="of texts and whole numbers"):
        SQLiteBackend(store, scope, environment)


async def test_a_closed_store_is_no_empty_filesystem(tmp_path: Path, environment: RealEnvironment) -> None:
    async with open_store(tmp_path / "store.db", environment) as store:
        backend = SQLiteBackend(store, ("user", 1), environment)
        await backend.open()
        await backend.write(F, b"x")
    for call in (backend.list(), backend.stat(F), backend.read(F), backend.write(F, b"y"), backend.delete(F)):
        with pytest.raises(BackendFailed, match="the store cannot answer"):
            await call
    with pytest.raises(BackendFailed):
        await backend.open()


async def test_content_that_does_not_have_its_hash_is_reported_and_not_returned(
    store: Store, environment: RealEnvironment
) -> None:
    backend = SQLiteBackend(store, ("user", 1), environment)
    await backend.open()
    await backend.write(F, b"true")

    def damage(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE files SET data = x'00'")

    await store.write(damage)
    with pytest.raises(BackendFailed, match="does not have its hash"):
        await backend.read(F)
