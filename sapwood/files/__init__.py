"""Scoped filesystems: versioned text files with limits, over memory, a store or a real directory.

A `FileTree` is what tools use; a `FileBackend` is where its files are kept: one of three, or several below prefixes of
one tree (`Mounts`), saved at once or later (`BufferedBackend`). One function, `normalise`, decides for all of them
which paths exist.
"""

from sapwood._public import publish as _publish
from sapwood.files._backend import FileBackend as FileBackend
from sapwood.files._backend import FileData as FileData
from sapwood.files._backend import FileEntry as FileEntry
from sapwood.files._backend import Listing as Listing
from sapwood.files._backend import MountInfo as MountInfo
from sapwood.files._backend import ReservingBackend as ReservingBackend
from sapwood.files._backend import SaveState as SaveState
from sapwood.files._backend import SavingBackend as SavingBackend
from sapwood.files._backend import Skipped as Skipped
from sapwood.files._backend import Unsaved as Unsaved
from sapwood.files._buffer import BufferedBackend as BufferedBackend
from sapwood.files._directory import DirectoryBackend as DirectoryBackend
from sapwood.files._export import export_directory as export_directory
from sapwood.files._glob import Glob as Glob
from sapwood.files._import import import_directory as import_directory
from sapwood.files._memory import MemoryBackend as MemoryBackend
from sapwood.files._mounts import Mount as Mount
from sapwood.files._mounts import Mounts as Mounts
from sapwood.files._paths import DenyRules as DenyRules
from sapwood.files._paths import FilePath as FilePath
from sapwood.files._paths import normalise as normalise
from sapwood.files._quota import Quota as Quota
from sapwood.files._results import FileEdit as FileEdit
from sapwood.files._results import FileList as FileList
from sapwood.files._results import FileMove as FileMove
from sapwood.files._results import FileStatistics as FileStatistics
from sapwood.files._saving import SaveConflict as SaveConflict
from sapwood.files._saving import Saving as Saving
from sapwood.files._search import SearchMatch as SearchMatch
from sapwood.files._search import SearchResult as SearchResult
from sapwood.files._server import FileOptions as FileOptions
from sapwood.files._server import FileSystemServer as FileSystemServer
from sapwood.files._service import BackendOfScope as BackendOfScope
from sapwood.files._service import FileClient as FileClient
from sapwood.files._service import FileService as FileService
from sapwood.files._sqlite import FILES_SCHEMA as FILES_SCHEMA
from sapwood.files._sqlite import Scope as Scope
from sapwood.files._sqlite import SQLiteBackend as SQLiteBackend
from sapwood.files._text import FileText as FileText
from sapwood.files._transfer import Conflicts as Conflicts
from sapwood.files._transfer import FileStore as FileStore
from sapwood.files._transfer import Transferred as Transferred
from sapwood.files._transfer import TransferReport as TransferReport
from sapwood.files._tree import FileTree as FileTree

_publish(globals())
