"""Birth: how an actor is made, and what it may say about its start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import attrs

from sapwood.errors import InvalidOption

if TYPE_CHECKING:
    from sapwood.actors._actor import Actor
    from sapwood.actors._cell import Cell
    from sapwood.actors._mailbox import MailboxOptions


@attrs.frozen
class Continue:
    """Returned by `on_start`: start is done, and `on_continue(token)` runs before any message (OTP I22, I23)."""

    token: Any = None


@attrs.frozen
class Ignore:
    """Returned by `on_start`: there is nothing to run; not an error (OTP I04)."""


@attrs.frozen
class Refuse:
    """Returned by `on_start`: starting failed for an expected reason; no crash is reported (OTP I03)."""

    reason: str


@attrs.frozen
class Started:
    """Returned by `on_start`: start is done, and `info` goes to the caller of `start_child`, unchanged (OTP A14).

    Attributes:
        info: Anything; nobody else looks at it, and a restart drops it.
        then: What `on_start` would have returned otherwise.
    """

    info: Any
    then: Continue | None = None


StartResult: TypeAlias = Started | Continue | Ignore | Refuse | None
"""What `on_start` may return."""


@attrs.frozen
class Birth:
    """How an actor is made: again and again, from the same arguments, whenever its supervisor starts it (OTP B09).

    Attributes:
        factory: An Actor class, a `functools.partial` of one, or a function that returns a new Actor.
        args: Positional arguments for it.
        kwargs: Keyword arguments for it.
        key: Registry key that the actor claims before `__init__` runs, or None.
        mailbox: How its mailbox is bounded; None for what its class says.
        title: What logs call it; empty for the name of the factory.
    """

    factory: Callable[..., Actor]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = attrs.field(factory=dict[str, Any])
    key: object = None
    mailbox: MailboxOptions | None = None
    title: str = ""

    @property
    def name(self) -> str:
        """Name of what makes it: a class, or a function; of a partial, what that calls."""
        factory: Any = self.factory
        while isinstance(factory, partial):
            factory = cast("partial[Any]", factory).func
        return str(getattr(factory, "__name__", type(factory).__name__))

    def make(self, cell: Cell) -> Actor:
        """Make the actor, with its cell in place before `__init__` runs, so that `self.ref` works there.

        Raises:
            InvalidOption: if the factory returns something else, or an actor that was started before.
            Exception: whatever the constructor raises.
        """
        factory: Any = self.factory
        args, kwargs = self.args, self.kwargs
        if isinstance(factory, partial):
            bound = cast("partial[Any]", factory)
            if isinstance(bound.func, type):
                factory, args, kwargs = cast("Any", bound.func), (*bound.args, *args), {**bound.keywords, **kwargs}
        if not isinstance(factory, type):
            return self._adopt(cast("object", factory(*args, **kwargs)), cell)
        new = cast("Callable[..., object]", factory.__new__)
        if new is object.__new__ and hasattr(factory, "__kind__"):
            actor = cast("Actor", new(factory))
            actor._cell = cell
        else:
            actor = self._adopt(new(factory, *args, **kwargs) if new is not object.__new__ else new(factory), cell)
        actor.__init__(*args, **kwargs)  # type: ignore[misc]  # it is an instance of that very class
        return actor

    def _adopt(self, made: object, cell: Cell) -> Actor:
        if not hasattr(type(made), "__kind__"):
            raise InvalidOption(f"{self.name}: expected a function that returns an Actor; it returned {made!r}")
        if hasattr(made, "_cell"):
            raise InvalidOption(
                f"{self.name}: expected a new Actor at every start; it returned one that was started before"
            )
        actor = cast("Actor", made)
        actor._cell = cell
        return actor
