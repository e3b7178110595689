"""Stopping children: ask, wait, kill, and what to do about one that does not die."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import trio

from sapwood.actors import Cell, ChildStuck, ExitReason, Shutdown
from sapwood.supervision._spec import ChildSpec

STUCK_AFTER: Final = 5.0
"""Seconds after a kill before a child that still runs is reported as stuck."""

_EVER: Final = float("inf")

Stopping: TypeAlias = tuple[Cell, ChildSpec]


async def stop_cell(cell: Cell, spec: ChildSpec, supervisor: str) -> ExitReason:
    """Stop one child as its spec says; return how it really ended (OTP E02–E06, E08, E09)."""
    await stop_cells([(cell, spec)], supervisor)
    return _reason(cell)


async def kill_cell(cell: Cell, spec: ChildSpec, supervisor: str) -> ExitReason:
    """Kill one child at once, and wait until it has ended."""
    cell.kill()
    await _wait_killed({trio.current_time() + STUCK_AFTER: [(cell, spec)]}, {}, [(cell, spec)], supervisor)
    return _reason(cell)


async def stop_cells(children: Sequence[Stopping], supervisor: str) -> None:
    """Tell children to stop, all at once; kill each when its own time is over; return when all have ended.

    One that survives its kill by `STUCK_AFTER` seconds is reported, and waited for or detached as its spec says.
    """
    now = trio.current_time()
    kills: dict[float, list[Stopping]] = {}
    stuck: dict[float, list[Stopping]] = {}
    for cell, spec in children:
        over = _tell(cell, spec, now)
        if over > now:
            kills.setdefault(over, []).append((cell, spec))
        stuck.setdefault(over + STUCK_AFTER, []).append((cell, spec))
    await _wait_killed(stuck, kills, children, supervisor)


def _tell(cell: Cell, spec: ChildSpec, now: float) -> float:
    """Tell a child to stop; return when its time is over."""
    if spec.shutdown == "brutal_kill":
        cell.kill()
        return now
    cell.shut_down(Shutdown())
    if spec.shutdown is None:
        return _EVER
    # Without any time, a child that takes exits at once has been ended by the request already (OTP E06).
    if spec.shutdown == 0 and not cell.abrupt:
        cell.kill()
    return now + spec.shutdown


async def _wait_killed(
    stuck: dict[float, list[Stopping]],
    kills: dict[float, list[Stopping]],
    children: Sequence[Stopping],
    supervisor: str,
) -> None:
    for moment in sorted({*kills, *stuck}):
        if await _all_ended(children, moment):
            return
        for cell, _ in kills.get(moment, ()):
            cell.kill()
        for cell, spec in stuck.get(moment, ()):
            if cell.reason is None:
                _report_stuck(cell, spec, supervisor)
    await _all_ended(children, _EVER)


async def _all_ended(children: Iterable[Stopping], moment: float) -> bool:
    with trio.CancelScope(deadline=moment):
        for cell, _ in children:
            if cell.reason is None:
                await cell.ref.wait_stopped()
        return True
    return all(cell.reason is not None for cell, _ in children)


def _report_stuck(cell: Cell, spec: ChildSpec, supervisor: str) -> None:
    cell.system.telemetry.tell(ChildStuck(supervisor, cell.label, STUCK_AFTER, spec.detach_stuck))
    if spec.detach_stuck:
        cell.detach()


def _reason(cell: Cell) -> ExitReason:
    assert cell.reason is not None
    return cell.reason
