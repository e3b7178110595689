"""Names that an option takes: several of them, and never the letters of one."""

from __future__ import annotations

from collections.abc import Iterable

from sapwood.errors import InvalidOption


def several_names(names: Iterable[str], where: str) -> tuple[str, ...]:
    """Return the names that an option was given.

    Args:
        names: What was given.
        where: Whose option, and which, for the error.

    Raises:
        InvalidOption: if it is one text, which would count as a name for each of its letters.
    """
    if isinstance(names, str):
        raise InvalidOption(f"{where}: expected several names; got {names!r}: write ({names!r},)")
    return tuple(names)
