"""Paths: one function decides for every tool and every backend which names a filesystem accepts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NewType

from sapwood.errors import InvalidPath, InvalidPattern
from sapwood.files._glob import Glob

FilePath = NewType("FilePath", str)
"""A path that `normalise` accepted: relative, POSIX, NFC. Backends take nothing else."""

MAX_SEGMENT_BYTES = 255
MAX_PATH_BYTES = 1024
RESERVED_PREFIX = ".sapwood"

_DRIVE = re.compile(r"[A-Za-z]:")
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789\u00b9\u00b2\u00b3"]
)
# Category of the character -> what the refusal calls it. Unassigned ones are refused because a later Unicode version
# may give them another normal form, and with it another identity.
_REFUSED_CATEGORIES = {
    "Cc": "a control character",
    "Cf": "an invisible formatting character",
    "Cn": "an unassigned character",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}
# Characters that show nothing although their category does not say so: joiners, fillers, variation selectors.
_INVISIBLE = frozenset((0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0)).union(
    range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0)
)


def normalise(path: str) -> FilePath:
    """Return the one spelling of a path, or refuse it.

    A path is relative to the root of its filesystem and uses `/`; a single leading `/` means the root and is dropped.
    Identity is Unicode normal form C: both forms of `é` are one file (BR-38). Case is kept and matters. Limits: 255
    bytes of UTF-8 in a segment, 1024 in the whole path, both counted in normal form C.

    Raises:
        InvalidPath: if the path is empty, could leave the root (`..`, `~`, a drive letter), uses backslashes, has an
            empty or `.` segment, a segment that starts or ends with a blank or ends with a dot, a control, invisible,
            unassigned or surrogate character, a name reserved by Windows or beginning with `.sapwood`, or is too long.
    """
    if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidPath(repr(path), f"expected a path as text; got {type(path).__name__}")
    if len(path) > 4 * MAX_PATH_BYTES:
        raise InvalidPath(path, f"is {len(path)} characters long; at most {MAX_PATH_BYTES} bytes are allowed")
    surrogate = next((c for c in path if "\ud800" <= c <= "\udfff"), None)
    if surrogate is not None:
        raise InvalidPath(path, f"holds the lone surrogate U+{ord(surrogate):04X}, which no file name can hold")
    name = unicodedata.normalize("NFC", path).removeprefix("/")
    problem = _problem_of(name)
    if problem is not None:
        raise InvalidPath(path, problem)
    return FilePath(name)


def _problem_of(name: str) -> str | None:
    if not name:
        return "is empty; write the path of a file, such as 'notes/todo.md'"
    for character in name:
        refused = "an invisible character" if ord(character) in _INVISIBLE else None
        refused = refused or _REFUSED_CATEGORIES.get(unicodedata.category(character))
        if refused is not None:
            return f"holds {refused}, U+{ord(character):04X}; leave it out"
    if "\\" in name:
        return "holds a backslash; separate segments with '/'"
    size = len(name.encode())
    if size > MAX_PATH_BYTES:
        return f"is {size} bytes long; at most {MAX_PATH_BYTES} are allowed"
    for segment in name.split("/"):
        problem = _segment_problem(segment)
        if problem is not None:
            return problem
    return None


def _segment_problem(segment: str) -> str | None:
    folded = caseless_key(segment)
    # The first row that holds names the reason.
    table: tuple[tuple[bool, str], ...] = (
        (not segment, "has an empty segment; write one '/' between names and none at the end"),
        (segment == "..", "has a '..' segment; a path cannot leave its root, write it from the root down"),
        (segment == ".", "has a '.' segment; leave it out"),
        (segment.startswith("~"), "has a segment that starts with '~'; there is no home directory here"),
        (_DRIVE.match(segment) is not None, "has a drive letter; paths are relative to the root"),
        (segment != segment.strip(), f"has a segment {segment!r} with a blank at its start or end"),
        (segment.endswith("."), f"has a segment {segment!r} that ends with a dot"),
        (folded.split(".")[0].rstrip() in _DEVICES, f"has a segment {segment!r} that is a device name on Windows"),
        (folded.startswith(RESERVED_PREFIX), f"has a segment {segment!r}; names in '.sapwood…' are reserved"),
        (
            len(segment.encode()) > MAX_SEGMENT_BYTES,
            f"has a segment of {len(segment.encode())} bytes; at most {MAX_SEGMENT_BYTES} are allowed",
        ),
    )
    return next((problem for holds, problem in table if holds), None)


def caseless_key(text: str) -> str:
    """Return a key that is equal for all spellings which any known file system takes for the same name.

    It merges what either full case folding or upper-casing merges, in every normal form: more than any single file
    system does, which errs on the side of refusing.
    """
    folded = unicodedata.normalize("NFD", text).casefold()
    folded = unicodedata.normalize("NFD", folded.upper()).casefold()
    return unicodedata.normalize("NFC", folded)


def parents(path: FilePath) -> list[str]:
    """Return the directories above a path, outermost first; `a/b/c` has `a` and `a/b`."""
    segments = path.split("/")
    return ["/".join(segments[:n]) for n in range(1, len(segments))]


class DenyRules:
    """Globs of paths that no tool may touch, whatever their case or normal form (BR-37).

    A pattern without `/` matches a name in every directory; a directory that matches takes everything below it along.

    Args:
        patterns: Globs such as `.env`, `.ssh/**`, `**/*.pem`.

    Raises:
        InvalidPattern: if a pattern is no usable glob, or a single text was given.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        if isinstance(patterns, str):
            # Each of its letters would be a rule, and what it means to protect would not be.
            raise InvalidPattern(patterns, f"is one text where several rules are expected; write ({patterns!r},)")
        self.patterns = tuple(patterns)
        self._globs = [(pattern, _deny_glob(pattern)) for pattern in self.patterns]

    def match(self, path: FilePath) -> str | None:
        """Return the pattern that denies a path, or None."""
        key = caseless_key(path)
        return next((pattern for pattern, glob in self._globs if glob.matches_at_or_above(key)), None)


