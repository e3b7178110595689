"""Starting an actor: in its supervisor's task up to the point where it runs by itself."""

from __future__ import annotations

import trio

from sapwood.actors import _loop
from sapwood.actors._asks import check_timeout
from sapwood.actors._cell import Cell
from sapwood.actors._inbox import Phase
from sapwood.errors import RuntimeClosed, StartTimeout


async def start(cell: Cell, nursery: trio.Nursery, timeout: float | None = None) -> None:
    """Start an actor in a nursery and wait until it runs; afterwards `cell.ignored` may be True.

    Runs in the task of its supervisor. When this raises, the actor is gone and its key is free (OTP A05), unless it
    was cancelled: then the half-started actor has been killed, and ends as soon as its code lets it.

    Raises:
        AlreadyRegistered: if its key is taken.
        RegistryUnavailable: if the registry cannot tell.
        StartTimeout: if `on_start` takes longer than `timeout` seconds (OTP I05).
        RuntimeClosed: if the runtime has stopped.
        Exception: whatever made it fail.
    """
    check_timeout("start", timeout)
    if not start_nowait(cell, nursery):
        try:
            with trio.move_on_after(float("inf") if timeout is None else timeout) as limit:
                await cell.wait_started()
        except trio.Cancelled:
            cell.kill()
            raise
        if limit.cancelled_caught and cell.phase == Phase.STARTING:
            cell.kill()
            await cell.ref.wait_stopped()
            raise StartTimeout(cell.label, timeout or 0.0)
    if cell.start_error is not None:
        error, cell.start_error = cell.start_error, None
        try:
            raise error
        finally:
            del error  # its traceback will hold this frame


def start_nowait(cell: Cell, nursery: trio.Nursery) -> bool:
    """Begin to start an actor; True if it runs or has failed already, False if `wait_started` must be awaited.

    Raises:
        AlreadyRegistered, RegistryUnavailable, RuntimeClosed: see `start`; nothing has happened then.
    """
    system = cell.system
    if system.closed:
        raise RuntimeClosed(f"cannot start {cell.label}: the runtime has stopped")
    running = cell.begin()
    if cell.reason is not None:
        return True
    system.actors[cell] = None
    assert cell.context is not None
    cell.context.run(_start_task, nursery, cell)
    return running


def _start_task(nursery: trio.Nursery, cell: Cell) -> None:
    nursery.start_soon(_loop.run, cell, name=cell.label)
