"""Moves as tools see them, on every backend; see `test_backend.py` for what each backend does."""

from __future__ import annotations

import pytest
import trio

from sapwood.actors import RealEnvironment
from sapwood.errors import FileExists, FileMissing, InvalidOption, InvalidPath, PathDenied, ReadOnly, VersionConflict
from sapwood.files import FileBackend, FileTree, Quota


async def names(tree: FileTree) -> list[str]:
    return [entry.path for entry in (await tree.ls()).entries]


async def test_a_file_is_moved_across_directories_that_come_and_go(tree: FileTree) -> None:
    entry = await tree.write("a/b/c.md", "text")
    move = await tree.move("/a/b/c.md", "x/y.md", expected_version=entry.version)
    assert (move.source, move.target) == ("a/b/c.md", "x/y.md")
    assert [each.path for each in move.entries] == ["x/y.md"]
    assert await names(tree) == ["x/y.md"]
    await tree.write("a", "the directory is gone")
    with pytest.raises(FileMissing, match="no such file"):
        await tree.read("a/b/c.md")


async def test_a_move_to_the_same_name_does_nothing(tree: FileTree) -> None:
    entry = await tree.write("a/\xe9.md", "x")
    assert (await tree.move("a/\xe9.md", "/a/e\u0301.md")).entries == (entry,)
    assert (await tree.move("a", "a")).entries == (entry,)
    assert await tree.stat("a/\xe9.md") == entry
    with pytest.raises(FileMissing):
        await tree.move("none", "none")


@pytest.mark.row("BR-38")
async def test_a_move_reaches_and_makes_names_in_either_normal_form(tree: FileTree) -> None:
    await tree.write("\xe9.md", "x")
    await tree.write("taken\xe9", "y")
    with pytest.raises(FileExists):
        await tree.move("e\u0301.md", "takene\u0301")
    await tree.move("e\u0301.md", "u\u0308.md")
    assert await names(tree) == ["taken\xe9", "\xfc.md"]


@pytest.mark.row("BR-37")
async def test_the_case_of_a_name_may_be_changed_and_not_that_of_a_directory_in_use(tree: FileTree) -> None:
    await tree.write("notes/a.md", "a")
    await tree.write("notes/b.md", "b")
    await tree.move("notes/a.md", "notes/A.md")
    for source, target in [("notes/A.md", "Notes/A.md"), ("notes/A.md", "notes/B.md"), ("notes/A.md", "NOTES")]:
        with pytest.raises(FileExists):
            await tree.move(source, target)
    await tree.move("notes", "Notes")
    assert await names(tree) == ["Notes/A.md", "Notes/b.md"]


async def test_a_directory_has_no_version_to_expect(tree: FileTree) -> None:
    await tree.write("d/a", "x")
    with pytest.raises(InvalidOption, match="a directory has no version"):
        await tree.move("d", "e", expected_version=1)
    with pytest.raises(VersionConflict, match="does not exist"):
        await tree.move("none", "e", expected_version=1)
    assert await names(tree) == ["d/a"]


@pytest.mark.parametrize(("source", "target"), [("../a", "b"), ("a", "../b"), ("a", "b\\c"), ("a", ".sapwood/x")])
async def test_neither_end_of_a_move_leads_out(tree: FileTree, source: str, target: str) -> None:
    await tree.write("a", "x")
    with pytest.raises(InvalidPath):
        await tree.move(source, target)
    assert await names(tree) == ["a"]


async def test_a_directory_whose_files_would_get_too_long_paths_stays(tree: FileTree) -> None:
    deep = "/".join(["x" * 200] * 4)
    await tree.write(f"d/{'y' * 250}", "x")
    with pytest.raises(InvalidPath, match="at most 1024"):
        await tree.move("d", deep)
    assert await names(tree) == [f"d/{'y' * 250}"]


@pytest.mark.row("BR-37")
async def test_a_move_cannot_bring_a_denied_file_into_the_open(
    backend: FileBackend, environment: RealEnvironment
) -> None:
    open_tree = FileTree(backend, environment)
    await open_tree.open()
    await open_tree.write("d/sub/.ENV", "secret")
    await open_tree.write("d/plain", "x")
    before = (await backend.list()).entries
    tree = FileTree(backend, environment, deny=[".env", "vault"])
    await tree.open()
    for source, target in [
        ("d/sub/.env", "e"),
        ("d", "e"),
        ("d/sub", "e"),
        ("d/plain", ".Env"),
        ("d/plain", "Vault/x"),
    ]:
        with pytest.raises(PathDenied):
            await tree.move(source, target)
    assert (await backend.list()).entries == before


async def test_a_read_only_tree_moves_nothing(backend: FileBackend, environment: RealEnvironment) -> None:
    tree = FileTree(backend, environment, read_only=True)
    await tree.open()
    with pytest.raises(ReadOnly):
        await tree.move("a", "b")


async def test_a_move_needs_no_room_and_takes_none(backend: FileBackend, environment: RealEnvironment) -> None:
    tree = FileTree(backend, environment, limits=Quota(max_files=2, max_total_bytes=6))
    await tree.open()
    await tree.write("d/a", "123")
    await tree.write("d/b", "123")
    await tree.move("d", "e")
    statistics = await tree.statistics()
    assert (statistics.files, statistics.total_bytes, statistics.changes) == (2, 6, 3)


async def test_of_many_moves_of_one_file_exactly_one_succeeds(tree: FileTree) -> None:
    await tree.write("a", "x")
    done: list[str] = []

    async def attempt(target: str) -> None:
        try:
            await tree.move("a", target)
        except FileMissing:
            return
        done.append(target)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(attempt, f"b{number}")
    assert await names(tree) == done
    assert len(done) == 1


async def test_bytes_that_are_no_text_are_written_and_read(tree: FileTree) -> None:
    data = bytes(range(256))
    entry = await tree.write_bytes("image", data, expected_version=0)
    file = await tree.read_bytes("image")
    assert (file.data, file.entry) == (data, entry)
    with pytest.raises(VersionConflict):
        await tree.write_bytes("image", b"", expected_version=entry.version + 7)
    with pytest.raises(InvalidOption):
        await tree.write_bytes("image", b"", expected_version=-1)
