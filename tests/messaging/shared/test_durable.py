"""What is particular to shared memory in a store."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel

import sapwood
from sapwood.actors import RealEnvironment
from sapwood.errors import CodecError, ConflictError, InvalidOption, StoreUnavailable
from sapwood.messaging.shared import DurableSharedMemory, Write
from sapwood.persistence import MigrationSet, Store, StoreStatistics, open_store

ENVIRONMENT = RealEnvironment()
PROGRAM = Path(__file__).parent / "programs" / "write_until_killed.py"


async def opened(store: Store, **options: Any) -> DurableSharedMemory:
    memory = DurableSharedMemory(store, ENVIRONMENT, **options)
    await memory.open()
    return memory


@pytest.mark.row("S1-039")
async def test_values_versions_and_the_log_survive_a_restart(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db", ENVIRONMENT) as store:
        memory = await opened(store)
        written = await memory.write("k", {"lots": (1, 2), "at": None}, agent_id="a")
        await memory.write("gone", 1, agent_id="a")
        await memory.delete("gone", "a")
    async with open_store(tmp_path / "store.db", ENVIRONMENT) as store:
        memory = await opened(store)
        assert await memory.read("k") == written
        assert (await memory.write("k", 2, agent_id="b", expected_version=0)).version == 1
        assert (await memory.write("gone", 2, agent_id="b")).version == 1
        assert [one.outcome for one in await memory.write_log()] == [
            "written",
            "written",
            "deleted",
            "written",
            "written",
        ]


async def test_a_process_that_is_killed_has_stored_all_that_it_said_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    environment = {**os.environ, "PYTHONPATH": str(Path(sapwood.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(30)]
    process.kill()
    said += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    value, version = map(int, [line for line in said if line.endswith("\n")][-1].split())
    async with open_store(path, ENVIRONMENT) as store:
        memory = await opened(store)
        stored = await memory.read("count")
        assert stored is not None
        assert stored.is_intact()
        assert stored.value - 1 == stored.version
        # The process may have died between the commit and its word.
        assert (stored.value, stored.version) in [(value, version), (value + 1, version + 1)]


async def test_two_processes_over_one_file_cannot_overwrite_each_other_unseen(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(path, ENVIRONMENT) as store, open_store(path, ENVIRONMENT) as other:
        memory, stranger = await opened(store), await opened(other)
        await memory.write("k", "mine", agent_id="a")
        await stranger.write("k", "theirs", agent_id="b", expected_version=0)
        with pytest.raises(ConflictError):
            await memory.write("k", "lost", agent_id="a", expected_version=0)
        with pytest.raises(ConflictError):
            await memory.write_batch([Write("new", 1), Write("k", 1, expected_version=0)], agent_id="a")
        assert await stranger.get_keys() == ["k"]
        assert await memory.read("k") == await stranger.read("k")


class SlowCommit:
    """A store whose writes happen only when they are let through."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.gate = trio.Event()
        self.fails = False

    @property
    def name(self) -> str:
        return self.store.name

    async def write(self, operation: Callable[[sqlite3.Connection], Any]) -> Any:
        await self.gate.wait()
        if self.fails:
            raise StoreUnavailable("store", "disk full")
        return await self.store.write(operation)

    async def read(self, operation: Callable[[sqlite3.Connection], Any]) -> Any:
        return await self.store.read(operation)

    async def migrate(self, migrations: MigrationSet) -> None:
        await self.store.migrate(migrations)

    def statistics(self) -> StoreStatistics:
        return self.store.statistics()


@pytest.mark.parametrize("fails", [False, True], ids=["commits", "fails"])
async def test_nobody_sees_a_write_before_it_is_durable(tmp_path: Path, *, fails: bool) -> None:
    async with open_store(tmp_path / "store.db", ENVIRONMENT) as store:
        slow = SlowCommit(store)
        memory = DurableSharedMemory(slow, ENVIRONMENT)
        await memory.open()
        watch = await memory.watch()
        slow.fails = fails
        answers: list[object] = []

        async def write() -> None:
            try:
                answers.append((await memory.write("k", 1, agent_id="a")).version)
            except StoreUnavailable:
                answers.append("unavailable")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            assert await memory.read("k") is None
            assert await watch._memory._changes("", 0) == []
            slow.gate.set()
        assert answers == (["unavailable"] if fails else [0])
        assert (await memory.read("k") is None) is fails


async def test_a_value_that_cannot_be_stored_is_refused_with_its_place_and_changes_nothing(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db", ENVIRONMENT) as store:
        memory = await opened(store)
        with pytest.raises(CodecError, match=r"shared\.value\.value"):
            await memory.write_batch([Write("a", 1), Write("b", {"bad": object()})], agent_id="a")
        assert await memory.get_keys() == []


async def test_spaces_see_nothing_of_each_other(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db", ENVIRONMENT) as store:
        one, two = await opened(store, space="one"), await opened(store, space="two")
        await one.write("k", 1, agent_id="a")
        assert await two.read("k") is None
        assert (await two.write("k", 2, agent_id="a")).version == 0
        assert await one.delete("k", "a")
        assert [value.value for value in (await two.snapshot()).values()] == [2]
        assert len(await two.write_log()) == 1


async def test_after_the_store_is_closed_a_read_is_unavailable_and_never_absent(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db", ENVIRONMENT) as store:
        memory = await opened(store)
    with pytest.raises(StoreUnavailable):
        await memory.read("k")


@pytest.mark.parametrize("options", [{"space": ""}, {"log_size": 0}, {"poll": 0}, {"strategy": "newest"}], ids=str)
async def test_options_out_of_range_are_refused_by_name(tmp_path: Path, options: dict[str, Any]) -> None:
    async with open_store(tmp_path / "store.db", ENVIRONMENT) as store:
        with pytest.raises(InvalidOption, match=next(iter(options))):
            DurableSharedMemory(store, ENVIRONMENT, **options)
