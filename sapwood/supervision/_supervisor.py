"""The supervisor: ordered children, three strategies, a restart budget, ordered shutdown."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.actors import Cell, ChildExit, ExitReason, Failure, Ref, Shutdown, handle
from sapwood.errors import (
    AlreadyPresent,
    AlreadyStarted,
    ChildFailed,
    ChildNotFound,
    ChildRestarting,
    ChildRunning,
    InvalidChildSpec,
)
from sapwood.supervision._base import BaseSupervisor, Retry, as_reason
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
    stop_cell,
)
from sapwood.supervision._requests import (
    CountChildren,
    DeleteChild,
    GetChildSpec,
    GetStatistics,
    RestartChild,
    StartChild,
    SupervisorStatistics,
    TerminateChild,
    WhichChildren,
)
from sapwood.supervision._spec import AUTO_SHUTDOWNS, STRATEGIES, AutoShutdown, ChildSpec, Strategy, check_choice


class Supervisor(BaseSupervisor):
    """Starts children in order, restarts them when they end, stops them in reverse order.

    Its operations run one at a time, in its own task (OTP E13). Every child is a task in a nursery that this task
    owns, so no child can outlive it.

    Args:
        children: Specs in start order.
        strategy: `one_for_one` replaces the child that ended; `one_for_all` all children; `rest_for_one` it and
            those started after it (OTP C01–C03).
        restarts: Most restarts within `period`; one more, and the supervisor stops with `Shutdown` (OTP D01, D08).
        period: Length of the sliding window, in seconds; its edge is inclusive (OTP D04).
        auto_shutdown: When the end of significant children stops the supervisor: `never`, `any_significant` or
            `all_significant` (OTP F01–F07).

    Raises:
        InvalidChildSpec: if an option or the combination of specs cannot work; no child has been started (OTP A08–A10).
    """

    def __init__(
        self,
        children: Sequence[ChildSpec] = (),
        *,
        strategy: Strategy,
        restarts: int = 3,
        period: float = 5.0,
        auto_shutdown: AutoShutdown = "never",
    ) -> None:
        super().__init__(restarts, period)
        check_choice("strategy", strategy, STRATEGIES)
        check_choice("auto_shutdown", auto_shutdown, AUTO_SHUTDOWNS)
        self._strategy = strategy
        self._auto_shutdown = auto_shutdown
        self._children: dict[str, Child] = {}
        for spec in children:
            self._check(spec)
            if spec.id in self._children:
                raise InvalidChildSpec("id", "an id that no other child has", spec.id)
            self._children[spec.id] = Child(spec)

    def _check(self, spec: object) -> None:
        if not isinstance(spec, ChildSpec):
            raise InvalidChildSpec("children", "specs made with child(...) or supervisor(...)", spec)
        if spec.significant and self._auto_shutdown == "never":
            raise InvalidChildSpec("significant", "False where auto_shutdown is 'never'", True)

    # --- start and stop ---------------------------------------------------------------------------

    async def on_start(self) -> None:
        for child in tuple(self._children.values()):
            error = await self._launch(child)
            if error is not None:
                self._report("start_error", error, child)
                await self._stop_all()
                raise error if isinstance(error, ChildFailed) else ChildFailed(child.spec.id, as_reason(error))
            if child.cell is None and child.spec.restart == "temporary":
                del self._children[child.spec.id]  # A13

    async def on_stop(self, reason: ExitReason) -> None:
        await self._stop_all()

    def cells(self) -> list[Cell]:
        return [child.cell for child in self._children.values() if child.cell is not None]

    async def _stop_all(self) -> None:
        for child in reversed(tuple(self._children.values())):
            await self._stop_child(child)

    async def _stop_child(self, child: Child) -> None:
        cell = child.cell
        child.stopped()
        if cell is not None:
            reason = await stop_cell(cell, child.spec, self._cell.label)
            if not is_expected(child.spec, reason):
                self._report("shutdown_error", reason, child)

    # --- ends of children -------------------------------------------------------------------------

    @handle
    async def child_ended(self, message: ChildExit) -> None:
        child = self._find(message.ref._cell)
        if child is None:
            return  # replaced or dealt with already (OTP C13, C14)
        reason = message.reason
        self._report_exit(child, reason)
        action = ON_EXIT[child.spec.restart, ending(reason)]
        if action is Action.RESTART:
            if not self._schedule(child, reason):
                await self._restart(child, reason)
            return
        child.stopped()
        if action is Action.FORGET:
            del self._children[child.spec.id]
        if child.spec.significant and self._ends_with(child):
            self.stop(Shutdown("auto shutdown"))

    def _ends_with(self, ended: Child) -> bool:
        if self._auto_shutdown == "any_significant":
            return True
        others = (child for child in self._children.values() if child.spec.significant and child is not ended)
        return all(child.state == "stopped" for child in others)  # F05, F06

    @handle
    async def try_restart(self, message: Retry) -> None:
        child = message.child
        if child.state == "restarting" and child.incarnation == message.incarnation and self._has(child):
            await self._restart(child, child.reason)

    async def _restart(self, child: Child, reason: ExitReason) -> None:
        if not self._may_restart(child, reason):
            return
        child.due(reason)
        child.cancel_retry()
        group = self._group(child)
        for sibling in reversed(group):
            if sibling is not child:
                await self._stop_child(sibling)
                if sibling.spec.restart == "temporary":
                    del self._children[sibling.spec.id]  # C06
        for member in group:
            if self._has(member):
                error = await self._launch(member)
                if error is not None:
                    self._report("start_error", error, member)
                    # one_for_all starts over, rest_for_one goes on from the child that failed (OTP C10, C11).
                    for other in group:
                        if other is child and other is not member and other.state == "restarting":
                            other.stopped()
                    self._try_again(member, as_reason(error))
                    return
                self._restarted(member, reason)

    def _group(self, child: Child) -> list[Child]:
        children = list(self._children.values())
        if self._strategy == "one_for_one":
            return [child]
        return children if self._strategy == "one_for_all" else children[children.index(child) :]

    def _find(self, cell: Cell) -> Child | None:
        return next((child for child in self._children.values() if child.cell is cell), None)

    def _has(self, child: Child) -> bool:
        return self._children.get(child.spec.id) is child

    # --- management -------------------------------------------------------------------------------

    @handle
    async def start_child(self, message: StartChild) -> Ref | Failure | None:
        spec = message.spec
        try:
            self._check(spec)
        except InvalidChildSpec as error:
            return Failure(error)
        present = self._children.get(spec.id)
        if present is not None:
            if present.cell is not None:
                return Failure(AlreadyStarted(spec.id, present.cell.ref))
            return Failure(AlreadyPresent(spec.id))
        child = Child(spec)
        error_ = await self._launch(child)
        if error_ is not None:
            return Failure(error_)
        if child.cell is not None or spec.restart != "temporary":
            self._children[spec.id] = child
        return child.ref

    @handle
    async def terminate_child(self, message: TerminateChild) -> Failure | None:
        child = self._children.get(message.child) if isinstance(message.child, str) else self._find(message.child._cell)
        if child is None:
            return Failure(ChildNotFound(str(message.child)))
        await self._stop_child(child)
        if child.spec.restart == "temporary":
            del self._children[child.spec.id]
        return None

    @handle
    async def restart_child(self, message: RestartChild) -> Ref | Failure | None:
        child, problem = self._at_rest(message.id)
        if child is None:
            return problem
        error = await self._launch(child)
        return Failure(error) if error is not None else child.ref

    @handle
    def delete_child(self, message: DeleteChild) -> Failure | None:
        child, problem = self._at_rest(message.id)
        if child is None:
            return problem
        del self._children[message.id]
        return None

    def _at_rest(self, id: str) -> tuple[Child | None, Failure | None]:
        child = self._children.get(id)
        if child is None:
            return None, Failure(ChildNotFound(id))
        if child.state == "running":
            return None, Failure(ChildRunning(id))
        if child.state == "restarting":
            return None, Failure(ChildRestarting(id))
        return child, None

    @handle
    def which_children(self, message: WhichChildren) -> list[ChildInfo]:
        return [info(child) for child in self._children.values()]

    @handle
    def count_children(self, message: CountChildren) -> ChildCounts:
        return counts(list(self._children.values()))

    @handle
    def get_child_spec(self, message: GetChildSpec) -> ChildSpec | Failure:
        child = self._children.get(message.id)
        return child.spec if child is not None else Failure(ChildNotFound(message.id))

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
