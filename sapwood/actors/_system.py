"""The actor system: what all actors of one runtime share, and the root that starts the first of them."""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import attrs
import trio

from sapwood.actors import _loop
from sapwood.actors._actor import Actor
from sapwood.actors._cell import Birth, Cell, Phase
from sapwood.actors._deadlines import Deadlines
from sapwood.actors._environment import Environment, RealEnvironment
from sapwood.actors._exits import Crashed
from sapwood.actors._mailbox import Envelope, MailboxOptions
from sapwood.actors._asks import Ask
from sapwood.actors._ref import Ref
from sapwood.actors._telemetry import CrashReport, Telemetry
from sapwood.errors import AlreadyRegistered, InvalidOption, RuntimeClosed, StartError, StartTimeout, WrongThread


class Registrar(Protocol):
    """All that the kernel knows of names."""

    def claim(self, key: object, ref: Ref) -> None:
        """Give the key to the actor, before its `__init__` runs.

        Raises:
            AlreadyRegistered: if another live actor holds it.
            RegistryUnavailable: if the registry cannot tell.
        """
        ...

    def release(self, key: object, ref: Ref) -> None:
        """Take the key back from an actor that ends; never raises."""
        ...


class PlainRegistrar:
    """One dict; for a kernel without a registry."""

    def __init__(self) -> None:
        self.table: dict[object, Ref] = {}

    def claim(self, key: object, ref: Ref) -> None:
        holder = self.table.setdefault(key, ref)
        if holder is not ref:
            raise AlreadyRegistered(key, holder)

    def release(self, key: object, ref: Ref) -> None:
        if self.table.get(key) is ref:
            del self.table[key]


@attrs.frozen
class SystemStatistics:
    """A snapshot of an actor system.

    Attributes:
        actors: Live actors.
        deadlines: Pending time-outs and timers.
        late_replies: Answers that came after their caller had given up; all were dropped.
        dead_letters: Messages that nobody handled, since the start.
    """

    actors: int
    deadlines: int
    late_replies: int
    dead_letters: int


_systems: weakref.WeakSet[ActorSystem] = weakref.WeakSet()


class ActorSystem:
    """Shared state of the actors of one runtime; use `open_system`.

    Attributes:
        environment: Time, randomness, ids, threads.
        telemetry: What happens in the system.
        registrar: Where keys are claimed.
        nursery: Root nursery, for actors without a supervisor (OTP Q11).
    """

    def __init__(self, environment: Environment, nursery: trio.Nursery) -> None:
        self.environment = environment
        self.nursery = nursery
        self.telemetry = Telemetry()
        self.registrar: Registrar = PlainRegistrar()
        self.deadlines = Deadlines()
        self.thread = threading.get_ident()
        self.token = trio.lowlevel.current_trio_token()
        self.busy = 1
        self.inline_asks = 0
        self.late_replies = 0
        self.actors: dict[Cell, None] = {}
        self.closed = False
        self._labels: Counter[str] = Counter()
        _systems.add(self)

    def label(self, birth: Birth) -> str:
        """Name a new incarnation for logs."""
        if birth.key is not None:
            return f"{birth.title or birth.name}({birth.key!r})"
        if birth.title:
            return birth.title
        self._labels[birth.name] += 1
        return f"{birth.name}#{self._labels[birth.name]}"

    def statistics(self) -> SystemStatistics:
        """Return a snapshot of the counters."""
        return SystemStatistics(
            len(self.actors), len(self.deadlines), self.late_replies, self.telemetry.dead_letter_count
        )

    def wrong_thread(self, what: str, instead: str) -> WrongThread | RuntimeClosed:
        """Build the error for a call from outside the runtime's thread."""
        if self.thread == _FORKED:
            return WrongThread(f"{what}: this process was forked from the one that runs the actors; open a runtime of its own")
        if self.closed:
            return RuntimeClosed(f"{what}: the runtime has stopped")
        return WrongThread(f"{what}: expected the thread that runs the runtime; from others write   {instead}")

    async def spawn(
        self,
        factory: Callable[..., Actor],
        *args: Any,
        key: object = None,
        mailbox: MailboxOptions | None = None,
        **kwargs: Any,
    ) -> Ref:
        """Start an actor without a supervisor; it lives until it ends or the system closes.

        Raises:
            StartError: if it fails to start; nothing of it is left then.
        """
        cell = Cell(self, Birth(factory, args, kwargs, key, mailbox), None)
        await start(cell, self.nursery)
        if cell.ignored:
            raise StartError(f"{cell.label}: on_start returned Ignore(), so there is nothing to refer to")
        return cell.ref

    def forget(self, cell: Cell) -> None:
        """Drop a dead actor from the tables."""
        self.actors.pop(cell, None)

    def report_crash(self, cell: Cell, reason: Crashed) -> None:
        """Tell listeners what was going on when an actor crashed; the formatting hook must not hide the crash (OTP O07)."""
        if not self.telemetry.listeners or cell.actor is None:
            return
        try:
            state = cell.actor.format_state()
        except Exception as error:
            state = f"<format_state failed: {type(error).__name__}>"
        current = cell.current
        if type(current) is Ask:
            current = current.request
        elif type(current) is Envelope:
            current = current.message
        self.telemetry.tell(
            CrashReport(
                actor=cell.label,
                key=cell.birth.key,
                parent=cell.parent.label if cell.parent is not None else None,
                reason=reason,
                last_message=type(current).__name__ if current is not None else None,
                state=state,
                mailbox=len(cell.box or ()),
                incarnation=cell.incarnation,
            )
        )


