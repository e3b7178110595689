"""Outcomes of an attempt: success, transient failure, permanent failure, as one table (S1-054)."""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs

from sapwood.errors import (
    ActorDown,
    AskTimeout,
    BulkheadFull,
    CircuitOpen,
    MailboxFull,
    RegistryUnavailable,
    RemoteFailure,
)


class CallOutcome(Enum):
    """SUCCESS: answered. TRANSIENT: a later attempt may succeed. PERMANENT: it cannot, as far as is known."""

    SUCCESS = "success"
    TRANSIENT = "transient"
    PERMANENT = "permanent"


class Case(Enum):
    """All that can become of one attempt."""

    ANSWERED = "the target answered"
    FAILED_FOR_NOW = "the target answered with a failure that it calls transient"
    FAILED_FOR_GOOD = "the target answered with another failure"
    TIMED_OUT = "no answer came in time"
    DIED = "the target ended before it answered"
    WAS_DEAD = "the target had ended before it was asked, and may be restarted under its key"
    GONE = "the target has ended, and was given as a ref, which never comes back"
    MAILBOX_FULL = "the target's mailbox had no room"
    UNAVAILABLE = "the registry cannot tell what runs under the key"
    NOT_RUNNING = "the registry answered that nothing runs under the key"
    REFUSED = "the call was refused on this side: open circuit or full bulkhead"
    MISUSED = "the call is wrong: no message, no handler, a circle of waiting actors"


@attrs.frozen
class Verdict:
    """What follows from a case.

    Attributes:
        outcome: One of three.
        repeat: `always`, `idempotent` (the request may have been carried out) or `never`.
        health: What it says of the target to its circuit breaker: True well, False ill, None nothing.
    """

    outcome: CallOutcome
    repeat: str
    health: bool | None


_S, _T, _P = CallOutcome.SUCCESS, CallOutcome.TRANSIENT, CallOutcome.PERMANENT

VERDICTS: Final[dict[Case, Verdict]] = {
    Case.ANSWERED: Verdict(_S, "never", health=True),
    Case.FAILED_FOR_NOW: Verdict(_T, "always", health=False),
    Case.FAILED_FOR_GOOD: Verdict(_P, "never", health=True),
    Case.TIMED_OUT: Verdict(_T, "idempotent", health=False),
    Case.DIED: Verdict(_T, "idempotent", health=False),
    Case.WAS_DEAD: Verdict(_T, "always", health=False),
    Case.GONE: Verdict(_P, "never", health=False),
    Case.MAILBOX_FULL: Verdict(_T, "always", health=False),
    Case.UNAVAILABLE: Verdict(_T, "always", health=None),
    Case.NOT_RUNNING: Verdict(_P, "never", health=None),
    Case.REFUSED: Verdict(_T, "never", health=None),
    Case.MISUSED: Verdict(_P, "never", health=None),
}
"""Case: what follows. The registry's "cannot tell" is worth another attempt; its "not running" is an answer."""


def case_of(error: Exception, *, sent: bool, by_key: bool) -> Case:
    """Return which case an error is.

    Args:
        error: What the attempt failed with; failures of the target are `RemoteFailure` already.
        sent: Whether the target was alive when it was asked.
        by_key: Whether the target was given by its key.
    """
    match error:
        case RemoteFailure(transient=transient):
            return Case.FAILED_FOR_NOW if transient else Case.FAILED_FOR_GOOD
        case RegistryUnavailable():
            return Case.UNAVAILABLE
        case CircuitOpen() | BulkheadFull():
            return Case.REFUSED
        case ActorDown():
            if not by_key:
                return Case.GONE
            if sent:
                return Case.DIED
            return Case.NOT_RUNNING if error.reason is None else Case.WAS_DEAD
        case AskTimeout():
            return Case.TIMED_OUT
        case MailboxFull():
            return Case.MAILBOX_FULL
        case _:
            return Case.MISUSED
