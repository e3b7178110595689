"""Wire names: the stable name and version under which a class of data is sent and stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, dataclass_transform

import attrs

from sapwood.errors import DuplicateName, InvalidMessage

T = TypeVar("T")

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Turns the fields of a record of version n into those of version n + 1; must not change its argument."""


@attrs.frozen
class Wire:
    """What is known of a record class.

    Attributes:
        name: Unique, dotted, stable for ever: `"account.deposit"`.
        version: Version that the class has now, from 1.
        upcasters: `{n: function}` from version n to n + 1, for every n below `version`.
    """

    name: str
    version: int
    upcasters: Mapping[int, Upcaster]


_by_name: dict[str, type] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field,))
def record(
    name: str, *, version: int = 1, upcasters: Mapping[int, Upcaster] | None = None
) -> Callable[[type[T]], type[T]]:
    """Make a class a frozen, slotted attrs class that the codec can store under `name`.

    Args:
        name: Unique dotted wire name; it outlives renames of the class.
        version: Raise it by one when fields change their meaning, and add an upcaster.
        upcasters: One function for every older version.

    Raises:
        DuplicateName: if another class has this wire name.
        InvalidMessage: if a version below `version` has no upcaster.
    """
    steps = dict(upcasters or {})
    if set(steps) != set(range(1, version)):
        needed = list(range(1, version))
        raise InvalidMessage(
            f"record {name!r} has version {version}: expected upcasters for {needed}; got {sorted(steps)}"
        )

    def decorate(cls: type[T]) -> type[T]:
        made = attrs.frozen(cls, slots=True, weakref_slot=False)
        _claim_name(name, made)
        made.__wire__ = Wire(name, version, steps)  # type: ignore[attr-defined]
        return made

    return decorate


def _claim_name(name: str, cls: type) -> None:
    holder = _by_name.get(name)
    # A module that is executed twice (reload, a documentation block) defines the same class anew.
    if holder is not None and (holder.__module__, holder.__qualname__) != (cls.__module__, cls.__qualname__):
        raise DuplicateName("wire name", name, holder)
    _by_name[name] = cls


def wire_of(cls: type) -> Wire | None:
    """Return the wire name and version of a class, or None if it is not a record (inheritance does not count)."""
    return cls.__dict__.get("__wire__")


def class_of(name: str) -> type | None:
    """Return the class that has this wire name, or None."""
    return _by_name.get(name)
