"""The supervisor: ordered children, three strategies, a restart budget, ordered shutdown."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from sapwood.actors import Cell, ChildExit, ExitReason, Failure, Ref, Shutdown, StartResult, check_branch, handle
from sapwood.errors import (
    AlreadyPresent,
    AlreadyStarted,
    AskCycle,
    ChildFailed,
    ChildNotFound,
    ChildRestarting,
    ChildRunning,
    InvalidChildSpec,
)
from sapwood.supervision._base import BaseSupervisor, Retry, as_reason
from sapwood.supervision._children import ON_EXIT, Action, Child, StartedChild, ending
from sapwood.supervision._requests import DeleteChild, GetChildSpec, RestartChild, StartChild, TerminateChild
from sapwood.supervision._spec import AUTO_SHUTDOWNS, STRATEGIES, AutoShutdown, ChildSpec, Strategy, check_choice


class Supervisor(BaseSupervisor[str]):
    """Starts children in order, restarts them when they end, stops them in reverse order.

    Its operations run one at a time, in its own task (OTP E13). Every child is a task in a nursery that this task
    owns, so no child can outlive it.

    A subclass gives its children to `super().__init__`. One that overrides `on_start` calls `super().on_start()`,
    or returns `Ignore()` before it and starts nothing (OTP A06).

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
        self._strategy: Strategy = strategy
        self._auto_shutdown: AutoShutdown = auto_shutdown
        for spec in children:
            self._check(spec)
            if spec.id in self._children:
                raise InvalidChildSpec("id", "an id that no other child has", spec.id)
            self._children[spec.id] = Child(spec)

    def _check(self, spec: object) -> None:
        if not isinstance(spec, ChildSpec):
            raise InvalidChildSpec("children", "specs made with child(...) or supervisor(...)", spec)
        if spec.significant and self._auto_shutdown == "never":
            raise InvalidChildSpec("significant", "False where auto_shutdown is 'never'", spec.significant)

    # --- start and stop ---------------------------------------------------------------------------

    async def on_start(self) -> StartResult:
        for child in tuple(self._children.values()):
            outcome = await self._launch(child)
            if isinstance(outcome, Exception):
                self._report("start_error", outcome, child)
                await self._stop_children()
                raise outcome if isinstance(outcome, ChildFailed) else ChildFailed(child.spec.id, as_reason(outcome))
            if child.cell is None and child.spec.restart == "temporary":
                self._forget(child)  # A13
        return None

    async def on_stop(self, reason: ExitReason) -> None:
        await self._stop_children()

    async def _stop_children(self) -> None:
        for child in reversed(tuple(self._children.values())):
            await self._stop_child(child)

    def _has(self, child: Child) -> bool:
        return self._children.get(child.spec.id) is child

    def _forget(self, child: Child) -> None:
        del self._children[child.spec.id]

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
            if child.spec.backoff is None:
                await self._restart(child, reason)
            else:
                await self._put_off(child, reason)
            return
        child.stopped()
        if action is Action.FORGET:
            self._forget(child)
        if child.spec.significant and self._ends_with(child):
            self.stop(Shutdown("auto shutdown"))

    def _ends_with(self, ended: Child) -> bool:
        if self._auto_shutdown == "any_significant":
            return True
        others = (child for child in self._children.values() if child.spec.significant and child is not ended)
        return all(child.state == "stopped" for child in others)  # F05, F06

    @handle
    async def try_restart(self, message: Retry) -> None:
        await trio.lowlevel.checkpoint()
        if message.still_due:
            await self._restart(message.child, message.child.reason)

    async def _put_off(self, child: Child, reason: ExitReason) -> None:
        """Have a child tried again; what depends on it does not run meanwhile if that takes a while."""
        self._retry_later(child, reason)
        if child.spec.backoff is not None:
            await self._stop_group(child)

    async def _restart(self, child: Child, reason: ExitReason) -> None:
        """Replace a child, and of its siblings those that the strategy names, each whether it ran or not (OTP C07)."""
        if not self._may_restart(child):
            return
        child.due(reason)
        for member in await self._stop_group(child):
            outcome = await self._launch(member)
            if isinstance(outcome, Exception):
                self._report("start_error", outcome, member, member.last_cell)
                if member is not child and child.state == "restarting":
                    child.stopped()
                # one_for_all starts over then, rest_for_one goes on from the child that failed (OTP C10, C11).
                await self._put_off(member, as_reason(outcome))
                return
            self._restarted(member, reason)

    async def _stop_group(self, child: Child) -> list[Child]:
        """Stop the siblings that fall with a child, last one first; return all that are to start again, in order."""
        group = self._group(child)
        for sibling in reversed(group):
            if sibling is not child:
                await self._stop_child(sibling)
                if sibling.spec.restart == "temporary":
                    self._forget(sibling)  # C06
        return [member for member in group if self._has(member)]

    def _group(self, child: Child) -> list[Child]:
        children = list(self._children.values())
        match self._strategy:
            case "one_for_one":
                return [child]
            case "one_for_all":
                return children
            case "rest_for_one":
                return children[children.index(child) :]

    def _find(self, cell: Cell) -> Child | None:
        return next((child for child in self._children.values() if child.cell is cell), None)

    # --- management -------------------------------------------------------------------------------

    @handle
    async def start_child(self, message: StartChild) -> StartedChild | Failure:
        spec = message.spec
        try:
            self._check(spec)
        except InvalidChildSpec as error:
            return Failure(error)
        present = self._children.get(spec.id)
        if present is not None:
            return Failure(
                AlreadyPresent(spec.id) if present.ref is None else AlreadyStarted(spec.id, present.ref)
            )  # G02, G03
        child = Child(spec)
        outcome = await self._launch(child)
        if isinstance(outcome, Exception):
            return Failure(outcome)
        if child.cell is not None or spec.restart != "temporary":
            self._children[spec.id] = child
        return outcome

    @handle
    async def terminate_child(self, message: TerminateChild) -> Failure | None:
        wanted = message.child
        child = self._find(wanted._cell) if isinstance(wanted, Ref) else self._children.get(wanted)
        if child is None:
            return Failure(ChildNotFound(wanted.label if isinstance(wanted, Ref) else wanted))
        if child.cell is not None and message.caller is not None:
            try:
                check_branch(message.caller._cell, (self._cell,), child.cell)
            except AskCycle as error:
                return Failure(error)
        await self._stop_child(child)
        if child.spec.restart == "temporary":
            self._forget(child)  # G08
        return None

    @handle
    async def restart_child(self, message: RestartChild) -> StartedChild | Failure:
        child = self._at_rest(message.id)
        if isinstance(child, Failure):
            return child
        outcome = await self._launch(child)
        return Failure(outcome) if isinstance(outcome, Exception) else outcome

    @handle
    def delete_child(self, message: DeleteChild) -> Failure | None:
        child = self._at_rest(message.id)
        if isinstance(child, Failure):
            return child
        self._forget(child)
        return None

    def _at_rest(self, child_id: str) -> Child | Failure:
        child = self._children.get(child_id)
        if child is None:
            return Failure(ChildNotFound(child_id))
        if child.state == "stopped":
            return child
        return Failure(ChildRunning(child_id) if child.state == "running" else ChildRestarting(child_id))

    @handle
    def get_child_spec(self, message: GetChildSpec) -> ChildSpec | Failure:
        child = self._children.get(message.id)
        return child.spec if child is not None else Failure(ChildNotFound(message.id))
