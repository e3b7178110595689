"""Handlers: which method of an actor takes which message, found once when the class is made."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar, Union, overload

import attrs

from sapwood.actors._messages import Priority, Request
from sapwood.errors import DuplicateName, InvalidMessage

F = TypeVar("F", bound=Callable[..., Any])

Handler = Callable[[Any, Any], Any]


@overload
def handle(target: type, *more: type) -> Callable[[F], F]: ...
@overload
def handle(target: F) -> F: ...
def handle(target: Any, *more: type) -> Any:
    """Mark a method as the handler of the message type that its parameter is annotated with.

    `@handle` reads the annotation; a union makes it the handler of several types. `@handle(Deposit)` names the
    types outright, and `@handle(Request)` takes every request that has no handler of its own. Plain and async methods
    are both allowed; a plain one is cheaper, since it costs no task switch. A handler runs in its actor's task (a
    plain one may run in the asking task while its actor is idle), one at a time, and an exception that leaves it is
    the actor's crash.

    Raises:
        InvalidMessage: when the class is made, if the annotation is missing or names something that is not a message.
    """
    if isinstance(target, type):
        kinds: tuple[type, ...] = (target, *more)

        def mark(function: F) -> F:
            return _mark(function, kinds)

        return mark
    frame = sys._getframe(1)
    # Message classes made inside a function (as tests do) are found through the frames around the class body.
    around: dict[str, Any] = dict(frame.f_locals)
    if frame.f_back is not None and frame.f_globals.get("__name__") == frame.f_back.f_globals.get("__name__"):
        around = {**frame.f_back.f_locals, **around}
    return _mark(target, _annotated(target, around))


def _mark(function: F, kinds: tuple[type, ...]) -> F:
    for kind in kinds:
        if not hasattr(kind, "__priority__") and not issubclass(kind, Request):
            raise InvalidMessage(_teach(function, f"expected a class made with @message; got {kind!r}"))
    marked: Any = function
    marked.__sapwood_handles__ = kinds
    return function


def _annotated(function: Callable[..., Any], around: dict[str, Any]) -> tuple[type, ...]:
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 2:
        problem = f"expected the parameters (self, message: SomeMessage); got {len(parameters)}"
        raise InvalidMessage(_teach(function, problem))
    annotation = parameters[1].annotation
    if annotation is inspect.Parameter.empty:
        raise InvalidMessage(_teach(function, f"expected an annotation on {parameters[1].name!r}; got none"))
    # A class of its own lets inspect evaluate this annotation and none of the others.
    holder = type("Holder", (), {"__annotations__": {"message": annotation}})
    scope: dict[str, Any] = getattr(function, "__globals__", {})
    try:
        annotation = inspect.get_annotations(holder, globals=scope, locals=around, eval_str=True)["message"]
    except NameError as error:
        problem = f"cannot resolve the annotation {annotation!r} ({error})"
        raise InvalidMessage(_teach(function, problem)) from None
    members = (
        typing.get_args(annotation) if typing.get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    )
    for member in members:
        if not isinstance(member, type):
            raise InvalidMessage(_teach(function, f"expected a class made with @message; got {member!r}"))
    return members


def _teach(function: Callable[..., Any], problem: str) -> str:
    name = function.__name__
    written = f"    write   @handle\n            def {name}(self, message: Deposit) -> None: ..."
    return f"handler {function.__qualname__}: {problem}\n{written}"


@attrs.frozen
class Dispatch:
    """What an actor class does with each message type; shared by all actors of the class.

    Attributes:
        plain: `{message type: plain function(actor, message)}`.
        slow: `{message type: coroutine function(actor, message)}`.
        inline: Those of `plain` that take requests, for callers that find the actor idle.
        direct: The message types that the fast path of `tell` may queue unseen.
    """

    plain: dict[type, Handler] = attrs.field(factory=dict[type, Handler])
    slow: dict[type, Handler] = attrs.field(factory=dict[type, Handler])
    inline: dict[type, Handler] = attrs.field(factory=dict[type, Handler])
    direct: frozenset[type] = frozenset()


def build_dispatch(cls: type) -> Dispatch:
    """Collect the handlers of an actor class, those of its bases included.

    Raises:
        DuplicateName: if two methods of one class handle the same message type.
    """
    found: dict[type, Any] = {}
    for base in reversed(cls.__mro__):
        own: dict[type, Any] = {}
        for value in vars(base).values():
            for kind in getattr(value, "__sapwood_handles__", ()):
                if kind in own:
                    raise DuplicateName("handler for", kind.__name__, own[kind].__qualname__)
                own[kind] = value
        found.update(own)
    # A subclass may override a handler method without marking it again.
    found = {kind: _latest(cls, function) for kind, function in found.items()}
    slow = {kind: function for kind, function in found.items() if inspect.iscoroutinefunction(function)}
    plain = {kind: function for kind, function in found.items() if kind not in slow}
    return Dispatch(
        plain,
        slow,
        {kind: function for kind, function in plain.items() if issubclass(kind, Request)},
        frozenset(kind for kind in found if getattr(kind, "__priority__", None) is Priority.NORMAL),
    )


def _latest(cls: type, function: Any) -> Any:
    latest = getattr(cls, function.__name__, function)
    return latest if callable(latest) else function
