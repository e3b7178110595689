"""Edits by the numbers of lines, on every backend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.actors import RealEnvironment
from sapwood.errors import FileMissing, InvalidOption, NotText, QuotaExceeded, VersionConflict
from sapwood.files import FileBackend, FileTree, Quota, normalise
from sapwood.files._lines import splice_lines

F = normalise("f")


async def replaced(tree: FileTree, backend: FileBackend, text: str, lines: tuple[int, int], content: str) -> bytes:
    first, last = lines
    entry = await tree.write(F, text)
    done = await tree.replace_lines(F, first, last, content, expected_version=entry.version)
    assert (done.line, done.entry.version > entry.version) == (first, True)
    return (await backend.read(F)).data


@pytest.mark.parametrize(
    ("text", "first", "last", "content", "expected"),
    [
        ("a\nb\nc\n", 2, 2, "B", "a\nB\nc\n"),
        ("a\nb\nc\n", 2, 2, "B\n", "a\nB\nc\n"),
        ("a\nb\nc\n", 1, 3, "all", "all\n"),
        ("a\nb\nc", 3, 3, "C", "a\nb\nC"),
        ("a\nb\nc", 2, 2, "x\ny", "a\nx\ny\nc"),
        ("a\nb\nc\n", 2, 3, "", "a\n"),
        ("a\nb", 2, 2, "", "a\n"),
        ("a", 1, 1, "", ""),
        ("a\r\nb\r\n", 1, 1, "x\ny", "x\r\ny\r\nb\r\n"),
        ("a\r\nb\r\n", 2, 2, "x\r\n", "a\r\nx\r\n"),
        ("a\r\nb\n", 1, 1, "x", "x\nb\n"),
        ("\ufeffa\nb\n", 1, 1, "x", "\ufeffx\nb\n"),
        ("a\rb\nc\n", 1, 1, "x", "x\nc\n"),
        ("a\n\n", 2, 2, "b", "a\nb\n"),
    ],
)
async def test_a_range_of_lines_is_replaced_and_all_others_stay_byte_for_byte(
    tree: FileTree, backend: FileBackend, *, text: str, first: int, last: int, content: str, expected: str
) -> None:
    assert await replaced(tree, backend, text, (first, last), content) == expected.encode()


@pytest.mark.parametrize(
    ("text", "after", "content", "expected"),
    [
        ("a\nb\n", 0, "x", "x\na\nb\n"),
        ("a\nb\n", 1, "x\ny", "a\nx\ny\nb\n"),
        ("a\nb\n", 2, "x", "a\nb\nx"),
        ("a\nb", 2, "x\n", "a\nb\nx\n"),
        ("", 0, "x", "x"),
        ("\ufeff", 0, "x\n", "\ufeffx\n"),
        ("a\r\nb\r\n", 1, "x", "a\r\nx\r\nb\r\n"),
        ("a\n", 1, "\n", "a\n\n"),
    ],
)
async def test_lines_are_inserted_after_a_line_or_before_the_first(
    tree: FileTree, backend: FileBackend, *, text: str, after: int, content: str, expected: str
) -> None:
    entry = await tree.write(F, text)
    done = await tree.insert_lines(F, after, content, expected_version=entry.version)
    assert done.line == after + 1
    assert (await backend.read(F)).data == expected.encode()


async def test_lines_of_another_version_are_not_touched_and_the_conflict_names_both(tree: FileTree) -> None:
    first = await tree.write(F, "a\nb\n")
    second = await tree.insert_lines(F, 0, "x\n", expected_version=first.version)
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: tree.replace_lines(F, 1, 1, "lost", expected_version=first.version),
        lambda: tree.insert_lines(F, 1, "lost", expected_version=first.version),
    ]
    for call in calls:
        with pytest.raises(VersionConflict) as caught:
            await call()
        assert (caught.value.expected, caught.value.found) == (first.version, second.entry.version)
    assert (await tree.read(F)).lines == ("x", "a", "b")


@pytest.mark.parametrize(
    ("first", "last", "content"), [(0, 1, "x"), (2, 1, "x"), (1, 3, "x"), (3, 3, "x"), (1, 2, "a\nb\n"), (1.0, 1, "x")]
)
async def test_a_range_that_is_not_there_or_that_changes_nothing_is_refused(
    tree: FileTree, first: int, last: int, content: str
) -> None:
    entry = await tree.write(F, "a\nb\n")
    with pytest.raises(InvalidOption):
        await tree.replace_lines(F, first, last, content, expected_version=entry.version)
    assert await tree.stat(F) == entry


async def test_an_insertion_that_means_nothing_is_refused(tree: FileTree) -> None:
    entry = await tree.write(F, "a\nb\n")
    for after, content in ((3, "x"), (-1, "x"), (1, "")):
        with pytest.raises(InvalidOption):
            await tree.insert_lines(F, after, content, expected_version=entry.version)
    for version in (0, None, True):
        wrong: Any = version
        with pytest.raises(InvalidOption, match="expected_version"):
            await tree.insert_lines(F, 0, "x", expected_version=wrong)
    assert await tree.stat(F) == entry


async def test_what_other_edits_refuse_is_refused_of_lines_too(
    backend: FileBackend, environment: RealEnvironment
) -> None:
    tree = FileTree(backend, environment, limits=Quota(max_file_bytes=10))
    await tree.open()
    entry = await tree.write(F, "a\nb\n")
    with pytest.raises(QuotaExceeded, match="a file may have 10"):
        await tree.insert_lines(F, 0, "x" * 10, expected_version=entry.version)
    with pytest.raises(NotText, match="lone surrogate"):
        await tree.replace_lines(F, 1, 1, "\ud800", expected_version=entry.version)
    with pytest.raises(VersionConflict, match="does not exist"):
        await tree.replace_lines("none", 1, 1, "x", expected_version=1)
    with pytest.raises(FileMissing):
        await tree.edit("none", "a", "b")
    assert await tree.stat(F) == entry


LINES = st.lists(st.sampled_from(["", "a", "b c"]), max_size=6)


@given(lines=LINES, content=LINES, data=st.data(), ended=st.booleans())
def test_splicing_lines_does_what_splicing_a_list_does(
    lines: list[str], content: list[str], data: st.DataObject, *, ended: bool
) -> None:
    text = "".join(f"{line}\n" for line in lines)
    first = data.draw(st.integers(1, len(lines) + 1))
    last = data.draw(st.integers(first - 1, len(lines)))
    if not ended and lines and lines[-1]:
        text = text[:-1]
    new = "".join(f"{line}\n" for line in content)
    expected = [*lines[: first - 1], *content, *lines[last:]]
    try:
        result = splice_lines(F, text, first, last, new)
    except InvalidOption:
        assert expected == lines
        return
    assert result.removesuffix("\n").split("\n") == (expected or [""]) or result == "".join(
        f"{line}\n" for line in expected
    )
