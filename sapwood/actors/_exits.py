"""Exit reasons: the closed set of ways in which an actor can end."""

from __future__ import annotations

import linecache
from types import TracebackType
from typing import Final, TypeAlias, cast

import attrs
import trio

Frame: TypeAlias = tuple[str, int, str]

FATAL: Final = (MemoryError, trio.TrioInternalError)
"""Ordinary exceptions by their class that end the run instead of one actor (OTP Q21)."""


@attrs.frozen
class Normal:
    """The actor finished its work; links do not carry this to others (OTP J03)."""

    def __str__(self) -> str:
        return "normal"


@attrs.frozen
class Shutdown:
    """The actor was asked to stop, by its supervisor or by itself. Orderly: a transient child stays down (OTP B02).

    Attributes:
        detail: Why, for people; two reasons with different details are different reasons.
    """

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
    """An exception left one of the actor's callbacks (OTP J17).

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
        while len(members := members_of(exception)) == 1:
            if members[0].__traceback__ is None:
                members[0].__traceback__ = exception.__traceback__
            exception = members[0]
        found = _frames(exception.__traceback__)
        cut_loose(exception)
        return cls(exception, found)

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


def contain(error: Exception) -> Crashed:
    """Turn an exception that left a callback into an exit reason.

    Raises:
        Exception: `error` itself, if it is or holds one that must end the run (OTP Q21).
    """
    if is_fatal(error):
        raise error
    return Crashed.of(error)


def is_fatal(error: BaseException) -> bool:
    """Say whether an exception must end the run: all but ordinary ones, and of these the `FATAL` ones."""
    members = members_of(error)
    if members:
        return any(is_fatal(member) for member in members)
    return not isinstance(error, Exception) or isinstance(error, FATAL)


def take_crash(error: BaseException) -> tuple[Crashed | None, BaseException | None]:
    """Split what left an actor's code into its crash and what else it is (BR-20).

    Returns:
        The crash, or None if there is none or the error holds what must end the run; and what is left to raise.
    """
    ordinary: BaseException | None = error
    rest: BaseException | None = None
    if isinstance(error, BaseExceptionGroup):
        ordinary, rest = cast("BaseExceptionGroup[BaseException]", error).split(Exception)
    if not isinstance(ordinary, Exception) or is_fatal(ordinary):
        return None, cast("BaseException", error)
    return Crashed.of(ordinary), rest


def is_cancellation(error: BaseException) -> bool:
    """Say whether an exception is a cancellation, or a group of nothing else."""
    members = members_of(error)
    return all(map(is_cancellation, members)) if members else isinstance(error, trio.Cancelled)


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions directly inside a group; none for one that is no group."""
    return cast("tuple[BaseException, ...]", getattr(error, "exceptions", ())) if _is_group(error) else ()


def _is_group(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup)


def cut_loose(exception: BaseException) -> None:
    """Drop the tracebacks of an exception and of all that it is linked to, and with them every local variable."""
    pending = [exception]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = None
        pending.extend(linked for linked in (one.__cause__, one.__context__) if linked is not None)
        pending.extend(members_of(one))


def _frames(traceback: TracebackType | None) -> tuple[Frame, ...]:
    found: list[Frame] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        found.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    return tuple(found)
