"""The actor system: what all actors of one runtime share, and the root that starts the first of them."""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

import attrs
import trio

from sapwood.actors._actor import Actor
from sapwood.actors._bare import single_exceptions_bare
from sapwood.actors._birth import Birth
from sapwood.actors._cell import Cell
from sapwood.actors._contexts import check_variables
from sapwood.actors._deadlines import Deadlines
from sapwood.actors._environment import Environment, RealEnvironment
from sapwood.actors._mailbox import MailboxOptions
from sapwood.actors._portal import Portal
from sapwood.actors._ref import Ref
from sapwood.actors._start import start
from sapwood.actors._telemetry import Telemetry
from sapwood.errors import AlreadyRegistered, InvalidOption, RuntimeClosed, StartError, WrongThread

_FORKED: Final = -1


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
        propagate: Context variables whose values travel with messages (BR-70).
        portal: The way in from other threads.
        closed: Whether the system has stopped.
        thread: The thread that runs it.
    """

    def __init__(
        self, environment: Environment, nursery: trio.Nursery, propagate: Sequence[ContextVar[Any]] = ()
    ) -> None:
        self.environment = environment
        self.propagate = check_variables(propagate)
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
        self.portal = Portal(self)
        _systems.add(self)

    def name_cell(self, birth: Birth) -> str:
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
        if self.forked:
            return WrongThread(
                f"{what}: this process was forked from the one that runs the actors; open its own runtime"
            )
        if self.closed:
            return RuntimeClosed(f"{what}: the runtime has stopped")
        return WrongThread(f"{what}: expected the thread that runs the runtime; from others write   {instead}")

    @property
    def forked(self) -> bool:
        """Whether this process was forked from the one that runs the system."""
        return self.thread == _FORKED

    def check_thread(self, what: str, instead: str) -> None:
        """Refuse a call from outside the runtime's thread (BR-76).

        Raises:
            WrongThread: saying what to write instead.
            RuntimeClosed: if the runtime has stopped.
        """
        if threading.get_ident() != self.thread:
            raise self.wrong_thread(what, instead)

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

    def close(self) -> None:
        """Refuse new actors and calls through the portal, and kill what still runs."""
        self.closed = True
        for cell in tuple(self.actors):
            cell.kill()
        self.portal.close()

    def forget(self, cell: Cell) -> None:
        """Drop a dead actor from the tables."""
        self.actors.pop(cell, None)


@asynccontextmanager
async def open_system(
    environment: Environment | None = None, *, propagate: Sequence[ContextVar[Any]] = ()
) -> AsyncGenerator[ActorSystem]:
    """Open an actor system without supervision; leaving the block kills what still runs.

    Use `open_runtime` for anything but kernel tests and tools. An exception that leaves the block comes out as it is,
    not wrapped in a group.

    Args:
        environment: Time, randomness, ids and threads; None for the real world.
        propagate: Context variables whose values travel with each message (tells, asks, timers, tasks, calls through
            the portal) into the callback that takes it, and into dead letters. Each callback then runs in a copy of
            its actor's context, so that nothing it sets leaks into the next one. Without any, callbacks run in their
            actor's own context, and messages take a shorter path (BR-70).

    Raises:
        InvalidOption: if the environment is none, or `propagate` holds something else than context variables.
    """
    if environment is not None and not hasattr(environment, "stopwatch"):
        raise InvalidOption(f"open_system: expected an Environment; got {environment!r}")
    with single_exceptions_bare():
        async with trio.open_nursery() as nursery:
            system = ActorSystem(environment or RealEnvironment(), nursery, propagate)
            nursery.start_soon(system.deadlines.run, name="sapwood deadlines")
            try:
                yield system
            finally:
                system.close()
                nursery.cancel_scope.cancel()


def _after_fork() -> None:
    for system in tuple(_systems):
        system.thread = _FORKED


os.register_at_fork(after_in_child=_after_fork)
