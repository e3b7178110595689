"""Debugging of one actor while it runs: a log of the last events, and functions that see each event (OTP O08)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import attrs

from sapwood.actors._exits import is_fatal


@attrs.frozen
class DebugEvent:
    """One thing that an actor did.

    Attributes:
        kind: `received` a message or request, or `replied` to one. What it sends is not seen.
        value: The message, the request or the reply.
        at: Seconds on the monotonic clock.
    """

    kind: Literal["received", "replied"]
    value: Any
    at: float


DebugFunction: TypeAlias = Callable[[DebugEvent], object]
"""Called with each event, in the actor's turn; returns `DONE` when it has seen enough."""

DONE: Final = object()


class Debugging:
    """What is switched on for one actor."""

    __slots__ = ("functions", "log")

    def __init__(self) -> None:
        self.log: deque[DebugEvent] | None = None
        self.functions: list[DebugFunction] = []

    @property
    def active(self) -> bool:
        """Whether anything is switched on."""
        return self.log is not None or bool(self.functions)

    def options(self) -> tuple[str, ...]:
        """Name what is switched on."""
        log = (f"log={self.log.maxlen}",) if self.log is not None else ()
        return (*log, *(f"function {getattr(function, '__name__', repr(function))}" for function in self.functions))

    def note(self, kind: Literal["received", "replied"], value: Any, at: float) -> None:
        """Pass an event on; a function that raises or is done is removed, and the actor goes on."""
        event = DebugEvent(kind, value, at)
        if self.log is not None:
            self.log.append(event)
        for function in tuple(self.functions):
            try:
                done = function(event) is DONE
            except Exception as error:
                if is_fatal(error):
                    raise
                done = True
            if done:
                self.functions.remove(function)
