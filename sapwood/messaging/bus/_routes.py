"""Filters and routes: chains that look into a message before it is delivered (S2-013)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs

from sapwood.errors import InvalidOption
from sapwood.messaging.envelope import Envelope, Header

T = TypeVar("T")

Predicate: TypeAlias = Callable[[Envelope[Any]], bool]
Filter: TypeAlias = Callable[[Envelope[Any]], Envelope[Any] | None]
"""Returns the message, a changed copy of it, or None to drop it."""


@attrs.frozen
class Route:
    """Sends what matches to some participants.

    Attributes:
        when: Says whether a message matches; `header_is`, `kind_is`, `payload_is` make such functions.
        to: Names of those who get it.
    """

    when: Predicate
    to: tuple[str, ...]

    def __attrs_post_init__(self) -> None:
        if not callable(self.when):
            raise InvalidOption(f"route: expected a function of an envelope as when=; got {self.when!r}")
        if not isinstance(self.to, tuple) or not self.to or not all(isinstance(name, str) and name for name in self.to):
            raise InvalidOption(f'route: expected names such as to=("audit",); got {self.to!r}')


def recipients_of(routes: Sequence[Route], envelope: Envelope[Any]) -> tuple[str, ...]:
    """Return the recipients of the first route that matches; none if no route does."""
    return next((route.to for route in routes if route.when(envelope)), ())


def header_is(name: str, value: Header) -> Predicate:
    """Match messages that have a header with this value."""
    return lambda envelope: name in envelope.headers and envelope.headers[name] == value


def kind_is(*kinds: str) -> Predicate:
    """Match messages of some kinds."""
    return lambda envelope: envelope.kind in kinds


def payload_is(cls: type[T], when: Callable[[T], bool] | None = None) -> Predicate:
    """Match messages by the type of the payload, and by its content if `when` is given."""
    return lambda envelope: isinstance(envelope.payload, cls) and (when is None or when(envelope.payload))


def chain_filters(filters: Sequence[Filter], envelope: Envelope[Any]) -> tuple[Envelope[Any] | None, str]:
    """Pass a message through the filters in order; return what is left of it, and the name of the one that dropped it.

    Raises:
        InvalidOption: if a filter returns something else than an envelope or None.
    """
    for one in filters:
        name = str(getattr(one, "__name__", type(one).__name__))
        passed = one(envelope)
        if passed is None:
            return None, name
        if not isinstance(passed, Envelope):
            raise InvalidOption(f"filter {name}: expected it to return an Envelope or None; got {passed!r}")
        envelope = passed
    return envelope, ""
