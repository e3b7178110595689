"""The portal: the way into a runtime from other threads, from asyncio and from signal handlers (BR-76)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import outcome
import trio

from sapwood.actors._asks import DEFAULT_TIMEOUT, Ask, check_timeout
from sapwood.actors._exits import is_fatal
from sapwood.actors._messages import Priority, Request, check_message
from sapwood.errors import InvalidOption, RuntimeClosed, WrongThread

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell
    from sapwood.actors._ref import Ref
    from sapwood.actors._system import ActorSystem

T = TypeVar("T")


class Portal:
    """Calls into the runtime from outside its thread; made by the runtime, as its `portal`.

    What one thread sends arrives once, in the order sent, and wakes an idle loop at once; nothing is promised between
    threads. Context variables go along: a message carries those that the runtime propagates, a call has them all.

    | from | tell | ask, call | aask, acall |
    |---|---|---|---|
    | another thread | yes | yes, blocks the thread | no |
    | an asyncio task, in whatever thread | yes | no, it would block the loop | yes |
    | a signal handler | yes | no | no |
    | a task of the runtime | yes, but write `ref.tell` | no, write `await ref.ask` | no |

    After the runtime has stopped every call raises `RuntimeClosed`, those that wait included; none hangs.
    """

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._token = trio.lowlevel.current_trio_token()
        # A reentrant lock, since a signal handler may interrupt the thread that holds it.
        self._lock: Final = threading.RLock()
        self._waiting: dict[Future[Any], None] = {}

    def tell(self, ref: Ref, message: object, *, priority: Priority | None = None) -> None:
        """Send a message and go on at once, as `Ref.tell` does; the only call that a signal handler may make.

        A message for which a bounded mailbox has no room becomes a dead letter; to wait for room instead, write
        `portal.call(ref.send, message)`.

        Raises:
            InvalidMessage: if it is not a message, or the priority is none.
            RuntimeClosed: if the runtime has stopped.
            WrongThread: in a process that was forked from the one that runs the actors.
        """
        from sapwood.actors._inbox import priority_of

        cell = self._target(ref)
        check_message(message)
        lane = priority_of(message, priority)
        self._soon(f"tell {cell.label}", cell.deliver, message, lane, None, None)

    def ask(
        self,
        ref: Ref,
        request: Request[T],
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        priority: Priority | None = None,
    ) -> T:
        """Send a request and block this thread until its answer comes; see `Ref.ask` for arguments and errors.

        Raises:
            RuntimeClosed: if the runtime has stopped, or stops before the answer comes.
            WrongThread: where it would block an event loop; the text says what to write.
        """
        self._check_may_block("ask", "await ref.ask(request)", "await portal.aask(ref, request)")
        return _result(self._begin_ask(ref, request, timeout, priority))

    async def aask(
        self,
        ref: Ref,
        request: Request[T],
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        priority: Priority | None = None,
    ) -> T:
        """Ask from an asyncio task; cancelling it gives the ask up. Otherwise as `ask`."""
        self._check_asyncio("aask", "await ref.ask(request)")
        import asyncio

        return await asyncio.wrap_future(self._begin_ask(ref, request, timeout, priority))

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run an async function in the runtime's loop and block this thread until it ends; return what it returns.

        It is cancelled if the runtime stops first. What it raises comes here and harms nobody else.

        Raises:
            RuntimeClosed: if the runtime has stopped, or stops before the function ends.
            WrongThread: where it would block an event loop; the text says what to write.
        """
        self._check_may_block("call", "await the function itself", "await portal.acall(function, ...)")
        return _result(self._begin_call(function, args))

    async def acall(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run an async function in the runtime's loop from an asyncio task; cancelling that cancels the function."""
        self._check_asyncio("acall", "await the function itself")
        import asyncio

        return await asyncio.wrap_future(self._begin_call(function, args))

    def close(self) -> None:
        """Fail every call that waits; the runtime calls it when it has stopped."""
        with self._lock:
            waiting = tuple(self._waiting)
        for future in waiting:
            _settle(future, outcome.Error(_closed("call")))

    # --- on the caller's side ---------------------------------------------------------------------

    def _target(self, ref: Ref) -> Cell:
        if ref._cell.system is not self._system:
            raise InvalidOption(f"portal: expected a ref of its own runtime; got {ref!r}")
        return ref._cell

    def _soon(self, what: str, function: Callable[..., object], *args: Any) -> None:
        if self._system.closed or self._system.forked:
            raise self._system.wrong_thread(what, "")
        try:
            self._token.run_sync_soon(partial(copy_context().run, function, *args))
        except trio.RunFinishedError:
            raise _closed(what) from None

    def _begin_ask(self, ref: Ref, request: Request[T], timeout: float | None, priority: Priority | None) -> Future[T]:
        from sapwood.actors._inbox import priority_of
        from sapwood.actors._ref import not_a_request

        cell = self._target(ref)
        check_message(request)
        if not isinstance(request, Request):
            raise not_a_request(request)
        check_timeout("ask", timeout)
        ask = Ask(request, cell, timeout)
        future = self._future(ask.abandon)
        self._begin(future, f"ask {cell.label}", self._queue_ask, future, ask, priority_of(request, priority))
        return future

    def _begin_call(self, function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> Future[T]:
        scope = trio.CancelScope()
        future = self._future(scope.cancel)
        self._begin(future, "call", self._start_call, future, scope, function, args)
        return future

    def _future(self, give_up: Callable[[], object]) -> Future[Any]:
        future: Future[Any] = Future()

        def done(future: Future[Any]) -> None:
            with self._lock:
                self._waiting.pop(future, None)
            if future.cancelled():
                try:
                    self._token.run_sync_soon(give_up)
                except trio.RunFinishedError:
                    return  # there is nothing left to give up

        future.add_done_callback(done)
        return future

    def _begin(self, future: Future[Any], what: str, function: Callable[..., object], *args: Any) -> None:
        if self._system.forked:
            raise self._system.wrong_thread(what, "")
        # Whatever is registered before the runtime is closed is failed by `close`; nothing is registered later.
        with self._lock:
            if self._system.closed:
                raise _closed(what)
            self._waiting[future] = None
        try:
            self._soon(what, function, *args)
        except BaseException:
            future.cancel()
            raise

    def _check_may_block(self, what: str, in_task: str, in_asyncio: str) -> None:
        here = "this thread runs "
        if self._system.forked:
            raise self._system.wrong_thread(f"portal.{what}", "")
        if threading.get_ident() == self._system.thread:
            problem = f"{here}the runtime, which could not answer; in a task write   {in_task}   in a signal handler "
            raise WrongThread(f"portal.{what}: {problem}portal.tell(ref, message)")
        if trio.lowlevel.in_trio_run():
            problem = (
                f"{here}a trio loop, which would be blocked; write   await trio.to_thread.run_sync(portal.{what}, ...)"
            )
            raise WrongThread(f"portal.{what}: {problem}")
        if _asyncio_runs():
            raise WrongThread(f"portal.{what}: {here}an asyncio loop, which would be blocked; write   {in_asyncio}")

    def _check_asyncio(self, what: str, in_task: str) -> None:
        if trio.lowlevel.in_trio_task():
            raise WrongThread(f"portal.{what}: expected an asyncio task; in one of trio write   {in_task}")
        if not _asyncio_runs():
            blocking = f"portal.{what.removeprefix('a')}(...)"
            raise WrongThread(f"portal.{what}: expected a running asyncio loop; in a plain thread write   {blocking}")

    # --- on the runtime's side --------------------------------------------------------------------

    def _queue_ask(self, future: Future[Any], ask: Ask, priority: Priority) -> None:
        from sapwood.actors._ref import begin_ask

        if future.done():
            return
        try:
            begin_ask(ask, priority)
        except Exception as error:
            if is_fatal(error):
                raise
            _settle(future, outcome.Error(error))
        else:
            ask.attach(partial(_settle_ask, future))

    def _start_call(
        self,
        future: Future[Any],
        scope: trio.CancelScope,
        function: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
    ) -> None:
        if self._system.closed:
            _settle(future, outcome.Error(_closed("call")))
        elif not future.done():
            self._system.nursery.start_soon(_run_call, future, scope, function, args, name=f"portal: {function!r}")


async def _run_call(
    future: Future[Any], scope: trio.CancelScope, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
) -> None:
    try:
        with scope:
            _settle(future, outcome.Value(await function(*args)))
    except Exception as error:
        _settle(future, outcome.Error(error))
        if is_fatal(error):
            raise
    except BaseException as error:
        _settle(future, outcome.Error(_closed("call") if isinstance(error, trio.Cancelled) else error))
        raise


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    finally:
        future.cancel()  # for a thread that was interrupted while it waited
        del future


def _settle(future: Future[Any], result: outcome.Outcome[Any]) -> None:
    try:
        if isinstance(result, outcome.Error):
            future.set_exception(result.error)
        else:
            future.set_result(result.unwrap())
    except InvalidStateError:
        return  # it was given up at the same moment


def _settle_ask(future: Future[Any], ask: Ask) -> None:
    _settle(future, outcome.capture(ask.unwrap))


def _closed(what: str) -> RuntimeClosed:
    return RuntimeClosed(f"{what}: the runtime has stopped")


def _asyncio_runs() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
