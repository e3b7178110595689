"""Causes: what lies at the bottom of groups and of nested failures to start."""

from __future__ import annotations

from typing import cast

from sapwood.actors import Crashed
from sapwood.errors import ChildFailed


def cause_of(error: Exception) -> Exception:
    """Return the error that a person can do something about."""
    while True:
        inner = _inner(error)
        if inner is None:
            return error
        error = inner


def _inner(error: Exception) -> Exception | None:
    if isinstance(error, ExceptionGroup):
        members = cast("ExceptionGroup[Exception]", error).exceptions
        return members[0] if len(members) == 1 else None
    if isinstance(error, ChildFailed) and isinstance(error.reason, Crashed):
        inner = error.reason.exception
        return inner if isinstance(inner, Exception) else None
    return None