async def start(cell: Cell, nursery: trio.Nursery, timeout: float | None = None) -> None:
    """Start an actor in a nursery and wait until it runs; afterwards `cell.ignored` may be True.

    Runs in the task of its supervisor. When this raises, the actor is gone and its key is free (OTP A05).

    Raises:
        AlreadyRegistered: if its key is taken.
        RegistryUnavailable: if the registry cannot tell.
        StartTimeout: if `on_start` takes longer than `timeout` seconds (OTP I05).
        Exception: whatever made it fail.
    """
    if not start_nowait(cell, nursery):
        with trio.move_on_after(float("inf") if timeout is None else timeout) as limit:
            await cell.wait_started()
        if limit.cancelled_caught and cell.phase == Phase.STARTING:
            cell.kill()
            with trio.CancelScope(shield=True):
                await cell.ref.wait_stopped()
            raise StartTimeout(cell.label, timeout or 0.0)
    if cell.start_error is not None:
        raise cell.start_error


def start_nowait(cell: Cell, nursery: trio.Nursery) -> bool:
    """Begin to start an actor; True if it runs or has failed already, False if `wait_started` must be awaited."""
    system = cell.system
    if system.closed:
        raise RuntimeClosed(f"cannot start {cell.label}: the runtime has stopped")
    running = cell.begin()
    if cell.reason is not None:
        return True
    system.actors[cell] = None
    assert cell.context is not None
    cell.context.run(_start_task, nursery, cell)
    return running


def _start_task(nursery: trio.Nursery, cell: Cell) -> None:
    nursery.start_soon(_loop.run, cell, name=cell.label)


@asynccontextmanager
async def open_system(environment: Environment | None = None) -> AsyncIterator[ActorSystem]:
    """Open an actor system without supervision; leaving the block kills what still runs.

    Use `open_runtime` for anything but kernel tests and tools.
    """
    if environment is not None and not hasattr(environment, "stopwatch"):
        raise InvalidOption(f"open_system: expected an Environment; got {environment!r}")
    async with trio.open_nursery() as nursery:
        system = ActorSystem(environment or RealEnvironment(), nursery)
        nursery.start_soon(system.deadlines.run, name="sapwood deadlines")
        try:
            yield system
        finally:
            system.closed = True
            for cell in tuple(system.actors):
                cell.kill()
            nursery.cancel_scope.cancel()


_FORKED = -1


def _after_fork() -> None:
    for system in tuple(_systems):
        system.thread = _FORKED


os.register_at_fork(after_in_child=_after_fork)
