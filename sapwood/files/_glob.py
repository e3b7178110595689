"""Globs over virtual paths, matched in polynomial time whatever the pattern."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import TypeAlias

from sapwood.errors import InvalidPattern

MAX_PATTERN_LENGTH = 1024
MAX_ALTERNATIVES = 64

_Test: TypeAlias = Callable[[str], bool]
_STAR = None
# `**`, a name without wildcards, or a test for each character with None for a star.
_Segment: TypeAlias = "list[_Test | None] | str | None"
# A set in brackets, which hides its braces, or the innermost braces.
_SET_OR_BRACES = re.compile(r"\[!?[^/][^]/]*]|\{([^{}]*)\}")


class Glob:
    """A pattern for paths.

    | Pattern | Matches |
    |---|---|
    | `*` | any characters within one segment, also none |
    | `?` | one character |
    | `[a-z]`, `[!a-z]` | one character in, or not in, the set |
    | `{md,txt}` | one of the alternatives (at most 64 after expansion) |
    | `**` as a whole segment | any number of segments, also none |

    The pattern is anchored at the root, a leading `/` is dropped, names that start with a dot are matched like others,
    and case matters. A pattern without wildcards, or one that ends with `/`, also matches everything below the
    directory it names; an empty one, `/` and `.` match everything. There is no escape character: `[*]` means a star.

    Args:
        pattern: The glob, in any normal form.

    Raises:
        InvalidPattern: if it is longer than 1024 characters, has a `..` segment or a backslash, an unclosed `[` or `{`,
            or too many alternatives.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise InvalidPattern(pattern[:40] + "...", f"is longer than {MAX_PATTERN_LENGTH} characters")
        self.pattern = pattern
        text = unicodedata.normalize("NFC", pattern).removeprefix("/")
        if "\\" in text:
            raise InvalidPattern(pattern, "holds a backslash; use '/' between segments, and [*] for a literal star")
        names_directory = text in ("", ".") or text.endswith("/")
        text = "" if text == "." else text.rstrip("/")
        if names_directory or not any(wildcard in text for wildcard in "*?[{"):
            alternatives = [text, f"{text}/**"] if text else ["**"]
        else:
            alternatives = self._expand(text)
        self._alternatives = [[self._segment(part) for part in text.split("/")] for text in alternatives]

    def matches(self, path: str) -> bool:
        """Say whether the pattern matches a whole path."""
        parts = path.split("/")
        return any(_match_parts(pattern, parts)[-1] for pattern in self._alternatives)

    def matches_at_or_above(self, path: str) -> bool:
        """Say whether the pattern matches a path or one of the directories above it."""
        parts = path.split("/")
        return any(any(_match_parts(pattern, parts)[1:]) for pattern in self._alternatives)

    def _expand(self, text: str) -> list[str]:
        done: list[str] = []
        todo = [text]
        while todo:
            current = todo.pop()
            braces = next((found for found in _SET_OR_BRACES.finditer(current) if found[1] is not None), None)
            if braces is None:
                done.append(current)
            else:
                choices = braces[1].split(",")
                todo += [current[: braces.start()] + choice + current[braces.end() :] for choice in choices]
            if len(done) + len(todo) > MAX_ALTERNATIVES:
                raise InvalidPattern(self.pattern, f"stands for more than {MAX_ALTERNATIVES} alternatives; write fewer")
        return done

    def _segment(self, text: str) -> _Segment:
        if text == "**":
            return None
        if text == "..":
            raise InvalidPattern(self.pattern, "has a '..' segment; a pattern cannot leave the root")
        if not any(wildcard in text for wildcard in "*?[{}"):
            return text
        tokens: list[_Test | None] = []
        position = 0
        while position < len(text):
            character = text[position]
            position += 1
            if character == "*":
                if not tokens or tokens[-1] is not _STAR:
                    tokens.append(_STAR)
            elif character == "?":
                tokens.append(_any_character)
            elif character == "[":
                end = text.find("]", position + (2 if text.startswith("!", position) else 1))
                if end < 0:
                    raise InvalidPattern(self.pattern, "has a '[' without ']'; write [[] for a literal one")
                tokens.append(_character_set(text[position:end]))
                position = end + 1
            elif character in "{}":
                raise InvalidPattern(self.pattern, f"has a lone {character!r}; write [{character}] for a literal one")
            else:
                tokens.append(character.__eq__)
        return tokens


def _any_character(_character: str) -> bool:
    return True


def _character_set(text: str) -> _Test:
    negated = text.startswith("!")
    text = text[1:] if negated else text
    ranges: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        if text[position + 1 : position + 2] == "-" and position + 2 < len(text):
            ranges.append((text[position], text[position + 2]))
            position += 3
        else:
            ranges.append((text[position], text[position]))
            position += 1
    return lambda character: any(low <= character <= high for low, high in ranges) is not negated


def _match_parts(pattern: list[_Segment], parts: list[str]) -> list[bool]:
    """Return, for each number of parts from the left, whether the pattern matches exactly these."""
    reachable = [True] + [False] * len(parts)
    for segment in pattern:
        if segment is None:
            first = reachable.index(True) if True in reachable else len(reachable)
            reachable = [i >= first for i in range(len(reachable))]
        elif isinstance(segment, str):
            reachable = [False] + [reachable[i] and segment == part for i, part in enumerate(parts)]
        else:
            reachable = [False] + [reachable[i] and _match_segment(segment, part) for i, part in enumerate(parts)]
    return reachable


def _match_segment(tokens: list[_Test | None], name: str) -> bool:
    # Only the last star is ever reconsidered, so the work is at most len(tokens) * len(name).
    at = token = 0
    star: tuple[int, int] | None = None
    while at < len(name):
        test = tokens[token] if token < len(tokens) else None
        if token < len(tokens) and test is _STAR:
            star = (token, at)
            token += 1
        elif test is not None and test(name[at]):
            token += 1
            at += 1
        elif star is not None:
            star = (star[0], star[1] + 1)
            token, at = star[0] + 1, star[1]
        else:
            return False
    return all(test is _STAR for test in tokens[token:])
