"""The cell: everything the kernel knows of one incarnation of one actor, apart from its loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from enum import IntEnum
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import attrs
import trio

from sapwood.actors._asks import BLOCKED, CURRENT, Ask
from sapwood.actors._exits import Crashed, ExitReason, Killed, Normal, Shutdown
from sapwood.actors._mailbox import Envelope, Mailbox, MailboxOptions, is_notice
from sapwood.actors._messages import (
    ChildExit,
    Down,
    Exit,
    Monitor,
    Priority,
    Stop,
    SystemCall,
    TaskDone,
    check_message,
)
from sapwood.actors._ref import Ref
from sapwood.actors._tasks import Tick
from sapwood.actors._telemetry import DeadLetter, Exited, Spawned
from sapwood.errors import ActorDown, InvalidMessage, InvalidOption, MailboxFull

if TYPE_CHECKING:
    from sapwood.actors._actor import Actor
    from sapwood.actors._deadlines import Deadline
    from sapwood.actors._handlers import Dispatch
    from sapwood.actors._system import ActorSystem
    from sapwood.actors._tasks import TaskRef, Timer


class Mode(IntEnum):
    """What the actor's task is doing, as far as a sender must know. Anything but BUSY must be woken."""

    BUSY = 0
    IDLE = 1
    PARKED = 2  # waits, but a plain ask may not run inside the caller (suspended)


class Phase(IntEnum):
    """Where an incarnation is in its life."""

    STARTING = 0
    RUNNING = 1
    STOPPING = 2
    DEAD = 3


NOTHING: Any = object()


@attrs.frozen
class Birth:
    """How an actor is made: again and again, from the same arguments, whenever its supervisor starts it (OTP B09)."""

    factory: Callable[..., Actor]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = attrs.field(factory=dict)
    key: object = None
    mailbox: MailboxOptions | None = None
    title: str = ""

    @property
    def name(self) -> str:
        """Name of what makes it: a class, or a function; of a partial, what that calls."""
        factory: Any = self.factory
        while isinstance(factory, partial):
            factory = factory.func
        return getattr(factory, "__name__", type(factory).__name__)


