"""Random calls on a backend that saves later, over a disk that fails, is changed by others, and survives crashes."""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.actors import SimulatedEnvironment
from sapwood.errors import BackendFailed, FileError
from sapwood.files import BufferedBackend, FileEntry, FilePath, FileTree, MemoryBackend

PATHS = st.sampled_from(["a", "b", "d/c"])
Call: TypeAlias = tuple[str, dict[str, Any]]
CALLS: st.SearchStrategy[Call] = st.one_of(
    st.tuples(st.just("write"), st.fixed_dictionaries({"path": PATHS})),
    st.tuples(st.just("write"), st.fixed_dictionaries({"path": PATHS})),
    st.tuples(st.just("delete"), st.fixed_dictionaries({"path": PATHS})),
    st.tuples(st.just("move"), st.fixed_dictionaries({"source": PATHS, "target": PATHS})),
    st.tuples(st.just("flush"), st.just({})),
    st.tuples(st.just("fail"), st.fixed_dictionaries({"how": st.sampled_from(["", "before", "after"])})),
    st.tuples(st.just("others"), st.fixed_dictionaries({"path": PATHS})),
    st.tuples(st.just("crash"), st.just({})),
)


class Disk(MemoryBackend):
    """Memory that fails before or after it writes, while it is told to."""

    fails = ""

    async def write(
        self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
    ) -> FileEntry:
        if self.fails == "before":
            raise BackendFailed(path, "before")
        entry = await super().write(path, data, expected_version=expected_version, version=version)
        if self.fails == "after":
            raise BackendFailed(path, "after")
        return entry


@attrs.define
class World:
    environment: SimulatedEnvironment
    disk: Disk
    tree: FileTree
    shown: dict[tuple[str, int], bytes] = attrs.field(factory=dict)
    newest: dict[str, int] = attrs.field(factory=dict)
    number: int = 0

    def content(self) -> bytes:
        self.number += 1
        return str(self.number).encode()

    async def look(self) -> dict[str, bytes]:
        """Return what the tree shows.

        A version of a name must stand for one content for ever, and without a crash no version goes back.
        """
        seen: dict[str, bytes] = {}
        for entry in (await self.tree.ls()).entries:
            file = await self.tree.read_bytes(entry.path)
            assert file.entry.version == entry.version
            assert self.shown.setdefault((entry.path, entry.version), file.data) == file.data
            assert entry.version >= self.newest.get(entry.path, 0)
            self.newest[entry.path] = entry.version
            seen[entry.path] = file.data
        return seen


async def begun(disk: Disk, environment: SimulatedEnvironment) -> FileTree:
    tree = FileTree(BufferedBackend(disk, environment), environment)
    await tree.open()
    return tree


async def carry_out(world: World, name: str, arguments: dict[str, Any]) -> None:
    match name:
        case "write":
            content = world.content()
            entry = await world.tree.write_bytes(arguments["path"], content)
            assert (await world.tree.read_bytes(entry.path)).data == content
        case "fail":
            world.disk.fails = arguments["how"]
        case "others":
            fails, world.disk.fails = world.disk.fails, ""
            await world.disk.write(arguments["path"], world.content())
            world.disk.fails = fails
        case "crash":
            world.tree = await begun(world.disk, world.environment)
            world.newest.clear()
        case _:
            await getattr(world.tree, name)(**arguments)


@settings(max_examples=150)
@given(calls=st.lists(CALLS, max_size=30))
async def test_no_version_stands_for_two_contents_and_what_is_acknowledged_is_saved_once_the_disk_works(
    calls: list[Call],
) -> None:
    environment = SimulatedEnvironment()
    disk = Disk(environment)
    world = World(environment, disk, await begun(disk, environment))
    for name, arguments in calls:
        try:
            await carry_out(world, name, arguments)
        except FileError:
            assert name not in {"flush", "fail", "crash"}
        await world.look()
    disk.fails = ""
    assert await world.tree.flush() == ()
    seen = await world.look()
    assert {entry.state for entry in (await world.tree.ls()).entries} <= {"saved"}
    assert {entry.path: (await disk.read(entry.path)).data for entry in (await disk.list()).entries} == seen


KEEPING: st.SearchStrategy[Call] = st.one_of(
    st.tuples(st.sampled_from(["write", "write", "write", "others"]), st.fixed_dictionaries({"path": PATHS})),
    st.tuples(st.just("flush"), st.just({})),
    st.tuples(st.just("fail"), st.fixed_dictionaries({"how": st.sampled_from(["", "before", "after"])})),
)


@settings(max_examples=200)
@given(calls=st.lists(KEEPING, min_size=4, max_size=25))
async def test_no_content_that_was_acknowledged_is_lost_without_a_crash_except_to_a_later_write(
    calls: list[Call],
) -> None:
    environment = SimulatedEnvironment()
    disk = Disk(environment)
    world = World(environment, disk, await begun(disk, environment))
    newest: dict[str, bytes] = {}
    for name, arguments in calls:
        try:
            await carry_out(world, name, arguments)
        except FileError:
            continue
        if name == "write":
            newest[arguments["path"]] = str(world.number).encode()
        elif name == "others" and (await world.tree.stat(arguments["path"])).state == "saved":
            newest.pop(arguments["path"], None)  # theirs came after ours was saved
    disk.fails = ""
    await world.tree.flush()
    kept = set((await world.look()).values())
    assert set(newest.values()) <= kept
