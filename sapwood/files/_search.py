"""Searching text for a pattern that a model wrote, within a limit of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from sapwood.errors import InvalidPattern
from sapwood.files._backend import Skipped
from sapwood.files._paths import FilePath
from sapwood.files._text import split_lines

if TYPE_CHECKING:
    import regex

MAX_PATTERN_LENGTH = 1000
MAX_LINE_LENGTH = 1000
_BEFORE_MATCH = 200

Stop: TypeAlias = Literal["end", "max_results", "time_limit"]


@attrs.frozen
class SearchMatch:
    """A line in which a match starts; of a line only its first match counts.

    Attributes:
        path: The file.
        version: Its version when it was searched.
        line: Number of the line, from 1.
        column: Where in the line the match starts, in characters from 1.
        text: The line without its end; of more than 1,000 characters, those around the match.
        before: The context lines above it, likewise cut.
        after: The context lines below it, likewise cut.
    """

    path: FilePath
    version: int
    line: int
    column: int
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@attrs.frozen
class SearchResult:
    """What a search found, and what it did not look at.

    Attributes:
        matches: In the order of paths and lines.
        files_searched: How many files were searched to their end.
        skipped: Files that were not, and why: no text, unreadable, or a pattern that took too long.
        stopped: `end` if every file was visited, otherwise the limit that ended the search early.
    """

    matches: tuple[SearchMatch, ...]
    files_searched: int
    skipped: tuple[Skipped, ...]
    stopped: Stop

    @property
    def complete(self) -> bool:
        """Whether there is certainly no match beyond `matches`."""
        return self.stopped == "end" and not self.skipped


class Searcher:
    """A compiled pattern. It uses the `regex` library, which takes a time limit and lets other threads run meanwhile.

    Args:
        pattern: Literal text, or with `regular` a regular expression; `^` and `$` match at lines, `.` no line end.
        regular: Whether the pattern is a regular expression.
        case_sensitive: Whether case counts.

    Raises:
        InvalidPattern: if it is empty, longer than 1,000 characters, or no regular expression.
    """

    def __init__(self, pattern: str, *, regular: bool, case_sensitive: bool) -> None:
        import regex

        if not pattern:
            raise InvalidPattern(pattern, "is empty; write the text to search for")
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise InvalidPattern(
                pattern, f"is {len(pattern)} characters long; at most {MAX_PATTERN_LENGTH} are allowed"
            )
        flags = regex.MULTILINE | regex.VERSION0
        if not case_sensitive:
            flags |= regex.IGNORECASE
        try:
            self._compiled: regex.Pattern[str] = regex.compile(
                pattern if regular else regex.escape(pattern, literal_spaces=True), flags
            )
        except (regex.error, RecursionError, OverflowError, MemoryError) as error:
            problem = str(error) or type(error).__name__
            raise InvalidPattern(pattern, f"is no usable regular expression: {problem}") from None

    def search(
        self, path: FilePath, version: int, text: str, *, limit: int, context: int, seconds: float
    ) -> list[SearchMatch]:
        """Return the first `limit` lines of a text in which a match starts. Blocks; run it in a thread.

        Raises:
            TimeoutError: if it took longer than `seconds`, give or take what the library does between two looks at
                the clock; it is then abandoned.
        """
        # A match means the same whether lines end with LF or CR LF, and neither changes the numbers of lines.
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        lines: list[str] | None = None
        found: list[SearchMatch] = []
        line, counted, line_end = 1, 0, -1
        for match in self._compiled.finditer(text, timeout=seconds, concurrent=True):
            start = match.start()
            if start <= line_end:
                continue
            if start == len(text) and text.endswith("\n"):
                break
            lines = split_lines(text) if lines is None else lines
            line += text.count("\n", counted, start)
            counted = start
            line_end = text.find("\n", start)
            line_end = len(text) if line_end < 0 else line_end
            column = start - (text.rfind("\n", 0, start) + 1)
            found.append(
                SearchMatch(
                    path=path,
                    version=version,
                    line=line,
                    column=column + 1,
                    text=_clip(lines[line - 1], column) if lines else "",
                    before=tuple(_clip(above, 0) for above in lines[max(line - 1 - context, 0) : line - 1]),
                    after=tuple(_clip(below, 0) for below in lines[line : line + context]),
                )
            )
            if len(found) == limit:
                break
        return found


def _clip(line: str, column: int) -> str:
    if len(line) <= MAX_LINE_LENGTH:
        return line
    begin = max(min(column - _BEFORE_MATCH, len(line) - MAX_LINE_LENGTH), 0)
    return line[begin : begin + MAX_LINE_LENGTH]
