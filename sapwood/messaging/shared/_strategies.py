"""Conflict strategies: what becomes of a write whose value was made from a version that is not current any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias, cast

from sapwood.errors import ConflictError, InvalidOption
from sapwood.messaging.shared._values import ABSENT, ANY, VersionedValue, Write

MISSING: Final[Any] = object()


class ConflictStrategy(Enum):
    """Who wins when a write is based on an older version than the current one (S1-035).

    LATEST_WINS: the write; whatever others wrote in between is replaced.
    HIGHEST_VERSION: the value made from the higher version. The write would be version `based_on + 1`; if that
        version is taken already, the current value stays, the write is counted as superseded and its writer gets
        the current value back.
    MERGE_FIELDS: both, field by field. Fields of a dict that only one side changed are taken from that side, deletions
        included; a field that both sides changed differently is a conflict. Without `based_on` the fields of the write
        are laid over those that are there.
    """

    LATEST_WINS = "latest_wins"
    HIGHEST_VERSION = "highest_version"
    MERGE_FIELDS = "merge_fields"


BaseOf: TypeAlias = Callable[[int], VersionedValue | None]
"""Finds an older version of the key; None if it is not kept any more."""


def strategy_named(value: ConflictStrategy | str) -> ConflictStrategy:
    """Return the strategy that is meant.

    Raises:
        InvalidOption: naming those there are.
    """
    try:
        return ConflictStrategy(value)
    except ValueError:
        names = ", ".join(repr(member.value) for member in ConflictStrategy)
        raise InvalidOption(f"strategy: expected one of {names}; got {value!r}") from None


def resolve(
    strategy: ConflictStrategy, write: Write, current: VersionedValue | None, base_of: BaseOf, agent_id: str
) -> Any:
    """Return the value to store, or `MISSING` if the current one wins.

    Raises:
        ConflictError: if the write may not happen.
    """
    check_version(write.key, write.expected_version, current, agent_id)
    if write.based_on is not None and current is None:
        raise ConflictError(write.key, write.based_on, -1, agent_id)
    if write.based_on is not None and current is not None and write.based_on > current.version:
        raise ConflictError(write.key, write.based_on, current.version, agent_id)
    return _RESOLVE[strategy](write, current, base_of, agent_id)


def check_version(key: str, expected: int, current: VersionedValue | None, agent_id: str) -> None:
    """Refuse a write or a deletion that expects another version than the current one (S1-040).

    Raises:
        ConflictError: also where a version is expected and the key is absent.
    """
    actual = current.version if current is not None else -1
    if expected not in (ANY, actual if current is not None else ABSENT):
        raise ConflictError(key, expected, actual, agent_id)


def _latest_wins(write: Write, _current: VersionedValue | None, _base_of: BaseOf, _agent_id: str) -> Any:
    return write.value


def _highest_version(write: Write, current: VersionedValue | None, _base_of: BaseOf, _agent_id: str) -> Any:
    stale = write.based_on is not None and current is not None and write.based_on + 1 <= current.version
    return MISSING if stale else write.value


def _merge_fields(write: Write, current: VersionedValue | None, base_of: BaseOf, agent_id: str) -> Any:
    if current is None:
        return write.value
    theirs, mine = _fields(current.value), _fields(write.value)
    if theirs is None or mine is None:
        if write.based_on is None or write.based_on == current.version:
            return write.value
        raise ConflictError(write.key, write.based_on, current.version, agent_id)
    if write.based_on is None:
        return {**theirs, **mine}
    older = base_of(write.based_on)
    base = _fields(older.value) if older is not None else None
    if base is None:
        raise ConflictError(write.key, write.based_on, current.version, agent_id)
    merged, both = merge(base, theirs, mine)
    if both:
        raise ConflictError(write.key, write.based_on, current.version, agent_id, both)
    return merged


def merge(
    base: Mapping[Any, Any], theirs: Mapping[Any, Any], mine: Mapping[Any, Any]
) -> tuple[dict[Any, Any], list[str]]:
    """Merge two dicts that were made from one; return the result and the fields that both changed differently."""
    merged = dict(theirs)
    both: list[str] = []
    for field in [*base, *(field for field in mine if field not in base)]:
        before, there, here = (side.get(field, MISSING) for side in (base, theirs, mine))
        if _same(here, before) or _same(here, there):
            continue
        if not _same(there, before):
            both.append(str(field))
        elif here is MISSING:
            del merged[field]
        else:
            merged[field] = here
    return merged, both


def _fields(value: object) -> dict[Any, Any] | None:
    return cast("dict[Any, Any]", value) if isinstance(value, dict) else None


def _same(one: Any, other: Any) -> bool:
    if one is MISSING or other is MISSING:
        return one is other
    return type(one) is type(other) and bool(one == other)


_RESOLVE: Final[dict[ConflictStrategy, Callable[[Write, VersionedValue | None, BaseOf, str], Any]]] = {
    ConflictStrategy.LATEST_WINS: _latest_wins,
    ConflictStrategy.HIGHEST_VERSION: _highest_version,
    ConflictStrategy.MERGE_FIELDS: _merge_fields,
}
