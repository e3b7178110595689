"""What happens in a saga, as its log has it, and how a saga stands after that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from sapwood.actors import record
from sapwood.messaging.patterns._saga_steps import SagaPhase


@record("patterns.saga.input")
class SagaInput:
    """What a saga was begun with."""

    value: Any


@record("patterns.saga.begun")
class StepBegun:
    """An attempt of an action begins; durable before it does."""

    step: str
    attempt: int


@record("patterns.saga.done")
class StepDone:
    """An action returned."""

    step: str
    result: Any


@record("patterns.saga.failed")
class StepFailed:
    """An attempt of an action failed, and it is not known whether it had an effect."""

    step: str
    error: str


@record("patterns.saga.completed")
class Completed:
    """All steps are done."""


@record("patterns.saga.turned")
class TurnedBack:
    """The saga turns back; if `refused`, the step that was begun last is known to have had no effect."""

    step: str
    error: str
    refused: bool


@record("patterns.saga.undo_begun")
class UndoBegun:
    """An attempt of a compensation begins."""

    step: str
    attempt: int


@record("patterns.saga.undo_failed")
class UndoFailed:
    """An attempt of a compensation failed."""

    step: str
    error: str


@record("patterns.saga.undone")
class Undone:
    """A step is undone."""

    step: str


@record("patterns.saga.compensated")
class Compensated:
    """All that was done is undone."""


@record("patterns.saga.stuck")
class Stuck:
    """A compensation failed for good."""

    step: str
    error: str


@record("patterns.saga.retried")
class Retried:
    """Somebody asked for the compensations of a stuck saga to be tried again."""


@attrs.frozen
class SagaState:
    """The fold of a saga's log.

    Attributes:
        phase: Where it stands.
        begun: Steps that may have had an effect and are not undone, in order.
        results: What the steps that are done have returned.
        attempts: Attempts of the action or compensation at hand that were begun.
        error: Why it turned back or is stuck, or what the last attempt failed with.
    """

    phase: SagaPhase = "running"
    begun: tuple[str, ...] = ()
    results: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    attempts: int = 0
    error: str | None = None


def _without(state: SagaState, step: str) -> tuple[str, ...]:
    return tuple(name for name in state.begun if name != step)


def _begun(state: SagaState, event: StepBegun) -> SagaState:
    return attrs.evolve(state, begun=(*_without(state, event.step), event.step), attempts=event.attempt)


def _done(state: SagaState, event: StepDone) -> SagaState:
    return attrs.evolve(state, results={**state.results, event.step: event.result}, attempts=0, error=None)


def _turned(state: SagaState, event: TurnedBack) -> SagaState:
    begun = _without(state, event.step) if event.refused else state.begun
    return attrs.evolve(state, phase="compensating", begun=begun, attempts=0, error=event.error)


def _undone(state: SagaState, event: Undone) -> SagaState:
    return attrs.evolve(state, begun=_without(state, event.step), attempts=0)


_FOLD: Final[dict[type, Callable[[SagaState, Any], SagaState]]] = {
    StepBegun: _begun,
    StepDone: _done,
    StepFailed: lambda state, event: attrs.evolve(state, error=event.error),
    Completed: lambda state, event: attrs.evolve(state, phase="completed"),
    TurnedBack: _turned,
    UndoBegun: lambda state, event: attrs.evolve(state, attempts=event.attempt),
    UndoFailed: lambda state, event: state,
    Undone: _undone,
    Compensated: lambda state, event: attrs.evolve(state, phase="compensated"),
    Stuck: lambda state, event: attrs.evolve(state, phase="stuck", error=event.error),
    Retried: lambda state, event: attrs.evolve(state, phase="compensating", attempts=0),
}


def evolve(state: SagaState, event: Any) -> SagaState:
    """Return how a saga stands after an event."""
    return _FOLD[type(event)](state, event)
