"""The registry: who holds which key, and the honest answer where that is not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from threading import get_ident
from typing import Final, TypeVar, cast

import attrs
import trio

from sapwood.actors import ActorSystem, DeadLetter, LookupUnavailable, Ref, Request, check_message
from sapwood.errors import ActorDown, AlreadyStarted, InvalidChildSpec, RegistryUnavailable, StartError
from sapwood.registry._backend import Holder, PartitionState, RegistryBackend
from sapwood.registry._flights import Flights, Outcome
from sapwood.registry._keys import PLAIN, Key, check_key
from sapwood.registry._lookup import Lookup, NotRunning, Running, Unavailable, UnavailableReason
from sapwood.supervision import ChildSpec, start_child

T = TypeVar("T")

KNOWN: Final[frozenset[str]] = frozenset({"starting", "draining", "registry_down", "recovering", "unreachable"})


@attrs.frozen
class RegistryStatistics:
    """A snapshot of the registry.

    Attributes:
        partitions: State of each partition, in order: `starting`, `up`, `recovering` or `down`.
        keys: Keys held in partitions that are up.
        starting: Keys for which a `get_or_start` is under way.
        draining: Whether the runtime is stopping.
    """

    partitions: tuple[PartitionState, ...]
    keys: int
    starting: int
    draining: bool


class Registry:
    """Says what runs under a key, with three answers; starts at most one actor for each key.

    What runs, and whether that is known, is the business of the backend. This class adds what holds for every
    backend: one start at a time for a key, the refusal of everything while the runtime is stopping, and forms that
    raise where there is no room for the third answer (S4-046). Keys are given in child specs
    (`child(Account, key=("account", 1))`) and held as long as the actor lives.

    All methods must be called in the thread of the runtime.

    Args:
        system: The actors whose keys these are.
        backend: Where keys are kept.
        home: Returns the supervisor for actors that are started without naming one; None while there is none.
    """

    def __init__(
        self, system: ActorSystem, backend: RegistryBackend, *, home: Callable[[], Ref | None] = lambda: None
    ) -> None:
        self.backend: Final = backend
        """Where keys are kept."""
        self._system = system
        self._home = home
        self._flights = Flights(system.nursery)
        self._draining = False
        self._table: Mapping[Key, Holder] = backend.table

    # --- lookups ----------------------------------------------------------------------------------

    def lookup_nowait(self, key: Key) -> Lookup[Ref]:
        """Say what runs under a key as far as it is known in this process, at once and without a task switch.

        An actor is found from the moment its key is claimed, before its `on_start`; what is sent to it then waits
        until it has started (OTP K02).

        Raises:
            InvalidKey: if `key` is no typed tuple.
        """
        try:
            holder = self._table.get(key)
        except TypeError:
            holder = None  # it cannot be hashed; the backend says what is wrong with it
        if holder is not None and holder.owner.reason is None:
            if holder.text:
                return holder.running
            for part in key:
                if type(part) not in PLAIN:
                    break
            else:
                return holder.running
        found = Unavailable("draining") if self._draining else self.backend.lookup_nowait(key)
        if self._draining:
            check_key(key)
        return self._told(key, found) if type(found) is Unavailable else found

    async def lookup(self, key: Key) -> Lookup[Ref]:
        """Say what runs under a key, asking elsewhere if the backend keeps keys elsewhere.

        Raises:
            InvalidKey: if `key` is no typed tuple.
        """
        check_key(key)
        found = await self.backend.lookup(key)
        if self._draining:
            found = Unavailable("draining")
        return self._told(key, found) if isinstance(found, Unavailable) else found

    def whereis(self, key: Key) -> Ref | None:
        """Return the actor that holds a key, or None if the registry answered that nothing runs.

        Raises:
            RegistryUnavailable: if the registry cannot tell (S4-046).
            InvalidKey: if `key` is no typed tuple.
        """
        match self.lookup_nowait(key):
            case Running(ref):
                return ref
            case NotRunning():
                return None
            case Unavailable() as unavailable:
                raise _error(f"look up {key!r}", unavailable)

    def running(self, kind: str | None = None) -> dict[Key, Ref]:
        """Return all live actors with a key, or those whose key begins with `kind` (S4-043).

        Raises:
            RegistryUnavailable: if any part of the registry cannot tell; an incomplete list would look like "nothing
                there" (S4-046).
        """
        if self._draining:
            raise RegistryUnavailable("list what runs", "draining")
        return {key: ref for key, ref in self.backend.running().items() if kind is None or key[0] == kind}

    def statistics(self) -> RegistryStatistics:
        """Return a snapshot of the registry; never raises."""
        backend = self.backend.statistics()
        return RegistryStatistics(backend.partitions, backend.keys, len(self._flights), self._draining)

    @property
    def available(self) -> bool:
        """Whether every lookup can be answered now."""
        return not self._draining and self.backend.available

    # --- messages ---------------------------------------------------------------------------------

    def tell(self, key: Key, message: object) -> None:
        """Send a message to whatever holds a key; if nothing does, it becomes a dead letter (OTP K10, K19).

        Raises:
            RegistryUnavailable: if the registry cannot tell; nothing was sent.
            InvalidKey: if `key` is no typed tuple.
            InvalidMessage, MailboxFull: as `Ref.tell`.
        """
        check_message(message)
        ref = self.whereis(key)
        if ref is not None:
            ref.tell(message)
        else:
            at = self._system.environment.wall()
            self._system.telemetry.tell(DeadLetter(repr(key), key, message, None, "dead", at))

    async def ask(self, key: Key, request: Request[T], *, timeout: float | None = 5.0) -> T:
        """Ask whatever holds a key (OTP K10).

        Raises:
            ActorDown: if nothing does (OTP K19), or it ends before it answers.
            RegistryUnavailable: if the registry cannot tell; nothing was sent.
            InvalidKey: if `key` is no typed tuple.
            AskTimeout, SelfAsk, AskCycle, MailboxFull, InvalidMessage: as `Ref.ask`.
        """
        match await self.lookup(key):
            case Running(ref):
                return await ref.ask(request, timeout=timeout)
            case NotRunning():
                raise ActorDown(repr(key))
            case Unavailable() as unavailable:
                raise _error(f"ask {key!r}", unavailable)

    # --- starting ---------------------------------------------------------------------------------

    async def get_or_start(self, key: Key, spec: ChildSpec, *, under: Ref | None = None) -> Running[Ref] | Unavailable:
        """Return the actor that holds a key, starting it if the registry answers that nothing does (S4-047).

        All callers that come while one start is under way get its outcome, its failure included (BR-08), whatever
        spec they bring. The start goes on if the caller that caused it is cancelled. A start that is refused because
        the registry cannot tell leaves nothing behind. A supervisor that is dead counts as one that is being
        restarted: the answer is `Unavailable("recovering")`.

        Args:
            key: The key; it replaces the one in `spec`.
            spec: How to start it.
            under: The supervisor to start it under; None for the registry's home, the supervisor of agents.

        Raises:
            ChildFailed, StartTimeout, MaxChildren: if it fails to start; nothing of it is left, and the key is free.
            StartError: if its `on_start` returned `Ignore()`.
            ActorDown: if it was started and has ended again already.
            AlreadyStarted, AlreadyPresent: if `under` has another child with the id in `spec`.
            InvalidKey: if `key` is no typed tuple.
            InvalidChildSpec: if `spec` is none, or `under` cannot have such a child.
            WrongThread: if called outside the runtime's thread.
        """
        check_key(key)
        if not isinstance(spec, ChildSpec):
            raise InvalidChildSpec("spec", "a spec made with child(...)", spec)
        if get_ident() != self._system.thread:
            raise self._system.wrong_thread(f"get_or_start {key!r}", "runtime.portal")
        await trio.lowlevel.checkpoint()
        # Flights first: an actor that is still starting is found by lookups, and may yet fail.
        flight = self._flights.get(key)
        if flight is None:
            found = await self.lookup(key)
            if not isinstance(found, NotRunning):
                return found
            flight = self._flights.get(key) or self._flights.launch(key, partial(self._start, key, spec, under))
        await flight.done.wait()
        outcome = flight.result()
        if isinstance(outcome, Unavailable) or outcome.ref.alive:
            return outcome
        # It has ended since; whoever restarted it has the key now.
        found = self.lookup_nowait(key)
        if isinstance(found, NotRunning):
            raise ActorDown(outcome.ref.label, outcome.ref.exit_reason)
        return found

    async def _start(self, key: Key, spec: ChildSpec, under: Ref | None) -> Outcome:
        spec = attrs.evolve(spec, birth=attrs.evolve(spec.birth, key=key))
        while True:
            supervisor = under if under is not None else self._home()
            if supervisor is None:
                return Unavailable("draining" if self._draining else "starting")
            try:
                ref = await start_child(supervisor, spec)
            except AlreadyStarted as taken:
                found = self.lookup_nowait(key)
                if not isinstance(found, NotRunning):
                    return found
                if taken.ref.key != key:
                    raise  # the id is taken, and not by an actor with this key
                await trio.lowlevel.checkpoint()
            except RegistryUnavailable as unavailable:
                return _unavailable(unavailable)
            except ActorDown:
                return Unavailable("draining" if self._draining else "recovering")
            else:
                if ref is None:
                    raise StartError(f"get_or_start {key!r}: its on_start returned Ignore(), so nothing runs")
                return Running(ref)

    def drain(self) -> None:
        """Answer `Unavailable("draining")` from now on, until the end, and start nothing (S4-056, BR-07).

        What runs keeps its keys, and its supervisors may still restart it.
        """
        self._draining = True
        self._table = {}

    # --- for the kernel ---------------------------------------------------------------------------

    def claim(self, key: object, ref: Ref) -> None:
        """Give a key to an actor that is about to be made; see `RegistryBackend.claim`."""
        self.backend.claim(cast("Key", key), ref)

    def release(self, key: object, ref: Ref) -> None:
        """Take a key back from an actor that has ended; see `RegistryBackend.release`."""
        self.backend.release(cast("Key", key), ref)

    def _told(self, key: Key, unavailable: Unavailable) -> Unavailable:
        self._system.telemetry.tell(LookupUnavailable(key, unavailable.reason))
        return unavailable


def _error(operation: str, unavailable: Unavailable) -> RegistryUnavailable:
    return RegistryUnavailable(operation, unavailable.reason, unavailable.retry_after)


def _unavailable(error: RegistryUnavailable) -> Unavailable:
    reason = error.reason if error.reason in KNOWN else "unreachable"
    return Unavailable(cast("UnavailableReason", reason), error.retry_after)
