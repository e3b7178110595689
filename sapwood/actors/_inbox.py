"""The inbox: the receiving side of a cell, from `tell` to the moment the actor's task takes the entry out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.lowlevel import reschedule

from sapwood.actors._asks import Ask
from sapwood.actors._contexts import Values, capture, describe
from sapwood.actors._cycles import current_label
from sapwood.actors._mailbox import HIGH_WATER, UNBOUNDED, Envelope, Mailbox, MailboxOptions, extract, is_notice
from sapwood.actors._messages import PRIORITY_EXPECTED, Priority, Stop, SystemCall, check_message
from sapwood.actors._tasks import Tick
from sapwood.actors._telemetry import DeadLetter, MailboxHighWater
from sapwood.errors import ActorDown, InvalidMessage, MailboxFull

if TYPE_CHECKING:
    from sapwood.actors._exits import ExitReason
    from sapwood.actors._system import ActorSystem

# What the actor's task is doing, as far as a sender must know; whole numbers, for the fast paths compare them.
BUSY: Final = 0  # runs, or will
IDLE: Final = 1  # waits for a message; a plain ask may run its handler
PARKED: Final = 2  # waits, and no handler may run: suspended, or winding down
AWAITING: Final = 3  # a callback waits for something; there is nothing to wake

NOTHING: Final[Any] = object()

# One for all cells: objects that the garbage collector must look at count, where there are many actors.
NO_HANDLERS: Final[Mapping[type, Any]] = {}


class Woken:
    """The outcome of every wait for an entry; trio only unwraps it, so there is no need for a new one each time."""

    def unwrap(self) -> None:
        """Give the waiting task nothing but its turn."""


WOKEN: Final = Woken()


class Phase(IntEnum):
    """Where an incarnation is in its life."""

    STARTING = 0
    RUNNING = 1
    STOPPING = 2
    DEAD = 3


class Inbox:
    """What reaches one incarnation of one actor, in order.

    Invariants: `queue` is the mailbox deque exactly while a NORMAL message may be appended unseen (running, plain
    unbounded mailbox), else None. `mode` is IDLE or PARKED exactly while the actor's task waits for an entry.
    `reason` is None exactly until the end. `control` is True whenever something must come before the next message.
    """

    __slots__ = (
        "box", "calls", "control", "direct", "high_water", "key", "label", "mark", "mode", "options", "phase", "queue",
        "reason", "sealed", "suspended", "system", "task",
    )  # fmt: skip

    def __init__(self, system: ActorSystem, label: str, key: object, options: MailboxOptions | None) -> None:
        self.system = system
        self.label = label
        self.key = key
        self.phase = Phase.STARTING
        self.reason: ExitReason | None = None
        self.task: trio.lowlevel.Task | None = None
        self.mode: int = BUSY
        self.control = False
        self.queue: deque[Any] | None = None
        self.box: deque[Any] | Mailbox | None = None
        # Message types that `Ref.tell` may queue unseen.
        self.direct: frozenset[type] = frozenset()
        self.options: MailboxOptions | None = None
        self.mark = HIGH_WATER
        self.high_water = False
        self.sealed = False
        self.suspended = False
        # While suspended: the entries that are taken all the same.
        self.calls: deque[Any] | None = None
        if options is not None:
            self.set_options(options)

    def set_options(self, options: MailboxOptions) -> None:
        """Take over how the mailbox is bounded; messages may have come already, while `__init__` ran (OTP K02)."""
        self.options = options
        self.mark = options.high_water
        if isinstance(self.box, Mailbox):
            self.box.options = options

    # --- sending ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Let the actor's task look at its mailbox."""
        if self.mode == AWAITING:
            self.watch_length()
        elif self.mode and self.task is not None:
            self.mode = BUSY
            self.system.busy += 1
            reschedule(self.task, WOKEN)  # type: ignore[arg-type]  # as good as an outcome, see Woken

    def abort_park(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        """End the wait of the actor's task because it is cancelled."""
        if self.mode == BUSY:
            # A caller runs a handler as this actor; when it is through it wakes the task, which is cancelled then.
            self.control = True
            return trio.lowlevel.Abort.FAILED
        self.mode = BUSY
        self.system.busy += 1
        return trio.lowlevel.Abort.SUCCEEDED

    def put(self, message: Any, priority: Priority | None) -> None:
        """Queue a user message, after checking everything that the fast path of `Ref.tell` leaves out.

        Raises:
            InvalidMessage, MailboxFull, WrongThread: see `Ref.tell`.
        """
        if get_ident() != self.system.thread:
            raise self.system.wrong_thread(f"tell {self.label}", "runtime.portal.tell(ref, message)")
        check_message(message)
        self._queue(message, priority_of(message, priority))

    def deliver(self, message: Any, priority: Priority | None, sender: str | None, values: Values | None) -> None:
        """Queue a message whose sender is not there to be told that the mailbox is full: a dead letter, then."""
        try:
            self._queue(message, priority_of(message, priority), sender, values)
        except MailboxFull:
            self.dead_letter(message, sender, "overflow", values)

    def full_box(self) -> Mailbox | None:
        """Return the mailbox if a sender must wait for room in it, else None."""
        if self.options is None or self.options.capacity is None or self.sealed or self.reason is not None:
            return None
        box = self._full_box()
        return box if box.full else None

    def put_ask(self, ask: Ask, priority: Priority | None) -> None:
        """Queue a request whose sender waits.

        Raises:
            MailboxFull: if the mailbox is full and did not take it; then it was not queued.
        """
        if self.system.propagate:
            ask.values = capture(self.system.propagate)
        self._queue(ask, priority_of(ask.request, priority))

    def put_entry(self, entry: Any) -> None:
        """Queue a notice; it is never refused while the actor lives, and silently gone when it is dead."""
        if self.reason is not None:
            return
        if self.suspended and isinstance(entry, Stop | SystemCall):
            assert self.calls is not None
            self.calls.append(entry)
        elif isinstance(self.box, Mailbox):
            self.box.put_notice(entry)
        else:
            self._simple_box().append(entry)
        self.wake()

    def put_stop(self, reason: ExitReason) -> None:
        """Queue a request to stop behind all that waits; what comes later is not handled (OTP I21)."""
        if self.sealed or self.reason is not None:
            return
        self.put_entry(Stop(reason))
        self.sealed = True
        box = self._full_box() if self.suspended else self.box
        if isinstance(box, Mailbox):
            box.seal()

    def _queue(self, entry: Any, priority: Priority, sender: str | None = None, values: Values | None = None) -> None:
        plain = self.options is None and priority is Priority.NORMAL and not self.system.propagate
        if plain and self.reason is None and not isinstance(self.box, Mailbox):
            self._simple_box().append(entry)
            self.wake()
            return
        if type(entry) is not Ask:
            entry = self.envelope(entry, sender, values)
        if self.reason is not None:
            self._refuse(entry, "dead")
            return
        dropped = self._full_box().put(entry, priority, self.label)
        if dropped is not None:
            self._refuse(dropped, "overflow")
        self.wake()
        if dropped is entry and type(entry) is Ask:
            raise self._full()

    def envelope(self, message: Any, sender: str | None = None, values: Values | None = None) -> Envelope:
        """Put a message together with who sends it here, and with the context that it is sent in."""
        if values is None and self.system.propagate:
            values = capture(self.system.propagate)
        return Envelope(message, sender or current_label(), values)

    # --- what cannot be handled -------------------------------------------------------------------

    def dead_letter(self, message: Any, sender: str | None, reason: str, values: Values | None = None) -> None:
        """Record a message that nobody will handle."""
        context = describe(self.system.propagate, values)
        at = self.system.environment.wall()
        self.system.telemetry.tell(DeadLetter(self.label, self.key, message, sender, reason, at, context))

    def refuse_leftovers(self) -> None:
        """Deal with what waits when the actor has ended: asks fail, messages become dead letters, notices go."""
        for entry in self._leftovers():
            self._refuse(entry, "unread")

    def _refuse(self, entry: object, why: str) -> None:
        sender: str | None = None
        values: Values | None = None
        message = entry
        if isinstance(entry, Ask):
            sender, message, values = entry.sender_label, entry.request, entry.values
            entry.fail(self._full() if why == "overflow" else ActorDown(self.label, self.reason))
            if why != "overflow":
                return
        elif isinstance(entry, Envelope):
            sender, message, values = entry.sender, entry.message, entry.values
        elif isinstance(entry, SystemCall):
            entry.ask.fail(ActorDown(self.label, self.reason))
        if not is_notice(message):
            self.dead_letter(message, sender, why, values)

    def _full(self) -> MailboxFull:
        return MailboxFull(self.label, self.options.capacity or 0 if self.options is not None else 0)

    def _leftovers(self) -> Iterator[Any]:
        yield from self.calls or ()
        if isinstance(self.box, Mailbox):
            yield from self.box.close()
        else:
            yield from self.box or ()

    # --- looking in -------------------------------------------------------------------------------

    def waiting(self) -> Iterator[Any]:
        """Yield the messages and requests that wait, in order."""
        for entry in self.box.waiting() if isinstance(self.box, Mailbox) else self.box or ():
            if type(entry) is Ask:
                yield entry.request
            elif type(entry) is Envelope or type(entry) is Tick:
                yield entry.message
            elif not is_notice(entry):
                yield entry

    def watch_length(self) -> None:
        """Tell once that the mailbox has grown past its mark, until it has halved."""
        length = len(self.box or ())
        if not self.high_water and length >= self.mark:
            self.high_water = True
            self.system.telemetry.tell(MailboxHighWater(self.label, length))
        elif self.high_water and length * 2 <= self.mark:
            self.high_water = False

    def extract(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """Take the notices that fit out of the mailbox, leaving the rest in order."""
        if self.box is None:
            return []
        return self.box.extract(wanted) if isinstance(self.box, Mailbox) else extract(self.box, wanted)

    def put_back(self, entry: Any) -> None:
        """Put an entry that was just taken back in front of everything."""
        if isinstance(self.box, Mailbox):
            self.box.put_back(entry)
        elif self.box is not None:
            self.box.appendleft(entry)

    # --- suspension -------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Take nothing but introspection and stop requests from now on (OTP O03, O04)."""
        if not self.suspended:
            self.suspended = True
            self.queue = None
            self.calls = deque(self.extract(lambda entry: isinstance(entry, Stop | SystemCall)))
            self.control = True

    def resume(self) -> None:
        """Take messages again, in the order in which they waited."""
        if self.suspended:
            self.suspended = False
            waiting, self.calls = self.calls, None
            for entry in waiting or ():
                self.put_entry(entry)
            self.open_queue()
            self.control = True

    # --- the two kinds of box ---------------------------------------------------------------------

    def open_queue(self) -> None:
        """Let `Ref.tell` append unseen, where nothing has to be seen."""
        plain = self.options is None and not self.suspended and not self.system.propagate
        if plain and self.phase == Phase.RUNNING and isinstance(self.box, deque):
            self.queue = self.box

    def _simple_box(self) -> deque[Any]:
        box = self.box
        if box is None:
            box = self.box = deque()
            self.open_queue()
        assert isinstance(box, deque)
        return box

    def _full_box(self) -> Mailbox:
        box = self.box
        if not isinstance(box, Mailbox):
            box = self.box = Mailbox(self.options or UNBOUNDED, box)
            self.queue = None
            self.control = True
            if self.sealed:
                box.seal()
        return box


def priority_of(message: Any, priority: Priority | None) -> Priority:
    """Return the priority given, or that of the message's class.

    Raises:
        InvalidMessage: if what was given is no priority; nothing has been queued (BR-11).
    """
    if priority is None:
        return type(message).__priority__  # type: ignore[no-any-return]  # set by @message
    if type(priority) is not Priority:
        raise InvalidMessage(f"{PRIORITY_EXPECTED}; got {priority!r}")
    return priority
