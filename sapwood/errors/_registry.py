"""Errors of the registry and the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sapwood.errors._root import SapwoodError

if TYPE_CHECKING:
    from sapwood.actors import ExitReason


class AlreadyRegistered(SapwoodError):
    """Another live actor holds the key; `holder` is its ref (OTP K04)."""

    def __init__(self, key: object, holder: Any) -> None:
        super().__init__(f"key {key!r} is held by {holder!r}")
        self.key = key
        self.holder = holder


class NotRegistered(SapwoodError):
    """The calling actor does not hold the key whose value it would change; nothing was done (OTP K13)."""

    def __init__(self, key: object, caller: Any) -> None:
        super().__init__(f"key {key!r} is not held by {caller!r}, which would change its value; register it first")
        self.key = key
        self.caller = caller


class RegistryUnavailable(SapwoodError):
    """The registry cannot say whether an actor runs. This is not "not running": start nothing, answer 503.

    It is deliberately no LookupError, so that code which treats "nothing there" as an answer cannot catch it.

    Attributes:
        operation: What was attempted.
        reason: `starting`, `draining`, `registry_down`, `recovering` or `unreachable`.
        retry_after: Seconds after which asking again makes sense.
    """

    def __init__(self, operation: str, reason: str, retry_after: float = 1.0) -> None:
        super().__init__(
            f"{operation}: the registry cannot tell ({reason}); start nothing and ask again in {retry_after:g} s"
        )
        self.operation = operation
        self.reason = reason
        self.retry_after = retry_after


class RuntimeClosed(SapwoodError):
    """The runtime is stopping or has stopped; nothing was done."""


class RuntimeFailed(SapwoodError):
    """The root supervisor gave up: restarting did not help, and everything has been stopped.

    Attributes:
        reason: Exit reason of the root supervisor.
    """

    def __init__(self, reason: ExitReason) -> None:
        super().__init__(f"the runtime has stopped by itself: {reason}")
        self.reason = reason
