"""Globs over paths."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.errors import InvalidPattern
from sapwood.files import Glob


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("**", ["a", "a/b", ".hidden/x"], []),
        ("", ["a", "a/b"], []),
        ("/", ["a", "a/b"], []),
        (".", ["a", "a/b"], []),
        ("*", ["a", ".a"], ["a/b"]),
        ("*.md", ["a.md", ".md"], ["a.mdx", "x/a.md", "amd"]),
        ("/*.md", ["a.md"], ["x/a.md"]),
        ("**/*.md", ["a.md", "x/a.md", "x/y/a.md"], ["a.txt", "a.md/x"]),
        ("notes", ["notes", "notes/a", "notes/b/c"], ["note", "x/notes"]),
        ("notes/", ["notes", "notes/a"], ["notesa"]),
        ("not?s/*", ["notes/a"], ["notes/a/b", "nots/a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a", "ab", "a/bx"]),
        ("a/**", ["a", "a/b", "a/b/c"], ["ab"]),
        ("**/a/**/b/**", ["a/b", "x/a/y/b/z"], ["b/a"]),
        ("[a-c].x", ["a.x", "c.x"], ["d.x", "-.x"]),
        ("[!a-c].x", ["d.x"], ["a.x"]),
        ("[]x]", ["]", "x"], ["a"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[*]", ["*"], ["a"]),
        ("*.{md,txt}", ["a.md", "a.txt"], ["a.rs"]),
        ("{a,b{c,d}}/*", ["a/x", "bc/x", "bd/x"], ["b/x", "c/x"]),
        ("{src,docs}/**", ["src/a", "docs/a/b"], ["x/src"]),
        ("a[{]b,c[}]", ["a{b,c}"], ["ab"]),
        ("Notes.md", ["Notes.md"], ["notes.md"]),
        ("u\u0308*", ["\xfcbung"], ["ubung"]),
        ("a.b", ["a.b"], ["axb"]),
        ("a+(b)|^$", ["a+(b)|^$"], ["aab"]),
    ],
)
def test_a_glob_matches_whole_paths_as_documented(pattern: str, matching: list[str], other: list[str]) -> None:
    glob = Glob(pattern)
    assert [path for path in matching + other if glob.matches(path)] == matching


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("../*", r"'\.\.' segment"),
        ("a/../b", r"'\.\.' segment"),
        ("{..,a}/b", r"'\.\.' segment"),
        ("a\\*", "backslash"),
        ("[abc", "without ']'"),
        ("a{b", "lone '{'"),
        ("a}b*", "lone '}'"),
        ("{a,b}" * 7, "more than 64 alternatives"),
        ("{a,b}" * 200, "more than 64 alternatives"),
        ("x" * 1025, "longer than 1024"),
    ],
)
def test_a_glob_that_cannot_be_used_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidPattern, match=reason):
        Glob(pattern)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 100 + "b", "a" * 255),
        ("**/" * 300 + "b", "/".join("a" * 500)),
        ("/".join(["**", "*"] * 200) + "/b", "/".join("a" * 500)),
    ],
)
def test_a_hostile_glob_takes_polynomial_time(pattern: str, path: str) -> None:
    # An exponential matcher would not return within the life of the machine.
    assert not Glob(pattern).matches(path)


PARTS = st.sampled_from(["**", "*", "?", "a", "b", "a*", "*b", "?a", "[ab]", "[!a]c", "*a*b*"])
NAMES = st.text("abc", min_size=1, max_size=4)


def as_expression(parts: list[str]) -> str:
    """Say the same thing as a regular expression over a path that ends with a slash."""
    expression = ""
    for part in parts:
        text = re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]").replace(r"\[", "[").replace(r"\]", "]")
        expression += "(?:[^/]+/)*" if part == "**" else text.replace("[!", "[^") + "/"
    return expression


@given(st.lists(PARTS, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=4))
def test_a_glob_agrees_with_a_regular_expression(parts: list[str], names: list[str]) -> None:
    if not any(wildcard in part for part in parts for wildcard in "*?["):
        parts = [*parts, "**"]
    expected = re.fullmatch(as_expression(parts), "/".join(names) + "/") is not None
    assert Glob("/".join(parts)).matches("/".join(names)) == expected
