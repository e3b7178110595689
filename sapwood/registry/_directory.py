"""Directories: actors register themselves under any number of keys, each time with a value."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from threading import get_ident
from typing import TypeVar

from sapwood.actors import ActorSystem, LookupUnavailable, Ref, current_actor
from sapwood.errors import ActorDown, AlreadyStarted, InvalidOption, NotRunningInside, RegistryUnavailable
from sapwood.registry._backend import PartitionState
from sapwood.registry._directory_owner import DirectoryOwner
from sapwood.registry._directory_reads import DirectoryReads, check_function
from sapwood.registry._key_locks import KeyLocks
from sapwood.registry._keys import Key, check_key
from sapwood.registry._local import REASONS
from sapwood.registry._registrations import Registered, Registration, Table, Unregistered
from sapwood.supervision import ChildSpec, child

V = TypeVar("V")


class Directory(DirectoryReads[V]):
    """What unique and duplicate directories have in common; make one of those.

    A directory is made first and given to those who use it; `child_spec()` puts the actor that owns its table into
    a tree, before the actors that register themselves. It is no `Registry`: there the runtime claims the one key of
    an actor before that is made, here actors register themselves as they like.

    Registering, unregistering and listening always concern the actor whose code makes the call (OTP K09), tasks that
    it started included. Everything but `lock` is synchronous and must be called in the thread of the runtime.

    When the table is lost because its owner ends, however it does, so do the actors that stand in it, with the
    owner's exit reason; those that trap exits get an `Exit` from `ref` instead and have lost every registration (OTP
    K17, K18). The next owner begins with an empty table and answers once those that must end have ended.

    | `state`      | lookups and registrations                                                     |
    |--------------|-------------------------------------------------------------------------------|
    | `starting`   | `RegistryUnavailable`: no owner has started yet                               |
    | `up`         | answered                                                                      |
    | `down`       | `RegistryUnavailable`: the owner has ended, and is not back yet               |
    | `recovering` | `RegistryUnavailable`: some that stood in the lost table have yet to end      |

    Args:
        name: Its name in the tree, in errors and in notices.

    Raises:
        InvalidOption: if it is no text, or empty.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidOption(f"name of a directory: expected text that is not empty; got {name!r}")
        self.name = name
        self._owner: DirectoryOwner[V] | None = None
        # Those that end because a table was lost in which they stood.
        self._ending: list[Ref] = []
        self._listeners: dict[Ref, None] = {}
        # Locks have holders that outlive an owner, so they do so as well.
        self._locks = KeyLocks()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} ({self.state})>"

    # --- the owner --------------------------------------------------------------------------------

    def child_spec(self) -> ChildSpec:
        """Describe the actor that owns the table; its id is the directory's name."""
        return child(DirectoryOwner, self._attach, id=self.name)

    @property
    def state(self) -> PartitionState:
        """Whether it can answer now, and if not, why."""
        if self._owner is None:
            return "starting"
        if self._owner._cell.reason is not None:
            return "down"
        while self._ending and not self._ending[-1].alive:
            self._ending.pop()
        return "recovering" if self._ending else "up"

    @property
    def ref(self) -> Ref:
        """The actor that owns the table, to be monitored; each time that is restarted, another one.

        Raises:
            RegistryUnavailable: if none has started yet.
        """
        if self._owner is None:
            raise self._unavailable("find the owner", None, "starting")
        return self._owner._cell.ref

    def _attach(self, owner: DirectoryOwner[V]) -> None:
        """Let a new owner answer, once what stood in the last one's table has ended.

        Raises:
            AlreadyStarted: if the last one lives; a directory stands in one place of one tree.
        """
        last = self._owner
        if last is not None:
            if last._cell.reason is None:
                raise AlreadyStarted(self.name, last._cell.ref)
            # Those that trap exits have been told; the others were killed by the link.
            self._ending += [ref for ref in last.table.holders if ref.alive and ref._cell.abrupt]
        self._owner = owner

    # --- registering ------------------------------------------------------------------------------

    def register(self, key: Key, value: V) -> Registration[V]:
        """Register the calling actor under a key, as long as it lives.

        Raises:
            AlreadyRegistered: if the directory is unique and a live actor holds the key, be it the same one (OTP K04).
            RegistryUnavailable: if the directory cannot tell; nothing was entered.
            InvalidKey: if `key` is no typed tuple (OTP K06).
            NotRunningInside: if called outside of actors.
            ActorDown: if the actor has ended and only its code goes on (OTP K03).
            WrongThread: if called outside the runtime's thread.
        """
        ref = self._caller("register")
        owner = self._up("register", check_key(key))
        self._check_free(key, owner.table.at(key))
        registration = Registration(key, ref, value)
        owner.enter(registration)
        self._tell(Registered(self.name, registration))
        return registration

    @abstractmethod
    def _check_free(self, key: Key, held: list[Registration[V]]) -> None:
        """Refuse a key that cannot be registered once more, beside what live actors have under it."""

    def unregister(self, key: Key) -> int:
        """Remove all that the calling actor has under a key; return how many that were, 0 if none (OTP K11).

        Raises:
            RegistryUnavailable, InvalidKey, NotRunningInside, ActorDown, WrongThread: as `register`.
        """
        return self.unregister_match(key, lambda _value: True)

    def unregister_match(self, key: Key, predicate: Callable[[V], bool]) -> int:
        """Remove what the calling actor has under a key with a value that fits; return how many that were (OTP K12).

        Raises:
            InvalidOption: if `predicate` is no plain function.
            RegistryUnavailable, InvalidKey, NotRunningInside, ActorDown, WrongThread: as `register`.
        """
        check_function("unregister_match", "predicate", predicate)
        ref = self._caller("unregister")
        owner = self._up("unregister", check_key(key))
        fitting = [registration for registration in owner.table.held(key, ref) if predicate(registration.value)]
        removed = [registration for registration in fitting if registration in owner.table]
        for registration in removed:
            owner.remove(registration)
            self._tell(Unregistered(self.name, registration))
        return len(removed)

    # --- listeners --------------------------------------------------------------------------------

    def listen(self) -> None:
        """Have the calling actor told of what is registered and unregistered from now on, as long as it lives.

        It gets `Registered` and `Unregistered` as messages, in the order in which things happened. Of what goes
        because an actor has ended it is not told: whoever must know monitors that actor (OTP K16). Listening goes on
        when the directory is restarted; that registrations were lost with it is seen by monitoring `ref`.

        Raises:
            NotRunningInside, ActorDown, WrongThread: as `register`.
        """
        ref = self._caller("listen")
        self._listeners = {listener: None for listener in self._listeners if listener.alive}
        self._listeners[ref] = None

    def stop_listening(self) -> None:
        """Tell the calling actor nothing more; what waits in its mailbox stays there.

        Raises:
            NotRunningInside, ActorDown, WrongThread: as `register`.
        """
        self._listeners.pop(self._caller("stop listening"), None)

    def _tell(self, event: Registered | Unregistered) -> None:
        for listener in tuple(self._listeners):
            if listener.alive:
                listener._cell.put_entry(event)
            else:
                del self._listeners[listener]

    # --- locks ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def lock(self, key: Key) -> AsyncGenerator[None]:
        """Hold the lock of a key, which the calling task alone has inside the block; others wait in turn (OTP K20).

        `async with directory.lock(("refund", 17)): ...`. Locks have nothing to do with what is registered under the
        same key. The lock is free again when the block is left, whichever way; a task that ends while it waits is
        passed over. The code of a detached actor keeps its lock until it leaves the block (OTP Q03).

        Raises:
            InvalidOption: if the task holds the lock already.
            RegistryUnavailable: if the directory is not up; one that dies later takes no lock away.
            InvalidKey: if `key` is no typed tuple.
            WrongThread: if called outside the runtime's thread.
        """
        self._up("lock", check_key(key))
        async with self._locks.hold(key):
            yield

    # --- who asks, and who answers ----------------------------------------------------------------

    def _read(self, deed: str, key: Key | None = None) -> Table[V]:
        return self._up(deed, key).table

    def _up(self, deed: str, key: Key | None) -> DirectoryOwner[V]:
        owner = self._owner
        if owner is None:
            raise self._unavailable(deed, key, "starting")
        self._check_thread(owner._cell.system, deed)
        state = self.state
        if state != "up":
            if key is not None:
                owner._cell.system.telemetry.tell(LookupUnavailable(key, REASONS[state]))
            raise self._unavailable(deed, key, state)
        return owner

    def _caller(self, deed: str) -> Ref:
        ref = current_actor()
        if ref is None:
            raise NotRunningInside(
                f"{deed} in directory {self.name!r}: expected a call by an actor, which does this for itself, as in "
                "its on_start; got one from outside of actors"
            )
        self._check_thread(ref._cell.system, deed)
        if not ref.alive:
            raise ActorDown(ref.label, ref.exit_reason)
        return ref

    def _check_thread(self, system: ActorSystem, deed: str) -> None:
        if get_ident() != system.thread:
            what = f"{deed} in directory {self.name!r}"
            raise system.wrong_thread(what, "runtime.portal.call(...) with a function that does it")

    def _unavailable(self, deed: str, key: Key | None, state: PartitionState) -> RegistryUnavailable:
        what = f"{deed} {key!r}" if key is not None else deed
        return RegistryUnavailable(f"{what} in directory {self.name!r}", REASONS[state])
