"""A thread with a loop of its own, for programs that have none."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import outcome
import trio

from sapwood.actors._portal import Portal
from sapwood.errors import RuntimeClosed


class OffersPortal(Protocol):
    """What has a portal: an actor system, a runtime."""

    @property
    def portal(self) -> Portal:
        """The way in from other threads."""
        ...


P_co = TypeVar("P_co", bound=OffersPortal, covariant=True)


class LoopThread(Generic[P_co]):
    """A thread that runs a trio loop, and in it whatever an async context manager opens; see `start_in_thread`.

    Attributes:
        value: What the context manager returned. It belongs to the loop's thread; use `portal` from others.
    """

    value: P_co

    def __init__(self, factory: Callable[[], AbstractAsyncContextManager[P_co]], name: str) -> None:
        self._factory = factory
        self._ready = threading.Event()
        self._stop: Callable[[], object] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=False)
        _stop_before_interpreter_exits(self)
        self._thread.start()
        self._ready.wait()
        if self._stop is None:
            self._thread.join()
            self._raise_error()

    @property
    def portal(self) -> Portal:
        """The way into the loop."""
        return self.value.portal

    @property
    def running(self) -> bool:
        """Whether the loop still runs."""
        return self._thread.is_alive()

    def __enter__(self) -> LoopThread[P_co]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.request_stop()
        self._thread.join()
        # An error of the block hides that of the loop, unless it only says that the loop has ended.
        if error is None or isinstance(error, RuntimeClosed):
            self._raise_error()

    def request_stop(self) -> None:
        """Tell the context manager to close, in order, and go on at once; repeating it changes nothing."""
        if self._stop is not None:
            try:
                self._stop()
            except trio.RunFinishedError:
                return  # it has ended already

    def stop(self, timeout: float | None = None) -> bool:
        """Close the context manager, in order, and wait for the thread; say whether it has ended.

        Args:
            timeout: Seconds to wait; None waits for ever. The order to stop stands even if the wait ends.

        Raises:
            BaseException: what ended the loop, if it did not end in order.
        """
        self.request_stop()
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        self._raise_error()
        return True

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error

    def _run(self) -> None:
        ended = outcome.capture(trio.run, self._main)
        if isinstance(ended, outcome.Error):
            self._error = ended.error  # raised again in the thread that stops this one
        self._ready.set()

    async def _main(self) -> None:
        stop = trio.Event()
        token = trio.lowlevel.current_trio_token()
        async with self._factory() as value:
            self.value = value
            self._stop = lambda: token.run_sync_soon(stop.set)
            self._ready.set()
            await stop.wait()


def start_in_thread(
    factory: Callable[[], AbstractAsyncContextManager[P_co]], *, name: str = "sapwood"
) -> LoopThread[P_co]:
    """Start a thread with a trio loop, open an async context manager in it, and hand out the portal.

    ```
    with start_in_thread(open_system) as loop:
        account = loop.portal.call(loop.value.spawn, Account)
        loop.portal.tell(account, Deposit(5))
    ```

    Leaving the block, or `stop()`, closes the context manager in order and waits for the thread. The thread is no
    daemon: a program that ends without stopping it stops it then, in order.

    Args:
        factory: Makes the async context manager; called in the loop.
        name: Name of the thread.

    Raises:
        BaseException: what the context manager raises while it opens; the thread has ended then.
    """
    return LoopThread(factory, name)


def _stop_before_interpreter_exits(loop: LoopThread[Any]) -> None:
    # At its end the interpreter joins all threads before it runs what `atexit` knows, so that would be too late.
    register: Callable[[Callable[[], object]], object] | None = getattr(threading, "_register_atexit", None)
    if register is not None:
        weak = weakref.ref(loop)

        def stop() -> None:
            alive = weak()
            if alive is not None:
                alive.request_stop()

        register(stop)
