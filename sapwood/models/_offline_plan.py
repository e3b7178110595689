"""Plans of the offline model: what a rule yields, what it gets back, and what it comes to."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias

import attrs

from sapwood.conversation import ToolSpec


@attrs.frozen
class Clause:
    """One request of a message.

    Attributes:
        text: The request, on one line as a rule.
        body: Lines that belong to it: what follows `Write notes.txt with:`.
        value: What the request before it came to; `it` and `the result` mean this.
    """

    text: str
    body: str = ""
    value: str = ""


@attrs.frozen
class Wish:
    """A tool call that a plan wants next."""

    tool: str
    arguments: dict[str, Any]


@attrs.frozen
class Outcome:
    """What came of a wish."""

    text: str
    failed: bool = False


@attrs.frozen
class Finding:
    """What a request came to.

    Attributes:
        text: A sentence for the answer.
        done: Whether it was carried out; if not, the requests after it are not begun.
        value: What later requests may refer to as `it`.
    """

    text: str
    done: bool = True
    value: str = ""


Plan: TypeAlias = Generator[Wish, Outcome, Finding]
"""Yields wishes, is sent their outcomes, returns the finding. It is replayed from the start at every model call, so it
may depend on nothing but the clause, the tools and the outcomes."""

Toolbox: TypeAlias = Mapping[str, ToolSpec]
"""The tools on offer by name."""

Rule: TypeAlias = Callable[[Clause, Toolbox], Plan | None]
"""Returns a plan if the rule understands the clause and has the tools for it, else None."""

QUOTED = re.compile(
    r"```(?:\w*\n)?(?P<fence>.*?)```"
    r"|`(?P<tick>[^`\n]*)`"
    r'|"(?P<double>[^"]*)"'
    r"|\u201c(?P<curly>[^\u201d]*)\u201d"
    r"|(?<!\w)'(?P<single>(?:[^'\n]|'(?=\w))*)'(?!\w)",
    re.DOTALL,
)
PATH = re.compile(
    r"(?<![\w@./-])(?:\.{0,2}/)?(?:[\w.-]++/)*+"
    r"(?:[\w-]*+(?:\.[\w-]++)*\.[A-Za-z][A-Za-z0-9]{0,7}|README|Makefile|LICENSE|Dockerfile)\b(?![@\w])"
)
LONGEST = 2000
"""Characters that one line of requests may have, a quoted part counting as 20; patterns take quadratic time."""

REFERENCE = re.compile(
    r"(?:it|that|this|them|the (?:results?|total|sum|average|mean|answer|count|output|value|number|maximum|minimum"
    r"|list|text|contents?))(?: (?:of it|as text))?",
    re.IGNORECASE,
)


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set, for tables of words."""
    return frozenset(text.split())


def quoted(text: str) -> list[str]:
    """Return the quoted texts in order, without their quotes."""
    return [unquote(found) for found in QUOTED.finditer(text)]


def unquote(found: re.Match[str]) -> str:
    """Return what a match of `QUOTED` holds, with typed escapes for line ends and tabs carried out."""
    inner = next(group for group in found.groups() if group is not None)
    return inner if found.group("fence") is not None else inner.replace("\\n", "\n").replace("\\t", "\t")


def mask(text: str) -> str:
    """Return the text with every quoted part blotted out, at equal length."""
    return QUOTED.sub(lambda found: "\0" * len(found.group()), text)


def is_too_long(text: str) -> bool:
    """Whether a line of requests is longer than `LONGEST`."""
    if len(text) <= LONGEST // 4:
        return False
    parts, quotes = QUOTED.subn("", text)
    return len(parts) + 20 * quotes > LONGEST


def refers_back(text: str) -> bool:
    """Whether a text stands for what an earlier request came to: `it`, `the total`."""
    return REFERENCE.fullmatch(" ".join(text.split())) is not None


def failure(what: str, outcome: Outcome) -> Finding:
    """Return the finding for a tool that reported an error."""
    return Finding(f"{what} failed: {outcome.text.removeprefix('Error: ').strip()}", done=False)


def say(text: str, *, done: bool = True) -> Plan:
    """Return a plan that calls nothing."""
    yield from ()
    return Finding(text, done)
