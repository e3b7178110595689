"""Rules for changing files: write, append, edit and delete."""

from __future__ import annotations

import re

import attrs

from sapwood.models._offline_paths import Place, find_paths, read_whole
from sapwood.models._offline_plan import (
    QUOTED,
    Clause,
    Finding,
    Plan,
    Rule,
    Toolbox,
    Wish,
    failure,
    mask,
    quoted,
    refers_back,
    say,
    unquote,
)


def write(clause: Clause, tools: Toolbox) -> Plan | None:
    """`write notes.txt with "hello"`, `save it as total.txt`, `create an empty file called a.txt`."""
    verb = re.match(r"(write|create|save|make|put|store|overwrite)\b\s*", clause.text, re.IGNORECASE)
    paths = find_paths(clause.text)
    if "write_file" not in tools or not verb or not paths:
        return None
    target = _target(clause.text, paths)
    content = _content(clause, target, verb.end())
    if content is None:
        return say(f'I need to know what to write to {target.path}. Say: write {target.path} with "...".', done=False)
    return _write(target.path, content, f"Wrote {target.path} ({len(content)} characters).")


def _target(text: str, paths: list[Place]) -> Place:
    return next(
        (p for p in paths if re.search(r"\b(?:to|into|in|as)\s+(?:the )?(?:file )?$", text[: p.start], re.IGNORECASE)),
        paths[0],
    )


def _content(clause: Clause, target: Place, begin: int) -> str | None:
    if clause.body:
        fenced = quoted(clause.body) if clause.body.lstrip().startswith("```") else []
        return fenced[0] if fenced else clause.body + "\n"
    before, after = clause.text[begin : target.start], clause.text[target.end :]
    texts = [unquote(q) for q in QUOTED.finditer(clause.text) if q.start() != target.start]
    if texts:
        return texts[0]
    if re.search(r"\bempty\b", clause.text, re.IGNORECASE):
        return ""
    given = re.match(
        r"\s*(?:,?\s*(?:with|containing|saying|that says|which says|and write|=)\b|:)\s*(.*)",
        after,
        re.IGNORECASE | re.DOTALL,
    )
    words = given.group(1) if given else before
    words = re.sub(
        r"^(?:a|the|this)?\s*(?:new )?(?:file|text|contents?|words?|line)(?: of)?\b\s*(?:named|called)?:?\s*",
        "",
        words,
        flags=re.IGNORECASE,
    )
    words = re.sub(
        r"\s*\b(?:to|into|in|as)\s*(?:the|a)?\s*(?:new )?(?:file)?(?: named| called)?\s*$",
        "",
        words,
        flags=re.IGNORECASE,
    )
    if refers_back(words.strip()):
        return clause.value or None
    return words.strip() or None


def _write(path: str, content: str, done: str) -> Plan:
    outcome = yield Wish("write_file", {"path": path, "content": content})
    return failure(f"Writing {path}", outcome) if outcome.failed else Finding(done, value=content)


def append(clause: Clause, tools: Toolbox) -> Plan | None:
    """`append "milk" to shopping.txt`, `add the line total to notes.txt`."""
    paths = find_paths(clause.text)
    found = (
        re.match(
            r"(?:append|add)\b\s*(.*?)\s*\b(?:to|at the end of) (?:the (?:end of )?)?(?:file )?$",
            clause.text[: paths[-1].start],
            re.IGNORECASE | re.DOTALL,
        )
        if paths
        else None
    )
    if found is None or not {"read_file", "write_file"} <= set(tools):
        return None
    texts = quoted(found.group(1))
    words = re.sub(r"^(?:the |a )?(?:lines?|text|words?)\b:?\s*", "", found.group(1), flags=re.IGNORECASE)
    line = texts[0] if texts else clause.body or (clause.value if refers_back(words) else words)
    if not line:
        return say(
            f'I need to know what to append to {paths[-1].path}. Say: append "..." to {paths[-1].path}.', done=False
        )
    return _append(paths[-1].path, line)


def _append(path: str, line: str) -> Plan:
    lines = yield from read_whole(path)
    if isinstance(lines, Finding):
        return lines
    content = "".join(f"{old}\n" for old in [*lines, *line.split("\n")])
    return (yield from _write(path, content, f"Appended to {path}: {line}"))


def edit(clause: Clause, tools: Toolbox) -> Plan | None:
    """`replace "a" with "b" in notes.txt everywhere`, `change red to blue in car.md`."""
    paths = find_paths(clause.text)
    if (
        "edit_file" not in tools
        or not paths
        or not re.match(r"(?:replace|change|edit|substitute)\b", clause.text, re.IGNORECASE)
    ):
        return None
    place = paths[-1]
    rest = clause.text[: place.start] + clause.text[place.end :]
    texts = [unquote(q) for q in QUOTED.finditer(clause.text) if q.start() != place.start]
    bare = re.search(
        r"(?:replace|change|substitute)\s+(?:all |every )?(.+?)\s+(?:with|by|to|into)\s+(.+?)\s*(?:\bin\b.*)?$",
        rest,
        re.IGNORECASE,
    )
    old, new = (texts[0], texts[1]) if len(texts) > 1 else (bare.group(1), bare.group(2)) if bare else ("", "")
    if not old:
        return say(f'I need the old and the new text. Say: replace "old" with "new" in {place.path}.', done=False)
    everywhere = re.search(r"\b(?:everywhere|all|every|each)\b", mask(clause.text), re.IGNORECASE) is not None
    return _edit(place.path, old, new, everywhere=everywhere)


def _edit(path: str, old: str, new: str, *, everywhere: bool) -> Plan:
    arguments = {"path": path, "old": old, "new": new, "replace_all": everywhere}
    outcome = yield Wish("edit_file", arguments)
    return (
        failure(f"Editing {path}", outcome) if outcome.failed else Finding(f"Replaced {old!r} with {new!r} in {path}.")
    )


def delete(clause: Clause, tools: Toolbox) -> Plan | None:
    """`delete notes.txt`, `remove a.txt and b.txt`."""
    paths = [place.path for place in find_paths(clause.text)]
    if (
        "delete_file" not in tools
        or not paths
        or not re.match(r"(?:delete|remove|erase|rm)\b", clause.text, re.IGNORECASE)
    ):
        return None
    return _delete(paths)


def _delete(paths: list[str]) -> Plan:
    for at, path in enumerate(paths):
        outcome = yield Wish("delete_file", {"path": path})
        if outcome.failed:
            gone = f" Deleted before that: {', '.join(paths[:at])}." if at else ""
            found = failure(f"Deleting {path}", outcome)
            return attrs.evolve(found, text=found.text + gone)
    return Finding(f"Deleted {', '.join(paths)}.")


STRICT: tuple[Rule, ...] = (edit, append, write, delete)
