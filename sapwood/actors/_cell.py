"""The cell: everything the kernel knows of one incarnation of one actor, apart from its loop."""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

import trio

from sapwood.actors._birth import Birth, Continue, Ignore, Refuse, Started
from sapwood.actors._burial import bury
from sapwood.actors._contexts import Values, bare_context, capture, context_for
from sapwood.actors._cycles import BLOCKED, CURRENT, stop_waiting, wait_for
from sapwood.actors._exits import ExitReason, Killed, Normal, Shutdown, contain, is_fatal
from sapwood.actors._inbox import NO_HANDLERS, NOTHING, Inbox, Phase
from sapwood.actors._mailbox import Envelope
from sapwood.actors._messages import Down, Exit, Monitor, TaskDone
from sapwood.actors._ref import Ref
from sapwood.actors._telemetry import Spawned
from sapwood.errors import ActorDown, InvalidMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sapwood.actors._actor import Actor
    from sapwood.actors._asks import Ask
    from sapwood.actors._debug import Debugging
    from sapwood.actors._handlers import Dispatch
    from sapwood.actors._idle import IdleTimeout
    from sapwood.actors._system import ActorSystem
    from sapwood.actors._tasks import TaskRef, Timer


class Cell(Inbox):
    """One incarnation of one actor: its life, on top of its inbox.

    Invariants: `parent.ran` and `nursery` hold until every child has ended. An actor that has ended keeps no object
    of the user's alive, apart from its key, its exit reason and the arguments of its birth (BR-79).
    """

    __slots__ = (
        "__weakref__", "abrupt", "actor", "aimed", "asked", "asking", "birth", "context", "continuation", "crash",
        "current", "debug", "dispatch", "enter", "fatal", "handled", "held_reply", "idle", "ignored", "incarnation",
        "info", "inline", "leaked", "leaving", "links", "monitors", "nursery", "owed", "parent", "plain", "ran", "ref",
        "requested", "scope", "start_error", "started_at", "starter", "stopping", "taken", "tasks", "timers", "waiters",
        "watching",
    )  # fmt: skip

    def __init__(self, system: ActorSystem, birth: Birth, parent: Cell | None, incarnation: int = 1) -> None:
        super().__init__(system, system.name_cell(birth), birth.key, birth.mailbox)
        self.birth = birth
        self.parent = parent
        self.incarnation = incarnation
        self.ref = Ref._create(self)
        self.actor: Actor | None = None
        self.dispatch: Dispatch | None = None
        # Handlers that the loop, and an asking caller, may call straight away.
        self.plain: Mapping[type, Any] = NO_HANDLERS
        self.inline: Mapping[type, Any] = NO_HANDLERS
        # Calls a plain handler as this actor while its task waits.
        self.enter: Any = None
        self.context: Context | None = None
        self.scope: trio.CancelScope | None = None
        self.nursery: trio.Nursery | None = None
        self.abrupt = False
        self.ignored = False
        self.ran = False
        self.current: Any = None
        # The ask being handled; while its caller runs the handler, the bare request: `reply_later` makes `taken` of it.
        self.asked: Any = None
        self.taken: Ask | None = None
        self.held_reply: tuple[Ask, Any] | None = None
        self.continuation: Any = NOTHING
        self.idle: IdleTimeout | None = None
        self.handled = 0
        self.started_at = 0.0
        self.info: Any = None
        # Whether a child of it was detached and may still hold its nursery open.
        self.leaked = False
        # How it ends: `requested` by others, `stopping` by itself, `crash` or `fatal` while a caller ran its handler.
        self.requested: ExitReason | None = None
        self.stopping: ExitReason | None = None
        self.crash: ExitReason | None = None
        self.fatal: BaseException | None = None
        self.leaving: ExitReason | None = None
        self.start_error: Exception | None = None
        self.starter: trio.lowlevel.Task | None = None
        # Tables that most actors never need are made on first use.
        self.asking: list[Cell] | None = None
        self.owed: dict[Ask, None] | None = None
        self.monitors: dict[Monitor, None] | None = None
        self.watching: dict[Monitor, None] | None = None
        self.links: dict[Cell, None] | None = None
        self.tasks: dict[TaskRef, None] | None = None
        self.timers: dict[Timer, None] | None = None
        self.aimed: dict[Timer, None] | None = None
        self.waiters: dict[trio.lowlevel.Task, None] | None = None
        self.debug: Debugging | None = None

    # --- birth ------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Claim the key and make the actor; say whether it runs already, with no need to wait for `on_start`.

        Runs in the supervisor's task. A failure is left in `start_error`, if it is known already; then the end has
        been announced, unless tasks that the actor had started must end first.

        Raises:
            AlreadyRegistered: if another live actor holds the key; nothing has happened then (OTP K01).
            RegistryUnavailable: if the registry cannot tell; nothing has happened then.
        """
        if self.key is not None:
            self.system.registrar.claim(self.key, self.ref)
        self.context = context = copy_context()
        context.run(CURRENT.set, self)
        context.run(BLOCKED.set, self)
        try:
            actor = context.run(self._make)
            if not type(actor).__kind__.waits_to_start:
                self.settle(context.run(actor.on_start))
        except Exception as error:
            if is_fatal(error):
                bury(self)
                raise
            self.fail_start(error)
        except BaseException:
            bury(self)
            raise
        if self.leaving is not None and not self.tasks:
            bury(self)
        return self.phase == Phase.RUNNING

    def _make(self) -> Actor:
        self.actor = actor = self.birth.make(self)
        self.dispatch = dispatch = type(actor).__dispatch__
        self.direct = dispatch.direct
        self.choose_paths()
        options = type(actor).mailbox
        if self.options is None and options is not None:
            self.set_options(options)
        return actor

    def choose_paths(self) -> None:
        """Offer the fast paths to the loop and to asking callers, where nothing has to be seen on the way."""
        if self.dispatch is not None:
            carries = bool(self.system.propagate)
            self.plain = self.dispatch.plain if self.debug is None and not carries else NO_HANDLERS
            self.inline = self.dispatch.inline if self.debug is None and self.idle is None else NO_HANDLERS
            self.control = True

    def settle(self, result: Any) -> None:
        """Take what `on_start` returned: run, or leave again.

        Raises:
            InvalidMessage: if it is nothing that `on_start` may return.
        """
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
                self.continuation = (result.token, None)
            self._run()
        else:
            if hasattr(result, "close"):
                result.close()  # a coroutine, of a hook that is not declared as one
            raise InvalidMessage(
                f"on_start of {self.label}: expected None, Continue(token), Ignore(), Refuse(reason) or Started(info); "
                f"got {result!r}"
            )

    def _run(self) -> None:
        self.phase = Phase.RUNNING
        self.ran = True
        self.control = True
        self.started_at = self.system.environment.monotonic()
        self.open_queue()
        if Spawned in self.system.telemetry.wanted:
            self.system.telemetry.tell(Spawned(self.label, self.key, self.parent_label))

    def fail_start(self, error: Exception, reason: ExitReason | None = None) -> None:
        """Note that starting failed; the starter gets `error`, the exit reason is `reason` or the crash."""
        self.leaving = reason if reason is not None else contain(error)
        self.start_error = error

    async def wait_started(self) -> None:
        """Wait until the actor runs or has ended; for the one task that starts it."""
        if self.reason is None and self.phase == Phase.STARTING:
            self.starter = trio.lowlevel.current_task()
            caller = wait_for(self)

            def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
                self.starter = None
                return trio.lowlevel.Abort.SUCCEEDED

            try:
                await trio.lowlevel.wait_task_rescheduled(abort)
            finally:
                stop_waiting(caller, self)

    def release_starter(self) -> None:
        """Let the starting task go on."""
        if self.starter is not None:
            starter, self.starter = self.starter, None
            trio.lowlevel.reschedule(starter)

    def enter_task(self) -> None:
        """Note in which task, and in which context, the actor runs."""
        self.task = task = trio.lowlevel.current_task()
        if not self.system.propagate:
            self.enter = task.context.run
        else:
            self.context = bare_context(self.system.propagate)
            self.enter = self._enter_carrying

    def _enter_carrying(self, function: Callable[..., Any], *args: Any) -> Any:
        values = capture(self.system.propagate)
        return self.context_for(values).run(function, *args)

    def context_for(self, values: Values | None) -> Context:
        """Make the context in which one callback runs, where context is carried."""
        assert self.context is not None
        return context_for(self.context, self.system.propagate, values)

    @property
    def parent_label(self) -> str | None:
        """Label of the supervisor, or None."""
        return self.parent.label if self.parent is not None else None

    @property
    def supervises(self) -> bool:
        """Whether it owns a nursery for children."""
        return self.actor is not None and type(self.actor).__kind__.supervises

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

    @property
    def traps_exits(self) -> bool:
        """Whether exits of linked actors come as messages."""
        return self.actor is not None and bool(self.actor.trap_exits)

    def shut_down(self, reason: ExitReason) -> None:
        """Ask the actor to stop as its supervisor does: in turn if it traps exits, else at once (OTP E02, E03)."""
        actor = self.actor
        in_turn = self.traps_exits or (
            actor is not None and actor.trap_exits is None and type(actor).__kind__.has_on_stop
        )
        if in_turn and self.phase != Phase.STARTING:
            self.put_stop(reason)
        else:
            self.kill(reason)

    def signal_exit(self, source: Cell | None, reason: ExitReason | None) -> None:
        """Take an exit signal (OTP J02–J06, J14); `source` is None for one from outside of actors."""
        if self.traps_exits:
            if source is not None and source is self.parent:
                self.put_stop(reason if reason is not None else Normal())
            else:
                self.put_entry(Exit((source or self).ref, reason))
        elif not isinstance(reason, Normal) or source is self:
            self.kill(reason)

    async def wait_ended(self) -> None:
        """Wait until the end of this live actor has been announced."""
        task = trio.lowlevel.current_task()
        if self.waiters is None:
            self.waiters = {}
        self.waiters[task] = None

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            if self.waiters is not None:
                self.waiters.pop(task, None)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def task_ended(self, task: TaskRef, done: TaskDone) -> None:
        """Note that an owned task has ended."""
        if self.tasks is not None:
            self.tasks.pop(task, None)
        if self.phase in (Phase.STARTING, Phase.RUNNING):
            self.put_entry(done)  # of one that ends before its actor has started, too
        else:
            self.wake()

    def bury(self) -> None:
        """Announce the end: free the key first, then tell everybody, each once (OTP J10, J13)."""
        bury(self)

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
        # Should its code give in, it handles nothing more of what it had before it.
        self.abrupt = self.control = True
        for task in tuple(self.tasks or ()):
            task.cancel()
        self.wake()
        bury(self)

    def unhandled(self, message: Any) -> None:
        """Make a message without a handler a dead letter."""
        envelope = self.current
        if isinstance(envelope, Envelope) and envelope.message is message:
            self.dead_letter(message, envelope.sender, "unhandled", envelope.values)
        else:
            self.dead_letter(message, None, "unhandled")

    def deliver_down(self, down: Down) -> None:
        """Queue the one `Down` of a monitor."""
        if self.watching is not None and self.watching.pop(down.monitor, NOTHING) is not NOTHING:
            self.put_entry(down)
