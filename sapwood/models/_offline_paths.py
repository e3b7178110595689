"""File names in plain English, and the text of files behind line numbers."""

from __future__ import annotations

import re
from collections.abc import Generator

import attrs

from sapwood.models._offline_plan import PATH, QUOTED, Finding, Outcome, Wish, failure, mask, unquote

PAGE = 2000
"""Lines per read_file call."""

_NUMBERED = re.compile(r"^\s*(\d+)\t(.*)$", re.DOTALL)


@attrs.frozen
class Place:
    """A file name in a clause and where it stands."""

    path: str
    start: int
    end: int


def find_paths(text: str) -> list[Place]:
    """Return the file names in a clause: names with an ending, quoted ones, and what follows `file named`."""
    places = [Place(found.group(), found.start(), found.end()) for found in PATH.finditer(mask(text))]
    for found in QUOTED.finditer(text):
        inner = unquote(found)
        named = re.search(r"\bfile(?: named| called)?\s*$", text[: found.start()], re.IGNORECASE)
        if PATH.fullmatch(inner.replace(" ", "_")) or (named and inner and "\n" not in inner):
            places.append(Place(inner, found.start(), found.end()))
    if not places:
        bare = re.search(
            r"\bfile (?:named |called )?(?!with\b|to\b|in\b|for\b|and\b)([\w./-]+)", mask(text), re.IGNORECASE
        )
        if bare:
            places.append(Place(bare.group(1), bare.start(1), bare.end(1)))
    return sorted(places, key=lambda place: place.start)


def split_page(text: str) -> tuple[list[str], list[str]]:
    """Return the lines of a read_file result without their numbers, and the tool's remarks, which have none."""
    lines = text.split("\n")
    return [f.group(2) for f in map(_NUMBERED.match, lines) if f], [line for line in lines if not _NUMBERED.match(line)]


def read_whole(path: str) -> Generator[Wish, Outcome, list[str] | Finding]:
    """Read a file to its end, page by page; returns its lines, or the finding of a failure."""
    lines: list[str] = []
    while True:
        outcome = yield Wish("read_file", {"path": path, "start_line": len(lines) + 1, "limit": PAGE})
        if outcome.failed:
            return failure(f"Reading {path}", outcome)
        page, remarks = split_page(outcome.text)
        lines += page
        goes_on = any("start_line=" in remark for remark in remarks)
        if not page or not (goes_on or len(page) == PAGE):
            return lines


_FILE_VERB = re.compile(
    r"(?:read|show|open|print|cat|display|view|delete|remove|erase|append|add|replace|change|edit|count|sum|total)\b",
    re.IGNORECASE,
)
_THE_FILE = re.compile(
    r"(?P<before>^\w+ |\b(?:in|to|of|from|with)\s+)(?:it|that file|the file|this file)\b", re.IGNORECASE
)


def resolve_file(text: str, path: str) -> str:
    """Return a clause about files with `it` or `the file` replaced by the file that an earlier request named."""
    if not path or not _FILE_VERB.match(text) or find_paths(text):
        return text
    found = _THE_FILE.search(mask(text))
    return text if found is None else f"{text[: found.end('before')]}{path}{text[found.end() :]}"