def _deny_glob(pattern: str) -> Glob:
    name = pattern.rstrip("/")
    if not name:
        raise InvalidPattern(pattern, "is empty; to deny everything write '**'")
    return Glob(caseless_key(name if "/" in name else f"**/{name}"))


class PathIndex:
    """Which spellings of which names exist: answers what would collide with a new path.

    Names that differ only by case are refused on creation, and so is a file below a file or in the place of a
    directory. Names that exist already are never refused, however they came to be.
    """

    def __init__(self, paths: Iterable[FilePath] = ()) -> None:
        self._files: dict[str, set[str]] = {}
        # Directories by caseless key: how many files lie below each spelling.
        self._directories: dict[str, dict[str, int]] = {}
        for path in paths:
            self.add(path)

    def add(self, path: FilePath) -> None:
        """Note that a file exists."""
        spellings_of_file = self._files.setdefault(caseless_key(path), set())
        if path in spellings_of_file:
            return
        spellings_of_file.add(path)
        for parent in parents(path):
            spellings = self._directories.setdefault(caseless_key(parent), {})
            spellings[parent] = spellings.get(parent, 0) + 1

    def remove(self, path: FilePath) -> None:
        """Note that a file is gone."""
        key = caseless_key(path)
        if path not in self._files.get(key, ()):
            return
        self._files[key].discard(path)
        if not self._files[key]:
            del self._files[key]
        for parent in parents(path):
            spellings = self._directories[caseless_key(parent)]
            spellings[parent] -= 1
            if not spellings[parent]:
                del spellings[parent]
            if not spellings:
                del self._directories[caseless_key(parent)]

    def collision(self, path: FilePath) -> str | None:
        """Say why a file that does not exist yet may not be created, or return None."""
        for parent in parents(path):
            key = caseless_key(parent)
            if key in self._files:
                return f"{min(self._files[key])!r} is a file, so nothing can lie below it"
            spellings = self._directories.get(key)
            if spellings and parent not in spellings:
                return f"differs only by case from the directory {min(spellings)!r}; use that spelling"
        key = caseless_key(path)
        if key in self._directories:
            return f"{min(self._directories[key])!r} is a directory"
        if key in self._files and path not in self._files[key]:
            return f"differs only by case from {min(self._files[key])!r}; use that spelling or another name"
        return None

    def move_collision(self, source: FilePath, target: FilePath) -> str | None:
        """Say why a file or directory may not be moved, or return None; only the case of its last name may change."""
        same_parent = source.rpartition("/")[0] == target.rpartition("/")[0]
        key = caseless_key(source)
        if not same_parent or key != caseless_key(target):
            if target in self._files.get(caseless_key(target), ()):
                return "exists already; delete it first, or choose another name"
            return self.collision(target)
        others = (self._files.get(key, set()) | set(self._directories.get(key, ()))) - {source}
        return f"differs only by case from {min(others)!r}; use another name" if others else None

    def other_spelling(self, path: FilePath) -> str | None:
        """Return an existing file whose name differs from `path` only by case, or None."""
        return min(self._files.get(caseless_key(path), ()), default=None)

    def is_directory(self, path: FilePath) -> bool:
        """Say whether files lie below a path."""
        return path in self._directories.get(caseless_key(path), ())
