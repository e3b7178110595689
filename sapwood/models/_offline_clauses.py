"""Clauses: a message taken apart into the requests that it joins."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sapwood.models._offline_plan import PATH, Clause, is_too_long, mask, word_set

VERBS = word_set(
    "add append average calculate call cancel change check clear close complete compute copy count create delete "
    "display drop edit erase fetch find finish get give grep list look make mark open overwrite print put read remind "
    "remove replace run save search send show start store substitute sum tell tick total use write"
)
"""Verbs that begin a request after a plain `and` or a full stop; the first words of the tools' names join them."""

TODO_WORDS = re.compile(r"\bto-?\s?do(?:s|'s)?\b(?!\.\w)(?:[ -]?list)?|\btask list\b|\bmy tasks\b", re.IGNORECASE)

_MARKER = re.compile(r"^\s*(?:[-*\u2022]|\d+[.)])\s+")
_INLINE_NUMBER = re.compile(r"\s+(?=\d+[.)]\s+[A-Za-z])")
_THEN = re.compile(r"^(?:and\s+)?(?:then|after that|afterwards|finally)\b,?\s*", re.IGNORECASE)
_POLITE = re.compile(
    r"^(?:(?:please|kindly|now|also|first|next|finally|ok|okay|hey|hi|hello|so|well)\b[,!]?\s+"
    r"|(?:can|could|would|will) you (?:please )?|i (?:want|need|would like|'d like) you to |i'd like you to |let's )",
    re.IGNORECASE,
)
_HARD = r"\s*\n+\s*|\s*;\s*|[\s,.]*\b(?:and\s+then|then|after\s+that|afterwards)\b,?\s+"
_LEAD = r"(?:please|now|also|next|finally),?\s+"
_ABBREVIATION = re.compile(r"(?:\b(?:[A-Z][a-z]?|Mrs|vs|etc|e\.g|i\.e|no|approx))$")
_TAKES_LINES = re.compile(r"^(?:write|create|save|make|put|append|add|store|overwrite)\b", re.IGNORECASE)
_LIST_OF_TODOS = re.compile(r"^(?:add|create|make|put|plan|write|note)\b[^:\n]*:\s", re.IGNORECASE)
_OPEN_CONTENT = re.compile(r"\b(?:with|containing|saying|says|content|contents|text)\b:?\s+[^\0\s]", re.IGNORECASE)


def split_clauses(text: str, verbs: Iterable[str] = ()) -> list[Clause]:
    """Return the requests of a message in order.

    Requests are joined by line ends, list markers, `;`, `then`, `and then`, full stops, or by `and` before a verb.
    Nothing inside quotes or code fences is taken apart. A line about writing or to-dos that ends with a colon owns
    the lines after it, up to one that begins with `then`.

    Args:
        text: The message.
        verbs: Verbs to know besides `VERBS`.
    """
    known = VERBS | {verb.lower() for verb in verbs}
    clauses: list[Clause] = []
    for head, body in _with_bodies(text):
        pieces = [head] if is_too_long(head) else _split(head, known)
        for at, piece in enumerate(pieces):
            tidy = piece if is_too_long(piece) else _tidy(piece)
            if tidy:
                clauses.append(Clause(tidy, body if at == len(pieces) - 1 else ""))
    return clauses


def _with_bodies(text: str) -> list[tuple[str, str]]:
    lines = _lines(text)
    parts: list[tuple[str, str]] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if is_too_long(line):
            parts.append((line, ""))
            continue
        fenced = at < len(lines) and lines[at].lstrip().startswith("```")
        if not line.rstrip().endswith(":") and not (fenced and _owns_lines(line)):
            parts.append((line, ""))
            continue
        start = at
        if _owns_lines(line):
            while at < len(lines) and not _THEN.match(lines[at].strip()):
                at += 1
            parts.append((line.rstrip().rstrip(":"), "\n".join(lines[start:at]).strip("\n")))
        elif at == len(lines):
            parts.append((line.rstrip().rstrip(":"), ""))
    return parts


def _lines(text: str) -> list[str]:
    lines: list[str] = []
    start = 0
    for found in re.finditer(r"\r?\n", mask(text)):
        lines.append(text[start : found.start()])
        start = found.end()
    return [*lines, text[start:]]


def _owns_lines(line: str) -> bool:
    last = re.split(r"\bthen\b", _tidy(line), flags=re.IGNORECASE)[-1].strip()
    return bool(_TAKES_LINES.match(last) and (PATH.search(line) or TODO_WORDS.search(line)))


def _split(line: str, verbs: frozenset[str] | set[str]) -> list[str]:
    numbered = [line]
    if re.match(r"\s*1[.)]\s", line):
        blotted, start, numbered = mask(line), 0, list[str]()
        for found in _INLINE_NUMBER.finditer(blotted, 1):
            numbered.append(line[start : found.start()])
            start = found.end()
        numbered.append(line[start:])
    return [piece for item in numbered for piece in _split_item(_MARKER.sub("", item), verbs)]


def _split_item(item: str, verbs: frozenset[str] | set[str]) -> list[str]:
    blotted = mask(item)
    choice = "|".join(sorted(map(re.escape, verbs)))
    joint = re.compile(
        rf"(?P<hard>{_HARD})|(?P<stop>[.!?]\s+(?=(?:{_LEAD})*(?:(?P<verb>(?:{choice})\b)|(?-i:[A-Z]))))"
        rf"|(?P<soft>,?\s+and\s+(?=(?:{choice})\b|[a-z]+ (?:it|them|this|that)\b))",
        re.IGNORECASE,
    )
    pieces: list[str] = []
    start = 0
    for found in joint.finditer(blotted):
        if found.start() < start or not _is_joint(found, blotted, start):
            continue
        pieces.append(item[start : found.start()])
        start = found.end()
    return [*pieces, item[start:]]


def _is_joint(found: re.Match[str], blotted: str, start: int) -> bool:
    before, after = _tidy(blotted[start : found.start()]), blotted[found.end() :]
    listing = TODO_WORDS.search(before) is not None and _LIST_OF_TODOS.match(before + " ") is not None
    if found.group("hard") is not None:
        return not (listing and ";" in found.group())
    if found.group("verb") is not None:
        return True
    if found.group("stop") is not None:
        return not (listing or _OPEN_CONTENT.search(before) or _ABBREVIATION.search(before))
    about_todos = re.match(r"(?:list|show|display)\b.*", after, re.IGNORECASE)
    if listing or (_is_todo(before, after) and not about_todos):
        return False
    return not _OPEN_CONTENT.search(before)


def _is_todo(before: str, after: str) -> bool:
    if re.match(r"(?:remind|remember)\b", before, re.IGNORECASE):
        return True
    adds = re.match(r"(?:add|create|make|note|plan|put)\b", before, re.IGNORECASE)
    return bool(adds and (TODO_WORDS.search(before) or re.match(r"[^.;]*\bto my to-?do", after, re.IGNORECASE)))


def _tidy(piece: str) -> str:
    piece = _THEN.sub("", _MARKER.sub("", piece).strip())
    while (shorter := _POLITE.sub("", piece)) != piece:
        piece = shorter
    piece = re.sub(r",?\s+please\b", "", piece, flags=re.IGNORECASE) if "\0" not in piece else piece
    return piece.strip().rstrip(".!?,").strip() if not piece.strip().endswith("```") else piece.strip()
