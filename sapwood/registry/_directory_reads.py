"""What can be asked of a directory: straight from its table, at once, and never an empty answer for "cannot tell"."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from sapwood.actors import Ref
from sapwood.errors import InvalidOption
from sapwood.registry._keys import Key, check_key
from sapwood.registry._registrations import Registration, Table

V = TypeVar("V")


class DirectoryReads(ABC, Generic[V]):
    """The reading half of a directory.

    Everything in it answers from memory without a task switch. An actor that has ended is left out from that very
    moment, before any `Down` of it has arrived (OTP J13, K07). Order is not promised.
    """

    @abstractmethod
    def _read(self, deed: str, key: Key | None = None) -> Table[V]:
        """Return the table, or raise if the directory cannot tell."""

    def lookup(self, key: Key) -> list[Registration[V]]:
        """Return the registrations under a key; an empty list means that there are none.

        Raises:
            RegistryUnavailable: if the directory cannot tell (OTP K19).
            InvalidKey: if `key` is no typed tuple.
        """
        return self._read("look up", check_key(key)).at(key)

    def match(self, key: Key, predicate: Callable[[V], bool]) -> list[Registration[V]]:
        """Return the registrations under a key whose value fits (OTP K15).

        Raises:
            InvalidOption: if `predicate` is no plain function.
            RegistryUnavailable, InvalidKey: as `lookup`.
        """
        check_function("match", "predicate", predicate)
        return [registration for registration in self.lookup(key) if predicate(registration.value)]

    def count_match(self, key: Key, predicate: Callable[[V], bool]) -> int:
        """Return how many registrations `match` would return (OTP K15)."""
        return len(self.match(key, predicate))

    def select(self, predicate: Callable[[Registration[V]], bool]) -> list[Registration[V]]:
        """Return all registrations that fit, whatever their key; it looks at every one (OTP K15).

        Raises:
            InvalidOption: if `predicate` is no plain function.
            RegistryUnavailable: if the directory cannot tell.
        """
        check_function("select", "predicate", predicate)
        return [registration for registration in list(self._read("select")) if predicate(registration)]

    def count_select(self, predicate: Callable[[Registration[V]], bool]) -> int:
        """Return how many registrations `select` would return (OTP K15)."""
        return len(self.select(predicate))

    def count(self) -> int:
        """Return the number of registrations, several of one actor under one key included (OTP K15).

        Raises:
            RegistryUnavailable: if the directory cannot tell.
        """
        return sum(1 for _ in self._read("count"))

    def keys(self, ref: Ref) -> list[Key]:
        """Return the key of each registration of an actor: one that it has twice comes twice (OTP K15).

        Raises:
            RegistryUnavailable: if the directory cannot tell.
        """
        return [registration.key for registration in self._read("list keys").of_actor(ref)]

    def values(self, key: Key, ref: Ref) -> list[V]:
        """Return the values that an actor has under a key (OTP K15).

        Raises:
            RegistryUnavailable, InvalidKey: as `lookup`.
        """
        return [registration.value for registration in self._read("list values", check_key(key)).held(key, ref)]

    def dispatch(self, key: Key, callback: Callable[[list[Registration[V]]], None]) -> int:
        """Call a function with all registrations under a key, once, or not at all if there are none (OTP K14).

        It runs in the caller, and what it raises comes out here.

        Returns:
            The number of registrations.

        Raises:
            InvalidOption: if `callback` is no plain function.
            RegistryUnavailable, InvalidKey: as `lookup`.
        """
        check_function("dispatch", "callback", callback)
        found = self.lookup(key)
        if found:
            callback(found)
        return len(found)


def check_function(where: str, what: str, function: object) -> None:
    """Refuse what cannot be called, or gives a coroutine that nobody would await.

    Raises:
        InvalidOption: saying what was expected.
    """
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise InvalidOption(f"{where}: expected {what} to be a plain function; got {function!r}")
