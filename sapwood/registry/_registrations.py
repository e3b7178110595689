"""Registrations: who stands under which key with which value, and the notices that listeners get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import attrs

from sapwood.actors import Ref, notice
from sapwood.registry._keys import Key

V = TypeVar("V")


@attrs.frozen(eq=False)
class Registration(Generic[V]):
    """One entry of a directory; only the very same one is equal to it.

    Attributes:
        key: What it stands under.
        ref: The actor that registered itself.
        value: What the actor said about itself.
    """

    key: Key
    ref: Ref
    value: V


@notice
@attrs.frozen(eq=False)
class Registered:
    """An actor has registered itself; goes to the actors that listen (OTP K16).

    Attributes:
        directory: Name of the directory.
        registration: What was entered.
    """

    directory: str
    registration: Registration[Any]


@notice
@attrs.frozen(eq=False)
class Unregistered:
    """An actor has taken a registration back; goes to the actors that listen, but not at an actor's end (OTP K16).

    Attributes:
        directory: Name of the directory.
        registration: What was removed.
    """

    directory: str
    registration: Registration[Any]


class Table(Generic[V]):
    """The registrations of one directory, found by key and by actor.

    Invariants: a registration stands under its key and under its actor, or nowhere; no inner table is empty. What is
    read leaves out actors that have ended, whose registrations go a moment later (OTP K07).
    """

    __slots__ = ("_by_key", "_by_ref")

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[Registration[V], None]] = {}
        self._by_ref: dict[Ref, dict[Key, dict[Registration[V], None]]] = {}

    def __contains__(self, registration: Registration[V]) -> bool:
        return registration in self._by_key.get(registration.key, ())

    def __iter__(self) -> Iterator[Registration[V]]:
        for ref in self._by_ref:
            yield from self.of_actor(ref)

    @property
    def holders(self) -> tuple[Ref, ...]:
        """All actors with a registration, those included that have ended."""
        return tuple(self._by_ref)

    def add(self, registration: Registration[V]) -> None:
        """Enter a registration."""
        self._by_key.setdefault(registration.key, {})[registration] = None
        self._by_ref.setdefault(registration.ref, {}).setdefault(registration.key, {})[registration] = None

    def discard(self, registration: Registration[V]) -> bool:
        """Remove a registration; say whether it was the last one of its actor."""
        at_key = self._by_key[registration.key]
        of_ref = self._by_ref[registration.ref]
        del at_key[registration], of_ref[registration.key][registration]
        if not at_key:
            del self._by_key[registration.key]
        if not of_ref[registration.key]:
            del of_ref[registration.key]
        if not of_ref:
            del self._by_ref[registration.ref]
        return not of_ref

    def drop(self, ref: Ref) -> None:
        """Remove all that an actor has."""
        for under in tuple(self._by_ref.get(ref, {}).values()):
            for registration in tuple(under):
                self.discard(registration)

    def at(self, key: Key) -> list[Registration[V]]:
        """Return what live actors have under a key."""
        return [registration for registration in self._by_key.get(key, ()) if registration.ref.alive]

    def of_actor(self, ref: Ref) -> list[Registration[V]]:
        """Return all that a live actor has; nothing for one that has ended."""
        if not ref.alive:
            return []
        return [registration for under in self._by_ref.get(ref, {}).values() for registration in under]

    def held(self, key: Key, ref: Ref) -> list[Registration[V]]:
        """Return what a live actor has under a key."""
        return list(self._by_ref.get(ref, {}).get(key, ())) if ref.alive else []
