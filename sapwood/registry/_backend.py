"""What a registry is built on: the protocol of backends, of which the local one is the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

import attrs

from sapwood.actors import Cell, Ref
from sapwood.registry._keys import Key
from sapwood.registry._lookup import Lookup, Running
from sapwood.supervision import ChildSpec

PartitionState: TypeAlias = Literal["starting", "up", "recovering", "down"]
"""Where a partition is in its life; only one that is `up` answers and takes claims."""


@attrs.frozen
class BackendStatistics:
    """A snapshot of a backend.

    Attributes:
        partitions: State of each partition, in order.
        keys: Keys held in partitions that are up.
    """

    partitions: tuple[PartitionState, ...]
    keys: int


class Holder(Protocol):
    """What a backend knows of a live actor that holds a key in this process."""

    @property
    def owner(self) -> Cell:
        """Whoever answers for the key; once it has ended, its word is worth nothing."""
        ...

    @property
    def running(self) -> Running[Ref]:
        """The answer to a lookup."""
        ...

    @property
    def text(self) -> bool:
        """Whether all parts of the key are text, so that nothing of another type equals it (see `Key`)."""
        ...


class RegistryBackend(Protocol):
    """Where keys are kept (S4-041). `sapwood.testing.RegistryBackendSuite` is what every one of them must pass.

    The rules: a key has at most one live holder. `NotRunning` is answered only if nothing live holds the key,
    whatever has been lost; where that is not known the answer is `Unavailable`. A backend that must ask others
    before it can grant a claim refuses it with `RegistryUnavailable` and asks meanwhile; supervisors try again.

    Everything but `lookup` is synchronous, is called in the runtime's thread, and may not block.
    """

    @property
    def table(self) -> Mapping[Key, Holder]:
        """What is known here to run, for lookups that call nobody; the same object for ever, empty if need be.

        A holder whose `owner` lives answers as `lookup_nowait` would; about any other key that is asked.
        """
        ...

    @property
    def available(self) -> bool:
        """Whether every lookup can be answered now."""
        ...

    def lookup_nowait(self, key: Key) -> Lookup[Ref]:
        """Say what is known here about a key, at once.

        Raises:
            InvalidKey: if `key` is no typed tuple.
        """
        ...

    async def lookup(self, key: Key) -> Lookup[Ref]:
        """Say what runs under a key, asking elsewhere if need be; always a checkpoint.

        Raises:
            InvalidKey: if `key` is no typed tuple.
        """
        ...

    def running(self) -> Mapping[Key, Ref]:
        """Return all live holders.

        Raises:
            RegistryUnavailable: if any part cannot tell.
        """
        ...

    def claim(self, key: Key, ref: Ref) -> None:
        """Give a key to an actor that is about to be made (OTP K01).

        Raises:
            InvalidKey: if `key` is no typed tuple, or not the one that the actor is started with (OTP K09).
            ActorDown: if the actor has ended (OTP K03).
            AlreadyRegistered: if a live actor holds it, be it the same one (OTP K04).
            RegistryUnavailable: if it cannot be told whether one does.
        """
        ...

    def release(self, key: Key, ref: Ref) -> None:
        """Take a key back from an actor that has ended; never raises, and a live holder keeps its key."""
        ...

    def statistics(self) -> BackendStatistics:
        """Return a snapshot; never raises."""
        ...

    def children(self, *, restarts: int, period: float) -> list[ChildSpec]:
        """Return the backend's part of the tree, in start order.

        They stand first in a `rest_for_one` supervisor, and all that registers keys comes after them; so a backend
        that has lost its knowledge can take down what was registered by letting one of these children end.

        Args:
            restarts: Intensity of its supervisors.
            period: Their window, in seconds.
        """
        ...
