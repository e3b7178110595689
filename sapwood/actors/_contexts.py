"""Carried context: the values of declared context variables travel with each message (BR-70).

Without declared variables an actor's callbacks all run in one context, its own. With them every callback runs in a
copy of it, into which the values that travelled with its message have been put, and which is dropped afterwards.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeAlias, cast

from sapwood.errors import InvalidOption

Variables: TypeAlias = tuple[ContextVar[Any], ...]
Values: TypeAlias = tuple[Any, ...]

UNSET: Final[Any] = object()


def check_variables(variables: Sequence[object]) -> Variables:
    """Return the declared variables as a tuple.

    Raises:
        InvalidOption: if one of them is no `ContextVar`.
    """
    found: list[ContextVar[Any]] = []
    for variable in cast("Sequence[ContextVar[Any]]", variables):
        if not isinstance(variable, ContextVar):
            raise InvalidOption(
                f"propagate: expected ContextVar objects, as in propagate=(trace_id,); got {variable!r}"
            )
        found.append(variable)
    return tuple(found)


def capture(variables: Variables) -> Values:
    """Take the values that the variables have here."""
    return tuple(variable.get(UNSET) for variable in variables)


def bare_context(variables: Variables) -> Context:
    """Copy the present context, without the variables."""
    bare = Context()
    for variable, value in copy_context().items():
        if variable not in variables:
            bare.run(variable.set, value)
    return bare


def context_for(base: Context, variables: Variables, values: Values | None) -> Context:
    """Copy an actor's own context and put the values of a message into it."""
    context = base.copy()
    for variable, value in zip(variables, values or (), strict=False):
        if value is not UNSET:
            context.run(variable.set, value)
    return context


def describe(variables: Variables, values: Values | None) -> dict[str, Any]:
    """Return `{name of the variable: value}` of those that had a value."""
    pairs = zip(variables, values or (), strict=False)
    return {variable.name: value for variable, value in pairs if value is not UNSET}


@types.coroutine
def run_in(context: Context, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a coroutine, step by step, in a context that is not its task's."""
    answer: Any = None
    try:
        while True:
            try:
                trap = context.run(coroutine.send, answer)
            except StopIteration as stop:
                return stop.value
            # trio answers a trap with an outcome, also where that is an exception; it throws nothing.
            answer = yield trap
    finally:
        answer = None  # it would keep itself alive through the traceback of its exception (BR-79)
        coroutine.close()
