"""Errors of calls between agents, of the event bus and of shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.errors._root import SapwoodError


class CallError(SapwoodError):
    """A call to another agent did not bring an answer."""


class DeadlineExceeded(CallError):
    """The time that the caller has for the whole call is used up; `__cause__` is what the last attempt failed with.

    Attributes:
        target: Who was called.
        request: Type name of the request.
        attempts: Attempts begun, from 0. The last one may still be carried out.
    """

    def __init__(self, target: str, request: str, attempts: int) -> None:
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(f"{request} to {target}: the deadline passed after {tries}; give the call more time")
        self.target = target
        self.request = request
        self.attempts = attempts


class CircuitOpen(CallError):
    """The target has failed too often of late, so it was not called (S1-052).

    Attributes:
        target: Who was not called.
        retry_after: Seconds after which it will be tried again; 0 while somebody else tries it.
    """

    def __init__(self, target: str, retry_after: float) -> None:
        super().__init__(f"{target} was not called: it failed too often; try again in {retry_after:g} s")
        self.target = target
        self.retry_after = retry_after


class BulkheadFull(CallError):
    """As many calls as allowed run and wait already; this one was refused before it began."""

    def __init__(self, target: str, max_concurrent: int, max_waiting: int) -> None:
        super().__init__(f"{target} was not called: {max_concurrent} calls run and {max_waiting} may wait; call later")
        self.target = target
        self.max_concurrent = max_concurrent
        self.max_waiting = max_waiting


class RemoteFailure(CallError):
    """The target answered with a failure, and went on; it is told by name, so that no class need be known here.

    Attributes:
        target: Who failed; empty where it was made, and filled in by the call.
        kind: Wire name of the failure: what the target called it, or the name of its exception class.
        text: What the target said.
        transient: Whether the target says that a later attempt may succeed.
    """

    def __init__(self, kind: str, text: str, *, transient: bool = False, target: str = "") -> None:
        where = f"{target} answered with " if target else ""
        super().__init__(f"{where}{kind}: {text}")
        self.target = target
        self.kind = kind
        self.text = text
        self.transient = transient


class EventError(SapwoodError):
    """Something about the event bus."""


class EventCycle(EventError):
    """A handler would wait for the delivery of an event that waits for that very handler; nothing was published.

    Attributes:
        event_type: The event that was not published.
        chain: Names of the handlers, each waiting for the next.
    """

    def __init__(self, event_type: str, chain: Sequence[str]) -> None:
        super().__init__(f"event cycle on {event_type!r}: {' -> '.join(chain)}; use publish_nowait in the handler")
        self.event_type = event_type
        self.chain = tuple(chain)


class EventBusClosed(EventError):
    """The bus does not run, so nothing was published: it has not been opened, or was closed."""


class AlreadySubscribed(SapwoodError, ValueError):
    """The handler is subscribed to this very pattern; `pattern` names it (S1-024)."""

    def __init__(self, pattern: str) -> None:
        super().__init__(f"Handler already subscribed to {pattern!r}")
        self.pattern = pattern


class ConflictError(SapwoodError):
    """A value in shared memory is not what the writer expected; nothing was written (S1-040, S1-041).

    Attributes:
        key: The key.
        expected_version: The version that the writer expected; -2 for an absent key.
        actual_version: The version that is there; -1 if the key is absent.
        agent_id: The writer.
        fields: Fields that both sides changed, where fields were merged; empty otherwise.
    """

    def __init__(
        self, key: str, expected_version: int, actual_version: int, agent_id: str, fields: Sequence[str] = ()
    ) -> None:
        expected = f"v{expected_version}" if expected_version >= 0 else "no value"
        actual = f"current is v{actual_version}" if actual_version >= 0 else "the key is absent"
        both = f"; both changed {', '.join(fields)}" if fields else ""
        super().__init__(f"Version conflict on {key!r}: agent {agent_id!r} expected {expected} but {actual}{both}")
        self.key = key
        self.expected_version = expected_version
        self.actual_version = actual_version
        self.agent_id = agent_id
        self.fields = tuple(fields)
