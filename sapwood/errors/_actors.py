"""Errors about another actor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapwood.errors._root import SapwoodError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sapwood.actors import ExitReason


class ActorError(SapwoodError):
    """Something about another actor."""


class ActorDown(ActorError):
    """The target is dead, or died before it answered.

    Attributes:
        target: How the target calls itself.
        reason: Its exit reason, or None if it was never known (no such actor).
    """

    def __init__(self, target: str, reason: ExitReason | None = None) -> None:
        why = "no such actor" if reason is None else str(reason)
        super().__init__(f"{target} is down: {why}")
        self.target = target
        self.reason = reason


class AskTimeout(ActorError):
    """No answer came in time. The request was not taken back: the target may still carry it out (OTP I06)."""

    def __init__(self, target: str, request: str, timeout: float) -> None:
        super().__init__(f"{target} did not answer {request} within {timeout:g} s; it may still carry it out")
        self.target = target
        self.request = request
        self.timeout = timeout


class SelfAsk(ActorError):
    """An actor asked itself and would wait for ever; use tell, or call the method (OTP I10)."""

    def __init__(self, target: str, request: str) -> None:
        super().__init__(f"{target} asked itself {request} and would never answer; tell it, or call the method")
        self.target = target
        self.request = request


class AskCycle(ActorError):
    """An ask that closes a circle of actors, each waiting for the next; `chain` names them in order."""

    def __init__(self, chain: Sequence[str]) -> None:
        super().__init__("ask cycle: " + " -> ".join(chain) + "; make one of these a tell")
        self.chain = tuple(chain)


class MailboxFull(ActorError):
    """A bounded mailbox with `overflow="reject"` refused a message; nothing was queued."""

    def __init__(self, target: str, capacity: int) -> None:
        super().__init__(f"mailbox of {target} holds its capacity of {capacity} messages; send later, or await send()")
        self.target = target
        self.capacity = capacity


class UnhandledRequest(ActorError):
    """The target has no handler for a request; the target crashes with this (OTP I25)."""
