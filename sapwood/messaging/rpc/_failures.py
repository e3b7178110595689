"""Typed failures of the called agent: named, so that no class has to be known, or loaded, where they arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import attrs

from sapwood.actors import record
from sapwood.errors import DuplicateName, RemoteFailure

E = TypeVar("E", bound=type[Exception])

_names: Final[dict[str, type[Exception]]] = {}


@attrs.frozen
class _Declared:
    kind: str
    transient: bool


@record("rpc.failure")
class FailureRecord:
    """A failure as it is sent or stored.

    Attributes:
        kind: Its wire name.
        text: What the target said.
        transient: Whether a later attempt may succeed.
    """

    kind: str
    text: str
    transient: bool = False

    def error(self, target: str = "") -> RemoteFailure:
        """Return it as an error of the caller; no class is looked up by its name."""
        return RemoteFailure(self.kind, self.text, transient=self.transient, target=target)


def failure(kind: str, *, transient: bool = False) -> Callable[[E], E]:
    """Give an exception class a wire name: `return Failure(SoldOut())` in a handler reaches callers under it (S1-053).

    Args:
        kind: Unique dotted name, stable for ever, such as `"shop.sold_out"`.
        transient: True if the request was not carried out and a later attempt may succeed; calls repeat it then.

    Raises:
        DuplicateName: if another class has this name.
    """

    def decorate(cls: E) -> E:
        holder = _names.setdefault(kind, cls)
        if (holder.__module__, holder.__qualname__) != (cls.__module__, cls.__qualname__):
            raise DuplicateName("failure", kind, holder)
        cls.__rpc_failure__ = _Declared(kind, transient)  # type: ignore[attr-defined]  # read below, never by users
        return cls

    return decorate


def describe_failure(error: Exception) -> FailureRecord:
    """Return how a failure is told to callers: by its declared name, or the name of its class."""
    if isinstance(error, RemoteFailure):
        return FailureRecord(error.kind, error.text, error.transient)
    declared: _Declared = getattr(type(error), "__rpc_failure__", _Declared(type(error).__name__, transient=False))
    return FailureRecord(declared.kind, str(error), declared.transient)
