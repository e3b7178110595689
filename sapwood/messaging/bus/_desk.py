"""The desk: what all parts of one bus share, and what is noted of each message on its way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Final, cast

import trio

from sapwood.actors import ActorSystem, Environment, Ref, Telemetry, TelemetryEvent
from sapwood.actors import DeadLetter as KernelDeadLetter
from sapwood.errors import BusUnavailable
from sapwood.messaging.bus._dead_letters import DeadLetter, DeadLetterOffice, DeadReason, Written
from sapwood.messaging.bus._directory import Consumer, Directory
from sapwood.messaging.bus._history import AuditRecord, History
from sapwood.messaging.bus._log import log_message, log_warning
from sapwood.messaging.bus._metrics import Metrics
from sapwood.messaging.bus._options import BusOptions
from sapwood.messaging.bus._rates import RateLimiter
from sapwood.messaging.bus._reports import Operation
from sapwood.messaging.bus._topics import Subscriptions
from sapwood.messaging.envelope import Envelope

HANDLED_NOW: ContextVar[Envelope[Any] | None] = ContextVar("sapwood_handled_envelope", default=None)
"""The message whose handler runs here; what is sent meanwhile belongs to its chain."""

KERNEL_REASONS: Final[dict[str, DeadReason]] = {
    "dead": "recipient_down",
    "unread": "unread",
    "overflow": "overflow",
    "unhandled": "unhandled",
}
"""Reason of a dead letter of the kernel: that of the bus."""


class Desk:
    """Tables, counters and logs of one bus; they outlive a restart of its actors.

    Invariant: a message that was accepted is, at each of its handlers, either waiting, or counted as handled, or one
    dead letter.
    """

    def __init__(self, options: BusOptions) -> None:
        self.options = options
        self.directory = Directory()
        self.subscriptions = Subscriptions()
        self.metrics = Metrics()
        self.history = History(options.history)
        self.audit: deque[AuditRecord] = deque(maxlen=options.history)
        self.limiter = RateLimiter(options.rate_limit, options.rate_limits)
        # Changes of dead letters that the store has not been told of yet.
        self.unwritten: deque[Written] = deque()
        self.home: Ref | None = None
        self.keeper: Ref | None = None
        self.ready = False
        self.stopped = False
        # After a stop that ran out of time, what waits is not handled any more.
        self.dropping = False
        # Whether the dead letters of former processes have been taken in.
        self.loaded = False
        self._progress = trio.Event()
        self._office: DeadLetterOffice | None = None
        self._system: ActorSystem | None = None
        self._telemetry: Telemetry | None = None
        self.on_change: Callable[[], None] = lambda: None

    # --- life -------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """`not started`, `restarting`, `stopped` or `running`."""
        if self.keeper is None:
            return "not started"
        if not self.ready or not self.keeper.alive or self.home is None or not self.home.alive:
            return "restarting"
        return "stopped" if self.stopped else "running"

    @property
    def environment(self) -> Environment:
        """Time, randomness and ids of the runtime that the bus lives in.

        Raises:
            BusUnavailable: before the first start.
        """
        if self._system is None:
            raise BusUnavailable(self.options.name, self.state)
        return self._system.environment

    @property
    def office(self) -> DeadLetterOffice:
        """The dead letters.

        Raises:
            BusUnavailable: before the first start.
        """
        if self._office is None:
            raise BusUnavailable(self.options.name, self.state)
        return self._office

    def check_running(self) -> None:
        """Refuse an operation while the bus does not run.

        Raises:
            BusUnavailable: naming the state.
            WrongThread: if called outside the runtime's thread.
        """
        if self._system is not None:
            self._system.check_thread(f"use of bus {self.options.name!r}", "runtime.portal.call(bus.send, envelope)")
        state = self.state
        if state != "running":
            raise BusUnavailable(self.options.name, state)

    def attach(self, system: ActorSystem) -> None:
        """Take over the system that the bus runs in."""
        self._system = system
        if self._office is None:
            written = self._note_change if self.options.store is not None else None
            self._office = DeadLetterOffice(system.environment, self.options.dead_letters, written)
        self._office.environment = system.environment
        if self._telemetry is not system.telemetry:
            self.detach()
            self._telemetry = system.telemetry
            system.telemetry.subscribe(self._hear)

    def detach(self) -> None:
        """Listen to the kernel no more."""
        if self._telemetry is not None:
            self._telemetry.unsubscribe(self._hear)
            self._telemetry = None

    def progress(self) -> None:
        """Note that a worker is through with a message."""
        before, self._progress = self._progress, trio.Event()
        before.set()

    async def next_progress(self) -> None:
        """Wait until a worker is through with a message."""
        await self._progress.wait()

    def _hear(self, event: TelemetryEvent) -> None:
        """Take over the dead letters of the kernel that are messages of this bus."""
        message: object = event.message if isinstance(event, KernelDeadLetter) else None
        if isinstance(event, KernelDeadLetter) and type(message) is Envelope:
            envelope = cast("Envelope[Any]", message)
            consumer = self.directory.labelled(event.target, envelope.recipient)
            if consumer is not None:
                reason = KERNEL_REASONS.get(event.reason, "unread")
                consumer.lettered.append(envelope.message_id)
                self.failed(envelope, consumer, reason, f"{event.target} did not take it: {event.reason}")

    def _note_change(self, change: Written) -> None:
        self.unwritten.append(change)
        self.on_change()

    # --- what happens to messages -----------------------------------------------------------------

    def accepted(self, envelope: Envelope[Any], recipients: Iterable[str], size: int, to: str) -> None:
        """Note a message that passed all checks."""
        names = frozenset(recipients)
        self.history.add(envelope, names)
        self.metrics.count_sent(envelope.sender, names, size, self.environment.monotonic())
        log_message("sent", envelope, to, envelope.age_ms(self.environment))
        if size > self.options.warn_bytes:
            log_warning(
                "large message", message_id=envelope.message_id, bytes=size, guidance_bytes=self.options.warn_bytes
            )

    def handled(self, envelope: Envelope[Any], consumer: Consumer, waited: float, took: float) -> None:
        """Note a message that a handler has handled; times in milliseconds."""
        now = self.environment.monotonic()
        self.metrics.count_end(envelope.sender, consumer.participant, "handled", now, took=took, waited=waited)
        self.office.settle(envelope.message_id, consumer.participant)
        log_message("received", envelope, consumer.participant, took)

    def answered(self, answer: Envelope[Any], size: int) -> None:
        """Note an answer that goes straight to the one that waits for it."""
        to = answer.recipient or ""
        self.accepted(answer, (to,), size, to)
        self.metrics.pair(answer.sender, to).received += 1
        log_message("received", answer, to, answer.age_ms(self.environment))

    def failed(self, envelope: Envelope[Any], consumer: Consumer, reason: DeadReason, detail: str) -> None:
        """Note a message that a handler did not handle, and make it a dead letter."""
        now = self.environment.monotonic()
        self.metrics.count_end(envelope.sender, consumer.participant, "failed", now)
        self.dead_letter(envelope, consumer.participant, reason, detail)

    def dead_letter(self, envelope: Envelope[Any], target: str, reason: DeadReason, detail: str) -> DeadLetter | None:
        """Keep a message that nobody handled, and log it (S2-046)."""
        letter = self.office.add(envelope, target, reason, detail)
        if letter is not None:
            self.metrics.pair(envelope.sender, target).dead_lettered += 1
        age = envelope.age_ms(self.environment)
        log_message("received", envelope, target, age, error=f"{reason}: {detail}")
        return letter

    def buried(self, letter: DeadLetter) -> None:
        """Note a dead letter that a durable queue keeps."""
        envelope, target = letter.original, letter.target
        self.metrics.count_end(envelope.sender, target, "failed", self.environment.monotonic())
        self.metrics.pair(envelope.sender, target).dead_lettered += 1
        age = envelope.age_ms(self.environment)
        log_message("received", envelope, target, age, error=f"{letter.reason}: {letter.detail}")

    def note(self, actor: str, operation: Operation, subject: str, *, refused: str = "", detail: str = "") -> None:
        """Write one line of the audit trail."""
        if refused:
            self.metrics.refused += 1
        outcome = "refused" if refused else "allowed"
        entry = AuditRecord(self.environment.wall(), actor, operation, subject, outcome, refused or detail)
        self.audit.append(entry)
        if self.options.audit is not None:
            self.options.audit(entry)
