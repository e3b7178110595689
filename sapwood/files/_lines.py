"""Editing by the numbers of lines."""

from __future__ import annotations

from sapwood.errors import InvalidOption
from sapwood.files._paths import FilePath
from sapwood.files._text import newline_of, with_crlf

_MARK = "\ufeff"


def splice_lines(path: FilePath, text: str, first: int, last: int, content: str) -> str:
    """Return a text whose lines from `first` to `last` are replaced; `last = first - 1` only inserts.

    Every kept line stays byte for byte, except that a last line without an end gets one if lines come after it. A byte
    order mark stays in front.

    Raises:
        InvalidOption: if there are no such lines, or the text would stay the same.
    """
    mark = _MARK if text.startswith(_MARK) else ""
    lines = _with_ends(text.removeprefix(_MARK))
    if last > len(lines):
        raise InvalidOption(f"lines {first} to {last} of {path!r}: it has {len(lines)} lines; read it again")
    crlf = newline_of(text) == "crlf"
    end = "\r\n" if crlf else "\n"
    before, replaced, after = lines[: first - 1], lines[first - 1 : last], lines[last:]
    new = with_crlf(content) if crlf else content
    if new:
        if before and not before[-1].endswith("\n"):
            before[-1] += end
        followed = bool(after) or any(line.endswith("\n") for line in replaced[-1:])
        if followed and not new.endswith("\n"):
            new += end
    result = mark + "".join(before) + new + "".join(after)
    if result == text:
        raise InvalidOption(f"lines {first} to {last} of {path!r}: they are the same already; nothing would change")
    return result


def _with_ends(text: str) -> list[str]:
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
