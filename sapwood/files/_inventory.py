"""What a backend holds, as it was last seen."""

from __future__ import annotations

from sapwood.files._backend import FileEntry, Listing, MountInfo, Skipped, is_at_or_below
from sapwood.files._paths import DenyRules, FilePath, PathIndex


class Inventory:
    """The entries of a backend with what follows from them: size, names that collide, files that are denied.

    Taking a listing costs work in proportion to what changed since the last one, beside one look at each entry.

    Args:
        deny: Rules that hide files.
    """

    def __init__(self, deny: DenyRules) -> None:
        self.index = PathIndex()
        self.entries: dict[FilePath, FileEntry] = {}
        self.skipped: tuple[Skipped, ...] = ()
        self.mounts: tuple[MountInfo, ...] = ()
        self.total_bytes = 0
        self.counted_files = 0
        self.counted_bytes = 0
        # False after an error or a cancelled change, which may or may not have happened.
        self.certain = False
        self._deny = deny
        self._denied: dict[FilePath, bool] = {}
        self._longest_first: list[MountInfo] = []

    def take(self, listing: Listing) -> None:
        """Replace everything by a listing."""
        self.entries = {entry.path: entry for entry in listing.entries}
        for path in self._denied.keys() - self.entries.keys():
            del self._denied[path]
            self.index.remove(path)
        for path in self.entries.keys() - self._denied.keys():
            self._denied[path] = self._deny.match(path) is not None
            self.index.add(path)
        self.skipped = listing.skipped
        self.mounts = listing.mounts
        self._longest_first = sorted(listing.mounts, key=lambda mount: len(mount.prefix), reverse=True)
        self.total_bytes = sum(entry.size for entry in listing.entries)
        self.counted_files, self.counted_bytes = len(self.entries), self.total_bytes
        if any(mount.read_only for mount in listing.mounts):
            counted = [entry.size for entry in listing.entries if self._counts(entry.path)]
            self.counted_files, self.counted_bytes = len(counted), sum(counted)
        self.certain = True

    def put(self, entry: FileEntry) -> None:
        """Note a file that was created or replaced."""
        old = self.entries.get(entry.path)
        self._count(int(old is None), entry.size - (0 if old is None else old.size))
        self.entries[entry.path] = entry
        if entry.path not in self._denied:
            self._denied[entry.path] = self._deny.match(entry.path) is not None
            self.index.add(entry.path)

    def remove(self, path: FilePath) -> None:
        """Note that a file was deleted."""
        old = self.entries.pop(path, None)
        if old is not None:
            self._count(-1, -old.size)
            del self._denied[path]
            self.index.remove(path)

    def visible(self) -> list[FileEntry]:
        """Return the entries that no rule denies, in the order of the last listing."""
        return [entry for path, entry in self.entries.items() if not self._denied[path]]

    def _count(self, files: int, size: int) -> None:
        # What is put and removed lies in no read-only mount.
        self.total_bytes += size
        self.counted_files += files
        self.counted_bytes += size

    def _counts(self, path: FilePath) -> bool:
        mount = next((mount for mount in self._longest_first if is_at_or_below(path, mount.prefix)), None)
        return mount is None or not mount.read_only

    @property
    def denied(self) -> int:
        """How many files a rule denies."""
        return sum(self._denied.values())
