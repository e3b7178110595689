"""Signals: the first one starts an orderly stop, the second one a hard stop, the third one ends the process."""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager

import trio

from sapwood.actors import Environment

EXIT_CODE_BASE = 128
"""A process that a signal ended exits with this plus the number of the signal."""


def can_handle_signals() -> bool:
    """Say whether this thread may handle signals; Python allows it in the main thread only."""
    return threading.current_thread() is threading.main_thread()


class SignalWatch:
    """Turns SIGINT and SIGTERM into calls; no user code ever sees an exception caused by the signal (BR-73, BR-74).

    A signal that the process ignores (as a shell sets it for background jobs) stays ignored.

    Args:
        environment: Ends the process at the third signal, with exit code 128 + its number.
        on_first: Called at the first signal.
        on_second: Called at the second one.

    Attributes:
        first: Number of the first signal; None until it came.
    """

    def __init__(
        self, environment: Environment, *, on_first: Callable[[], None], on_second: Callable[[], None]
    ) -> None:
        self.first: int | None = None
        self._environment = environment
        self._on_first = on_first
        self._on_second = on_second
        self._scope = trio.CancelScope(shield=True)

    @contextmanager
    def listening(self, nursery: trio.Nursery) -> Generator[None]:
        """Handle signals within this block; afterwards the former handlers are back."""
        heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
        if not heard:
            yield
            return
        with trio.open_signal_receiver(*heard) as received:
            nursery.start_soon(self._run, received, name="sapwood signals")
            try:
                yield
            finally:
                self._scope.cancel()

    async def _run(self, received: AsyncIterator[int]) -> None:
        # Shielded, to hear further signals while everything else is being stopped.
        with self._scope:
            count = 0
            async for number in received:
                count += 1
                self._take(count, int(number))

    def _take(self, count: int, number: int) -> None:
        if count == 1:
            self.first = number
            self._on_first()
        elif count == 2:
            self._on_second()
        else:
            self._environment.exit_process(EXIT_CODE_BASE + number)
