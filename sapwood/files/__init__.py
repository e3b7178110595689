"""Scoped filesystems: versioned text files with limits, over memory, a store or a real directory.

A `FileTree` is what tools use; a `FileBackend` is where its files are kept. One function, `normalise`, decides for all
of them which paths exist.
"""

from sapwood._public import publish as _publish
from sapwood.files._backend import FileBackend as FileBackend
from sapwood.files._backend import FileData as FileData
from sapwood.files._backend import FileEntry as FileEntry
from sapwood.files._backend import Listing as Listing
from sapwood.files._backend import Skipped as Skipped
from sapwood.files._directory import DirectoryBackend as DirectoryBackend
from sapwood.files._glob import Glob as Glob
from sapwood.files._memory import MemoryBackend as MemoryBackend
from sapwood.files._paths import DenyRules as DenyRules
from sapwood.files._paths import FilePath as FilePath
from sapwood.files._paths import normalise as normalise
from sapwood.files._quota import Quota as Quota
from sapwood.files._results import FileEdit as FileEdit
from sapwood.files._results import FileList as FileList
from sapwood.files._results import FileStatistics as FileStatistics
from sapwood.files._search import SearchMatch as SearchMatch
from sapwood.files._search import SearchResult as SearchResult
from sapwood.files._server import FileSystemServer as FileSystemServer
from sapwood.files._service import BackendOfScope as BackendOfScope
from sapwood.files._service import FileClient as FileClient
from sapwood.files._service import FileService as FileService
from sapwood.files._sqlite import FILES_SCHEMA as FILES_SCHEMA
from sapwood.files._sqlite import Scope as Scope
from sapwood.files._sqlite import SQLiteBackend as SQLiteBackend
from sapwood.files._text import FileText as FileText
from sapwood.files._tree import FileTree as FileTree

_publish(globals())
