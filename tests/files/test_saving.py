"""Saving later: what is held back, when it is saved, what a failure shows, and what may be lost."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import SimulatedEnvironment
from sapwood.errors import BackendFailed, FileMissing, InvalidOption, ReadOnly, UnsavedFiles, VersionConflict
from sapwood.files import (
    BufferedBackend,
    DirectoryBackend,
    FileData,
    FileEntry,
    FilePath,
    FileTree,
    MemoryBackend,
    Mounts,
    SaveConflict,
    Saving,
    SQLiteBackend,
    normalise,
)
from sapwood.persistence import open_store
from sapwood.supervision import Backoff

F, G = normalise("f.md"), normalise("g.md")
STEADY = Backoff(initial=1.0, factor=2.0, maximum=8.0, jitter=0.0)


class Disk(MemoryBackend):
    """Memory that notes its writes and reads, and fails or hangs when told to."""

    def __init__(self, environment: SimulatedEnvironment) -> None:
        super().__init__(environment)
        self.writes: list[tuple[float, str, bytes]] = []
        self.reads: list[str] = []
        self.problem = ""
        self.released = trio.Event()
        self.hangs = False
        self.after_writing = False
        self.closed = 0

    async def read(self, path: FilePath) -> FileData:
        self.reads.append(path)
        return await super().read(path)

    async def stat(self, path: FilePath) -> FileEntry:
        return (await super().read(path)).entry

    async def write(
        self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
    ) -> FileEntry:
        if self.hangs:
            await self.released.wait()
        if self.problem and not self.after_writing:
            await trio.lowlevel.checkpoint()
            raise BackendFailed(path, self.problem)
        entry = await super().write(path, data, expected_version=expected_version, version=version)
        self.writes.append((round(trio.current_time(), 3), path, bytes(data)))
        if self.problem:
            raise BackendFailed(path, self.problem)
        return entry

    async def delete(self, path: FilePath, *, expected_version: int | None = None) -> None:
        if self.problem:
            raise BackendFailed(path, self.problem)
        await super().delete(path, expected_version=expected_version)

    async def close(self) -> None:
        self.closed += 1
        await super().close()


class Stuck(MemoryBackend):
    """Memory that never closes."""

    async def close(self) -> None:
        await trio.sleep_forever()


@attrs.define
class Desk:
    """A tree that saves later, its disk, and the time since it began."""

    tree: FileTree
    later: BufferedBackend
    disk: Disk
    saver: trio.CancelScope

    async def on_disk(self, path: FilePath = F) -> bytes:
        return (await MemoryBackend.read(self.disk, path)).data


@pytest.fixture
async def desk(autojump_clock: MockClock) -> AsyncIterator[Desk]:
    environment = SimulatedEnvironment()
    disk = Disk(environment)
    later = BufferedBackend(disk, environment, Saving(debounce=2.0, at_latest=5.0, backoff=STEADY, stop_within=4.0))
    tree = FileTree(later, environment)
    await tree.open()
    await tree.write(F, "first")
    disk.writes.clear()
    async with trio.open_nursery() as nursery:
        saver = trio.CancelScope()

        async def keep_saving() -> None:
            with saver:
                await tree.keep_saving()

        nursery.start_soon(keep_saving)
        yield Desk(tree, later, disk, saver)
        nursery.cancel_scope.cancel()


# --- when -------------------------------------------------------------------------------------


@pytest.mark.row("AR-24.45")
async def test_a_new_file_is_saved_before_the_answer(desk: Desk, autojump_clock: MockClock) -> None:
    entry = await desk.tree.write(G, "new")
    assert (entry.state, await desk.on_disk(G)) == ("saved", b"new")


@pytest.mark.row("AR-24.46")
async def test_edits_in_a_row_become_one_write_when_no_more_come(desk: Desk, autojump_clock: MockClock) -> None:
    begun = trio.current_time()
    versions: list[int] = []
    for text in ("one", "two", "three"):
        entry = await desk.tree.write(F, text)
        versions.append(entry.version)
        assert entry.state == "dirty"
        assert (await desk.tree.read(F)).lines == (text,)
        assert (await desk.tree.read(F)).version == entry.version
        await trio.sleep(1.0)
    assert await desk.on_disk() == b"first"
    await trio.sleep(5.0)
    assert desk.disk.writes == [(begun + 4.0, F, b"three")]
    assert versions == sorted(set(versions))
    assert (await desk.tree.stat(F)).state == "saved"
    assert (await MemoryBackend.read(desk.disk, F)).entry.version == versions[-1]


async def test_edits_that_never_stop_are_saved_at_the_latest_time(desk: Desk, autojump_clock: MockClock) -> None:
    begun = trio.current_time()
    for number in range(12):
        await desk.tree.write(F, str(number))
        await trio.sleep(0.9)
    assert [round(time - begun, 3) for time, _, _ in desk.disk.writes] == [5.0, 10.4]


async def test_each_file_has_a_time_of_its_own(desk: Desk, autojump_clock: MockClock) -> None:
    await desk.tree.write(G, "new")
    desk.disk.writes.clear()
    begun = trio.current_time()
    await desk.tree.write(F, "f")
    await trio.sleep(1.0)
    await desk.tree.write(G, "g")
    await trio.sleep(9.0)
    assert [(time - begun, path) for time, path, _ in desk.disk.writes] == [(2.0, F), (3.0, G)]


@pytest.mark.row("AR-24.47")
async def test_a_deletion_is_saved_at_once_and_takes_unsaved_edits_along(desk: Desk, autojump_clock: MockClock) -> None:
    entry = await desk.tree.write(F, "unsaved")
    with pytest.raises(VersionConflict):
        await desk.tree.delete(F, expected_version=entry.version - 1)
    await desk.tree.delete(F, expected_version=entry.version)
    with pytest.raises(FileMissing):
        await desk.on_disk()
    await trio.sleep(60)
    assert desk.disk.writes == []
    assert (await desk.tree.write(F, "again")).version > entry.version


@pytest.mark.row("AR-24.51")
async def test_an_edit_that_waits_is_not_lost_by_a_move(desk: Desk, autojump_clock: MockClock) -> None:
    await desk.tree.write("dir/a", "a")
    edit = await desk.tree.write("dir/a", "edited")
    (entry,) = (await desk.tree.move("dir", "other")).entries
    assert await desk.on_disk(normalise("other/a")) == b"edited"
    assert (entry.state, entry.version > edit.version) == ("saved", True)
    newer = await desk.tree.edit("other/a", "edited", "again")
    assert (newer.entry.state, newer.entry.version > entry.version) == ("dirty", True)
    await trio.sleep(60)
    assert await desk.on_disk(normalise("other/a")) == b"again"
    assert desk.later.unsaved() == ()


async def test_more_unsaved_bytes_than_allowed_are_saved_at_once(autojump_clock: MockClock) -> None:
    environment = SimulatedEnvironment()
    disk = Disk(environment)
    later = BufferedBackend(disk, environment, Saving(debounce=60.0, max_unsaved_bytes=10))
    await later.write(F, b"")
    await later.write(G, b"")
    assert (await later.write(F, b"12345")).state == "dirty"
    assert (await later.write(F, b"123456")).state == "dirty"
    assert (await later.write(G, b"12345")).state == "saved"
    assert (await later.write(F, b"12345678901")).state == "saved"
    assert later.unsaved() == ()
    assert (await disk.read(F)).data == b"12345678901"


async def test_flush_saves_everything_now(desk: Desk, autojump_clock: MockClock) -> None:
    await desk.tree.write(F, "edit")
    assert await desk.tree.flush() == ()
    assert await desk.on_disk() == b"edit"
    assert (await desk.tree.ls()).entries[0].state == "saved"


async def test_a_tree_that_saves_at_once_has_nothing_to_flush(autojump_clock: MockClock) -> None:
    environment = SimulatedEnvironment()
    async with FileTree(MemoryBackend(environment), environment) as tree:
        await tree.write(F, "x")
        assert (await tree.write(F, "y")).state == "saved"
        assert await tree.flush(5.0) == ()
        assert (await tree.statistics()).unsaved == ()


@pytest.mark.row("AR-24.48")
@pytest.mark.parametrize("buffered", [True, False])
async def test_only_names_are_read_at_the_start_and_a_content_when_it_is_needed(
    autojump_clock: MockClock, *, buffered: bool
) -> None:
    environment = SimulatedEnvironment()
    disk = Disk(environment)
    for number in range(5):
        await disk.write(normalise(f"{number}.md"), b"x")
    tree = FileTree(BufferedBackend(disk, environment) if buffered else disk, environment)
    await tree.open()
    assert (await tree.statistics()).files == 5
    await tree.ls("*.md")
    assert disk.reads == []
    await tree.read("3.md")
    assert disk.reads == ["3.md"]


# --- failures ---------------------------------------------------------------------------------


@pytest.mark.row("AR-22.20")
async def test_a_save_that_fails_is_shown_and_tried_again_with_growing_delays_until_it_succeeds(
    desk: Desk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    begun = trio.current_time()
    attempts: list[float] = []
    write = desk.disk.write

    async def noting(path: FilePath, data: bytes, **options: Any) -> FileEntry:
        attempts.append(trio.current_time() - begun)
        return await write(path, data, **options)

    desk.disk.write = noting  # type: ignore[method-assign]  # the saver's attempts are what is measured
    desk.disk.problem = "the disk is on fire"
    first = await desk.tree.write(F, "one")
    assert first.state == "dirty"
    await trio.sleep(2.5)
    entry = await desk.tree.stat(F)
    assert (entry.state, entry.problem, entry.version) == ("failed", "the disk is on fire", first.version)
    again = await desk.tree.edit(F, "one", "two", expected_version=first.version)
    assert (again.entry.state, again.entry.problem) == ("failed", "the disk is on fire")
    await trio.sleep(20)
    assert attempts == [2.0, 3.0, 5.0, 9.0, 17.0]
    (unsaved,) = (await desk.tree.statistics()).unsaved
    assert (unsaved.path, unsaved.state, unsaved.attempts) == (F, "failed", 5)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]

    desk.disk.problem = ""
    await trio.sleep(8)
    assert (await desk.tree.stat(F)).state == "saved"
    assert await desk.on_disk() == b"two"


async def test_a_save_that_failed_after_it_changed_the_file_is_made_once_more(
    desk: Desk, autojump_clock: MockClock
) -> None:
    desk.disk.problem, desk.disk.after_writing = "not known to be durable", True
    await desk.tree.write(F, "edit")
    await trio.sleep(2.5)
    desk.disk.problem = ""
    await trio.sleep(10)
    assert [data for _, _, data in desk.disk.writes] == [b"edit", b"edit"]
    assert (desk.later.unsaved(), desk.later.conflicts) == ((), ())
    assert (await desk.tree.stat(F)).state == "saved"


async def test_a_save_that_was_cancelled_after_it_went_through_is_no_conflict(autojump_clock: MockClock) -> None:
    environment = SimulatedEnvironment()
    disk = Disk(environment)
    later = BufferedBackend(disk, environment)
    await later.write(F, b"one")
    entry = await later.write(F, b"two")
    await disk.write(F, b"two", version=entry.version)
    assert await later.flush() == ()
    assert (await later.stat(F), later.conflicts) == (attrs.evolve(entry, state="saved"), ())


async def test_a_move_of_what_cannot_be_saved_moves_nothing(desk: Desk, autojump_clock: MockClock) -> None:
    await desk.tree.write(F, "edit")
    desk.disk.problem = "the disk is on fire"
    with pytest.raises(UnsavedFiles, match="the disk is on fire"):
        await desk.tree.move(F, "other.md")
    desk.disk.problem = ""
    assert (await desk.tree.read(F)).lines == ("edit",)
    await trio.sleep(60)
    assert await desk.on_disk() == b"edit"


async def test_a_deletion_that_fails_keeps_what_was_unsaved(desk: Desk, autojump_clock: MockClock) -> None:
    await desk.tree.write(F, "edit")
    desk.disk.problem = "the disk is on fire"
    with pytest.raises(BackendFailed):
        await desk.tree.delete(F)
    desk.disk.problem = ""
    await trio.sleep(60)
    assert await desk.on_disk() == b"edit"


async def test_a_backend_that_refuses_changes_refuses_the_first_edit(tmp_path: Path) -> None:
    environment = SimulatedEnvironment()
    (tmp_path / F).write_text("there")
    later = BufferedBackend(DirectoryBackend(tmp_path, environment, read_only=True), environment)
    async with FileTree(later, environment) as tree:
        for call in (tree.write(F, "edit"), tree.write(G, "new")):
            with pytest.raises(ReadOnly, match="opened read-only") as caught:
                await call
            assert caught.value.path in {F, G}
        assert (await tree.read(F)).lines == ("there",)


# --- somebody else ----------------------------------------------------------------------------


async def test_an_edit_that_somebody_else_overtook_is_kept_beside_their_file(
    desk: Desk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    mine = await desk.tree.edit(F, "first", "mine")
    theirs = await MemoryBackend.write(desk.disk, F, b"theirs")
    await trio.sleep(10)
    assert (await desk.tree.read(F)).lines == ("theirs",)
    beside = f"{F}.unsaved-{mine.entry.version}"
    assert (await desk.tree.read(beside)).lines == ("mine",)
    assert desk.later.conflicts == (SaveConflict(F, mine.entry.version, theirs.version, normalise(beside)),)
    assert beside in caplog.text
    with pytest.raises(VersionConflict) as caught:
        await desk.tree.write(F, "mine again", expected_version=mine.entry.version)
    assert (caught.value.expected, caught.value.found) == (mine.entry.version, theirs.version)
    assert (await desk.tree.write(F, "both", expected_version=theirs.version)).version > theirs.version
    await trio.sleep(10)
    assert await desk.on_disk() == b"both"


async def test_an_edit_of_a_file_that_somebody_else_removed_is_kept_too(desk: Desk, autojump_clock: MockClock) -> None:
    mine = await desk.tree.write(F, "mine")
    await MemoryBackend.delete(desk.disk, F)
    await trio.sleep(10)
    (conflict,) = desk.later.conflicts
    assert (conflict.version, conflict.found) == (mine.version, 0)
    assert (await desk.tree.read(conflict.kept_as)).lines == ("mine",)


async def test_an_overtaken_edit_of_a_long_name_is_kept_under_a_short_one(
    desk: Desk, autojump_clock: MockClock
) -> None:
    name = normalise("x" * 255)
    await desk.tree.write(name, "one")
    mine = await desk.tree.write(name, "mine")
    await MemoryBackend.write(desk.disk, name, b"theirs")
    await desk.tree.flush()
    assert (await desk.tree.read(f"unsaved-{mine.version}")).lines == ("mine",)


async def test_a_deletion_that_expects_what_somebody_else_overtook_is_a_conflict(
    desk: Desk, autojump_clock: MockClock
) -> None:
    mine = await desk.tree.write(F, "mine")
    theirs = await MemoryBackend.write(desk.disk, F, b"theirs")
    with pytest.raises(VersionConflict) as caught:
        await desk.tree.delete(F, expected_version=mine.version)
    assert (caught.value.expected, caught.value.found) == (mine.version, theirs.version)


# --- the end ----------------------------------------------------------------------------------


@pytest.mark.row("AR-24.50")
async def test_closing_saves_what_is_left(desk: Desk, autojump_clock: MockClock) -> None:
    await desk.tree.write(F, "edit")
    await desk.tree.close()
    assert (await desk.on_disk(), desk.disk.closed) == (b"edit", 1)


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_what_cannot_be_saved_in_time_is_named_when_closing_and_kept_for_the_next_opening(
    desk: Desk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    await desk.tree.write(G, "new")
    for path in (F, G):
        await desk.tree.write(path, "edit")
    desk.disk.problem, desk.disk.hangs = "the disk is on fire" if how == "fails" else "", how == "hangs"
    desk.saver.cancel()
    begun = trio.current_time()
    with pytest.raises(UnsavedFiles, match="1 more files are not saved") as caught:
        await desk.tree.close()
    assert trio.current_time() - begun <= 4.0
    assert [path for path, _ in caught.value.files] == [F, G]
    assert desk.disk.closed == 1
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert repr(F) in errors[0]
    assert repr(G) in errors[0]
    desk.disk.problem, desk.disk.hangs = "", False
    desk.disk.released.set()
    await desk.tree.open()
    assert (await desk.tree.stat(F)).state != "saved"
    await desk.tree.close()
    assert (await desk.on_disk(F), await desk.on_disk(G)) == (b"edit", b"edit")


@pytest.mark.parametrize("how", ["fails", "hangs"])
@pytest.mark.parametrize("where", ["alone", "mounted"])
async def test_leaving_a_block_saves_as_long_as_the_policy_says_and_never_hides_what_is_not_saved(
    autojump_clock: MockClock, how: str, where: str
) -> None:
    environment = SimulatedEnvironment()
    disk = Disk(environment)
    later = BufferedBackend(disk, environment, Saving(debounce=600.0, backoff=STEADY, stop_within=40.0))
    path = F if where == "alone" else normalise(f"notes/{F}")
    begun = trio.current_time()
    tree = FileTree(later if where == "alone" else Mounts({"notes": later}), environment)

    async def edit() -> None:
        async with tree:
            for content in ("first", "edit"):
                await tree.write(path, content)
            disk.problem, disk.hangs = "the disk is on fire" if how == "fails" else "", how == "hangs"

    with pytest.raises(UnsavedFiles) as caught:
        await edit()
    assert [unsaved for unsaved, _ in caught.value.files] == [path]
    assert 30.0 < trio.current_time() - begun <= 40.0


async def test_a_backend_that_does_not_close_in_time_is_no_quiet_end_of_a_block(autojump_clock: MockClock) -> None:
    environment = SimulatedEnvironment()
    with pytest.raises(BackendFailed, match="did not close within 10 s"):
        async with FileTree(Stuck(environment), environment) as tree:
            await tree.write(F, "first")


async def test_a_failure_that_passes_while_closing_costs_nothing(desk: Desk, autojump_clock: MockClock) -> None:
    await desk.tree.write(F, "edit")
    desk.disk.problem = "busy"

    async def recover() -> None:
        await trio.sleep(1.5)
        desk.disk.problem = ""

    async with trio.open_nursery() as nursery:
        nursery.start_soon(recover)
        await desk.tree.close()
    assert await desk.on_disk() == b"edit"


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
async def test_versions_that_were_shown_and_lost_never_stand_for_another_content(
    tmp_path: Path, autojump_clock: MockClock, kind: str
) -> None:
    environment = SimulatedEnvironment()
    async with open_store(tmp_path / "store.db", environment) as store:
        (tmp_path / "root").mkdir()

        def make() -> BufferedBackend:
            if kind == "sqlite":
                return BufferedBackend(SQLiteBackend(store, ("user", 1), environment), environment)
            return BufferedBackend(DirectoryBackend(tmp_path / "root", environment), environment)

        shown: set[int] = set()
        for life in range(3):
            later = make()
            await later.open()
            if not life:
                await later.write(F, b"0")
            for number in range(3):
                entry = await later.write(F, f"{life} {number}".encode())
                assert entry.version not in shown
                shown.add(entry.version)
            # The process dies: nothing is flushed, nothing closed.
        last = make()
        await last.open()
        assert (await last.read(F)).data == b"0"
        await last.delete(F)
        assert (await last.write(F, b"anew")).version > max(shown)


async def test_a_reader_during_a_slow_save_sees_the_newest_content(desk: Desk, autojump_clock: MockClock) -> None:
    await desk.tree.write(F, "edit")
    desk.disk.hangs = True
    await trio.sleep(3.0)
    with trio.fail_after(1.0):
        assert (await desk.tree.read(F)).lines == ("edit",)
    desk.disk.hangs = False
    desk.disk.released.set()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Saving(debounce=0), "debounce: expected seconds above 0"),
        (lambda: Saving(at_latest=-1), "at_latest"),
        (lambda: Saving(stop_within=True), "stop_within"),
        (lambda: Saving(max_unsaved_bytes=-1), "max_unsaved_bytes"),
    ],
    ids=["debounce", "at_latest", "stop_within", "max_unsaved_bytes"],
)
def test_a_policy_that_means_nothing_is_refused(make: Callable[[], Saving], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        make()
