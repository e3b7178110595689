"""How errors of the operating system become errors of a filesystem."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager

from sapwood.errors import BackendFailed, InvalidPath, QuotaExceeded, ReadOnly

_NO_ROOM = frozenset([errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
_NO_RIGHT = frozenset([errno.EACCES, errno.EPERM])


@contextmanager
def translated(path: str, *, changing: bool) -> Generator[None]:
    """Turn an error of the operating system into one of Sapwood's that names the cause.

    | Cause | Error |
    |---|---|
    | no space, disk quota, file size limit | `QuotaExceeded` |
    | read-only file system | `ReadOnly` |
    | no permission, when changing | `ReadOnly` |
    | name too long for the disk | `InvalidPath` |
    | anything else | `BackendFailed` |
    """
    try:
        yield
    except OSError as error:
        cause = f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, 'no errno')})"
        if error.errno in _NO_ROOM:
            raise QuotaExceeded(path, f"the disk has no room: {cause}") from error
        if error.errno == errno.EROFS or (changing and error.errno in _NO_RIGHT):
            raise ReadOnly(path, f"the directory refuses changes: {cause}") from error
        if error.errno == errno.ENAMETOOLONG:
            raise InvalidPath(path, f"the disk does not take this name: {cause}") from error
        raise BackendFailed(path, f"the operating system failed: {cause}") from error
