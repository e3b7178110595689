"""What a filesystem can be asked."""

from __future__ import annotations

from sapwood.actors import Request, message
from sapwood.files._backend import FileData, FileEntry, Unsaved
from sapwood.files._results import FileEdit, FileList, FileMove, FileStatistics
from sapwood.files._search import SearchResult
from sapwood.files._text import FileText


@message("files.list")
class ListFiles(Request[FileList]):
    """See `FileTree.ls`."""

    pattern: str = "**"
    limit: int = 1000


@message("files.read")
class ReadFile(Request[FileText]):
    """See `FileTree.read`."""

    path: str
    start_line: int = 1
    limit: int = 2000


@message("files.write")
class WriteFile(Request[FileEntry]):
    """See `FileTree.write`."""

    path: str
    content: str
    expected_version: int | None = None


@message("files.edit")
class EditFile(Request[FileEdit]):
    """See `FileTree.edit`."""

    path: str
    old: str
    new: str
    replace_all: bool = False
    expected_version: int | None = None


@message("files.delete")
class DeleteFile(Request[None]):
    """See `FileTree.delete`."""

    path: str
    expected_version: int | None = None


@message("files.search")
class SearchFiles(Request[SearchResult]):
    """See `FileTree.search`."""

    pattern: str
    path: str = "**"
    regular: bool = False
    case_sensitive: bool = True
    max_results: int = 50
    context_lines: int = 0


@message("files.statistics")
class GetFileStatistics(Request[FileStatistics]):
    """See `FileTree.statistics`."""


@message("files.stat")
class StatFile(Request[FileEntry]):
    """See `FileTree.stat`."""

    path: str


@message("files.read_bytes")
class ReadBytes(Request[FileData]):
    """See `FileTree.read_bytes`."""

    path: str


@message("files.write_bytes")
class WriteBytes(Request[FileEntry]):
    """See `FileTree.write_bytes`."""

    path: str
    data: bytes
    expected_version: int | None = None


@message("files.replace_lines")
class ReplaceLines(Request[FileEdit]):
    """See `FileTree.replace_lines`."""

    path: str
    first: int
    last: int
    content: str
    expected_version: int


@message("files.insert_lines")
class InsertLines(Request[FileEdit]):
    """See `FileTree.insert_lines`."""

    path: str
    after: int
    content: str
    expected_version: int


@message("files.move")
class MoveFile(Request[FileMove]):
    """See `FileTree.move`."""

    source: str
    target: str
    expected_version: int | None = None


@message("files.flush")
class FlushFiles(Request[tuple[Unsaved, ...]]):
    """See `FileTree.flush`."""

    seconds: float = 0.0
