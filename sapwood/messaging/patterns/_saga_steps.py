"""Sagas as they are written: steps, what undoes them, and how long each may take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import attrs

from sapwood.actors import record
from sapwood.errors import DuplicateName, InvalidOption
from sapwood.supervision import Backoff

SagaPhase: TypeAlias = Literal["running", "compensating", "completed", "compensated", "stuck"]

ENDED: frozenset[SagaPhase] = frozenset({"completed", "compensated", "stuck"})
"""Phases that a saga does not leave by itself."""


def _read_only(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(given))


@attrs.frozen
class StepContext:
    """What an action or a compensation gets.

    Attributes:
        saga: Name of the saga's definition.
        id: Id of the saga.
        step: Name of the step.
        key: Idempotency key: the same for every attempt of this action, also after a crash, and another one for its
            compensation. Give it to the other side, which tells repeats by it.
        attempt: Number of this attempt, from 1.
        input: What the saga was begun with.
        results: What the steps before have returned, by name.
    """

    saga: str
    id: str
    step: str
    key: str
    attempt: int
    input: Any
    results: Mapping[str, Any] = attrs.field(converter=_read_only)


Action: TypeAlias = Callable[[StepContext], Awaitable[Any]]

Compensation: TypeAlias = Callable[[StepContext], Awaitable[object]]


@attrs.frozen
class Step:
    """One step of a saga.

    An action may run again after a crash, with the same key; it returns what can be stored. If it raises
    `StepRefused`, that attempt is known to have had no effect. After any other exception, and after its time-out,
    nobody knows; so it is tried again with the same key, and if it fails for good, it is undone as well. A
    compensation must bear that there is nothing to undo, and that it runs again.

    Attributes:
        name: Unique within the saga, and the same for as long as sagas are stored.
        action: Does it.
        compensation: Undoes it; None if there is nothing to undo.
        timeout: Seconds for each attempt of either.
        attempts: Attempts of the action before the saga turns back; one that a crash of the process cut off counts.
        compensation_attempts: Attempts of the compensation, one after the other, before the saga is stuck.
        retry: Delays between attempts of either.

    Raises:
        InvalidOption: naming the value that is out of its range.
    """

    name: str
    action: Action
    compensation: Compensation | None = None
    timeout: float = attrs.field(default=30.0, kw_only=True)
    attempts: int = attrs.field(default=3, kw_only=True)
    compensation_attempts: int = attrs.field(default=5, kw_only=True)
    retry: Backoff = attrs.field(default=Backoff(initial=0.5, maximum=60.0), kw_only=True)

    def __attrs_post_init__(self) -> None:
        for name, fine, expected in (
            ("name", isinstance(self.name, str) and self.name != "", "text that is not empty"),
            ("timeout", self.timeout > 0, "seconds > 0"),
            ("attempts", type(self.attempts) is int and self.attempts > 0, "an int >= 1"),
            (
                "compensation_attempts",
                type(self.compensation_attempts) is int and self.compensation_attempts > 0,
                "an int >= 1",
            ),
        ):
            if not fine:
                raise InvalidOption(f"step {self.name!r}, {name}: expected {expected}; got {getattr(self, name)!r}")


def _in_order(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(steps)


@attrs.frozen
class Saga:
    """A long transaction: steps that are done in order or, if one fails for good, undone in reverse order (S2-057).

    Attributes:
        name: Unique among the sagas of a store, and the same for as long as sagas are stored.
        steps: The steps, in order.

    Raises:
        InvalidOption: if there are none, or the name is empty.
        DuplicateName: if two steps have one name.
    """

    name: str
    steps: tuple[Step, ...] = attrs.field(converter=_in_order)

    def __attrs_post_init__(self) -> None:
        if not self.name or not self.steps:
            raise InvalidOption(f"saga {self.name!r}: expected a name, and at least one step; got {self.steps!r}")
        known: dict[str, Step] = {}
        for step in self.steps:
            if step.name in known:
                raise DuplicateName(f"step of saga {self.name!r}", step.name, known[step.name])
            known[step.name] = step

    def step(self, name: str) -> Step | None:
        """Return the step of that name, or None."""
        return next((step for step in self.steps if step.name == name), None)


@record("patterns.saga.report")
class SagaReport:
    """How a saga stands.

    Attributes:
        saga: Name of its definition.
        id: Its id.
        phase: `running` or `compensating`: it is being worked on; `completed`: all steps are done; `compensated`: what
            had been done is undone; `stuck`: a compensation failed for good, and somebody must look after it.
        done: The steps that are done and not undone, in order.
        pending: The steps that may have had an effect and are neither done nor undone.
        results: What the steps that were done have returned, by name.
        error: Why it turned back or is stuck; None while all goes well.
    """

    saga: str
    id: str
    phase: SagaPhase
    done: tuple[str, ...]
    pending: tuple[str, ...]
    results: dict[str, Any]
    error: str | None
