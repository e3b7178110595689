"""Handlers: which method of an actor takes which message, found once when the class is made."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar, Union, overload

import attrs

from sapwood.actors._messages import Priority
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
    types outright. Plain and async methods are both allowed; a plain one is cheaper, since it costs no task
    switch. A handler runs in its actor's task (a plain one may run in the asking task while its actor is idle),
    one at a time, and an exception that leaves it is the actor's crash.

    Raises:
        InvalidMessage: when the class is made, if the annotation is missing or names something that is not a message.
    """
    if isinstance(target, type):
        return lambda function: _mark(function, (target, *more), {})
    frame = sys._getframe(1)
    # Message classes made inside a function (as tests do) are found through the frames around the class body.
    around: dict[str, Any] = dict(frame.f_locals)
    if frame.f_back is not None and frame.f_globals.get("__name__") == frame.f_back.f_globals.get("__name__"):
        around = {**frame.f_back.f_locals, **around}
    return _mark(target, None, around)


def _mark(function: Any, types_: tuple[type, ...] | None, around: dict[str, Any]) -> Any:
    function.__sapwood_handles__ = types_ if types_ is not None else _annotated(function, around)
    return function


def _annotated(function: Any, around: dict[str, Any]) -> tuple[type, ...]:
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 2:
        raise InvalidMessage(_teach(function, f"expected the parameters (self, message: SomeMessage); got {len(parameters)}"))
    annotation = parameters[1].annotation
    if annotation is inspect.Parameter.empty:
        raise InvalidMessage(_teach(function, f"expected an annotation on {parameters[1].name!r}; got none"))
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, function.__globals__, around)
        except NameError as error:
            raise InvalidMessage(_teach(function, f"cannot resolve the annotation {annotation!r} ({error})")) from None
    origin = typing.get_origin(annotation)
    members = typing.get_args(annotation) if origin in (Union, types.UnionType) else (annotation,)
    for member in members:
        if not isinstance(member, type) or not hasattr(member, "__priority__"):
            raise InvalidMessage(_teach(function, f"expected a class made with @message; got {member!r}"))
    return tuple(members)


def _teach(function: Any, problem: str) -> str:
    name = function.__qualname__
    short = function.__name__
    return f"handler {name}: {problem}\n    write   @handle\n            def {short}(self, message: Deposit) -> None: ..."


@attrs.frozen
class Dispatch:
    """What an actor class does with each message type; shared by all actors of the class.

    Attributes:
        plain: `{message type: plain function(actor, message)}`.
        slow: `{message type: coroutine function(actor, message)}`.
        direct: The message types that the fast path of `tell` may queue unseen.
    """

    plain: dict[type, Handler]
    slow: dict[type, Handler]
    direct: frozenset[type]


def build_dispatch(cls: type) -> Dispatch:
    """Collect the handlers of an actor class, those of its bases included.

    Raises:
        DuplicateName: if two methods of one class handle the same message type.
    """
    found: dict[type, Any] = {}
    for base in reversed(cls.__mro__):
        own: dict[type, Any] = {}
        for value in vars(base).values():
            for type_ in getattr(value, "__sapwood_handles__", ()):
                if type_ in own:
                    raise DuplicateName("handler for", type_.__name__, own[type_].__qualname__)
                own[type_] = value
        found.update(own)
    # A subclass may override a handler method without marking it again.
    found = {type_: _latest(cls, function) for type_, function in found.items()}
    plain = {type_: function for type_, function in found.items() if not inspect.iscoroutinefunction(function)}
    slow = {type_: function for type_, function in found.items() if inspect.iscoroutinefunction(function)}
    direct = frozenset(t for t in found if t.__dict__.get("__priority__", Priority.NORMAL) is Priority.NORMAL)
    return Dispatch(plain, slow, direct)


def _latest(cls: type, function: Any) -> Any:
    latest = getattr(cls, function.__name__, function)
    return latest if callable(latest) else function
