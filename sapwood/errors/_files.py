"""Errors of scoped filesystems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapwood.errors._root import SapwoodError

if TYPE_CHECKING:
    from collections.abc import Sequence


class FileError(SapwoodError):
    """Something about a file of a scoped filesystem; `path` is the path as it was given."""

    def __init__(self, path: str, problem: str) -> None:
        shown = path if len(path) <= 200 else path[:200] + "..."
        super().__init__(f"{shown!r}: {problem}")
        self.path = path
        self.problem = problem


class InvalidPath(FileError, ValueError):
    """The path could leave its root, or is not a usable name."""


class InvalidPattern(FileError, ValueError):
    """A glob or a search pattern cannot be used; `path` holds the pattern."""


class PathDenied(FileError):
    """A deny rule of the filesystem forbids this path to every tool; `rule` is the rule."""

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(path, f"is denied by the rule {rule!r}")
        self.rule = rule


class FileMissing(FileError):
    """There is no such file."""


class FileExists(FileError):
    """There is such a file already and the call asked for a new one."""


class VersionConflict(FileError):
    """The file changed since the version the caller read; `found` is 0 if it is not there any more."""

    def __init__(self, path: str, expected: int, found: int) -> None:
        state = f"is at version {found}" if found else "does not exist"
        super().__init__(path, f"{state}, but version {expected} was expected; read it again before changing it")
        self.expected = expected
        self.found = found


class EditMismatch(FileError):
    """The text to replace occurs not at all, or more often than once; nothing was changed.

    Attributes:
        count: How often it occurs.
        lines: Lines where the first occurrences start, from 1; if it does not occur, lines that look alike.
    """

    def __init__(self, path: str, count: int, lines: Sequence[int]) -> None:
        where = ", ".join(str(line) for line in lines)
        if count:
            problem = f"the text to replace occurs {count} times (at line {where}); include more of its surroundings"
        elif lines:
            problem = (
                f"the text to replace does not occur; line {where} differs only in blanks or case: copy it exactly"
            )
        else:
            problem = "the text to replace does not occur; read the file again and copy the text exactly"
        super().__init__(path, problem)
        self.count = count
        self.lines = tuple(lines)


class QuotaExceeded(FileError):
    """The write would exceed a size or count limit; nothing was changed."""


class NotText(FileError):
    """The file holds bytes that are not UTF-8 text."""


class ReadOnly(FileError):
    """The filesystem, or this part of it, refuses writes."""


class BackendFailed(FileError):
    """The backend could not carry out the operation (disk full, permission, I/O error)."""


class UnsavedFiles(FileError):
    """Edits that were to be saved later could not be saved; `path` is the first of the files.

    Attributes:
        files: Each file and why it could not be saved.
    """

    def __init__(self, files: Sequence[tuple[str, str]]) -> None:
        path, problem = files[0]
        more = f", and {len(files) - 1} more files are not saved" if len(files) > 1 else ""
        super().__init__(path, f"its last edits are not saved: {problem}{more}")
        self.files = tuple(files)
