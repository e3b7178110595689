"""Asking many at once: scatter and gather, quorum, majority, the first valid answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

import attrs
import trio

from sapwood.actors import Ref, Request
from sapwood.errors import InvalidOption, QuorumNotReached

T = TypeVar("T")


@attrs.frozen
class Gathered(Generic[T]):
    """What came back from all that were asked; each of them stands in exactly one of the three.

    Attributes:
        answers: The answers by name, in the order in which they came.
        errors: What failed, by name: what the handler raised, `ActorDown`, `AskCycle` and so on.
        missing: Who has not answered: in time, or before the caller had enough. They may still carry it out.
    """

    answers: dict[str, T] = attrs.field(factory=dict[str, Any])
    errors: dict[str, Exception] = attrs.field(factory=dict[str, Exception])
    missing: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all have answered."""
        return not self.errors and not self.missing


async def scatter(parts: Mapping[str, tuple[Ref, Request[T]]], *, timeout: float = 5.0) -> Gathered[T]:
    """Ask each its own question, all at the same time, and gather what has come when the time is over (S2-058).

    Args:
        parts: By name: who is asked, and what.
        timeout: Seconds for all of them together.

    Raises:
        InvalidOption: if the time-out is no number of seconds.
    """
    return await _collect(parts, timeout, lambda found, left: False)


async def gather_partial(refs: Mapping[str, Ref], request: Request[T], *, timeout: float = 5.0) -> Gathered[T]:
    """Ask all the same question; see `scatter`."""
    return await scatter({name: (ref, request) for name, ref in refs.items()}, timeout=timeout)


async def quorum(refs: Mapping[str, Ref], request: Request[T], need: int, *, timeout: float = 5.0) -> Gathered[T]:
    """Ask all, and return as soon as `need` of them have answered, whatever they answered (S2-058).

    Args:
        refs: Who is asked, by name.
        request: The question.
        need: Answers that are enough.
        timeout: Seconds to wait for them.

    Raises:
        QuorumNotReached: as soon as so many have failed that it cannot be reached, or after the time-out.
        InvalidOption: if `need` is not between 1 and the number of those asked.
    """
    if type(need) is not int or not 1 <= need <= len(refs):
        raise InvalidOption(f"quorum need: expected 1 to the {len(refs)} that are asked; got {need!r}")
    found = await _collect(
        _same(refs, request),
        timeout,
        lambda found, left: len(found.answers) >= need or len(found.answers) + left < need,
    )
    if len(found.answers) < need:
        raise QuorumNotReached(need, found.answers, found.errors, found.missing)
    return found


async def majority(
    refs: Mapping[str, Ref],
    request: Request[T],
    *,
    key: Callable[[T], Hashable] | None = None,
    timeout: float = 5.0,
) -> T:
    """Ask all, and return the answer that more than half of those asked agree on, as soon as they do (S2-058).

    Those who fail or stay silent are still counted among those asked, so two disjoint groups can never both decide.

    Args:
        refs: Who is asked, by name; each has one vote.
        request: The question.
        key: What must be equal for two answers to agree; None for the answer itself, which must be hashable then.
        timeout: Seconds to wait.

    Raises:
        QuorumNotReached: as soon as no answer can win any more, or after the time-out.
        InvalidOption: if nobody is asked.
    """
    if not refs:
        raise InvalidOption("majority: expected at least one to ask; got none")
    need = len(refs) // 2 + 1
    votes: dict[Any, list[str]] = {}
    counted: set[str] = set()

    def decided(found: Gathered[T], left: int) -> bool:
        for name, answer in found.answers.items():
            if name not in counted:
                counted.add(name)
                votes.setdefault(answer if key is None else key(answer), []).append(name)
        best = max(map(len, votes.values()), default=0)
        return best >= need or best + left < need

    found = await _collect(_same(refs, request), timeout, decided)
    winners: list[str] = max(votes.values(), key=len, default=list[str]())
    if len(winners) < need:
        raise QuorumNotReached(need, found.answers, found.errors, found.missing)
    return found.answers[winners[0]]


async def first_valid(
    refs: Mapping[str, Ref], request: Request[T], valid: Callable[[T], bool], *, timeout: float = 5.0
) -> tuple[str, T]:
    """Ask all, and return the first answer that is valid, with the name of who gave it; the others are let go.

    Args:
        refs: Who is asked, by name.
        request: The question.
        valid: Says whether an answer will do.
        timeout: Seconds to wait.

    Raises:
        QuorumNotReached: as soon as all have failed or given answers that will not do, or after the time-out.
    """
    judged: dict[str, bool] = {}

    def decided(found: Gathered[T], left: int) -> bool:
        for name, answer in found.answers.items():
            if name not in judged:
                judged[name] = valid(answer)
        return any(judged.values())

    found = await _collect(_same(refs, request), timeout, decided)
    for name, fine in judged.items():
        if fine:
            return name, found.answers[name]
    raise QuorumNotReached(1, found.answers, found.errors, found.missing)


def _same(refs: Mapping[str, Ref], request: Request[T]) -> dict[str, tuple[Ref, Request[T]]]:
    return {name: (ref, request) for name, ref in refs.items()}


async def _collect(
    parts: Mapping[str, tuple[Ref, Request[T]]], timeout: float, decided: Callable[[Gathered[T], int], bool]
) -> Gathered[T]:
    """Ask until all have answered, the time is over, or `decided(what there is, how many are left)`."""
    if not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidOption(f"timeout: expected seconds >= 0; got {timeout!r}")
    found: Gathered[T] = Gathered()
    # What the caller's own functions raised, which goes to the caller bare.
    broken: list[Exception] = []
    scope = trio.CancelScope(deadline=trio.current_time() + timeout)

    async def ask(name: str, ref: Ref, request: Request[T]) -> None:
        try:
            found.answers[name] = await ref.ask(request, timeout=None)
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            found.errors[name] = error
        try:
            over = decided(found, len(parts) - len(found.answers) - len(found.errors))
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            broken.append(error)
            over = True
        if over:
            scope.cancel()

    with scope:
        async with trio.open_nursery() as nursery:
            for name, (ref, request) in parts.items():
                nursery.start_soon(ask, name, ref, request)
    if broken:
        raise broken[0]
    missing = tuple(name for name in parts if name not in found.answers and name not in found.errors)
    return attrs.evolve(found, missing=missing)