class Cell:
    """One incarnation of one actor.

    Invariants: `queue` is the mailbox deque exactly while a NORMAL message may be appended unseen (running, plain
    unbounded mailbox), else None. `mode` is not BUSY exactly while the actor's task waits for a message. `reason`
    is None exactly until the end. `control` is True whenever something must come before the next message.
    """

    __slots__ = (
        "abrupt", "actor", "asked", "asking", "birth", "box", "calls", "context", "continuation", "control", "crash",
        "current", "dispatch", "handled", "held_reply", "idle", "idle_timeout", "incarnation", "label", "leaving",
        "links", "mode", "monitors", "nursery", "options", "owed", "parent", "phase", "queue", "reason", "ref",
        "requested", "scope", "sealed", "start_error", "starter", "started_at", "stopping", "suspended", "system",
        "task", "tasks", "timers", "waiters", "watching", "ignored", "high_water", "ran", "idle_mark", "plain", "direct",
        "info", "leaked", "__weakref__",
    )  # fmt: skip

    def __init__(self, system: ActorSystem, birth: Birth, parent: Cell | None, incarnation: int = 1) -> None:
        self.system = system
        self.birth = birth
        self.parent = parent
        self.incarnation = incarnation
        self.label = system.label(birth)
        self.options = birth.mailbox
        self.ref = Ref._create(self)
        self.actor: Actor | None = None
        self.dispatch: Dispatch | None = None
        self.plain: dict[type, Any] = {}
        self.direct: frozenset[type] = frozenset()
        self.context: Context | None = None
        self.task: trio.lowlevel.Task | None = None
        self.scope: trio.CancelScope | None = None
        self.nursery: trio.Nursery | None = None
        self.phase = Phase.STARTING
        self.mode = Mode.BUSY
        self.queue: deque[Any] | None = None
        self.box: deque[Any] | Mailbox | None = None
        self.control = False
        self.sealed = False
        self.suspended = False
        self.abrupt = False
        self.ignored = False
        self.ran = False
        self.high_water = False
        self.current: Any = None
        self.asked: Ask | None = None
        self.held_reply: tuple[Ask, Any] | None = None
        self.continuation: Any = NOTHING
        self.idle_timeout: float | None = None
        self.idle: Deadline | None = None
        self.idle_mark = 0
        self.handled = 0
        self.started_at = 0.0
        self.info: Any = None
        # Whether a child of it was detached and may still hold its nursery open.
        self.leaked = False
        # How it ends: `requested` by others, `stopping` by itself, `crash` while a caller ran its handler.
        self.requested: ExitReason | None = None
        self.stopping: ExitReason | None = None
        self.crash: ExitReason | None = None
        self.leaving: ExitReason | None = None
        self.reason: ExitReason | None = None
        self.start_error: Exception | None = None
        self.starter: trio.lowlevel.Task | None = None
        # Tables that most actors never need are made on first use.
        self.asking: list[Cell] | None = None
        self.calls: deque[Any] | None = None
        self.owed: set[Ask] | None = None
        self.monitors: dict[Monitor, None] | None = None
        self.watching: dict[Monitor, None] | None = None
        self.links: dict[Cell, None] | None = None
        self.tasks: dict[TaskRef, None] | None = None
        self.timers: set[Timer] | None = None
        self.waiters: dict[trio.lowlevel.Task, None] | None = None

    # --- sending ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Let the actor's task look at its mailbox."""
        if self.mode and self.task is not None:
            self.mode = Mode.BUSY
            self.system.busy += 1
            trio.lowlevel.reschedule(self.task)

    def put(self, message: Any, priority: Priority | None) -> None:
        """Queue a user message, after checking everything that the fast path of `Ref.tell` leaves out."""
        if get_ident() != self.system.thread:
            raise self.system.wrong_thread(f"tell {self.label}", "runtime.portal.tell(ref, message)")
        check_message(message)
        self._queue(message, self._priority(message, priority))

    def put_ask(self, ask: Ask, priority: Priority | None) -> None:
        """Queue a request whose sender waits."""
        self._queue(ask, self._priority(ask.request, priority))

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
        if self.sealed:
            return
        self.put_entry(Stop(reason))
        self.sealed = True
        if isinstance(self.box, Mailbox):
            self.box.seal()

    def dead_letter(self, message: Any, sender: str | None, reason: str) -> None:
        """Record a message that nobody will handle."""
        self.system.telemetry.tell(
            DeadLetter(self.label, self.birth.key, message, sender, reason, self.system.environment.wall())
        )

    def _priority(self, message: Any, priority: Priority | None) -> Priority:
        if priority is None:
            return type(message).__priority__  # type: ignore[no-any-return]  # set by @message
        if type(priority) is not Priority:
            raise InvalidMessage(f"expected priority=Priority.URGENT, HIGH, NORMAL or LOW; got {priority!r}")
        return priority

    def _queue(self, entry: Any, priority: Priority) -> None:
        if self.reason is not None:
            self._refuse(entry, current_label(), "dead")
            return
        if self.options is None and priority is Priority.NORMAL and not isinstance(self.box, Mailbox):
            self._simple_box().append(entry)
            self.wake()
            return
        box = self._full_box()
        if type(entry) is not Ask:
            entry = Envelope(entry, current_label() or "")
        dropped = box.put(entry, priority, self.label)
        if dropped is not None:
            self._refuse(dropped, current_label(), "overflow")
        self.wake()

    def _refuse(self, entry: Any, sender: str | None, reason: str) -> None:
        if type(entry) is Ask:
            if entry.task is not None and reason == "overflow":
                entry.fail(MailboxFull(self.label, self.options.capacity or 0 if self.options else 0))
            elif entry.task is not None:
                entry.fail(ActorDown(self.label, self.reason))
            if reason != "overflow":
                return
            entry = entry.request
        if type(entry) is Envelope:
            sender, entry = entry.sender or None, entry.message
        elif type(entry) is Tick:
            return
        if not is_notice(entry):
            self.dead_letter(entry, sender, reason)

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
            if self.options is None and isinstance(self.box, deque):
                self.queue = self.box
            self.control = True

    def extract(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """Take the entries that fit out of the mailbox, leaving the rest in order."""
        if isinstance(self.box, Mailbox):
            return self.box.extract(wanted)
        taken = [entry for entry in self.box or () if wanted(entry)]
        for entry in taken:
            assert self.box is not None
            self.box.remove(entry)
        return taken

    def _simple_box(self) -> deque[Any]:
        box = self.box
        if box is None:
            box = self.box = deque()
            if self.phase == Phase.RUNNING and self.options is None:
                self.queue = box
        assert isinstance(box, deque)
        return box

    def _full_box(self) -> Mailbox:
        box = self.box
        if not isinstance(box, Mailbox):
            box = self.box = Mailbox(self.options or MailboxOptions(), box)
            self.queue = None
            self.control = True
            if self.sealed:
                box.seal()
        return box

    # --- birth ------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Claim the key and make the actor; say whether it runs already, with no need to wait for `on_start`.

        Runs in the supervisor's task. A failure is left in `start_error` after the end has been announced.

        Raises:
            AlreadyRegistered: if another live actor holds the key; nothing has happened then (OTP K01).
            RegistryUnavailable: if the registry cannot tell; nothing has happened then.
        """
        if self.birth.key is not None:
            self.system.registrar.claim(self.birth.key, self.ref)
        self.context = context = copy_context()
        context.run(CURRENT.set, self)
        context.run(BLOCKED.set, self)
        try:
            actor = context.run(self._make)
            kind = type(actor).__kind__
            if kind.waits_to_start:
                return False
            self.settle(context.run(actor.on_start))
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            self.fail_start(error)
        if self.leaving is not None:
            self.bury()
            return False
        return True

    def _make(self) -> Actor:
        birth = self.birth
        actor = birth.factory.__new__(birth.factory) if isinstance(birth.factory, type) else None  # type: ignore[call-overload]
        if actor is not None:
            actor._cell = self
            actor.__init__(*birth.args, **birth.kwargs)
        else:
            actor = birth.factory(*birth.args, **birth.kwargs)
            if not hasattr(type(actor), "__kind__"):
                raise InvalidOption(f"{birth.name}: expected a function that returns an Actor; it returned {actor!r}")
            actor._cell = self
        self.actor = actor
        self.dispatch = dispatch = type(actor).__dispatch__
        self.plain = dispatch.plain
        self.direct = dispatch.direct
        if self.options is None:
            self.options = type(actor).mailbox
        return actor  # type: ignore[no-any-return]

    def settle(self, result: Any) -> None:
        """Take what `on_start` returned: run, or leave again.

        Raises:
            InvalidMessage: if it is nothing that `on_start` may return.
        """
        from sapwood.actors._actor import Continue, Ignore, Refuse, Started

        if self.reason is not None:
            return  # detached meanwhile
        if isinstance(result, Started):
            self.info = result.info
            result = result.then
        if self.stopping is not None:
            self.fail_start(ActorDown(self.label, self.stopping), self.stopping)
        elif isinstance(result, Ignore):
            self.ignored = True
            self.leaving = Normal()
        elif isinstance(result, Refuse):
            self.fail_start(ActorDown(self.label, Shutdown(result.reason)), Normal())
        elif result is None or isinstance(result, Continue):
            if result is not None:
                self.continuation = result.token
                self.control = True
            self.phase = Phase.RUNNING
            self.ran = True
            self.started_at = self.system.environment.monotonic()
            if self.options is None and isinstance(self.box, deque):
                self.queue = self.box
            if self.system.telemetry.listeners:
                self.system.telemetry.tell(Spawned(self.label, self.birth.key, self.parent.label if self.parent else None))
        else:
            raise InvalidMessage(
                f"on_start of {self.label}: expected None, Continue(token), Ignore(), Refuse(reason) or Started(info); got {result!r}"
            )

    def fail_start(self, error: Exception, reason: ExitReason | None = None) -> None:
        """Note that starting failed; the starter gets `error`, the exit reason is `reason` or the crash."""
        self.start_error = error
        self.leaving = reason if reason is not None else Crashed.of(error)

    async def wait_started(self) -> None:
        """Wait until the actor runs or has ended; for the one task that starts it."""
        if self.phase == Phase.STARTING:
            self.starter = trio.lowlevel.current_task()

            def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
                self.starter = None
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)

    def release_starter(self) -> None:
        """Let the starting task go on."""
        if self.starter is not None:
            starter, self.starter = self.starter, None
            trio.lowlevel.reschedule(starter)

    # --- ending -----------------------------------------------------------------------------------

    def kill(self, reason: ExitReason | None = None) -> None:
        """End the actor at its next checkpoint without asking it; `on_stop` does not run (OTP J05, Q02)."""
        if self.reason is not None:
            return
        if self.requested is None or reason is None:
            self.requested = reason if reason is not None else Killed()
        self.abrupt = True
        self.control = True
        if self.scope is not None:
            self.scope.cancel()
        else:
            self.wake()

    def shut_down(self, reason: ExitReason) -> None:
        """Ask the actor to stop as its supervisor does: in turn if it traps exits, else at once (OTP E02, E03)."""
        actor = self.actor
        traps = actor is not None and (actor.trap_exits or (actor.trap_exits is None and type(actor).__kind__.has_on_stop))
        if traps and self.phase != Phase.STARTING:
            self.put_stop(reason)
        else:
            self.kill(reason)

    def signal_exit(self, source: Cell, reason: ExitReason) -> None:
        """Take the exit of a linked actor (OTP J02–J05)."""
        if self.links is not None:
            self.links.pop(source, None)
        if self.actor is not None and self.actor.trap_exits:
            self.put_entry(Exit(source.ref, reason))
        elif not isinstance(reason, Normal):
            self.kill(reason)

    def task_ended(self, task: TaskRef, done: TaskDone) -> None:
        """Note that an owned task has ended."""
        if self.tasks is not None:
            self.tasks.pop(task, None)
        if self.phase == Phase.RUNNING:
            self.put_entry(done)
        elif not self.tasks:
            self.wake()

    def bury(self) -> None:
        """Announce the end: free the key first, then tell everybody, each once (OTP J10, J13).

        Runs in the actor's own task, or in its supervisor's if it never had one.
        """
        if self.reason is not None:
            return
        reason = self.requested or self.leaving or Killed()
        self.reason = reason
        self.phase = Phase.DEAD
        self.queue = None
        if self.task is not None and self.mode == Mode.BUSY:
            self.system.busy -= 1
        self.mode = Mode.BUSY
        if not self.ran and not self.ignored and self.start_error is None:
            self.start_error = ActorDown(self.label, reason)  # killed while it started
        if self.birth.key is not None:
            self.system.registrar.release(self.birth.key, self.ref)
        if isinstance(reason, Crashed) and self.start_error is None:
            self.system.report_crash(self, reason)
        self.system.forget(self)
        for timer in self.timers or ():
            timer.drop()
        if self.idle is not None:
            self.idle.cancel()
        for monitor in self.watching or ():
            target: Cell = monitor.target._cell
            if target.monitors is not None:
                target.monitors.pop(monitor, None)
        self._fail_asks(reason)
        for monitor in self.monitors or ():
            watcher: Cell = monitor.watcher
            watcher.deliver_down(Down(monitor, self.ref, reason))
        links, self.links = self.links, None
        for linked in links or ():
            linked.signal_exit(self, reason)
        if self.parent is not None and self.ran:
            self.parent.put_entry(ChildExit(self.ref, reason))
        for waiter in self.waiters or ():
            trio.lowlevel.reschedule(waiter)
        if self.system.telemetry.listeners:
            self.system.telemetry.tell(
                Exited(self.label, self.birth.key, self.parent.label if self.parent else None, reason)
            )
        self.release_starter()
        # Nothing of the dead actor may be kept alive by refs to it (BR-79).
        self.actor = self.context = self.box = self.calls = self.current = self.asked = self.held_reply = None
        self.timers = self.tasks = self.monitors = self.watching = self.waiters = self.owed = self.asking = None
        self.task = self.scope = self.nursery = None

    def detach(self, reason: ExitReason | None = None) -> None:
        """Announce the end of an actor whose task goes on, and let nothing reach it any more (OTP Q03).

        Its key is free, its ref is down, and what is sent to it is a dead letter. Its task, and those of what it
        supervises, stay in their nurseries until their code gives in; what they do meanwhile cannot be taken back.
        """
        if self.reason is not None:
            return
        for cell in tuple(self.system.actors):
            if cell.parent is self:
                cell.detach()
        if self.parent is not None:
            self.parent.leaked = True
        self.requested = reason if reason is not None else Killed()
        self.wake()
        self.bury()

    def deliver_down(self, down: Down) -> None:
        """Queue the one `Down` of a monitor."""
        if self.watching is not None and self.watching.pop(down.monitor, NOTHING) is not NOTHING:
            self.put_entry(down)

    def _fail_asks(self, reason: ExitReason) -> None:
        error = ActorDown(self.label, reason)
        if self.held_reply is not None:
            ask, value = self.held_reply
            ask.answer(value)
        if self.asked is not None and self.asked.task is not None:
            self.asked.fail(error)
        for ask in tuple(self.owed or ()):
            if ask.task is not None:
                ask.fail(error)
        for entry in self._leftovers():
            if type(entry) is SystemCall:
                if entry.ask.task is not None:
                    entry.ask.fail(error)
            else:
                self._refuse(entry, None, "unread")

    def _leftovers(self) -> Iterator[Any]:
        yield from self.calls or ()
        if isinstance(self.box, Mailbox):
            yield from self.box.close()
        else:
            yield from self.box or ()


def current_label() -> str | None:
    """Label of the actor whose code runs here, or None outside of actors."""
    cell = CURRENT.get()
    return cell.label if cell is not None else None
