"""Signals: the first one starts an orderly stop, the second one a hard stop, the third one ends the process."""

from __future__ import annotations

import signal
from collections.abc import Callable

import trio

from sapwood.actors import Environment


class SignalWatch:
    """Turns SIGINT and SIGTERM into calls; no user code ever sees an exception caused by the signal (BR-73, BR-74).

    Args:
        environment: Ends the process at the third signal, with exit code 128 + its number.
        on_first: Called at the first signal.
        on_second: Called at the second one.
    """

    def __init__(
        self, environment: Environment, *, on_first: Callable[[], None], on_second: Callable[[], None]
    ) -> None:
        self.first: int | None = None
        self._environment = environment
        self._on_first = on_first
        self._on_second = on_second
        self._scope = trio.CancelScope(shield=True)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until `close`; shielded, to hear further signals while everything else is being stopped."""
        with self._scope, trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            task_status.started()
            heard = 0
            async for number in received:
                heard += 1
                if heard == 1:
                    self.first = int(number)
                    self._on_first()
                elif heard == 2:
                    self._on_second()
                else:
                    self._environment.exit_process(128 + int(number))

    def close(self) -> None:
        """Stop listening and restore the former handlers."""
        self._scope.cancel()
