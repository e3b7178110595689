"""Signals of the command line: the first one stops in order, the second one at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable

import trio

from sapwood.actors import Environment

SHOW_CURSOR = "\x1b[?25h"


async def until_stopped(
    work: Callable[[], Awaitable[int]],
    environment: Environment,
    *,
    on_interrupt: Callable[[], bool] = lambda: False,
) -> int:
    """Run `work` and return its exit code, or 128 + the number of the signal that cancelled it.

    A SIGINT or SIGTERM cancels it, so that runtimes stop in order; another one ends the process at once.

    Args:
        work: What to do.
        environment: Ends the process.
        on_interrupt: Called at each SIGINT; returns whether it has dealt with it, so that the work goes on.

    Raises:
        Exception: what `work` raises.
    """
    heard: list[int] = []
    failure: Exception | None = None
    code: int | None = None
    scope = trio.CancelScope()

    async def listen(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            task_status.started()
            async for number in received:
                if not heard and number == signal.SIGINT and on_interrupt():
                    continue
                heard.append(int(number))
                scope.cancel()
                if len(heard) > 1:
                    if sys.stdout.isatty():
                        sys.stdout.write(SHOW_CURSOR)
                        sys.stdout.flush()
                    environment.exit_process(128 + int(number))

    async with trio.open_nursery() as nursery:
        await nursery.start(listen)
        with scope:
            try:
                code = await work()
            except Exception as error:
                # Raised again below, since the nursery would wrap it in a group.
                failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return code if code is not None else 128 + heard[0]
