"""Signals: the first one starts an orderly stop, the second one a hard stop, the third one ends the process."""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager

import trio

from sapwood.actors import Environment
from sapwood.errors import InvalidOption

EXIT_CODE_BASE = 128
"""A process that a signal ended exits with this plus the number of the signal."""


def handles_signals(*, wanted: bool | None) -> bool:
    """Say whether signals are to be handled; None means yes in the main thread, the only one where Python lets it.

    Raises:
        InvalidOption: if they are wanted in another thread.
    """
    main = threading.current_thread() is threading.main_thread()
    if wanted is not None and (type(wanted) is not bool or (wanted and not main)):
        expected = "True, False or None" if main else "False or None outside the main thread"
        raise InvalidOption(f"signals: expected {expected}; got {wanted!r}")
    return main if wanted is None else wanted


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
        self._received: AsyncIterator[int] | None = None
        self._scope = trio.CancelScope(shield=True)

    @contextmanager
    def receiving(self) -> Generator[None]:
        """Take the signals in place of Python's own handlers, which are back after the block."""
        heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
        if not heard:
            yield
            return
        with trio.open_signal_receiver(*heard) as self._received:
            yield

    async def run(self) -> None:
        """Carry out what the signals ask for, until `close`."""
        if self._received is None:
            return
        # Shielded, to hear further signals while everything else is being stopped.
        with self._scope:
            count = 0
            async for number in self._received:
                count += 1
                self._take(count, int(number))

    def close(self) -> None:
        """Let `run` end."""
        self._scope.cancel()

    def _take(self, count: int, number: int) -> None:
        if count == 1:
            self.first = number
            self._on_first()
        elif count == 2:
            self._on_second()
        else:
            self._environment.exit_process(EXIT_CODE_BASE + number)
