"""The choice of a tool for a request that no rule knows: by the words of its name, description and parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sapwood.conversation import ToolSpec
from sapwood.models._offline_plan import Toolbox, mask, word_set

ENOUGH = 3
"""Points below which a tool is not meant."""

BUILT_IN = word_set("ls read_file write_file edit_file delete_file search_text write_todos list_todos")
"""Tools that have rules of their own; they are chosen by words only when a request names them outright."""

_SAME = (
    "add sum plus total",
    "subtract minus",
    "multiply times product",
    "divide quotient",
    "get fetch lookup look show find read check display",
    "delete remove erase",
    "create make new open",
    "send mail email message notify",
    "calculate compute evaluate work",
    "search query find",
    "cancel abort stop",
    "update change modify set",
    "buy order purchase",
)
"""Verbs that mean the same for choosing a tool; the stems of each line stand for one another."""

_STOP = word_set(
    "a an the of for to in on at by with from and or is are was be it its this that these those what which who how "
    "much many me my i you your we our please can could would will do does did have has want need let s using use "
    "call run tell give know tool some any all there here as into about"
)


def stem(word: str) -> str:
    """Return the stem of an English word, crudely: without its commonest endings."""
    word = word.lower()
    for ending, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word.removesuffix(ending) + instead
            break
    return word.removesuffix("e") if len(word) > 3 else word


def name_words(name: str) -> list[str]:
    """Return the words of an identifier: `getWeather_now` has `get`, `weather`, `now`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return [word.lower() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word]


def first_words(tools: Iterable[ToolSpec]) -> set[str]:
    """Return the first word of each tool's name: verbs that can begin a request."""
    return {words[0] for tool in tools if (words := name_words(tool.name)) and words[0] not in _STOP}


def named_tool(text: str, tools: Toolbox) -> ToolSpec | None:
    """Return the tool that a request names outright: `call refund with ...`, `use the add tool`, `list_orders`."""
    blotted = mask(text)
    found: list[tuple[int, int, ToolSpec]] = []
    for tool in tools.values():
        name = re.escape(tool.name)
        plain = "_" in tool.name or "-" in tool.name or tool.name != tool.name.lower()
        asked = (
            rf"\b(?:call|use|run|invoke|execute)\s+(?:the\s+)?(?:tool\s+)?[`\"']?{name}\b|\b{name}\s*\(|\b{name} tool\b"
        )
        hit = re.search(rf"(?<![\w-]){name}(?![\w-])" if plain else asked, blotted, 0 if plain else re.IGNORECASE)
        if hit is None:
            hit = re.match(rf".*[`\"']{name}[`\"']\s+tool", text)
        if hit:
            found.append((hit.start(), -len(tool.name), tool))
    return min(found, key=lambda entry: entry[:2])[2] if found else None


def rank(text: str, tools: Iterable[ToolSpec]) -> list[tuple[int, ToolSpec]]:
    """Return the tools that a request may mean with their points, best first; ties stay in the order given."""
    words = [word for word in re.findall(r"[a-z]+", mask(text).lower()) if word not in _STOP]
    stems = [stem(word) for word in words]
    scored = [(_score(stems, tool), tool) for tool in tools]
    return sorted((entry for entry in scored if entry[0] >= ENOUGH), key=lambda entry: -entry[0])


def _score(stems: list[str], tool: ToolSpec) -> int:
    if not stems:
        return 0
    verb, rest = stems[0], set(stems[1:]) - {stems[0]}
    name = {stem(word) for word in name_words(tool.name)} - _STOP
    told = [stem(word) for word in re.findall(r"[a-z]+", tool.description.lower()) if word not in _STOP]
    description = set(told)
    parameters = {stem(word) for parameter in tool.parameters.get("properties", {}) for word in name_words(parameter)}
    if not (verb in name or name & _alike(verb) or verb in description):
        return 0  # Nouns alone are not enough: `delete order 17` must not cancel it.
    points = 4 if verb in name else 3 if name & _alike(verb) else 0
    points += 2 * len(rest & name) + (3 if told[:1] == [verb] else 2 if verb in description else 0)
    points += min(3, len(rest & description)) + min(2, len(rest & parameters))
    return points


def _alike(verb: str) -> set[str]:
    groups = [{stem(word) for word in line.split()} for line in _SAME]
    return {other for group in groups if verb in group for other in group}
