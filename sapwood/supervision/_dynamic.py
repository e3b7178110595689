"""The dynamic supervisor: any number of children that come and go, one_for_one, stopped all at once."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from sapwood.actors import Cell, ChildExit, ExitReason, Failure, Ref, Shutdown, handle, start_nowait
from sapwood.errors import ChildNotFound, InvalidChildSpec, MaxChildren, StartTimeout
from sapwood.supervision._base import BaseSupervisor, Retry, as_reason, start_failure
from sapwood.supervision._children import (
    ON_EXIT,
    Action,
    Child,
    ChildCounts,
    ChildInfo,
    counts,
    ending,
    info,
    is_expected,
    kill_cell,
    stop_cell,
)
from sapwood.supervision._requests import (
    CountChildren,
    GetStatistics,
    StartChild,
    SupervisorStatistics,
    TerminateChild,
    WhichChildren,
)
from sapwood.supervision._spec import ChildSpec


class DynamicSupervisor(BaseSupervisor):
    """Starts children on demand; starts with none.

    Child ids are ignored, so many children may share one (OTP H01). On shutdown all children are told to stop at
    the same time, each within its own time (OTP H11).

    Args:
        max_children: Most children at a time, those being restarted included; None for no limit (OTP H02, H03).
        restarts: Most restarts within `period`, all children together.
        period: Length of the sliding window, in seconds.
        extra_arguments: Put before each child's own arguments at every start (OTP H04).

    Raises:
        InvalidChildSpec: if an option is out of its range.
    """

    def __init__(
        self,
        *,
        max_children: int | None = None,
        restarts: int = 3,
        period: float = 5.0,
        extra_arguments: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(restarts, period)
        if max_children is not None and (type(max_children) is not int or max_children < 0):
            raise InvalidChildSpec("max_children", "None or an int >= 0", max_children)
        self._max_children = max_children
        self._extra_arguments = tuple(extra_arguments)
        # By the last known cell, so that a child being restarted is still found by its old ref (OTP H08).
        self._children: dict[Cell, Child] = {}

    async def on_stop(self, reason: ExitReason) -> None:
        await self._stop_all()

    def cells(self) -> list[Cell]:
        return [child.cell for child in self._children.values() if child.cell is not None]

    async def _stop_all(self) -> None:
        running = [child for child in self._children.values() if child.cell is not None]
        for child in self._children.values():
            child.cancel_retry()
        self._children = {}
        cells: list[tuple[Cell, ChildSpec, float]] = []
        for child in running:
            cell = child.cell
            assert cell is not None
            limit = 0.0
            if child.spec.shutdown == "brutal_kill":
                cell.kill()
            else:
                cell.shut_down(Shutdown())
                limit = float("inf") if child.spec.shutdown is None else float(child.spec.shutdown)
            cells.append((cell, child.spec, limit))
        started = trio.current_time()
        # One wait for each distinct time-out instead of one for each child.
        for limit in sorted({limit for _, _, limit in cells}):
            with trio.CancelScope(deadline=started + limit):
                for cell, _, own in cells:
                    if own == limit and cell.reason is None:
                        await cell.ref.wait_stopped()
            for cell, spec, own in cells:
                if own == limit and cell.reason is None:
                    cell.kill()
        for cell, spec, _ in cells:
            if cell.reason is None:
                await kill_cell(cell, spec, self._cell.label)
        for child, (cell, spec, _) in zip(running, cells, strict=True):
            if cell.reason is not None and not is_expected(spec, cell.reason):
                self._report("shutdown_error", cell.reason, child)

    # --- starting ---------------------------------------------------------------------------------

    @handle
    def start_child(self, message: StartChild) -> Ref | Failure | None:
        spec = message.spec
        if spec.significant:
            return Failure(InvalidChildSpec("significant", "False below a dynamic supervisor", True))
        if self._max_children is not None and len(self._children) >= self._max_children:
            return Failure(MaxChildren(self._max_children))
        if self._extra_arguments:
            birth = attrs.evolve(spec.birth, args=self._extra_arguments + spec.birth.args)
            spec = attrs.evolve(spec, birth=birth)
        child = Child(spec)
        cell = self._new_cell(child)
        try:
            started = start_nowait(cell, self._nursery)
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            return Failure(start_failure(spec, cell, error))
        if not started:
            # Starting goes on before any other request is taken (OTP E13).
            self._children[cell] = child
            self.continue_with((child, cell, self.reply_later()))
            return None
        if cell.start_error is not None:
            return Failure(start_failure(spec, cell, cell.start_error))
        return self._add(child, cell)

    async def on_continue(self, token: Any) -> None:
        child, cell, reply = token
        limit = float("inf") if child.spec.start_timeout is None else child.spec.start_timeout
        with trio.move_on_after(limit):
            await cell.wait_started()
        del self._children[cell]
        error: Exception | None = cell.start_error
        if error is None and not cell.ran and not cell.ignored:
            await kill_cell(cell, child.spec, self._cell.label)
            error = StartTimeout(cell.label, limit)
        if error is not None:
            reply.fail(start_failure(child.spec, cell, error))
        else:
            reply(self._add(child, cell))

    def _add(self, child: Child, cell: Cell) -> Ref | None:
        self._settle(child, cell)
        if child.cell is None:
            return None
        self._children[cell] = child
        return cell.ref

    # --- ends of children -------------------------------------------------------------------------

    @handle
    async def child_ended(self, message: ChildExit) -> None:
        child = self._children.get(message.ref._cell)
        if child is None or child.cell is not message.ref._cell:
            return
        reason = message.reason
        self._report_exit(child, reason)
        if ON_EXIT[child.spec.restart, ending(reason)] is Action.RESTART:
            if not self._schedule(child, reason):
                await self._restart(message.ref._cell, child, reason)
        else:
            del self._children[message.ref._cell]  # H10

    @handle
    async def try_restart(self, message: Retry) -> None:
        child = message.child
        last = child.last_ref
        if last is None or child.state != "restarting" or child.incarnation != message.incarnation:
            return
        if self._children.get(last._cell) is child:
            await self._restart(last._cell, child, child.reason)

    async def _restart(self, old: Cell, child: Child, reason: ExitReason) -> None:
        if not self._may_restart(child, reason):
            return
        child.due(reason)
        child.cancel_retry()
        error = await self._launch(child)
        if error is not None:
            self._report("start_error", error, child)
            self._try_again(child, as_reason(error))
            return
        del self._children[old]
        if child.cell is not None:  # an ignored restart drops the child (OTP H09)
            self._children[child.cell] = child
            self._restarted(child, reason)

    # --- management -------------------------------------------------------------------------------

    @handle
    async def terminate_child(self, message: TerminateChild) -> Failure | None:
        if isinstance(message.child, str):
            return Failure(InvalidChildSpec("child", "the ref of a child; a dynamic supervisor ignores ids", message.child))
        child = self._children.pop(message.child._cell, None)
        if child is None:
            return Failure(ChildNotFound(repr(message.child)))
        cell = child.cell
        child.stopped()
        if cell is not None:
            reason = await stop_cell(cell, child.spec, self._cell.label)
            if not is_expected(child.spec, reason):
                self._report("shutdown_error", reason, child)
        return None

    @handle
    def which_children(self, message: WhichChildren) -> list[ChildInfo]:
        return [info(child, named=False) for child in self._children.values()]

    @handle
    def count_children(self, message: CountChildren) -> ChildCounts:
        return counts(list(self._children.values()))

    @handle
    def get_statistics(self, message: GetStatistics) -> SupervisorStatistics:
        children = list(self._children.values())
        return SupervisorStatistics(
            children=len(children),
            active=sum(child.cell is not None for child in children),
            restarting=sum(child.state == "restarting" for child in children),
            restarts=self._restarts,
            restarts_in_window=self._intensity.count(self.environment.monotonic()),
        )
