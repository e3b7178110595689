"""Several backends in one tree: which one has a path, what is hidden, and what a move between them leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Environment, RealEnvironment, SimulatedEnvironment
from sapwood.errors import (
    BackendFailed,
    FileExists,
    FileMissing,
    InvalidOption,
    InvalidPath,
    PathDenied,
    QuotaExceeded,
    ReadOnly,
    UnsavedFiles,
    VersionConflict,
)
from sapwood.files import (
    BufferedBackend,
    DirectoryBackend,
    FileData,
    FileEntry,
    FilePath,
    FileTree,
    MemoryBackend,
    Mount,
    MountInfo,
    Mounts,
    Quota,
    Saving,
    Skipped,
    normalise,
)


@attrs.define
class World:
    """A tree over a root, a read-only `docs`, and `docs/mine` within it."""

    tree: FileTree
    root: MemoryBackend
    docs: MemoryBackend
    mine: MemoryBackend
    mounts: Mounts

    async def everything(self) -> list[list[FileEntry]]:
        return [list((await backend.list()).entries) for backend in (self.root, self.docs, self.mine)]


@pytest.fixture
async def world(environment: RealEnvironment) -> World:
    root, docs, mine = (MemoryBackend(environment) for _ in range(3))
    await docs.write(normalise("manual.md"), b"how to\n")
    mounts = Mounts({"": root, "docs": Mount(docs, read_only=True), "docs/mine": mine})
    tree = FileTree(mounts, environment)
    await tree.open()
    return World(tree, root, docs, mine, mounts)


async def names(tree: FileTree, pattern: str = "**") -> list[str]:
    return [entry.path for entry in (await tree.ls(pattern)).entries]


async def inner(backend: MemoryBackend) -> list[str]:
    return [entry.path for entry in (await backend.list()).entries]


# --- which mount ------------------------------------------------------------------------------


async def test_the_longest_prefix_that_holds_a_path_says_whose_it_is(world: World) -> None:
    await world.tree.write("a.md", "root")
    await world.tree.write("docsx/b.md", "root too")
    await world.tree.write("docs/mine/sub/c.md", "mine")
    assert await inner(world.root) == ["a.md", "docsx/b.md"]
    assert await inner(world.mine) == ["sub/c.md"]
    assert (await world.tree.read("docs/mine/sub/c.md")).lines == ("mine",)
    assert (await world.tree.read("docs/manual.md")).lines == ("how to",)
    assert await names(world.tree) == ["a.md", "docs/manual.md", "docs/mine/sub/c.md", "docsx/b.md"]
    assert await names(world.tree, "docs/**/*.md") == ["docs/manual.md", "docs/mine/sub/c.md"]
    found = await world.tree.search("mine")
    assert [match.path for match in found.matches] == ["docs/mine/sub/c.md"]


async def test_a_listing_and_the_statistics_show_the_mounts(world: World) -> None:
    expected = (
        MountInfo("", read_only=False, kind="MemoryBackend"),
        MountInfo("docs", read_only=True, kind="MemoryBackend"),
        MountInfo("docs/mine", read_only=False, kind="MemoryBackend"),
    )
    assert (await world.tree.ls()).mounts == expected
    assert (await world.tree.statistics()).mounts == expected


@pytest.mark.row("AR-24.49")
async def test_a_read_only_mount_refuses_every_change_by_its_name_and_changes_nothing(world: World) -> None:
    await world.tree.write("a.md", "x")
    before = await world.everything()
    calls: list[Any] = [
        lambda: world.tree.write("docs/manual.md", "y"),
        lambda: world.tree.create("docs/new.md", "y"),
        lambda: world.tree.edit("docs/manual.md", "how", "why"),
        lambda: world.tree.replace_lines("docs/manual.md", 1, 1, "y", expected_version=1),
        lambda: world.tree.insert_lines("docs/manual.md", 0, "y", expected_version=1),
        lambda: world.tree.delete("docs/manual.md"),
        lambda: world.tree.move("a.md", "docs/a.md"),
        lambda: world.tree.move("docs/manual.md", "manual.md"),
        lambda: world.tree.move("docs/manual.md", "docs/other.md"),
        lambda: world.tree.write_bytes("docs/new", b""),
    ]
    for call in calls:
        with pytest.raises(ReadOnly, match="the mount 'docs' is read-only"):
            await call()
    assert await world.everything() == before


@pytest.mark.parametrize("hidden", ["docs/hidden.md", "DOCS/hidden.md"])
async def test_what_a_mount_hides_is_named_and_not_reached(world: World, hidden: str) -> None:
    await world.root.write(normalise(hidden), b"x")
    await world.docs.write(normalise("mine"), b"a file at a mount point")
    statistics = await world.tree.statistics()
    assert {each.name: each.reason for each in statistics.skipped} == {
        hidden: "is hidden by the mount at 'docs'",
        "docs/mine": "is hidden by the mount at 'docs/mine'",
    }
    for path in (hidden, "docs/mine", "docs"):
        with pytest.raises(FileMissing):
            await world.tree.read(path)


@pytest.mark.row("BR-37")
@pytest.mark.parametrize("path", ["Docs/a.md", "top/In/a.md", "top/in", "top", "TOP/x"])
async def test_a_name_in_the_way_of_a_mount_is_refused_also_while_the_mount_is_empty(
    environment: RealEnvironment, path: str
) -> None:
    mounts = Mounts(
        {"": MemoryBackend(environment), "docs": MemoryBackend(environment), "top/in": MemoryBackend(environment)}
    )
    async with FileTree(mounts, environment) as tree:
        with pytest.raises(FileExists):
            await tree.write(path, "x")
        assert await names(tree) == []


async def test_without_a_backend_for_the_root_paths_outside_have_no_place(environment: RealEnvironment) -> None:
    mounts = Mounts({"a": MemoryBackend(environment), "b": MemoryBackend(environment)})
    async with FileTree(mounts, environment) as tree:
        with pytest.raises(ReadOnly, match="lies in no mount; there are 'a', 'b'"):
            await tree.write("c.md", "x")
        with pytest.raises(FileMissing):
            await tree.read("c.md")
        await tree.write("a/c.md", "x")
        assert await names(tree) == ["a/c.md"]


def test_mounts_that_mean_nothing_are_refused(environment: RealEnvironment) -> None:
    one = MemoryBackend(environment)
    for mounts, problem in [
        ({}, "got none"),
        ({"a": one, "A": MemoryBackend(environment)}, "are one"),
        ({"": one, "/": MemoryBackend(environment)}, "are one"),
        ({"a": one, "b": one}, "one backend twice"),
        ({"a": one, "A/b": MemoryBackend(environment)}, "expected one spelling of 'a'; got 'A' in 'A/b'"),
    ]:
        with pytest.raises(InvalidOption, match=problem):
            Mounts(mounts)
    with pytest.raises(InvalidPath):
        Mounts({"../a": one})


async def test_errors_of_a_mount_carry_the_path_of_the_whole_tree(world: World) -> None:
    entry = await world.tree.write("docs/mine/a.md", "x")
    for call in (
        world.tree.read("docs/mine/none.md"),
        world.tree.write("docs/mine/a.md", "y", expected_version=9),
        world.tree.create("docs/mine/a.md", "y"),
    ):
        with pytest.raises((FileMissing, VersionConflict, FileExists)) as caught:
            await call
        assert caught.value.path.startswith("docs/mine/")
    assert (await world.tree.stat("docs/mine/a.md")) == entry


# --- limits and deny rules --------------------------------------------------------------------


async def test_the_quota_counts_over_all_mounts_that_can_be_written_to(environment: RealEnvironment) -> None:
    docs = MemoryBackend(environment)
    await docs.write(normalise("big"), b"x" * 1000)
    mounts = Mounts(
        {"a": MemoryBackend(environment), "b": MemoryBackend(environment), "docs": Mount(docs, read_only=True)}
    )
    async with FileTree(mounts, environment, limits=Quota(max_files=2, max_total_bytes=10)) as tree:
        await tree.write("a/1", "12345")
        with pytest.raises(QuotaExceeded, match="11 bytes of 10 allowed"):
            await tree.write("b/2", "123456")
        await tree.write("b/2", "12345")
        with pytest.raises(QuotaExceeded, match="more than the 2 allowed"):
            await tree.write("a/3", "")
        await tree.move("a/1", "b/1")
        with pytest.raises(QuotaExceeded, match="more than the 2 allowed"):
            await tree.write("a/3", "")
        await tree.delete("b/1")
        await tree.write("a/3", "123")
        statistics = await tree.statistics()
        assert (statistics.files, statistics.total_bytes) == (3, 1008)
        assert (statistics.counted_files, statistics.counted_bytes) == (2, 8)


@pytest.mark.row("BR-37")
async def test_a_deny_rule_holds_in_every_mount_and_for_both_ends_of_a_move(environment: RealEnvironment) -> None:
    mine = MemoryBackend(environment)
    await mine.write(normalise("dir/.ENV"), b"secret")
    await mine.write(normalise("dir/open"), b"x")
    mounts = Mounts({"": MemoryBackend(environment), "mine": mine})
    async with FileTree(mounts, environment, deny=[".env", "closed/**"]) as tree:
        for source, target in [
            ("mine/dir/.env", "env"),
            ("mine/dir", "dir"),
            ("mine/dir/open", "x/.Env"),
            ("mine/dir/open", "closed/open"),
        ]:
            with pytest.raises(PathDenied):
                await tree.move(source, target)
        assert await inner(mine) == ["dir/.ENV", "dir/open"]


# --- moves across -----------------------------------------------------------------------------


async def test_a_directory_is_moved_from_one_mount_to_another_with_its_contents(world: World) -> None:
    for name in ("src/a", "src/sub/b", "srcx"):
        await world.tree.write(name, name)
    move = await world.tree.move("src", "docs/mine/copy")
    assert [entry.path for entry in move.entries] == ["docs/mine/copy/a", "docs/mine/copy/sub/b"]
    assert await inner(world.root) == ["srcx"]
    assert await inner(world.mine) == ["copy/a", "copy/sub/b"]
    assert (await world.tree.read("docs/mine/copy/sub/b")).lines == ("src/sub/b",)
    await world.tree.move("docs/mine/copy/a", "a", expected_version=1)
    assert (await world.tree.read("a")).lines == ("src/a",)


async def test_a_move_across_checks_the_version_and_replaces_nothing(world: World) -> None:
    await world.tree.write("a", "one")
    await world.tree.write("docs/mine/b", "two")
    before = await world.everything()
    with pytest.raises(VersionConflict, match="is at version 1, but version 5"):
        await world.tree.move("a", "docs/mine/a", expected_version=5)
    with pytest.raises(FileExists):
        await world.tree.move("a", "docs/mine/b")
    with pytest.raises(FileMissing):
        await world.tree.move("none", "docs/mine/c")
    assert await world.everything() == before


@pytest.mark.parametrize("source", ["docs", "docs/mine"])
async def test_a_mount_point_cannot_be_moved(world: World, source: str) -> None:
    await world.tree.write("docs/mine/a", "x")
    with pytest.raises(InvalidPath, match="which cannot be moved"):
        await world.tree.move(source, "elsewhere")


@pytest.mark.row("AR-24.52")
async def test_moves_across_may_be_forbidden(environment: RealEnvironment) -> None:
    mounts = Mounts({"": MemoryBackend(environment), "b": MemoryBackend(environment)}, moves_across=False)
    async with FileTree(mounts, environment) as tree:
        await tree.write("a", "x")
        with pytest.raises(ReadOnly, match="lies in the mount of the root and 'b/a' in the mount 'b'"):
            await tree.move("a", "b/a")
        await tree.move("a", "c")
        assert await names(tree) == ["c"]


class Failing(MemoryBackend):
    """Fails at the n-th call of one of its methods."""

    always_fails = False

    def __init__(self, environment: Environment, method: str = "", left: int = 0, *, corrupt: bool = False) -> None:
        super().__init__(environment)
        self.method, self.left, self.corrupt = method, left, corrupt

    def _count(self, method: str, path: str) -> None:
        if self.always_fails:
            raise BackendFailed(path, "the disk is on fire")
        if method == self.method:
            self.left -= 1
            if self.left == 0:
                raise BackendFailed(path, "the disk is on fire")

    async def read(self, path: FilePath) -> FileData:
        self._count("read", path)
        read = await super().read(path)
        return attrs.evolve(read, data=b"rotten") if self.corrupt else read

    async def write(
        self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
    ) -> FileEntry:
        self._count("write", path)
        return await super().write(path, data, expected_version=expected_version, version=version)

    async def delete(self, path: FilePath, *, expected_version: int | None = None) -> None:
        self._count("delete", path)
        await super().delete(path, expected_version=expected_version)


async def moved(source: Failing, target: Failing, environment: RealEnvironment) -> tuple[set[str], set[str], str]:
    """Move two files of which something fails; return what lies where afterwards, and the error."""
    for name in ("d/1", "d/2"):
        await MemoryBackend.write(source, normalise(name), name.encode())
    async with FileTree(Mounts({"s": source, "t": target}), environment) as tree:
        with pytest.raises(BackendFailed) as caught:
            await tree.move("s/d", "t/d")
        source.method = target.method = ""
        return set(await inner(source)), set(await inner(target)), str(caught.value)


async def test_a_failure_before_the_first_deletion_leaves_everything_as_it_was(environment: RealEnvironment) -> None:
    for faults in (
        ("read", 2, "", 0),
        ("", 0, "write", 1),
        ("", 0, "write", 2),
        ("", 0, "read", 1),
        ("delete", 1, "", 0),
    ):
        there, copies, problem = await moved(
            Failing(environment, *faults[:2]), Failing(environment, *faults[2:]), environment
        )
        assert (there, copies) == ({"d/1", "d/2"}, set()), faults
        assert "on fire" in problem


async def test_a_failure_between_two_deletions_says_how_far_it_went_and_leaves_each_file_once(
    environment: RealEnvironment,
) -> None:
    there, copies, problem = await moved(Failing(environment, "delete", 2), Failing(environment), environment)
    assert (there, copies) == ({"d/2"}, {"d/1"})
    assert "moved 1 of 2 files to 't/d', then" in problem


async def test_a_copy_that_does_not_hold_what_was_written_is_no_move(environment: RealEnvironment) -> None:
    there, copies, problem = await moved(Failing(environment), Failing(environment, corrupt=True), environment)
    assert (there, copies) == ({"d/1", "d/2"}, set())
    assert "does not hold what was written" in problem


async def test_a_file_that_appears_at_the_target_during_a_move_is_not_replaced(environment: RealEnvironment) -> None:
    target = MemoryBackend(environment)

    class Meddling(MemoryBackend):
        async def read(self, path: FilePath) -> FileData:
            await target.write(normalise("a"), b"theirs")
            return await super().read(path)

    source = Meddling(environment)
    await source.write(normalise("a"), b"mine")
    async with FileTree(Mounts({"s": source, "t": target}), environment) as tree:
        with pytest.raises(FileExists):
            await tree.move("s/a", "t/a")
        assert (await target.read(normalise("a"))).data == b"theirs"
        assert await inner(source) == ["a"]


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
@pytest.mark.parametrize("happened", [True, False])
async def test_a_deletion_that_may_have_happened_never_costs_the_only_copy(
    autojump_clock: MockClock, how: str, *, happened: bool
) -> None:
    environment = SimulatedEnvironment()

    class Ambiguous(MemoryBackend):
        async def delete(self, path: FilePath, *, expected_version: int | None = None) -> None:
            if happened:
                await super().delete(path, expected_version=expected_version)
            if how == "fails":
                raise BackendFailed(path, "the line went dead")
            await trio.sleep_forever()

    source, target = Ambiguous(environment), MemoryBackend(environment)
    await source.write(normalise("a"), b"precious")
    async with FileTree(Mounts({"s": source, "t": target}), environment) as tree:
        if how == "fails":
            with pytest.raises(BackendFailed, match="the line went dead"):
                await tree.move("s/a", "t/a")
        else:
            with trio.move_on_after(1.0):
                await tree.move("s/a", "t/a")
        assert (await inner(source), await inner(target)) == (([], ["a"]) if happened else (["a"], []))
        assert [entry.path for entry in (await tree.ls()).entries] == (["t/a"] if happened else ["s/a"])


# --- failures of a mount ----------------------------------------------------------------------


async def test_a_mount_that_cannot_answer_is_named_and_is_not_empty(
    environment: RealEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    directory = DirectoryBackend(tmp_path / "root", environment)
    async with FileTree(Mounts({"": MemoryBackend(environment), "disk": directory}), environment) as tree:
        await tree.write("disk/a", "x")
        await directory.close()
        with pytest.raises(BackendFailed, match="the mount 'disk': the directory is not open"):
            await tree.ls()
        with pytest.raises(BackendFailed, match="the mount 'disk'"):
            await tree.read("disk/a")
        with pytest.raises(BackendFailed, match="the mount 'disk'"):
            await tree.statistics()


async def test_if_one_mount_cannot_be_opened_the_others_are_closed_again(
    environment: RealEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    good = DirectoryBackend(tmp_path / "root", environment)
    bad = DirectoryBackend(tmp_path / "missing", environment)
    with pytest.raises(BackendFailed, match="missing"):
        await Mounts({"a": good, "b": bad}).open()
    with pytest.raises(BackendFailed, match="not open"):
        await good.list()


async def test_a_file_that_a_mount_skips_is_named_with_its_whole_path(
    environment: RealEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to("/etc/passwd")
    mounts = Mounts({"disk": DirectoryBackend(tmp_path / "root", environment)})
    async with FileTree(mounts, environment) as tree:
        (skipped,) = (await tree.statistics()).skipped
        assert skipped == Skipped("disk/link", "is a symbolic link, which is never followed")


async def test_mounts_that_put_off_saving_are_saved_together_and_what_fails_is_named(
    environment: RealEnvironment,
) -> None:
    failing = Failing(environment)
    saving = Saving(debounce=60.0, stop_within=0.05)
    later, broken = (BufferedBackend(backend, environment, saving) for backend in (MemoryBackend(environment), failing))
    tree = FileTree(Mounts({"": MemoryBackend(environment), "later": later, "broken": broken}), environment)
    await tree.open()
    for name in ("later/a", "broken/b"):
        await tree.write(name, "one")
        assert (await tree.write(name, "two")).state == "dirty"
    assert [(each.path, each.state) for each in (await tree.statistics()).unsaved] == [
        ("broken/b", "dirty"),
        ("later/a", "dirty"),
    ]
    failing.method, failing.left = "write", 1
    assert [each.path for each in await tree.flush()] == ["broken/b"]
    assert (await tree.stat("later/a")).state == "saved"
    assert (await tree.stat("broken/b")).problem == "the disk is on fire"
    failing.left = 1
    with pytest.raises(UnsavedFiles) as caught:
        await tree.close()
    assert caught.value.files == (("broken/b", "the disk is on fire"),)


async def test_mounts_that_cannot_save_share_the_time_for_the_stop(autojump_clock: MockClock) -> None:
    environment = SimulatedEnvironment()
    saving = Saving(debounce=60.0, stop_within=3.0)
    broken = [Failing(environment), Failing(environment)]
    mounts = Mounts({str(number): BufferedBackend(each, environment, saving) for number, each in enumerate(broken)})
    tree = FileTree(mounts, environment)
    await tree.open()
    for number, each in enumerate(broken):
        await tree.write(f"{number}/a", "one")
        await tree.write(f"{number}/a", "two")
        each.always_fails = True
    begun = trio.current_time()
    with pytest.raises(UnsavedFiles) as caught:
        await tree.close()
    assert trio.current_time() - begun <= 3.0
    assert [path for path, _ in caught.value.files] == ["0/a", "1/a"]


async def test_the_saver_of_mounts_saves_each_when_its_time_has_come(autojump_clock: MockClock) -> None:
    environment = SimulatedEnvironment()
    backend = MemoryBackend(environment)
    later = BufferedBackend(backend, environment, Saving(debounce=2.0))
    async with FileTree(Mounts({"later": later}), environment) as tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.keep_saving)
        await tree.write("later/a", "one")
        await tree.write("later/a", "two")
        await trio.sleep(1.0)
        assert (await tree.stat("later/a")).state == "dirty"
        await trio.sleep(2.0)
        assert (await tree.stat("later/a")).state == "saved"
        assert (await backend.read(normalise("a"))).data == b"two"
        nursery.cancel_scope.cancel()
