"""Limits of a filesystem."""

from __future__ import annotations

import attrs

from sapwood.errors import InvalidOption, QuotaExceeded
from sapwood.files._paths import FilePath


def _at_least_one(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"quota {attribute.name}: expected a whole number from 1; got {value!r}")


@attrs.frozen
class Quota:
    """Limits of one filesystem. A change that makes things smaller is allowed even above a limit.

    Attributes:
        max_file_bytes: Size of one file. Default 1 MiB.
        max_files: Number of files. Default 10,000.
        max_total_bytes: Size of all files together. Default 256 MiB.

    Raises:
        InvalidOption: if a limit is no whole number from 1.
    """

    max_file_bytes: int = attrs.field(default=1 << 20, validator=_at_least_one)
    max_files: int = attrs.field(default=10_000, validator=_at_least_one)
    max_total_bytes: int = attrs.field(default=256 << 20, validator=_at_least_one)

    def check(self, path: FilePath, old: int | None, new: int, *, files: int, total_bytes: int) -> None:
        """Hold a change against the limits.

        Args:
            path: The file to change.
            old: Its size now; None if it does not exist.
            new: Its size after the change.
            files: Number of files now.
            total_bytes: Size of all files now.

        Raises:
            QuotaExceeded: if the change would exceed a limit and makes nothing smaller.
        """
        if new > self.max_file_bytes and new > (old or 0):
            raise QuotaExceeded(path, f"would be {new} bytes long; a file may have {self.max_file_bytes}")
        if old is None and files >= self.max_files:
            raise QuotaExceeded(path, f"would be one file more than the {self.max_files} allowed; delete some first")
        total = total_bytes - (old or 0) + new
        if total > self.max_total_bytes and new > (old or 0):
            raise QuotaExceeded(path, f"would bring all files to {total} bytes of {self.max_total_bytes} allowed")


def require_range(name: str, value: int, low: int, high: int | None = None) -> None:
    """Check a number that a caller gave.

    Raises:
        InvalidOption: if it is no whole number from `low` to `high`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):  # pyright: ignore[reportUnnecessaryIsInstance]
        wanted = f"a whole number from {low}" + ("" if high is None else f" to {high}")
        raise InvalidOption(f"{name}: expected {wanted}; got {value!r}")
