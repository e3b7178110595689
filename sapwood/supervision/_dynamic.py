"""The dynamic supervisor: any number of children that come and go, one_for_one, stopped all at once."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from sapwood.actors import Cell, ChildExit, ExitReason, Failure, Ref, Reply, check_branch, handle
from sapwood.errors import AskCycle, ChildNotFound, InvalidChildSpec, MaxChildren
from sapwood.supervision._base import BaseSupervisor, Retry, as_reason
from sapwood.supervision._children import ON_EXIT, Action, Child, StartedChild, ending, is_expected
from sapwood.supervision._requests import StartChild, TerminateChild
from sapwood.supervision._spec import ChildSpec
from sapwood.supervision._stopping import stop_cells


@attrs.frozen
class Start:
    """A start that goes on before any other request is taken (OTP E13)."""

    child: Child
    cell: Cell
    reply: Reply[StartedChild]


class DynamicSupervisor(BaseSupervisor[Cell]):
    """Starts children on demand; starts with none.

    Child ids are ignored, so many children may share one (OTP H01). On shutdown all children are told to stop at
    the same time, each within its own time (OTP H11). A subclass that overrides `on_continue` passes tokens that
    are not its own on to `super().on_continue(token)`.

    Args:
        max_children: Most children at a time, those being restarted included; None for no limit (OTP H02, H03).
        restarts: Most restarts within `period`, all children together.
        period: Length of the sliding window, in seconds.
        extra_arguments: Put before each child's own arguments at every start (OTP H04).

    Raises:
        InvalidChildSpec: if an option is out of its range.
    """

    _names_children = False

    def __init__(
        self,
        *,
        max_children: int | None = None,
        restarts: int = 3,
        period: float = 5.0,
        extra_arguments: tuple[Any, ...] = (),
    ) -> None:
        # Children stand under their last known cell, so that one being restarted is still found by its old ref (H08).
        super().__init__(restarts, period)
        if max_children is not None and (type(max_children) is not int or max_children < 0):
            raise InvalidChildSpec("max_children", "None or an int >= 0", max_children)
        self._max_children = max_children
        self._extra_arguments = tuple(extra_arguments)

    async def on_stop(self, reason: ExitReason) -> None:
        await self._stop_children()

    async def _stop_children(self) -> None:
        children, self._children = list(self._children.values()), {}
        running = [(child.cell, child) for child in children if child.cell is not None]
        for child in children:
            child.stopped()
        await stop_cells([(cell, child.spec) for cell, child in running], self._cell.label)
        self._report_stopped(running)

    def _report_stopped(self, stopped: list[tuple[Cell, Child]]) -> None:
        """Report unexpected ends, those with the same reason as one (OTP P02)."""
        same: dict[str, list[tuple[Cell, Child]]] = {}
        for cell, child in stopped:
            if cell.reason is not None and not is_expected(child.spec, cell.reason):
                same.setdefault(str(cell.reason), []).append((cell, child))
        for group in same.values():
            cell, child = group[0]
            self._report("shutdown_error", cell.reason, child, cell, times=len(group))

    # --- starting ---------------------------------------------------------------------------------

    @handle
    def start_child(self, message: StartChild) -> StartedChild | Failure | None:
        spec = self._accept(message.spec)
        if isinstance(spec, Failure):
            return spec
        child = Child(spec)
        cell = self._new_cell(child)
        settled, error = self._begin(child, cell)
        if not settled:
            self._children[cell] = child  # it takes a place already (H03)
            self.continue_with(Start(child, cell, self.reply_later()))
            return None
        return self._add(child, cell) if error is None else Failure(error)

    def _accept(self, spec: object) -> ChildSpec | Failure:
        if not isinstance(spec, ChildSpec):
            return Failure(InvalidChildSpec("children", "a spec made with child(...) or supervisor(...)", spec))
        if spec.significant:
            return Failure(InvalidChildSpec("significant", "False below a dynamic supervisor", spec.significant))  # F09
        if self._max_children is not None and len(self._children) >= self._max_children:
            return Failure(MaxChildren(self._max_children))
        if not self._extra_arguments:
            return spec
        return attrs.evolve(spec, birth=attrs.evolve(spec.birth, args=self._extra_arguments + spec.birth.args))

    async def on_continue(self, token: Any) -> None:
        if isinstance(token, Start):
            error = await self._end_start(token.child, token.cell)
            del self._children[token.cell]
            if error is None:
                token.reply(self._add(token.child, token.cell))
            else:
                token.reply.fail(error)

    def _add(self, child: Child, cell: Cell) -> StartedChild:
        started = self._settle(child, cell)
        if started.ref is not None:
            self._children[cell] = child
        return started

    # --- ends of children -------------------------------------------------------------------------

    @handle
    async def child_ended(self, message: ChildExit) -> None:
        cell = message.ref._cell
        child = self._children.get(cell)
        if child is None or child.cell is not cell:
            return
        reason = message.reason
        self._report_exit(child, reason)
        if ON_EXIT[child.spec.restart, ending(reason)] is not Action.RESTART:
            del self._children[cell]  # H10
        elif child.spec.backoff is None:
            await self._restart(cell, child, reason)
        else:
            self._retry_later(child, reason)

    @handle
    async def try_restart(self, message: Retry) -> None:
        await trio.lowlevel.checkpoint()
        child = message.child
        last = child.last_cell
        if message.still_due and last is not None:
            await self._restart(last, child, child.reason)

    async def _restart(self, last: Cell, child: Child, reason: ExitReason) -> None:
        if not self._may_restart(child):
            return
        child.due(reason)
        outcome = await self._launch(child)
        if isinstance(outcome, Exception):
            self._report("start_error", outcome, child, last)
            self._retry_later(child, as_reason(outcome))
            return
        del self._children[last]
        if child.cell is not None:  # an ignored restart drops the child (H09)
            self._children[child.cell] = child
            self._restarted(child, reason)

    # --- management -------------------------------------------------------------------------------

    @handle
    async def terminate_child(self, message: TerminateChild) -> Failure | None:
        wanted = message.child
        if not isinstance(wanted, Ref):
            return Failure(InvalidChildSpec("child", "the ref of a child; a dynamic supervisor ignores ids", wanted))
        child = self._children.get(wanted._cell)
        if child is None:
            return Failure(ChildNotFound(wanted.label))
        if child.cell is not None and message.caller is not None:
            try:
                check_branch(message.caller._cell, (self._cell,), child.cell)
            except AskCycle as error:
                return Failure(error)
        del self._children[wanted._cell]
        await self._stop_child(child)
        return None
