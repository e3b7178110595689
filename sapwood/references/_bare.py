"""Exceptions without the group of a nursery that is an implementation detail."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def single_exceptions_bare() -> Generator[None]:
    """Take the only exception out of the group of a nursery inside, which is no business of the block's author."""
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
