"""Text files: UTF-8, their lines, and replacing text that must occur exactly once.

Content is kept byte for byte: blank files stay blank, and no newline is added, removed or converted. A line ends with
LF or with CR LF; a CR alone is an ordinary character.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from sapwood.errors import EditMismatch, InvalidOption, NotText
from sapwood.files._backend import FileEntry
from sapwood.files._paths import FilePath

Newline: TypeAlias = Literal["lf", "crlf", "mixed", "none"]

_MAX_LINES_NAMED = 10
_MAX_LOOKALIKES = 3


@attrs.frozen
class FileText:
    """A range of the lines of a file.

    Attributes:
        path: The file.
        version: Its version; pass it as `expected_version` to a change that must not overwrite another's.
        size: Bytes of the whole file.
        lines: The lines of the range, without their ends and without a byte order mark.
        start_line: Number of the first line in `lines`, from 1.
        total_lines: Lines of the whole file. A file without a byte has none; text after the last line end is a line.
        newline: How lines end in the whole file.
        ends_with_newline: Whether the last line of the file has an end.
    """

    path: FilePath
    version: int
    size: int
    lines: tuple[str, ...]
    start_line: int
    total_lines: int
    newline: Newline
    ends_with_newline: bool

    @property
    def next_line(self) -> int | None:
        """Number of the line after the range, or None if the range reaches the end of the file."""
        after = self.start_line + len(self.lines)
        return after if after <= self.total_lines else None


def decode(path: FilePath, data: bytes) -> str:
    """Return the text of a file.

    Raises:
        NotText: if it is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotText(path, f"is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02X}") from None


def encode(path: FilePath, text: str) -> bytes:
    """Return the bytes of a text.

    Raises:
        NotText: if it holds a lone surrogate.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        problem = f"the text holds the lone surrogate U+{ord(text[error.start]):04X} at position {error.start}"
        raise NotText(path, f"{problem}, which UTF-8 cannot hold") from None


def split_lines(text: str) -> list[str]:
    """Return the lines of a text without their ends."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r\n" in text else lines


def newline_of(text: str) -> Newline:
    """Say how the lines of a text end."""
    every, crlf = text.count("\n"), text.count("\r\n")
    if not every:
        return "none"
    return "crlf" if crlf == every else "mixed" if crlf else "lf"


def slice_lines(entry: FileEntry, text: str, start_line: int, limit: int) -> FileText:
    """Return a range of lines; one that begins after the end is empty."""
    lines = split_lines(text.removeprefix("\ufeff"))
    return FileText(
        path=entry.path,
        version=entry.version,
        size=entry.size,
        lines=tuple(lines[start_line - 1 : start_line - 1 + limit]),
        start_line=start_line,
        total_lines=len(lines),
        newline=newline_of(text),
        ends_with_newline=text.endswith("\n"),
    )


@attrs.frozen
class Replacement:
    """What a replacement will do, found before anything is built.

    Attributes:
        old: The text to replace, with the line ends of the file.
        new: The text to put there, with the line ends of the file.
        count: How many places are replaced.
        line: Number of the line where the first one starts.
    """

    old: str
    new: str
    count: int
    line: int

    @property
    def growth(self) -> int:
        """By how many bytes the file grows; negative if it shrinks."""
        return self.count * (len(self.new.encode(errors="replace")) - len(self.old.encode(errors="replace")))


def plan_replacement(path: FilePath, text: str, old: str, new: str, *, replace_all: bool) -> Replacement:
    """Find `old`, which must occur exactly once, or with `replace_all` at least once, not overlapping, from the left.

    In a text whose lines all end with CR LF, each line end in `old` and `new` stands for CR LF. Blanks and case count.

    Raises:
        InvalidOption: if `old` is empty or equals `new`.
        EditMismatch: if `old` does not occur, or, overlapping or not, more often than once without `replace_all`.
    """
    if newline_of(text) == "crlf":
        old, new = with_crlf(old), with_crlf(new)
    if not old:
        raise InvalidOption(f"edit of {path!r}: expected the text to replace; got an empty one: write the file instead")
    if old == new:
        raise InvalidOption(f"edit of {path!r}: the old and the new text are the same; nothing would change")
    first = text.find(old)
    if first < 0:
        raise EditMismatch(path, 0, _lookalikes(text, old))
    count = text.count(old)
    if not replace_all and text.find(old, first + 1) >= 0:
        raise EditMismatch(path, max(count, 2), _lines_of(text, old))
    return Replacement(old, new, count, text.count("\n", 0, first) + 1)


def with_crlf(text: str) -> str:
    """Return a text whose lines all end with CR LF."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _lines_of(text: str, old: str) -> list[int]:
    lines: list[int] = []
    at = text.find(old)
    while at >= 0 and len(lines) < _MAX_LINES_NAMED:
        lines.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + 1)
    return lines


def _lookalikes(text: str, old: str) -> list[int]:
    wanted = next((key for key in map(_blurred, split_lines(old)) if key), None)
    if wanted is None:
        return []
    lines = (number for number, line in enumerate(split_lines(text), 1) if _blurred(line) == wanted)
    return [number for number, _ in zip(lines, range(_MAX_LOOKALIKES), strict=False)]


def _blurred(line: str) -> str:
    return "".join(line.split()).casefold()
