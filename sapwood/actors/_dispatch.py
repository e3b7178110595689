"""Dispatch: what an actor does with one entry of its mailbox."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import trio

from sapwood.actors._asks import Ask
from sapwood.actors._contexts import Values, run_in
from sapwood.actors._exits import is_fatal
from sapwood.actors._mailbox import Envelope
from sapwood.actors._messages import Stop, SystemCall, TaskDone
from sapwood.actors._tasks import Tick
from sapwood.errors import InvalidMessage, UnhandledRequest

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell

NEEDS_SCOPE: Final[Any] = object()
"""Stands for "this would block, and the actor has no cancel scope yet"."""


def take(cell: Cell, entry: object) -> Awaitable[Any] | None:
    """Handle an entry that is no ask and that the loop could not handle at once.

    Returns:
        What must be awaited, NEEDS_SCOPE or None.
    """
    message: object = entry
    values: Values | None = None
    match entry:
        case Envelope():
            message, values = entry.message, entry.values
        case Tick():
            entry.timer.delivered()
            message, values = entry.message, entry.timer.values
        case TaskDone():
            values = entry.task.values
        case Stop():
            cell.stopping = entry.reason
            cell.control = True
            return None
        case SystemCall():
            _system_call(cell, entry)
            return None
        case _:
            pass
    function = find_plain(cell, type(message))
    if function is not None:
        note(cell, "received", message)
        check_result(cell, message, call(cell, function, message, values))
        return None
    function = find_slow(cell, type(message))
    if function is not None:
        if cell.scope is None:
            return NEEDS_SCOPE  # type: ignore[no-any-return]  # a sentinel
        note(cell, "received", message)
        begun = call_slow(cell, function, message, values)
        try:
            trap = begun.send(None)
        except StopIteration:
            return None
        return _go_on(begun, trap)
    assert cell.actor is not None
    note(cell, "received", message)
    check_plain(cell, "on_unhandled", call(cell, type(cell.actor).on_unhandled, message, values))
    return None


def take_ask(cell: Cell, ask: Ask) -> Awaitable[Any] | None:
    """Handle a request; return what must be awaited, NEEDS_SCOPE or None."""
    request: object = ask.request
    assert cell.dispatch is not None
    kind = type(request)
    function = cell.dispatch.slow.get(kind)
    if function is None:
        function = find_plain(cell, kind)
        if function is not None:
            if cell.debug is not None:
                note(cell, "received", request)
            cell.asked = ask
            values = ask.values
            reply(cell, ask, function(cell.actor, request) if values is None else call(cell, function, request, values))
            return None
        function = find_slow(cell, kind)
    if function is not None and cell.scope is None:
        return NEEDS_SCOPE  # type: ignore[no-any-return]  # a sentinel
    note(cell, "received", request)
    cell.asked = ask
    if function is None:
        raise UnhandledRequest(f"{cell.label} has no handler for {type(request).__name__}; write one marked @handle")
    if cell.system.propagate:
        begun: Coroutine[Any, Any, Any] = call_slow(cell, function, request, ask.values)
    else:
        begun = function(cell.actor, request)
    try:
        trap = begun.send(None)
    except StopIteration as stop:
        reply(cell, ask, stop.value)
        return None
    return _answer_slowly(cell, ask, _go_on(begun, trap))


async def _answer_slowly(cell: Cell, ask: Ask, answer: Awaitable[Any]) -> None:
    reply(cell, ask, await answer)


@coroutine
def _go_on(begun: Coroutine[Any, Any, Any], trap: Any) -> Generator[Any, Any, Any]:
    """Go on with a coroutine whose first step led to `trap`, as `await` would.

    Taking that step by hand saves the layers of an await in handlers that never wait.
    """
    try:
        while True:
            try:
                # trio answers a trap with an outcome, also where that is an exception; it throws nothing. The outcome
                # gets no name here: it would keep itself alive through the traceback of its exception (BR-79).
                trap = begun.send((yield trap))
            except StopIteration as stop:
                return stop.value
    finally:
        begun.close()


def reply(cell: Cell, ask: Ask, value: Any) -> None:
    """Answer with what the handler returned, unless it took the reply for later or the actor is about to stop."""
    if value is not None and value.__class__ is CoroutineType:
        check_result(cell, ask.request, value)
    if cell.asked is not ask:
        return
    cell.asked = None
    if cell.debug is not None:
        note(cell, "replied", value)
    if cell.stopping is not None:
        # The actor winds down first and answers then (OTP I14).
        cell.held_reply = (ask, value)
    else:
        ask.answer(value)


# --- calling --------------------------------------------------------------------------------------


def call(cell: Cell, function: Callable[..., Any], argument: Any, values: Values | None) -> Any:
    """Call a plain callback, in the context that came with its message if context is carried."""
    if values is None and not cell.system.propagate:
        return function(cell.actor, argument)
    return cell.context_for(values).run(function, cell.actor, argument)


def call_slow(
    cell: Cell, function: Callable[..., Any], argument: Any, values: Values | None
) -> Coroutine[Any, Any, Any]:
    """Begin a call of an async callback, in the context that came with its message if context is carried."""
    if cell.system.propagate:
        return cast("Coroutine[Any, Any, Any]", run_in(cell.context_for(values), function(cell.actor, argument)))
    return function(cell.actor, argument)  # type: ignore[no-any-return]  # a coroutine function


def find_plain(cell: Cell, kind: type) -> Any:
    """Find the plain handler of a message type, its base classes included."""
    assert cell.dispatch is not None
    return cell.dispatch.plain.get(kind) or _find(cell, kind, cell.dispatch.plain)


def find_slow(cell: Cell, kind: type) -> Any:
    """Find the async handler of a message type, its base classes included."""
    assert cell.dispatch is not None
    return _find(cell, kind, cell.dispatch.slow)


def _find(cell: Cell, kind: type, table: dict[type, Any]) -> Any:
    """Search the base classes; nearest first, whichever table it is in."""
    assert cell.dispatch is not None
    for base in kind.__mro__:
        if base in cell.dispatch.plain or base in cell.dispatch.slow:
            function = table.get(base)
            if function is not None:
                table[kind] = function
            return function
    return None


# --- checks, debugging, introspection -------------------------------------------------------------


def check_result(cell: Cell, message: Any, result: Any) -> None:
    """Refuse a coroutine from a plain handler, which would never run.

    Raises:
        InvalidMessage: naming the handler and what to write.
    """
    if inspect.iscoroutine(result):
        result.close()
        raise coroutine_answer(cell, message)


def coroutine_answer(cell: Cell, request: object) -> InvalidMessage:
    """Build the error for a plain handler that returned a coroutine."""
    return InvalidMessage(
        f"handler for {type(request).__name__} of {cell.label}: a plain method returned a coroutine; write async def"
    )


def check_plain(cell: Cell, hook: str, result: Any) -> None:
    """Refuse something to be awaited from a hook that is not declared `async def`, or must not be.

    Raises:
        InvalidMessage: naming the hook.
    """
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise InvalidMessage(f"{hook} of {cell.label}: expected a plain method; got one that returns {result!r}")


def note(cell: Cell, kind: Literal["received", "replied"], value: Any) -> None:
    """Pass an event to the actor's debugging, if it is on."""
    if cell.debug is not None:
        cell.debug.note(kind, value, trio.current_time())


def _system_call(cell: Cell, request: SystemCall) -> None:
    cell.handled -= 1
    if request.ask.ended:
        return
    try:
        value = request.function(cell)
    except Exception as error:
        if is_fatal(error):
            raise
        request.ask.fail(error)
    else:
        request.ask.answer(value)
