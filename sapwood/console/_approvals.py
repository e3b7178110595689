"""Approvals in a chat: what a person may type, and what it means."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

from sapwood.conversation import Decision, Interrupt, Verdict

BY: Final = "chat"

_WORDS: Final[Mapping[str, Verdict]] = {
    "a": "approve",
    "approve": "approve",
    "y": "approve",
    "yes": "approve",
    "e": "edit",
    "edit": "edit",
    "r": "reject",
    "reject": "reject",
    "n": "reject",
    "no": "reject",
    "answer": "answer",
}

_HELP: Final[Mapping[Verdict, str]] = {
    "approve": "approve",
    "edit": "edit NAME=VALUE ...",
    "reject": "reject [REASON]",
    "answer": "answer TEXT",
}


@attrs.frozen
class Later:
    """The person leaves it open."""


@attrs.frozen
class Unclear:
    """What was typed is no decision.

    Attributes:
        problem: What is wrong, and what may be typed.
    """

    problem: str


Reading: TypeAlias = Decision | Later | Unclear


def choices(interrupt: Interrupt) -> str:
    """Return what may be typed about an interrupt."""
    return " · ".join([*(_HELP[verdict] for verdict in interrupt.allowed if verdict in _HELP), "later"])


def read_decision(line: str, interrupt: Interrupt) -> Reading:
    """Read what a person typed about an interrupt."""
    word, _, rest = line.strip().partition(" ")
    if word.lower() in ("l", "later"):
        return Later()
    verdict = _WORDS.get(word.lower())
    if verdict is None or verdict not in interrupt.allowed:
        return Unclear(f"expected one of: {choices(interrupt)}")
    rest = rest.strip()
    match verdict:
        case "edit":
            return _read_edit(rest, interrupt)
        case "answer":
            if not rest:
                return Unclear("expected: answer TEXT")
            return Decision(interrupt.id, verdict, {"result": rest}, by=BY)
        case "reject":
            return Decision(interrupt.id, verdict, reason=rest, by=BY)
        case _:
            if rest:
                return Unclear(f"{verdict} takes nothing after it; got {rest!r}")
            return Decision(interrupt.id, verdict, by=BY)


def _read_edit(text: str, interrupt: Interrupt) -> Reading:
    known = interrupt.call.arguments
    example = next(iter(known), "NAME")
    try:
        words = shlex.split(text)
    except ValueError as error:
        return Unclear(f"the quotes do not match ({error}); write edit {example}='a value'")
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            return Unclear(f"expected edit {example}=VALUE; got {word!r}")
        if name not in known:
            return Unclear(f"{interrupt.call.name} was called with {', '.join(known) or 'no arguments'}; got {name!r}")
        changes[name] = value if isinstance(known[name], str) else _value(value)
    return Decision(interrupt.id, "edit", changes, by=BY) if changes else Unclear(f"expected edit {example}=VALUE")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
