"""Rules for looking at files: list, read and search."""

from __future__ import annotations

import re

from sapwood.models._offline_paths import find_paths, split_page
from sapwood.models._offline_plan import Clause, Finding, Plan, Rule, Toolbox, Wish, failure, mask, quoted, word_set


def list_files(clause: Clause, tools: Toolbox) -> Plan | None:
    """`list all files`, `ls notes/**`, `which csv files are there?`, `list the files in data`."""
    text = mask(clause.text)
    asks = re.match(
        r"(?:list|show|display|what|which|find|give me|are there)\b.*\b(?:files?|director(?:y|ies)|folders?)\b",
        text,
        re.IGNORECASE,
    )
    if "ls" not in tools or not (asks or re.match(r"ls\b", text, re.IGNORECASE)) or find_paths(clause.text):
        return None
    glob = re.search(r"\S*\*\S*", clause.text)
    ending = re.search(r"\.?\b(\w{1,5}) files\b", text, re.IGNORECASE)
    folder = re.search(
        r"\b(?:in|under|below|inside|ls) (?:the )?(?:folder |directory )?([\w./-]+)", text, re.IGNORECASE
    )
    pattern = "**"
    if glob:
        pattern = glob.group().strip("\"'`")
    elif ending and ending.group(1).lower() in _ENDINGS:
        pattern = f"**/*.{ending.group(1).lower()}"
    elif folder and folder.group(1).lower() not in ("the", "my", "this", "there", "total"):
        pattern = folder.group(1).rstrip("/") + "/**"
    return _list_files(pattern)


_ENDINGS = word_set("txt md csv tsv json yaml yml toml py js ts html css xml log rst ini cfg sql sh")


def _list_files(pattern: str) -> Plan:
    outcome = yield Wish("ls", {"pattern": pattern})
    if outcome.failed:
        return failure("Listing the files", outcome)
    return Finding(f"Files ({pattern}):\n{outcome.text}", value=outcome.text)


def read(clause: Clause, tools: Toolbox) -> Plan | None:
    """`read notes.txt`, `show lines 3 to 10 of notes.txt`, `what is in notes.txt?`."""
    asks = r"(?:read|show|open|print|cat|display|view|look at|give me|tell me what|what(?:'s| is| does| are)|get)\b"
    paths = find_paths(clause.text)
    if "read_file" not in tools or not paths or not re.match(asks, clause.text, re.IGNORECASE):
        return None
    span = re.search(r"\blines? (\d+)(?:\s*(?:to|-|\u2013|through|until|and)\s*(\d+))?", clause.text, re.IGNORECASE)
    first = re.search(r"\bfirst (\d+) lines\b", clause.text, re.IGNORECASE)
    if span:
        begin, end = int(span.group(1)), int(span.group(2) or span.group(1))
        return _read(paths[0].path, {"start_line": begin, "limit": max(1, end - begin + 1)})
    if first:
        return _read(paths[0].path, {"start_line": 1, "limit": int(first.group(1))})
    return _read(paths[0].path, {})


def _read(path: str, span: dict[str, int]) -> Plan:
    outcome = yield Wish("read_file", {"path": path, **span})
    if outcome.failed:
        return failure(f"Reading {path}", outcome)
    lines, remarks = split_page(outcome.text)
    shown = "\n".join([*lines, *remarks])
    return Finding(f"{path}:\n{shown}", value="\n".join(lines))


_SEARCH = re.compile(
    r"(?:(?:which|what) files? (?:contains?|mentions?|have|has|say)"
    r"|where (?:is|are|do|does)"
    r"|(?:search|find|grep|look)\b(?: (?:in|through) (?:all |the )?files)?(?: for)?)\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)


def search(clause: Clause, tools: Toolbox) -> Plan | None:
    """`search for "total" in notes/**`, `which files mention Anna?`, `grep error`."""
    asked = _SEARCH.match(clause.text)
    if "search_text" not in tools or asked is None:
        return None
    words = re.sub(
        r"^for\b|^the (?:word|text|phrase)\b|\b(?:mentioned|used|appear)$",
        "",
        asked.group(1).strip(),
        flags=re.IGNORECASE,
    ).strip()
    inside = re.search(r"\s*\b(?:in|within|inside) (?:the )?(?:file )?(\S*[*./]\S*)\s*$", mask(words))
    where = words[inside.start(1) : inside.end(1)] if inside else "**"
    words = (
        words[: inside.start()]
        if inside
        else re.sub(r"\s+\b(?:in|across) (?:all |the |my )*files\b.*$", "", words, flags=re.IGNORECASE)
    )
    texts = quoted(words)
    pattern = texts[0] if texts else words.strip()
    return _search(pattern, where) if pattern else None


def _search(pattern: str, where: str) -> Plan:
    outcome = yield Wish("search_text", {"pattern": pattern, "path": where})
    if outcome.failed:
        return failure("Searching", outcome)
    return Finding(f"Search for {pattern!r}:\n{outcome.text}", value=outcome.text)


def asks_for_files(clause: Clause, tools: Toolbox) -> Plan | None:
    """Like `search`, but only for clauses that speak of files, so that it cannot steal another tool's request."""
    speaks = find_paths(clause.text) or re.search(
        r"\bfiles?\b|\*|^grep\b|\bsearch for [\"'\u201c`]", clause.text, re.IGNORECASE
    )
    return search(clause, tools) if speaks else None


STRICT: tuple[Rule, ...] = (asks_for_files, list_files, read)
LOOSE: tuple[Rule, ...] = (search,)
