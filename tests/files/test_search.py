"""Searching across files, also with patterns that mean harm."""

from __future__ import annotations

import pytest
import trio

from sapwood.actors import RealEnvironment
from sapwood.errors import InvalidOption, InvalidPattern
from sapwood.files import FileBackend, FileTree, MemoryBackend, SearchMatch, normalise


async def test_a_literal_search_finds_lines_in_the_order_of_paths(tree: FileTree) -> None:
    await tree.write("b.txt", "x.y\nxzy\nX.Y\n")
    await tree.write("a.txt", "first\n  x.y x.y\n")
    result = await tree.search("x.y")
    assert [(match.path, match.line, match.column, match.text) for match in result.matches] == [
        ("a.txt", 2, 3, "  x.y x.y"),
        ("b.txt", 1, 1, "x.y"),
    ]
    assert (result.files_searched, result.skipped, result.stopped, result.complete) == (2, (), "end", True)
    assert len((await tree.search("x.y", case_sensitive=False)).matches) == 3
    assert [match.path for match in (await tree.search("x", "b*")).matches] == ["b.txt", "b.txt"]


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        (r"^b", [2]),
        (r"a$", [1, 2]),
        (r"\d+", [3]),
        (r"^", [1, 2, 3, 4]),
        (r"$", [1, 2, 3, 4]),
        (r"x*", [1, 2, 3, 4]),
        (r"^$", [4]),
        (r"a\nb", [1]),
        (r"(?i)ALPHA", [1]),
        (r"(?x) beta # comment", [2]),
        (r"nowhere", []),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
async def test_a_regular_expression_matches_at_lines_whatever_ends_them(
    environment: RealEnvironment, pattern: str, lines: list[int], newline: str
) -> None:
    tree = FileTree(MemoryBackend(environment), environment)
    await tree.open()
    await tree.write("f", newline.join(["alpha", "beta", "42", "", ""]))
    result = await tree.search(pattern, regular=True)
    assert [match.line for match in result.matches] == lines


async def test_context_lines_surround_each_match_and_stop_at_the_ends(tree: FileTree) -> None:
    entry = await tree.write("f", "one\ntwo\nthree\nfour")
    matches = (await tree.search("o", context_lines=1)).matches
    assert matches == (
        SearchMatch(entry.path, 1, 1, 1, "one", (), ("two",)),
        SearchMatch(entry.path, 1, 2, 3, "two", ("one",), ("three",)),
        SearchMatch(entry.path, 1, 4, 2, "four", ("three",), ()),
    )


async def test_a_search_says_whether_there_is_more_than_it_returned(tree: FileTree) -> None:
    await tree.write("a", "x\n" * 3)
    await tree.write("b", "x\n")
    exact, cut = await tree.search("x", max_results=4), await tree.search("x", max_results=3)
    assert (len(exact.matches), exact.stopped, exact.complete) == (4, "end", True)
    assert (len(cut.matches), cut.stopped, cut.complete) == (3, "max_results", False)


async def test_files_that_are_no_text_are_named_as_skipped(tree: FileTree, backend: FileBackend) -> None:
    await backend.write(normalise("image"), b"x\xff")
    await tree.write("text", "x")
    result = await tree.search("x")
    assert [match.path for match in result.matches] == ["text"]
    assert [(skipped.name, "not UTF-8" in skipped.reason) for skipped in result.skipped] == [("image", True)]
    assert not result.complete


async def test_a_long_line_is_cut_around_its_match(tree: FileTree) -> None:
    await tree.write("f", "a" * 500_000 + "needle" + "b" * 500_000)
    (match,) = (await tree.search("needle")).matches
    assert (match.column, len(match.text), match.text[200:206]) == (500_001, 1000, "needle")


@pytest.mark.parametrize(
    ("pattern", "good"),
    [(r"(a+)+$", "b\naaa"), (r"(a|aa)+$", "b\naaa"), (r"(?:a?){40}a{40}b", "a" * 80 + "b")],
)
async def test_a_catastrophic_pattern_is_given_up_and_named_while_the_loop_runs_on(
    environment: RealEnvironment, monkeypatch: pytest.MonkeyPatch, pattern: str, good: str
) -> None:
    monkeypatch.setattr("sapwood.files._view._SECONDS_PER_FILE", 0.2)
    tree = FileTree(MemoryBackend(environment), environment)
    await tree.open()
    await tree.write("bad", "a" * 5000 + "!")
    await tree.write("good", good)
    turns = 0

    async with trio.open_nursery() as nursery:

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await trio.sleep(0.001)
                turns += 1

        nursery.start_soon(count_turns)
        result = await tree.search(pattern, regular=True)
        nursery.cancel_scope.cancel()

    assert [(skipped.name, "took too long" in skipped.reason) for skipped in result.skipped] == [("bad", True)]
    assert {match.path for match in result.matches} == {"good"}
    assert turns > 20


async def test_a_search_that_runs_out_of_time_says_so(environment: RealEnvironment) -> None:
    tree = FileTree(MemoryBackend(environment), environment, search_seconds=0.2)
    await tree.open()
    for number in range(5):
        await tree.write(f"f{number}", "a" * 5000 + "!")
    result = await tree.search(r"(a+)+$", regular=True)
    assert (result.stopped, result.complete, result.files_searched) == ("time_limit", False, 0)
    assert len(result.skipped) < 5


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "empty"),
        ("x" * 1001, "1001 characters long"),
        ("(", "no usable regular expression"),
        ("[a", "no usable regular expression"),
        ("*", "no usable regular expression"),
        ("(" * 500 + ")" * 500, "no usable regular expression"),
    ],
)
async def test_a_pattern_that_cannot_be_used_is_refused_with_the_reason(
    tree: FileTree, pattern: str, reason: str
) -> None:
    with pytest.raises(InvalidPattern, match=reason):
        await tree.search(pattern, regular=True)


@pytest.mark.parametrize(
    "option", [{"max_results": 0}, {"max_results": 1001}, {"context_lines": -1}, {"context_lines": 51}]
)
async def test_a_limit_of_a_search_that_is_out_of_range_is_refused(tree: FileTree, option: dict[str, int]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(option))):
        await tree.search("x", max_results=option.get("max_results", 1), context_lines=option.get("context_lines", 0))
