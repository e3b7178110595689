"""Changed copies of records."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import attrs

T = TypeVar("T")


def evolve(record: T, **changes: Any) -> T:
    """Return a copy of a record with some fields changed; the record itself stays as it is.

    Raises:
        TypeError: if a field does not exist.
    """
    # Type checkers know a record as a dataclass transform, which `attrs.evolve` does not accept.
    copied: T = attrs.evolve(cast("Any", record), **changes)
    return copied
