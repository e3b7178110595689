"""What a docstring says about the arguments of a function, in either of two forms.

The section form has an `Args:` header (a class's `Attributes:`) and one indented `name: text` for each argument. The
short form puts `name: text` after a sentence or at the start of a line: "Refund an order. cents: amount in US cents."
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

import attrs

_HEADER = re.compile(r"(?:Args|Arguments|Parameters|Attributes):\s*$")
_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)$")


@attrs.frozen
class Docstring:
    """A docstring, taken apart.

    Attributes:
        description: All of it but what is said about single arguments.
        parameters: What is said about each argument, by name.
        section: Names that the section form describes, in order, known or not.
    """

    description: str
    parameters: dict[str, str]
    section: tuple[str, ...] = ()


def read_docstring(text: str | None, names: Iterable[str]) -> Docstring:
    """Take a docstring apart, given the names of the arguments."""
    if not text:
        return Docstring("", {})
    rest, section = _take_section(inspect.cleandoc(text).splitlines())
    description, parameters = _take_short_forms("\n".join(rest).strip(), list(names))
    return Docstring(description, {**parameters, **section}, tuple(section))


def _take_section(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    start = next((index for index, line in enumerate(lines) if _HEADER.match(line)), None)
    if start is None:
        return lines, {}
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith((" ", "\t"))):
        end += 1
    return lines[:start] + lines[end:], _entries([line for line in lines[start + 1 : end] if line.strip()])


def _entries(lines: list[str]) -> dict[str, str]:
    entries: dict[str, str] = {}
    name = ""
    for line in lines:
        text = line.strip()
        found = _ENTRY.match(text) if _indent(line) <= _indent(lines[0]) else None
        if found:
            name = found["name"]
            entries[name] = found["text"]
        elif name:
            entries[name] = f"{entries[name]} {text}".strip()
    return entries


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _take_short_forms(text: str, names: list[str]) -> tuple[str, dict[str, str]]:
    if not names:
        return text, {}
    any_name = "|".join(re.escape(name) for name in names)
    marker = re.compile(rf"(?:^|(?<=[.;,!?])[ \t]+|\n[ \t]*)({any_name}):\s+")
    parameters: dict[str, str] = {}
    paragraphs: list[str] = []
    for paragraph in re.split(r"\n[ \t]*\n", text):
        before, *found = marker.split(paragraph)
        if before.strip():
            paragraphs.append(before.strip())
        for name, said in zip(found[::2], found[1::2], strict=True):
            parameters[name] = " ".join(said.split()).rstrip(" ;,.")
    return "\n\n".join(paragraphs), parameters
