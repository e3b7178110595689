"""The three answers of a lookup, as one closed sum type."""

from __future__ import annotations

from typing import Generic, Literal, TypeAlias, TypeVar

import attrs

T_co = TypeVar("T_co", covariant=True)

UnavailableReason: TypeAlias = Literal["starting", "draining", "registry_down", "recovering", "unreachable"]
"""Why the registry cannot tell.

`starting`: it has not come up yet. `draining`: the runtime is stopping and starts nothing any more.
`registry_down`: the part that would know has died. `recovering`: it is back but has lost its table, and what was
registered before may still live; or the tree in which to start is itself being restarted. `unreachable`: it is
elsewhere and does not answer.
"""


@attrs.frozen
class Running(Generic[T_co]):
    """It runs at this moment; `ref` is how to reach it."""

    ref: T_co


@attrs.frozen
class NotRunning:
    """The registry answered: nothing runs under this key. Starting one is allowed."""


@attrs.frozen
class Unavailable:
    """The registry cannot tell. Never start anything on this answer; a service maps it to 503 (S4-044, S4-045).

    Attributes:
        reason: Why it cannot tell.
        retry_after: Seconds after which asking again makes sense.
    """

    reason: UnavailableReason
    retry_after: float = 1.0


Lookup: TypeAlias = Running[T_co] | NotRunning | Unavailable
"""Answer of every lookup, in every layer. Match on it and close with `assert_never`."""
