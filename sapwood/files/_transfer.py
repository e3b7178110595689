"""What importing and exporting have in common: the plan, the policy for conflicts, and the report."""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias, get_args

import attrs

from sapwood.errors import FileExists, InvalidOption
from sapwood.files._backend import FileData, FileEntry, Skipped
from sapwood.files._paths import FilePath
from sapwood.files._results import FileList, FileStatistics

Conflicts: TypeAlias = Literal["fail", "skip", "replace"]
"""What to do with a file that is there already with another content."""

Action: TypeAlias = Literal["create", "replace", "unchanged", "skip"]

ANY: Final = 2**62
"""More entries than there can be."""


class FileStore(Protocol):
    """What a transfer needs of a filesystem: a `FileTree` or a `FileClient`."""

    async def ls(self, pattern: str = "**", *, limit: int = 1000) -> FileList: ...

    async def stat(self, path: str) -> FileEntry: ...

    async def read_bytes(self, path: str) -> FileData: ...

    async def write_bytes(self, path: str, data: bytes, *, expected_version: int | None = None) -> FileEntry: ...

    async def statistics(self) -> FileStatistics: ...


@attrs.frozen
class Transferred:
    """One file of a transfer.

    Attributes:
        path: Its name in the filesystem.
        action: What was done, or in a dry run would be done.
        size: Bytes of what was, or would be, copied.
    """

    path: FilePath
    action: Action
    size: int


@attrs.frozen
class TransferReport:
    """What a transfer did, or in a dry run would do.

    Attributes:
        files: The files, in the order of their paths; those that failed are not among them.
        skipped: What lies in the source and is no file that can be taken, and why.
        failed: Files that could not be copied, and why; others were copied all the same.
        dry_run: Whether nothing was changed.
    """

    files: tuple[Transferred, ...]
    skipped: tuple[Skipped, ...]
    failed: tuple[Skipped, ...]
    dry_run: bool

    @property
    def complete(self) -> bool:
        """Whether everything that was found is in the target now, or was left as the policy says."""
        return not self.skipped and not self.failed

    def count(self, action: Action) -> int:
        """Return how many files there are of one kind."""
        return sum(each.action == action for each in self.files)


def check_policy(conflicts: Conflicts) -> None:
    """Refuse a policy that does not exist.

    Raises:
        InvalidOption: if it does not.
    """
    if conflicts not in get_args(Conflicts):
        raise InvalidOption(f"conflicts: expected 'fail', 'skip' or 'replace'; got {conflicts!r}")


def decide(there: str | None, wanted: str, conflicts: Conflicts) -> Action | None:
    """Say what to do with a file; None refuses the whole transfer.

    | In the target | `fail` | `skip` | `replace` |
    |---|---|---|---|
    | nothing | create | create | create |
    | the same content | unchanged | unchanged | unchanged |
    | another content | None | skip | replace |

    Args:
        there: Hash of what the target holds, or None.
        wanted: Hash of what is to be copied.
        conflicts: The policy.
    """
    if there is None:
        return "create"
    if there == wanted:
        return "unchanged"
    different: dict[Conflicts, Action | None] = {"fail": None, "skip": "skip", "replace": "replace"}
    return different[conflicts]


def refuse(different: list[FilePath]) -> None:
    """Refuse a transfer that would meet files with another content.

    Raises:
        FileExists: naming the first of them, if there are any.
    """
    if different:
        more = f", as have {len(different) - 1} more" if len(different) > 1 else ""
        problem = f"has another content in the target{more}; nothing was copied: choose conflicts='skip' or 'replace'"
        raise FileExists(different[0], problem)
