"""Who stands behind a task: the supervisors above it, and those who asked for it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar

import attrs

from sapwood.actors import Ref, current_actor

T = TypeVar("T")

KEPT: Final = 32
"""Callers that are kept, the nearest ones; a task that starts its own successor for ever has no end of them."""

_called: ContextVar[tuple[Ref | None, tuple[Ref, ...]]] = ContextVar("sapwood_task_callers", default=(None, ()))


def ancestors() -> tuple[Ref, ...]:
    """Return the supervisors above the actor whose code runs here, nearest first; none outside of actors (OTP L13)."""
    here = current_actor()
    cell = here._cell.parent if here is not None else None
    found: list[Ref] = []
    while cell is not None:
        found.append(cell.ref)
        cell = cell.parent
    return tuple(found)


def callers() -> tuple[Ref, ...]:
    """Return who asked for the task whose code runs here, nearest first; at most 32 (OTP L13).

    That is the actor that started it with one of the functions of `Tasks`, and if that is such a task itself, who
    asked for that one, and so on. There are none in other actors, and code outside of actors does not count.
    """
    task, asked = _called.get()
    return asked if task is not None and task is current_actor() else ()


def callers_from_here() -> tuple[Ref, ...]:
    """Return the callers that a task has which is started here."""
    here = current_actor()
    return (here, *callers())[:KEPT] if here is not None else ()


@attrs.frozen(eq=False)
class Called(Generic[T]):
    """An async function that runs as a task and knows who asked for that."""

    function: Callable[..., Awaitable[T]]
    callers: tuple[Ref, ...] = attrs.field(factory=callers_from_here)

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)

    async def __call__(self, *args: Any, **keywords: Any) -> T:
        _called.set((current_actor(), self.callers))
        return await self.function(*args, **keywords)
