"""Files as tools see them, on every backend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from sapwood.actors import RealEnvironment
from sapwood.errors import (
    BackendFailed,
    EditMismatch,
    FileExists,
    FileMissing,
    InvalidOption,
    InvalidPath,
    InvalidPattern,
    NotText,
    PathDenied,
    QuotaExceeded,
    ReadOnly,
    VersionConflict,
)
from sapwood.files import FileBackend, FileData, FileEntry, FilePath, FileTree, MemoryBackend, Quota, normalise


def every_tool(tree: FileTree, path: str) -> list[Callable[[], Awaitable[Any]]]:
    """Return one call for each method that takes a path."""
    return [
        lambda: tree.read(path),
        lambda: tree.stat(path),
        lambda: tree.write(path, "x"),
        lambda: tree.create(path, "x"),
        lambda: tree.edit(path, "old", "new"),
        lambda: tree.delete(path),
    ]


async def names(tree: FileTree, pattern: str = "**") -> list[str]:
    return [entry.path for entry in (await tree.ls(pattern)).entries]


async def contents(tree: FileTree) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {entry.path: (entry.version, (await tree.read(entry.path)).lines) for entry in (await tree.ls()).entries}


# --- reading ----------------------------------------------------------------------------------


async def test_a_file_is_read_by_lines_with_its_version(tree: FileTree) -> None:
    await tree.write("notes/todo.md", "".join(f"line {number}\n" for number in range(1, 11)))

    text = await tree.read("/notes/todo.md", start_line=3, limit=2)

    assert text.lines == ("line 3", "line 4")
    assert (text.path, text.version, text.start_line, text.total_lines) == ("notes/todo.md", 1, 3, 10)
    assert (text.newline, text.ends_with_newline, text.next_line) == ("lf", True, 5)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", ((), "none", False)),
        ("\n", (("",), "lf", True)),
        ("\n\n", (("", ""), "lf", True)),
        ("   ", (("   ",), "none", False)),
        ("a", (("a",), "none", False)),
        ("a\nb", (("a", "b"), "lf", False)),
        ("a\r\nb\r\n", (("a", "b"), "crlf", True)),
        ("a\r\nb\n", (("a", "b"), "mixed", True)),
        ("a\rb\n", (("a\rb",), "lf", True)),
        ("\ufeffa\n", (("a",), "lf", True)),
        ("a\u2028b\x0bc\n", (("a\u2028b\x0bc",), "lf", True)),
    ],
)
async def test_line_ends_and_blank_content_are_kept(
    tree: FileTree, backend: FileBackend, content: str, expected: tuple[tuple[str, ...], str, bool]
) -> None:
    await tree.write("f", content)
    text = await tree.read("f")
    assert (text.lines, text.newline, text.ends_with_newline) == expected
    assert text.total_lines == len(text.lines)
    assert (await backend.read(normalise("f"))).data == content.encode()


async def test_reading_beyond_the_end_says_how_many_lines_there_are(tree: FileTree) -> None:
    await tree.write("f", "one\ntwo\n")
    text = await tree.read("f", start_line=3)
    assert (text.lines, text.total_lines, text.next_line) == ((), 2, None)


@pytest.mark.parametrize(("start_line", "limit"), [(0, 1), (-1, 1), (1, 0), (True, 1), (1.5, 1)])
async def test_a_range_of_lines_that_means_nothing_is_refused(tree: FileTree, start_line: int, limit: int) -> None:
    with pytest.raises(InvalidOption, match="expected a whole number from 1"):
        await tree.read("f", start_line=start_line, limit=limit)


async def test_bytes_that_are_not_utf_8_are_no_text_and_can_still_be_deleted(
    tree: FileTree, backend: FileBackend
) -> None:
    await backend.write(normalise("image"), b"ok\xff\xfe")
    for call in (tree.read("image"), tree.edit("image", "ok", "no")):
        with pytest.raises(NotText, match="byte 2 is 0xFF"):
            await call
    assert (await tree.stat("image")).size == 4
    await tree.delete("image")
    assert await names(tree) == []


async def test_a_missing_file_is_reported_with_what_may_have_been_meant(tree: FileTree) -> None:
    await tree.write("Notes/Todo.md", "x")
    for path, hint in [
        ("notes/todo.md", "there is 'Notes/Todo.md'"),
        ("Notes", "is a directory"),
        ("x", "no such file"),
    ]:
        for call in (tree.read(path), tree.stat(path), tree.edit(path, "a", "b"), tree.delete(path)):
            with pytest.raises(FileMissing, match=hint):
                await call


async def test_ls_returns_what_a_glob_matches_up_to_a_limit(tree: FileTree) -> None:
    for path in ("a.md", "b.txt", "notes/c.md", "notes/deep/d.md"):
        await tree.write(path, path)

    assert await names(tree) == ["a.md", "b.txt", "notes/c.md", "notes/deep/d.md"]
    assert await names(tree, "*.md") == ["a.md"]
    assert await names(tree, "**/*.md") == ["a.md", "notes/c.md", "notes/deep/d.md"]
    assert await names(tree, "notes") == ["notes/c.md", "notes/deep/d.md"]
    some = await tree.ls(limit=2)
    assert ([entry.path for entry in some.entries], some.total) == (["a.md", "b.txt"], 4)
    with pytest.raises(InvalidPattern):
        await tree.ls("../*")
    with pytest.raises(InvalidOption):
        await tree.ls(limit=0)


# --- changing ---------------------------------------------------------------------------------


async def test_create_refuses_a_file_that_exists_and_leaves_it(tree: FileTree) -> None:
    first = await tree.create("f", "one")
    with pytest.raises(FileExists, match="exists already, at version 1"):
        await tree.create("f", "two")
    assert await contents(tree) == {"f": (first.version, ("one",))}


async def test_two_writers_of_one_version_do_not_lose_an_update(tree: FileTree) -> None:
    read = await tree.write("f", "base")
    await tree.edit("f", "base", "mine", expected_version=read.version)
    with pytest.raises(VersionConflict, match="is at version 2, but version 1 was expected"):
        await tree.write("f", "yours", expected_version=read.version)
    with pytest.raises(VersionConflict):
        await tree.edit("f", "mine", "yours", expected_version=read.version)
    with pytest.raises(VersionConflict):
        await tree.delete("f", expected_version=read.version)
    assert (await tree.read("f")).lines == ("mine",)


async def test_an_edit_replaces_the_only_occurrence(tree: FileTree) -> None:
    await tree.write("f", "one\ntwo\nthree\n")
    edit = await tree.edit("f", "two\n", "2\n2\n")
    assert (edit.replacements, edit.line, edit.entry.version) == (1, 2, 2)
    assert (await tree.read("f")).lines == ("one", "2", "2", "three")


async def test_an_edit_that_matches_twice_says_how_often_and_where(tree: FileTree) -> None:
    await tree.write("f", "x = 1\ny = 1\n\nx = 1\n")
    with pytest.raises(EditMismatch, match=r"occurs 2 times \(at line 1, 4\)") as caught:
        await tree.edit("f", "x = 1", "x = 2")
    assert (caught.value.count, caught.value.lines) == (2, (1, 4))
    assert await contents(tree) == {"f": (1, ("x = 1", "y = 1", "", "x = 1"))}


async def test_overlapping_occurrences_are_more_than_one(tree: FileTree) -> None:
    await tree.write("f", "aaa")
    with pytest.raises(EditMismatch, match="occurs 2 times"):
        await tree.edit("f", "aa", "b")
    assert (await tree.edit("f", "aa", "b", replace_all=True)).replacements == 1
    assert (await tree.read("f")).lines == ("ba",)


async def test_an_edit_that_matches_nowhere_names_lines_that_look_alike(tree: FileTree) -> None:
    await tree.write("f", "def f():\n    return  1\n")
    with pytest.raises(EditMismatch, match="line 2 differs only in blanks or case") as caught:
        await tree.edit("f", "Return 1", "return 2")
    assert (caught.value.count, caught.value.lines) == (0, (2,))
    with pytest.raises(EditMismatch, match="does not occur; read the file again"):
        await tree.edit("f", "nowhere", "x")


async def test_an_edit_of_all_occurrences_counts_them(tree: FileTree) -> None:
    await tree.write("f", "a b a\nb a\n")
    assert (await tree.edit("f", "a", "ab", replace_all=True)).replacements == 3
    assert (await tree.read("f")).lines == ("ab b ab", "b ab")


async def test_an_edit_of_a_file_with_crlf_needs_no_carriage_returns(tree: FileTree, backend: FileBackend) -> None:
    await tree.write("f", "one\r\ntwo\r\nthree\r\n")
    await tree.edit("f", "one\ntwo\n", "1\n2\r\n")
    assert (await backend.read(normalise("f"))).data == b"1\r\n2\r\nthree\r\n"


@pytest.mark.parametrize(("old", "new"), [("", "x"), ("same", "same"), ("a\nb", "a\r\nb")])
async def test_an_edit_that_cannot_change_anything_is_refused(tree: FileTree, old: str, new: str) -> None:
    await tree.write("f", "same\r\na\r\nb\r\n")
    with pytest.raises(InvalidOption):
        await tree.edit("f", old, new)
    assert (await tree.stat("f")).version == 1


async def test_text_with_a_lone_surrogate_is_refused_and_changes_nothing(tree: FileTree) -> None:
    await tree.write("f", "fine")
    for call in (tree.write("f", "a\ud800"), tree.create("g", "\udcff"), tree.edit("f", "fine", "\udfff")):
        with pytest.raises(NotText, match="lone surrogate"):
            await call
    assert await contents(tree) == {"f": (1, ("fine",))}


@pytest.mark.parametrize("expected", [-1, True, 1.0])
async def test_an_expected_version_that_is_no_version_is_refused(tree: FileTree, expected: int) -> None:
    for call in (
        tree.write("f", "x", expected_version=expected),
        tree.edit("f", "x", "y", expected_version=expected),
        tree.delete("f", expected_version=expected),
    ):
        with pytest.raises(InvalidOption, match="expected_version"):
            await call
    assert await names(tree) == []


# --- names ------------------------------------------------------------------------------------


@pytest.mark.row("BR-37")
@pytest.mark.parametrize("path", [".env", ".ENV", "sub/.Env", ".ssh/id_rsa", ".Ssh/ID_RSA", ".\u017fsh/id_rsa"])
async def test_a_denied_file_is_refused_by_every_tool_in_every_spelling(
    backend: FileBackend, environment: RealEnvironment, path: str
) -> None:
    await backend.write(normalise(".env"), b"SECRET=old")
    await backend.write(normalise(".ssh/id_rsa"), b"SECRET old")
    tree = FileTree(backend, environment, deny=[".env", ".ssh/**"])
    await tree.open()
    before = (await backend.list()).entries

    for call in every_tool(tree, path):
        with pytest.raises(PathDenied, match="denied by the rule"):
            await call()
    assert await names(tree) == []
    assert (await tree.search("SECRET")).matches == ()
    assert (await tree.statistics()).denied == 2
    assert (await backend.list()).entries == before


@pytest.mark.row("BR-37")
@pytest.mark.parametrize("path", ["../x", "a/../../x", ".env ", "~/x", "a\0", "C:/x", "a\\b", "x\u200d", ".sapwood/x"])
async def test_a_path_that_is_refused_is_refused_by_every_tool(tree: FileTree, path: str) -> None:
    for call in every_tool(tree, path):
        with pytest.raises(InvalidPath):
            await call()
    assert await names(tree) == []


@pytest.mark.row("BR-37")
@pytest.mark.parametrize("path", ["NOTES/a.txt", "notes/A.TXT", "Notes/b.txt", "notes", "NOTES", "notes/a.txt/b"])
async def test_a_name_that_differs_only_by_case_or_is_in_the_way_is_refused_on_creation(
    tree: FileTree, path: str
) -> None:
    await tree.write("notes/a.txt", "x")
    for call in (tree.write(path, "y"), tree.create(path, "y")):
        with pytest.raises(FileExists):
            await call
    assert await contents(tree) == {"notes/a.txt": (1, ("x",))}


@pytest.mark.row("BR-38")
async def test_both_normal_forms_reach_one_file_through_every_tool(tree: FileTree) -> None:
    composed, decomposed = "\xdcbung/\xe9.txt", "U\u0308bung/e\u0301.txt"
    await tree.write(composed, "one\n")
    assert (await tree.read(decomposed)).lines == ("one",)
    assert (await tree.edit(decomposed, "one", "two")).entry.version == 2
    with pytest.raises(FileExists):
        await tree.create(decomposed, "again")
    await tree.write(decomposed, "three\n")
    assert await contents(tree) == {composed: (3, ("three",))}
    assert await names(tree, "U\u0308bung/*") == [composed]
    assert [match.path for match in (await tree.search("three", "\xdcbung/**")).matches] == [composed]
    await tree.delete(decomposed)
    assert await names(tree) == []


# --- limits -----------------------------------------------------------------------------------


async def limited(backend: FileBackend, environment: RealEnvironment, limits: Quota) -> FileTree:
    tree = FileTree(backend, environment, limits=limits)
    await tree.open()
    return tree


async def test_a_file_may_be_exactly_as_long_as_the_limit(backend: FileBackend, environment: RealEnvironment) -> None:
    tree = await limited(backend, environment, Quota(max_file_bytes=10))
    await tree.write("f", "0123456789")
    for call in (tree.write("f", "0123456789a"), tree.write("g", "\xe9" * 6), tree.edit("f", "9", "99")):
        with pytest.raises(QuotaExceeded, match="a file may have 10"):
            await call
    assert await contents(tree) == {"f": (1, ("0123456789",))}


async def test_the_number_of_files_is_limited_and_a_deletion_makes_room(
    backend: FileBackend, environment: RealEnvironment
) -> None:
    tree = await limited(backend, environment, Quota(max_files=2))
    await tree.write("a", "")
    await tree.write("b", "")
    with pytest.raises(QuotaExceeded, match="more than the 2 allowed"):
        await tree.write("c", "")
    await tree.write("b", "overwriting is no new file")
    await tree.delete("a")
    await tree.write("c", "")
    assert await names(tree) == ["b", "c"]


async def test_the_size_of_all_files_is_limited_to_the_byte(backend: FileBackend, environment: RealEnvironment) -> None:
    tree = await limited(backend, environment, Quota(max_total_bytes=10))
    await tree.write("a", "12345")
    await tree.write("b", "12345")
    for call in (tree.write("c", "x"), tree.write("a", "123456"), tree.edit("b", "5", "56")):
        with pytest.raises(QuotaExceeded, match="11 bytes of 10 allowed"):
            await call
    await tree.write("c", "")
    await tree.write("a", "1234")
    await tree.write("c", "x")
    assert (await tree.statistics()).total_bytes == 10


async def test_what_makes_things_smaller_is_allowed_above_a_limit(
    backend: FileBackend, environment: RealEnvironment
) -> None:
    await backend.write(normalise("big"), b"x" * 100)
    tree = await limited(backend, environment, Quota(max_file_bytes=10, max_total_bytes=20, max_files=1))
    assert (await tree.read("big")).size == 100
    await tree.write("big", "x" * 50)
    with pytest.raises(QuotaExceeded):
        await tree.write("big", "x" * 51)
    await tree.edit("big", "x", "", replace_all=True)
    assert (await tree.statistics()).total_bytes == 0


async def test_an_edit_that_would_grow_beyond_all_bounds_is_refused_before_it_is_built(tree: FileTree) -> None:
    await tree.write("f", "a" * 1_000_000)
    with pytest.raises(QuotaExceeded, match="would be 1000000000000 bytes long"):
        await tree.edit("f", "a", "b" * 1_000_000, replace_all=True)
    assert (await tree.stat("f")).version == 1


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "10"])
def test_a_limit_that_is_no_number_from_one_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOption, match="max_files"):
        Quota(max_files=value)


async def test_a_read_only_tree_reads_and_refuses_every_change(
    backend: FileBackend, environment: RealEnvironment
) -> None:
    await backend.write(normalise("f"), b"old")
    tree = FileTree(backend, environment, read_only=True)
    await tree.open()
    for call in (tree.write("f", "x"), tree.create("g", "x"), tree.edit("f", "old", "new"), tree.delete("f")):
        with pytest.raises(ReadOnly, match="read-only"):
            await call
    assert await contents(tree) == {"f": (1, ("old",))}


async def test_a_tree_that_is_not_open_cannot_answer(backend: FileBackend, environment: RealEnvironment) -> None:
    tree = FileTree(backend, environment)
    others: list[Callable[[], Awaitable[Any]]] = [tree.ls, tree.statistics, lambda: tree.search("x")]
    calls = every_tool(tree, "f") + others
    for call in calls:
        with pytest.raises(BackendFailed, match="not open; call open"):
            await call()
    async with tree:
        await tree.write("f", "x")
    for call in calls:
        with pytest.raises(BackendFailed, match="not open"):
            await call()
    async with tree:
        assert await contents(tree) == {"f": (1, ("x",))}


# --- failures and concurrency -----------------------------------------------------------------


class FailingBackend(MemoryBackend):
    """Memory whose changes fail while `failing` is set."""

    failing = False

    async def write(
        self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
    ) -> FileEntry:
        if self.failing:
            await trio.lowlevel.checkpoint()
            raise BackendFailed(path, "the disk is on fire")
        return await super().write(path, data, expected_version=expected_version, version=version)


@pytest.mark.row("AR-22.20")
async def test_a_failed_save_is_seen_by_the_writer_and_may_be_made_again(environment: RealEnvironment) -> None:
    backend = FailingBackend(environment)
    tree = FileTree(backend, environment)
    await tree.open()
    await tree.write("f", "old")

    backend.failing = True
    for call in (tree.write("f", "new"), tree.edit("f", "old", "new"), tree.create("g", "new")):
        with pytest.raises(BackendFailed, match="on fire"):
            await call
    assert await contents(tree) == {"f": (1, ("old",))}

    backend.failing = False
    await tree.edit("f", "old", "new", expected_version=1)
    assert await contents(tree) == {"f": (2, ("new",))}
    statistics = await tree.statistics()
    assert (statistics.changes, statistics.refused) == (2, 3)


class InterferingBackend(MemoryBackend):
    """Memory in which somebody else changes a file right after it was read."""

    async def read(self, path: FilePath) -> FileData:
        read = await super().read(path)
        await self.write(path, read.data + b" theirs")
        return read


async def test_an_edit_does_not_overwrite_what_changed_meanwhile(environment: RealEnvironment) -> None:
    backend = InterferingBackend(environment)
    tree = FileTree(backend, environment)
    await tree.open()
    await tree.write("f", "base")
    with pytest.raises(VersionConflict, match="is at version 2, but version 1"):
        await tree.edit("f", "base", "mine")


async def test_what_others_did_to_the_backend_counts_from_the_next_listing_on(
    tree: FileTree, backend: FileBackend
) -> None:
    await tree.write("a/b", "x")
    await backend.delete(normalise("a/b"))
    await backend.write(normalise("C"), b"123")
    assert await names(tree) == ["C"]
    await tree.create("A", "was a directory in another case")
    with pytest.raises(FileExists, match="differs only by case"):
        await tree.create("c", "x")
    assert (await tree.statistics()).total_bytes == 3 + 31


@pytest.mark.row("S4-059")
async def test_edits_from_many_tasks_are_all_kept(tree: FileTree) -> None:
    await tree.write("f", "".join(f"<{number}>\n" for number in range(20)))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(tree.edit, "f", f"<{number}>", f"[{number}]")

    text = await tree.read("f")
    assert text.lines == tuple(f"[{number}]" for number in range(20))
    assert text.version == 21


async def test_concurrent_creations_of_one_file_let_exactly_one_through(tree: FileTree) -> None:
    outcomes: list[str] = []

    async def attempt(path: str) -> None:
        try:
            await tree.create(path, path)
        except FileExists:
            outcomes.append("exists")
        else:
            outcomes.append("made")

    async with trio.open_nursery() as nursery:
        for path in ("f", "F", "f", "f/g", "F/g", "/f"):
            nursery.start_soon(attempt, path)

    assert sorted(outcomes) == ["exists"] * 5 + ["made"]
    assert len(await names(tree)) == 1


async def test_a_cancelled_change_leaves_the_tree_in_step_with_its_backend(tree: FileTree) -> None:
    for deadline_hops in range(6):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def cancel_after(hops: int = deadline_hops, scope: trio.CancelScope = scope) -> None:
                    for _ in range(hops):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()

                nursery.start_soon(cancel_after)
                await tree.write(f"f{deadline_hops}", "x" * 10)
    listed = await tree.ls()
    assert (await tree.statistics()).total_bytes == sum(entry.size for entry in listed.entries)
    for entry in listed.entries:
        await tree.write(entry.path, "again", expected_version=entry.version)


async def test_statistics_count_files_bytes_and_changes(tree: FileTree) -> None:
    await tree.write("a", "12345")
    await tree.write("b/c", "123")
    await tree.delete("a")
    with pytest.raises(FileMissing):
        await tree.delete("a")
    statistics = await tree.statistics()
    assert (statistics.files, statistics.total_bytes) == (1, 3)
    assert (statistics.changes, statistics.refused) == (3, 1)
    assert (statistics.denied, statistics.skipped, statistics.limits) == (0, (), Quota())
