"""Telemetry: a synchronous stream of what the kernel and the supervisors do, for logs, metrics and tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias, get_args

import attrs

from sapwood.actors._debug import DebugEvent
from sapwood.actors._exits import ExitReason, is_fatal


@attrs.frozen
class Spawned:
    """An actor has started: its `on_start` returned."""

    actor: str
    key: object
    parent: str | None


@attrs.frozen
class Exited:
    """An actor has ended; its key is free."""

    actor: str
    key: object
    parent: str | None
    reason: ExitReason


@attrs.frozen
class CrashReport:
    """What was going on when an actor crashed (OTP P07, P08).

    Attributes:
        actor: The actor's label.
        key: Its registry key, or None.
        parent: Label of its supervisor, or None.
        reason: The crash with its traceback text.
        last_message: Type name of the message whose handler raised, or None if it was another callback.
        state: The actor's state as its `format_state` shows it; empty if it had not started.
        mailbox: Messages that were still waiting; they are dead letters now.
        incarnation: How often its supervisor had started it, from 1.
        kind: Name of the class or function that made it.
        ancestors: Labels of the supervisors above it, nearest first.
        queued: Type names of the first messages that were still waiting.
        links: Labels of the actors linked to it.
        falling: Labels of those of them that do not trap exits, and so end with it.
        trap_exits: Whether it trapped exits itself.
        client: Label of the actor whose request it was handling, or None.
        log: The last debug events, if its log was on (OTP O08).
    """

    actor: str
    key: object
    parent: str | None
    reason: ExitReason
    last_message: str | None
    state: str
    mailbox: int
    incarnation: int
    kind: str = ""
    ancestors: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    falling: tuple[str, ...] = ()
    trap_exits: bool = False
    client: str | None = None
    log: tuple[DebugEvent, ...] = ()


@attrs.frozen
class Restarted:
    """A supervisor has started a child again."""

    supervisor: str
    child: str
    reason: ExitReason
    restarts_in_window: int


@attrs.frozen
class SupervisorReport:
    """Something a supervisor has to report about a child (OTP P01).

    Attributes:
        supervisor: Label of the supervisor.
        context: `start_error`, `child_terminated`, `shutdown_error` or `shutdown`.
        reason: Exit reason of the child, or why the supervisor gives up.
        offender: The child: its label, spec and settings.
    """

    supervisor: str
    context: str
    reason: object
    offender: Any


@attrs.frozen
class ChildStuck:
    """A child was killed and still runs after its grace (OTP Q03).

    Attributes:
        supervisor: Label of the supervisor.
        child: Label of the child.
        waited: Seconds since it was killed.
        detached: False: the supervisor waits for it. True: the child is leaked, and the supervisor goes on.
    """

    supervisor: str
    child: str
    waited: float
    detached: bool = False


@attrs.frozen
class MailboxHighWater:
    """An actor's mailbox has grown past its high-water mark."""

    actor: str
    length: int


@attrs.frozen
class DeadLetter:
    """A message that nobody handled.

    Attributes:
        target: Label of the actor it was sent to.
        key: That actor's key, or None.
        message: The message itself.
        sender: Label of the sending actor; None if it was sent from outside or is not known any more.
        reason: `dead` (sent after its end), `unread` (waiting when it ended), `overflow` or `unhandled`.
        at: Wall-clock time in seconds since 1970.
        context: `{name: value}` of the context variables that travelled with it (BR-70).
    """

    target: str
    key: object
    message: Any
    sender: str | None
    reason: str
    at: float
    context: dict[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen
class LoopHeldUp:
    """A task went on for too long without a checkpoint, and everything else waited (OTP Q01).

    Attributes:
        task: Name of the task: the label of an actor, or that and the name of a task of its own.
        seconds: How long it went on.
    """

    task: str
    seconds: float


@attrs.frozen
class LookupUnavailable:
    """A registry lookup could not be answered."""

    key: object
    reason: str


@attrs.frozen
class ListenerFailed:
    """A telemetry listener raised and was removed."""

    listener: str
    error: str


TelemetryEvent: TypeAlias = (
    Spawned
    | Exited
    | CrashReport
    | Restarted
    | SupervisorReport
    | ChildStuck
    | MailboxHighWater
    | DeadLetter
    | LoopHeldUp
    | LookupUnavailable
    | ListenerFailed
)

Listener: TypeAlias = Callable[[TelemetryEvent], None]

NESTED: Final = 16
"""How many events may be told within each other."""

KINDS: Final[tuple[type[TelemetryEvent], ...]] = get_args(TelemetryEvent)


class Telemetry:
    """Passes events to listeners at once, in the order of subscription, in the task where they happen.

    A listener must be quick and must not block. One that raises is removed, and `ListenerFailed` is told to the
    others; it never harms what it listens to.

    Attributes:
        wanted: The kinds of event that somebody listens to. Who makes events asks first, so that one which nobody
            wants costs a look into this set.
        dead_letters: The last dead letters, oldest first; at most 1,000.
        dead_letter_count: How many there have been.
    """

    def __init__(self, keep: int = 1_000) -> None:
        self.wanted: frozenset[type] = frozenset()
        self._depth = 0
        self._listeners: list[tuple[Listener, frozenset[type]]] = []
        self.dead_letters: deque[DeadLetter] = deque(maxlen=keep)
        self.dead_letter_count = 0

    def subscribe(self, listener: Listener, *kinds: type[TelemetryEvent]) -> Callable[[], None]:
        """Add a listener for events of some kinds, or of all if none is named; return a function that removes it."""
        self._listeners.append((listener, frozenset(kinds or KINDS)))
        self._note_wanted()
        return partial(self.unsubscribe, listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Remove a listener, once if it was added more often; one that is not there is no error."""
        for number, (known, _) in enumerate(self._listeners):
            if known == listener:
                del self._listeners[number]
                self._note_wanted()
                return

    def _note_wanted(self) -> None:
        self.wanted = frozenset[type]().union(*(kinds for _, kinds in self._listeners))

    def tell(self, event: TelemetryEvent) -> None:
        """Pass one event on.

        Listeners may cause further events, but not for ever: beyond `NESTED` of them within each other, an event is
        kept and counted if it is a dead letter, and told to nobody (BR-46).
        """
        if isinstance(event, DeadLetter):
            self.dead_letters.append(event)
            self.dead_letter_count += 1
        if self._depth >= NESTED:
            return
        self._depth += 1
        try:
            for listener, kinds in tuple(self._listeners):
                if type(event) in kinds:
                    self._pass(event, listener)
        finally:
            self._depth -= 1

    def _pass(self, event: TelemetryEvent, listener: Listener) -> None:
        try:
            listener(event)
        except Exception as error:
            if is_fatal(error):
                raise
            self.unsubscribe(listener)
            self.tell(ListenerFailed(repr(listener), f"{type(error).__name__}: {error}"))
