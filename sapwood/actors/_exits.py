"""Exit reasons: the closed set of ways in which an actor can end."""

from __future__ import annotations

import linecache
from types import TracebackType
from typing import Any, TypeAlias

import attrs

Frame: TypeAlias = tuple[str, int, str]


@attrs.frozen
class Normal:
    """The actor finished its work; links do not carry this to others (OTP J03)."""

    def __str__(self) -> str:
        return "normal"


@attrs.frozen
class Shutdown:
    """The actor was asked to stop, by its supervisor or by itself. Orderly: a transient child stays down (OTP B02)."""

    detail: str = ""

    def __str__(self) -> str:
        return f"shutdown ({self.detail})" if self.detail else "shutdown"


@attrs.frozen
class Killed:
    """The actor was ended without being asked; no cleanup hook of it ran (OTP J05)."""

    def __str__(self) -> str:
        return "killed"


@attrs.frozen(eq=False)
class Crashed:
    """An exception left one of the actor's callbacks.

    The frames of the traceback are kept as text only, so that a report of a crash keeps no buffer of the dead
    actor alive (BR-79); the exception itself is kept without its traceback.

    Attributes:
        exception: What was raised. An exception group with one member is unwrapped to it.
        frames: `(file, line, function)` from the outermost to the innermost frame.
    """

    exception: BaseException
    frames: tuple[Frame, ...] = ()

    @classmethod
    def of(cls, exception: BaseException) -> Crashed:
        """Record an exception just caught, and cut it loose from its frames."""
        while isinstance(exception, BaseExceptionGroup) and len(exception.exceptions) == 1:
            inner: BaseException = exception.exceptions[0]
            if inner.__traceback__ is None:
                inner.__traceback__ = exception.__traceback__
            exception = inner
        frames = _frames(exception.__traceback__)
        _cut_loose(exception)
        return cls(exception, frames)

    def traceback(self) -> str:
        """Format the traceback as Python prints it, from the kept text."""
        lines = ["Traceback (most recent call last):"]
        for file, line, function in self.frames:
            lines.append(f'  File "{file}", line {line}, in {function}')
            source = linecache.getline(file, line).strip()
            if source:
                lines.append(f"    {source}")
        lines.append(f"{type(self.exception).__name__}: {self.exception}")
        return "\n".join(lines)

    def __str__(self) -> str:
        text = str(self.exception)
        return f"crashed with {type(self.exception).__name__}" + (f": {text}" if text else "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Crashed) and other.exception is self.exception

    def __hash__(self) -> int:
        return hash((Crashed, id(self.exception)))


ExitReason: TypeAlias = Normal | Shutdown | Killed | Crashed
"""How an actor ended. Match on it exhaustively, with `assert_never` in the last branch."""


def is_orderly(reason: ExitReason) -> bool:
    """Say whether a reason is one of normal and shutdown, which restart no transient child (OTP B02, B05)."""
    return isinstance(reason, Normal | Shutdown)


def _frames(traceback: TracebackType | None) -> tuple[Frame, ...]:
    found: list[Frame] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        found.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    return tuple(found)


def _cut_loose(exception: BaseException) -> None:
    pending: list[BaseException] = [exception]
    seen: set[int] = set()
    while pending:
        one: Any = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = None
        pending.extend(linked for linked in (one.__cause__, one.__context__) if linked is not None)
        if isinstance(one, BaseExceptionGroup):
            pending.extend(one.exceptions)
