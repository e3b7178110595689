"""Rules for to-dos: list, add, complete, start, cancel, reopen, remove and clear."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence

import attrs

from sapwood.models._offline_clauses import TODO_WORDS
from sapwood.models._offline_plan import (
    Clause,
    Finding,
    Outcome,
    Plan,
    Rule,
    Toolbox,
    Wish,
    failure,
    mask,
    quoted,
    refers_back,
    say,
)

_LINE = re.compile(r"^\s*(\d+)\s+\[(\w+)\]\s+(.*)$")
_MARKER = re.compile(r"^\s*(?:[-*\u2022]|\d+[.)]|\[[ x]?\])\s+")
_BETWEEN = re.compile(r"\s*[,;]\s*(?:and\s+)?|\s+and\s+", re.IGNORECASE)

_CHANGES = (
    (r"(?:complete|finish|close|check off|tick off|done with|i (?:finished|completed|did))\b", "completed"),
    (r"(?:mark|set)\b.*\b(?:done|completed?|finished)\b", "completed"),
    (r"(?:mark|set)\b.*\bin[ _-]progress\b|(?:start|begin|work on)\b", "in_progress"),
    (r"(?:mark|set)\b.*\bcancell?ed\b|(?:cancel|drop|skip)\b", "cancelled"),
    (r"(?:mark|set)\b.*\b(?:pending|open)\b|reopen\b", "pending"),
    (r"(?:delete|remove|erase)\b", "removed"),
)
"""Beginnings of a request and the status that they ask for."""

_NOT_WORDS = re.compile(
    r"^(?:complete|finish|close|check off|tick off|done with|i (?:finished|completed|did)|mark|set|start|begin|work on"
    r"|cancel|drop|skip|reopen|delete|remove|erase)\b|\b(?:as )?(?:done|completed?|finished|in[ _-]progress|cancell?ed"
    r"|pending|open)$|\b(?:from|on|in) (?:my|the)\s*$|^(?:the|my|a)\b|\b(?:the|my)\s*$|\b(?:number|no\.)\s*$",
    re.IGNORECASE,
)


_NUMBERS = re.compile(r"#?\d+(?:(?:\s*,\s*|\s+and\s+|\s*,\s*and\s+)#?\d+)*")


@attrs.frozen
class _Todo:
    id: int
    status: str
    content: str


def list_todos(clause: Clause, tools: Toolbox) -> Plan | None:
    """`list my to-dos`, `what is left to do?`."""
    asks = re.match(r"(?:list|show|display|read|print|give|what|which|get)\b", clause.text, re.IGNORECASE)
    left = re.search(r"\b(?:left|have|remains?)\b.*\bto do\b", clause.text, re.IGNORECASE)
    if "list_todos" not in tools or not asks or not (TODO_WORDS.search(mask(clause.text)) or left):
        return None
    return _list()


def _list() -> Plan:
    outcome = yield Wish("list_todos", {})
    if outcome.failed:
        return failure("Listing the to-dos", outcome)
    found = _parse(outcome.text)
    lines = "\n".join(f"{todo.id} [{todo.status}] {todo.content}" for todo in found)
    return Finding(f"To-dos:\n{lines}" if found else "There are no to-dos.", value=lines)


def add(clause: Clause, tools: Toolbox) -> Plan | None:
    """`add a to-do: buy milk`, `add "a" and "b" to my to-do list`, `remind me to call Anna`."""
    if "write_todos" not in tools:
        return None
    remind = re.match(r"(?:remind me|remember) (?:to|about)\s+(.*)", clause.text, re.IGNORECASE | re.DOTALL)
    verb = re.match(r"(?:add|create|make|new|put|write(?: down)?|note(?: down)?|plan)\b\s*", clause.text, re.IGNORECASE)
    words = TODO_WORDS.search(mask(clause.text))
    if remind:
        return _add([remind.group(1).strip("\"'`")])
    if not verb or not words:
        return None
    contents = _contents(clause, verb.end(), words)
    if not contents:
        return say("I need to know what the to-do is. Say: add a to-do: buy milk.", done=False)
    return _add(contents)


def _contents(clause: Clause, begin: int, words: re.Match[str]) -> list[str]:
    if clause.body:
        lines = [_MARKER.sub("", line).strip() for line in clause.body.splitlines()]
        return [line for line in lines if line]
    texts = quoted(clause.text)
    if texts:
        return [text for text in texts if text.strip()]
    before, after = clause.text[begin : words.start()], clause.text[words.end() :]
    several = re.search(r"dos\b|items\b", words.group() + before[-12:], re.IGNORECASE) is not None
    to_list = re.sub(r"\s*\b(?:to|on|onto|in|into)\s+(?:my|the|our)\s*$", "", before, flags=re.IGNORECASE)
    if to_list != before and to_list.strip():
        given, several = to_list, "," in to_list or several
    else:
        given = re.sub(
            r"^\s*(?:items?\b)?\s*(?::|-\s|to\b|for\b|called\b|named\b|saying\b)?\s*", "", after, flags=re.IGNORECASE
        )
        several = several or (":" in after and "," in given)
    parts = _BETWEEN.split(given.strip()) if several else [given.strip()]
    return [part.strip() for part in parts if part.strip()]


def _add(contents: Sequence[str]) -> Plan:
    todos = [{"content": content, "status": "pending"} for content in contents]
    outcome = yield Wish("write_todos", {"todos": todos, "merge": True})
    if outcome.failed:
        return failure("Adding the to-do", outcome)
    count = "1 to-do" if len(todos) == 1 else f"{len(todos)} to-dos"
    return Finding(f"Added {count}: {'; '.join(contents)}.", value="\n".join(contents))


def clear(clause: Clause, tools: Toolbox) -> Plan | None:
    """`clear my to-dos`, `delete all to-dos`."""
    asks = re.match(r"(?:clear|empty)\b|(?:delete|remove|erase)\s+(?:all|every)\b", clause.text, re.IGNORECASE)
    if "write_todos" not in tools or not asks or not TODO_WORDS.search(mask(clause.text)):
        return None
    return _clear()


def _clear() -> Plan:
    outcome = yield Wish("write_todos", {"todos": [], "merge": False})
    return failure("Clearing the to-dos", outcome) if outcome.failed else Finding("All to-dos are removed.")


def change(clause: Clause, tools: Toolbox) -> Plan | None:
    """`complete to-do 2`, `mark "buy milk" as done`, `start the to-do about taxes`, `complete all to-dos`."""
    about_todos = TODO_WORDS.search(mask(clause.text)) or re.match(
        r"(?:mark|set)\b.*\b(?:done|completed?|finished)$|(?:check|tick) off\b", clause.text, re.IGNORECASE
    )
    return _plan_change(clause, tools, _CHANGES) if about_todos else None


def change_any(clause: Clause, tools: Toolbox) -> Plan | None:
    """Like `change`, without the word to-do, and only for completing: `complete 2`, `finish buy milk`."""
    return _plan_change(clause, tools, _CHANGES[:2])


def _plan_change(clause: Clause, tools: Toolbox, changes: Sequence[tuple[str, str]]) -> Plan | None:
    if not {"list_todos", "write_todos"} <= set(tools):
        return None
    status = next((to for begins, to in changes if re.match(begins, clause.text, re.IGNORECASE)), None)
    return _change(clause.text, status) if status else None


def _change(text: str, status: str) -> Plan:
    outcome = yield Wish("list_todos", {})
    if outcome.failed:
        return failure("Listing the to-dos", outcome)
    todos = _parse(outcome.text)
    found = yield from _select(text, todos)
    if isinstance(found, Finding):
        return found
    kept = [todo for todo in todos if todo not in found]
    sent = kept if status == "removed" else [attrs.evolve(todo, status=status) for todo in found]
    outcome = yield Wish("write_todos", {"todos": [attrs.asdict(todo) for todo in sent], "merge": status != "removed"})
    named = ", ".join(f"{todo.id} ({todo.content})" for todo in found)
    if outcome.failed:
        return failure(f"Changing to-do {named}", outcome)
    subject = f"To-do {named} is" if len(found) == 1 else f"To-dos {named} are"
    return Finding(f"{subject} {status.replace('_', ' ')}.")


def _select(text: str, todos: list[_Todo]) -> Generator[Wish, Outcome, list[_Todo] | Finding]:
    yield from ()
    blotted = mask(text)
    listed = "; ".join(f"{todo.id} {todo.content}" for todo in todos) or "none"
    if re.search(r"\b(?:all|every|everything)\b", blotted, re.IGNORECASE):
        found = [todo for todo in todos if todo.status in ("pending", "in_progress")]
        return found or Finding(f"No to-do is open. There are: {listed}.", done=False)
    named = _NUMBERS.fullmatch(_wanted(text))
    numbers = {int(number) for number in re.findall(r"\d+", named.group())} if named else set[int]()
    ordinal = re.search(r"\b(first|last)\b", blotted, re.IGNORECASE)
    if numbers:
        found = [todo for todo in todos if todo.id in numbers]
        missing = sorted(numbers - {todo.id for todo in found})
        if missing:
            return Finding(f"There is no to-do {', '.join(map(str, missing))}. There are: {listed}.", done=False)
        return found
    wanted = (quoted(text) or [_wanted(text)])[0].casefold()
    found = _matches(wanted, todos)
    if not found and ordinal and todos:
        return [todos[0 if ordinal.group().lower() == "first" else -1]]
    if not found:
        return Finding(f"No to-do matches {wanted!r}. There are: {listed}.", done=False)
    if len(found) > 1:
        several = "; ".join(f"{todo.id} {todo.content}" for todo in found)
        return Finding(f"Several to-dos match {wanted!r}: {several}. Say the number.", done=False)
    return found


def _wanted(text: str) -> str:
    text = TODO_WORDS.sub(" ", text)
    while (shorter := _NOT_WORDS.sub("", text).strip()) != text:
        text = shorter
    return re.sub(r"^(?:about|called|named|to|:)\s+", "", text, flags=re.IGNORECASE).strip(" :,.")


def _matches(wanted: str, todos: list[_Todo]) -> list[_Todo]:
    words = set(re.findall(r"\w+", wanted))
    if not words or refers_back(wanted):
        return []
    whole = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)")
    tests: tuple[Callable[[str], bool], ...] = (
        lambda text: text == wanted,
        lambda text: whole.search(text) is not None,
        lambda text: words <= set(re.findall(r"\w+", text)),
    )
    for test in tests:
        found = [todo for todo in todos if test(todo.content.casefold())]
        if found:
            return found
    return []


def _parse(text: str) -> list[_Todo]:
    return [_Todo(int(f.group(1)), f.group(2), f.group(3)) for f in map(_LINE.match, text.splitlines()) if f]


STRICT: tuple[Rule, ...] = (list_todos, clear, add, change)
LOOSE: tuple[Rule, ...] = (change_any,)
