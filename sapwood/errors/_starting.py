"""Errors of starting actors and managing children."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sapwood.errors._root import SapwoodError

if TYPE_CHECKING:
    from sapwood.actors import ExitReason


class StartError(SapwoodError):
    """An actor could not be started; whatever it had begun is undone."""


class ChildFailed(StartError):
    """A child failed to start. `reason` is the child's own exit reason; nested supervisors nest (OTP A02, A15)."""

    def __init__(self, child: str, reason: ExitReason) -> None:
        super().__init__(f"child {child} failed to start: {reason}")
        self.child = child
        self.reason = reason


class AlreadyStarted(StartError):
    """The child id or the key belongs to a live actor; `ref` is that actor (OTP G02, K01)."""

    def __init__(self, name: str, ref: Any) -> None:
        super().__init__(f"{name} is already started: {ref!r}")
        self.name = name
        self.ref = ref


class AlreadyPresent(StartError):
    """The child id belongs to a spec without a running actor; restart_child or delete_child it (OTP G03)."""

    def __init__(self, child: str) -> None:
        super().__init__(f"child {child} has a spec but no running actor; use restart_child or delete_child")
        self.child = child


class MaxChildren(StartError):
    """The dynamic supervisor is full; the start function was not called (OTP H02)."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the supervisor holds its limit of {limit} children")
        self.limit = limit


class StartTimeout(StartError):
    """Starting took longer than allowed; the half-started actor was killed (OTP I05)."""

    def __init__(self, child: str, timeout: float) -> None:
        super().__init__(f"{child} did not finish starting within {timeout:g} s")
        self.child = child
        self.timeout = timeout


class ChildNotFound(SapwoodError, LookupError):
    """The supervisor has no such child (OTP G06, H07)."""

    def __init__(self, child: str) -> None:
        super().__init__(f"the supervisor has no child {child}")
        self.child = child


class ChildRunning(SapwoodError):
    """The operation needs a child that is not running; terminate_child it first (OTP G09, G11)."""

    def __init__(self, child: str) -> None:
        super().__init__(f"child {child} is running; use terminate_child first")
        self.child = child


class ChildRestarting(SapwoodError):
    """The operation needs a child at rest, and this one is being restarted (OTP G09, G11)."""

    def __init__(self, child: str) -> None:
        super().__init__(f"child {child} is being restarted; terminate_child cancels that")
        self.child = child
