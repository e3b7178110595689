"""The directory in which a key has at most one holder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from sapwood.actors import DeadLetter, Ref, Request, check_message
from sapwood.errors import ActorDown, AlreadyRegistered, NotRegistered, RegistryUnavailable
from sapwood.registry._directory import Directory
from sapwood.registry._directory_reads import check_function
from sapwood.registry._keys import Key, check_key
from sapwood.registry._local import NOT_RUNNING, REASONS
from sapwood.registry._lookup import Lookup, NotRunning, Running, Unavailable
from sapwood.registry._registrations import Registration

T = TypeVar("T")
V = TypeVar("V")


class UniqueDirectory(Directory[V]):
    """At most one live holder for each key; an actor may hold many keys (OTP K04).

    A holder that has ended holds nothing any more, whether the directory has been told of that or not (OTP K08). An
    `AlreadyRegistered` that leaves an `on_start` becomes `AlreadyStarted` for whoever starts the actor, with the
    holder's ref.
    """

    def _check_free(self, key: Key, held: list[Registration[V]]) -> None:
        if held:
            raise AlreadyRegistered(key, held[0].ref)

    def update_value(self, key: Key, function: Callable[[V], V]) -> tuple[V, V]:
        """Put `function(value)` in the place of the value that the calling actor has under a key (OTP K13).

        Listeners are not told. If the function raises, that comes out here, and the value stays.

        Returns:
            The new value and the old one.

        Raises:
            NotRegistered: if the calling actor does not hold the key; the function was not called.
            InvalidOption: if `function` is no plain function.
            RegistryUnavailable, InvalidKey, NotRunningInside, ActorDown, WrongThread: as `register`.
        """
        check_function("update_value", "function", function)
        ref = self._caller("update a value")
        owner = self._up("update the value of", check_key(key))
        for old in owner.table.held(key, ref):
            new = Registration(key, ref, function(old.value))
            if old in owner.table:
                owner.replace(old, new)
                return new.value, old.value
        raise NotRegistered(key, ref)

    def find(self, key: Key) -> Lookup[Ref]:
        """Say who holds a key, with three answers: `Running`, `NotRunning`, or `Unavailable` for "cannot tell".

        Raises:
            InvalidKey: if `key` is no typed tuple.
            WrongThread: if called outside the runtime's thread.
        """
        try:
            held = self.lookup(key)
        except RegistryUnavailable as error:
            return Unavailable(REASONS[self.state], error.retry_after)
        return Running(held[0].ref) if held else NOT_RUNNING

    def whereis(self, key: Key) -> Ref | None:
        """Return who holds a key, or None if nobody does.

        Raises:
            RegistryUnavailable, InvalidKey, WrongThread: as `lookup`.
        """
        held = self.lookup(key)
        return held[0].ref if held else None

    def tell(self, key: Key, message: object) -> None:
        """Send a message to whoever holds a key; if nobody does, it becomes a dead letter (OTP K10, K19).

        Raises:
            RegistryUnavailable: if the directory cannot tell; nothing was sent.
            InvalidMessage, MailboxFull: as `Ref.tell`.
            InvalidKey, WrongThread: as `lookup`.
        """
        check_message(message)
        ref = self.whereis(key)
        if ref is not None:
            ref.tell(message)
        else:
            system = self.ref._cell.system
            at = system.environment.wall()
            system.telemetry.tell(DeadLetter(repr(key), key, message, None, "dead", at))

    async def ask(self, key: Key, request: Request[T], *, timeout: float | None = 5.0) -> T:
        """Ask whoever holds a key (OTP K10).

        Raises:
            ActorDown: if nobody does (OTP K19), or the holder ends before it answers.
            RegistryUnavailable: if the directory cannot tell; nothing was sent.
            InvalidKey, WrongThread: as `lookup`.
            AskTimeout, SelfAsk, AskCycle, MailboxFull, InvalidMessage: as `Ref.ask`.
        """
        match self.find(key):
            case Running(ref):
                return await ref.ask(request, timeout=timeout)
            case NotRunning():
                await trio.lowlevel.checkpoint()
                raise ActorDown(repr(key))
            case Unavailable(reason, retry_after):
                await trio.lowlevel.checkpoint()
                raise RegistryUnavailable(f"ask {key!r} in directory {self.name!r}", reason, retry_after)
