"""Text for a terminal: nothing that others wrote may drive it, and each line has an end."""

from __future__ import annotations

import os
import re
import shutil
from datetime import UTC, datetime
from typing import Any, Final, TextIO, cast

_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
LONGEST_TEXT: Final = 60
RECORD: Final = "@record"


def printable(text: str) -> str:
    r"""Return text with control characters as escapes, line ends and tabs excepted.

    What a model, a tool or a file says may hold sequences that move the cursor, rename the window or reverse the order
    of letters.
    """
    return _CONTROLS.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def one_line(text: str, width: int = 0) -> str:
    """Return text as one printable line, cut to a width in characters; 0 for no limit."""
    line = printable(" ".join(text.split()))
    return line if not width or len(line) <= width else line[: max(0, width - 1)] + "…"


def brief(value: Any) -> str:
    """Return what a record holds in one line: its name and its fields, long texts cut, empty fields left out.

    Args:
        value: As `sapwood.persistence.describe` returns it: records are dicts with a `@record` entry.
    """
    if isinstance(value, dict):
        fields = cast("dict[Any, Any]", value)
        record = str(fields.get(RECORD, "")).rpartition("/")[0].rpartition(".")[2]
        if record == "tool_call":
            return f"{one_line(str(fields.get('name')))}({arguments_line(fields.get('arguments'))})"
        return f"{record}({arguments_line(fields)})" if record else "{" + arguments_line(fields) + "}"
    if isinstance(value, list | tuple):
        items: list[Any] = list(cast("Any", value))
        return f"[{', '.join(brief(item) for item in items)}]"
    if isinstance(value, str):
        return one_line(repr(value), LONGEST_TEXT)
    if isinstance(value, bytes):
        return f"<{count(len(value), 'byte')}>"
    return one_line(repr(value), LONGEST_TEXT)


def arguments_line(arguments: object) -> str:
    """Return named values as `name=value, …`; empty ones are left out."""
    if not isinstance(arguments, dict):
        return brief(arguments)
    named = cast("dict[Any, Any]", arguments)
    shown = {name: value for name, value in named.items() if name != RECORD and not _is_empty(value)}
    return ", ".join(f"{one_line(str(name))}={brief(value)}" for name, value in shown.items())


def _is_empty(value: object) -> bool:
    return value is None or value in ("", [], (), {})


def moment(at: float) -> str:
    """Return wall-clock seconds since 1970 as a date and time in UTC; what is no such moment, as it is."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return repr(at)


def count(number: int, what: str, several: str = "") -> str:
    """Return a number with its noun: `1 event`, `3 events`."""
    return f"{number} {what if number == 1 else several or what + 's'}"


def is_plain(stream: TextIO) -> bool:
    """Say whether a stream gets plain lines: it is no terminal, or `NO_COLOR` or `CI` is set, or `TERM` is `dumb`."""
    return (
        not stream.isatty()
        or bool(os.environ.get("NO_COLOR"))
        or bool(os.environ.get("CI"))
        or os.environ.get("TERM") == "dumb"
    )


def width_of(stream: TextIO) -> int:
    """Return the columns of a terminal; 0 for anything else, whose lines are not cut."""
    return shutil.get_terminal_size().columns if stream.isatty() else 0
