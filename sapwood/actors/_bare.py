"""Exceptions of a block that a nursery surrounds without its author knowing."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def single_exceptions_bare() -> Generator[None]:
    """Take the only exception out of the group of a nursery, which is no business of the block's author."""
    try:
        yield
    except BaseExceptionGroup as group:
        only, *others = group.exceptions
        if others:
            raise
    else:
        return
    context = only.__context__
    try:
        raise only
    finally:
        only.__context__ = context
        del only, context
