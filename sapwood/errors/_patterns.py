"""Errors of the patterns of messaging: votes, leases, projections and sagas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sapwood.errors._root import SapwoodError


class PatternError(SapwoodError):
    """One of the patterns of messaging could not give what was asked for."""


class QuorumNotReached(PatternError):
    """Too few of those who were asked gave an answer that counts.

    Attributes:
        need: Answers that were needed.
        answers: The answers that came, by name.
        errors: What failed, by name.
        missing: Who did not answer: in time, or before it was clear that it could not be enough.
    """

    def __init__(
        self, need: int, answers: Mapping[str, Any], errors: Mapping[str, Exception], missing: Sequence[str]
    ) -> None:
        super().__init__(
            f"expected {need} answers that count; got {len(answers)} answers in all from [{', '.join(answers)}], "
            f"errors from [{', '.join(errors)}], nothing from [{', '.join(missing)}]"
        )
        self.need = need
        self.answers = dict(answers)
        self.errors = dict(errors)
        self.missing = tuple(missing)


class LeaseUnavailable(PatternError):
    """All leases of a resource are held, and the caller would not wait.

    Attributes:
        resource: Its name.
        holders: Who holds them.
    """

    def __init__(self, resource: str, holders: Sequence[str]) -> None:
        super().__init__(f"resource {resource!r} is held by {', '.join(holders)}; wait for it, or try again later")
        self.resource = resource
        self.holders = tuple(holders)


class ProjectionBehind(PatternError):
    """A projection has not reached a sequence number in time; the query was not run.

    Attributes:
        projection: Its name.
        wanted: The sequence number that it was to have reached.
        position: The one that it has reached.
    """

    def __init__(self, projection: str, wanted: int, position: int) -> None:
        super().__init__(
            f"projection {projection!r} has reached {position} and not {wanted}; ask again, or for less than {wanted}"
        )
        self.projection = projection
        self.wanted = wanted
        self.position = position


class SagaConflict(PatternError):
    """A saga with this id exists and was begun with another input; nothing was changed.

    Attributes:
        saga: Name of its definition.
        id: Its id.
    """

    def __init__(self, saga: str, id: str) -> None:
        super().__init__(f"saga {saga!r} {id!r} was begun with another input; use a new id")
        self.saga = saga
        self.id = id


class SagaUnknown(PatternError):
    """There is no such saga, or no definition of that name.

    Attributes:
        saga: Name of the definition.
        id: The id; empty if it is the definition that is missing.
    """

    def __init__(self, saga: str, id: str, known: Sequence[str] = ()) -> None:
        what = f"no saga {id!r} of {saga!r} was begun" if id else f"no saga is called {saga!r}"
        super().__init__(f"{what}; {'this runner has ' + ', '.join(known) if known else 'begin it with Begin(...)'}")
        self.saga = saga
        self.id = id


class StepRefused(SapwoodError):
    """Raised by the action of a step that is known to have had no effect: it is not tried again.

    It is not undone either, unless an attempt before it may have had an effect.
    """
