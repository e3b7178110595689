"""What all supervisors share: starting one child, the restart budget, introspection and reports."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Generic, TypeVar

import trio

from sapwood.actors import (
    Actor,
    ActorSystem,
    Cell,
    Crashed,
    Exit,
    ExitReason,
    Failure,
    Request,
    Restarted,
    Shutdown,
    SupervisorReport,
    handle,
    notice,
    start_nowait,
)
from sapwood.errors import (
    ActorDown,
    AlreadyRegistered,
    AlreadyStarted,
    ChildFailed,
    RegistryUnavailable,
    StartTimeout,
    UnhandledRequest,
)
from sapwood.supervision._backoff import Intensity
from sapwood.supervision._children import (
    REPORTED,
    Child,
    ChildCounts,
    ChildInfo,
    Offender,
    StartedChild,
    count,
    describe,
    ending,
    is_expected,
)
from sapwood.supervision._requests import CountChildren, GetStatistics, SupervisorStatistics, WhichChildren
from sapwood.supervision._spec import ChildSpec
from sapwood.supervision._stopping import kill_cell, stop_cell

K = TypeVar("K")

RETRY_CLAIM: Final = 0.1
"""Seconds until a restart is tried again that the registry refused because it cannot tell whether the key is free."""


@notice
class Retry:
    """Tells a supervisor to try a restart again, unless the child has been dealt with since (OTP C08, BR-02)."""

    __slots__ = ("child", "incarnation")

    def __init__(self, child: Child) -> None:
        self.child = child
        self.incarnation = child.incarnation

    @property
    def still_due(self) -> bool:
        """Whether nobody has started, stopped or rescheduled the child meanwhile."""
        return self.child.state == "restarting" and self.child.incarnation == self.incarnation


class BaseSupervisor(Actor, Generic[K]):
    """Base of the supervisors: an actor whose task owns a nursery, in which each child is one task."""

    __supervises__ = True
    trap_exits = True

    _names_children: ClassVar[bool] = True

    def __init__(self, restarts: int, period: float) -> None:
        self._intensity = Intensity(restarts, period)
        self._restarts = 0
        self._children: dict[K, Child] = {}

    def format_state(self) -> str:
        return f"intensity={self._intensity.restarts} in {self._intensity.period:g} s, restarts={self._restarts}"

    def cells(self) -> list[Cell]:
        """Return the cells of its running children, in start order."""
        return [child.cell for child in self._children.values() if child.cell is not None]

    @property
    def _system(self) -> ActorSystem:
        return self._cell.system

    # --- starting and stopping one child ----------------------------------------------------------

    def _new_cell(self, child: Child) -> Cell:
        child.incarnation += 1
        return Cell(self._system, child.spec.birth, self._cell, child.incarnation)

    def _begin(self, child: Child, cell: Cell) -> tuple[bool, Exception | None]:
        """Begin to start a child; say whether that is settled already, and what made it fail."""
        nursery = self._cell.nursery
        assert nursery is not None
        try:
            settled = start_nowait(cell, nursery)
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            return True, start_failure(child.spec, cell, error)
        return settled, start_failure(child.spec, cell, cell.start_error) if settled else None

    async def _end_start(self, child: Child, cell: Cell) -> Exception | None:
        """Wait until a child has started; return what made it fail, with nothing of it left (OTP A05, I05)."""
        limit = child.spec.start_timeout
        with trio.move_on_after(float("inf") if limit is None else limit):
            await cell.wait_started()
        if limit is not None and not cell.ran and cell.reason is None:
            await kill_cell(cell, child.spec, self._cell.label)
            return StartTimeout(cell.label, limit)
        return start_failure(child.spec, cell, cell.start_error)

    async def _launch(self, child: Child) -> StartedChild | Exception:
        """Start a child; return what came of it, or what made it fail."""
        cell = self._new_cell(child)
        settled, error = self._begin(child, cell)
        if not settled:
            error = await self._end_start(child, cell)
        if error is None:
            return self._settle(child, cell)
        child.cell = None
        return error

    def _settle(self, child: Child, cell: Cell) -> StartedChild:
        """Note the outcome of a start that did not fail; an ignored one leaves the child without a process."""
        info, cell.info = cell.info, None
        if cell.ignored:
            child.stopped()
            return StartedChild(None)
        child.started(cell, self.environment.monotonic())
        return StartedChild(cell.ref, info)

    async def _stop_child(self, child: Child) -> None:
        cell = child.cell
        child.stopped()
        if cell is not None:
            reason = await stop_cell(cell, child.spec, self._cell.label)
            if not is_expected(child.spec, reason):
                self._report("shutdown_error", reason, child, cell)

    # --- restarting -------------------------------------------------------------------------------

    def _may_restart(self, child: Child) -> bool:
        """Take one unit of the budget, or give up (OTP C09, D06, D08)."""
        if child.refused:
            child.refused = False
            return True
        self._restarts += 1
        if self._intensity.add(self.environment.monotonic()):
            return True
        self._report("shutdown", "reached max restart intensity", child, child.last_cell)
        child.stopped()
        self.stop(Shutdown("reached max restart intensity"))
        return False

    def _retry_later(self, child: Child, reason: ExitReason) -> None:
        """Have another attempt made: after the child's backoff, or behind all that waits already (OTP C08)."""
        backoff = child.spec.backoff
        if child.cell is None and isinstance(reason, Crashed) and isinstance(reason.exception, RegistryUnavailable):
            # Its start was refused, which is no failure of the child: it uses no budget, however long that lasts.
            child.due(reason)
            child.refused = True
            child.retry = self.send_after(RETRY_CLAIM, Retry(child))
            return
        if backoff is None:
            child.due(reason)
            self._cell.put_entry(Retry(child))
            return
        environment = self.environment
        if child.cell is not None and environment.monotonic() - child.born >= backoff.reset_after:
            child.failures = 0
        child.failures += 1
        child.due(reason)
        child.retry = self.send_after(backoff.delay(child.failures, environment.random), Retry(child))

    def _restarted(self, child: Child, reason: ExitReason) -> None:
        telemetry = self._system.telemetry
        if Restarted in telemetry.wanted and child.cell is not None:
            within = self._intensity.count(self.environment.monotonic())
            telemetry.tell(Restarted(self._cell.label, child.cell.label, reason, within))

    # --- signals and stray messages ---------------------------------------------------------------

    @handle
    def exit_signal(self, message: Exit) -> None:
        """End as the owner says: the parent, or whoever started it from outside of actors; ignore others (OTP E12)."""
        if message.ref._cell in (self._cell.parent, self._cell):
            assert message.reason is not None
            self.stop(message.reason)

    @handle(Request)
    def refuse(self, message: Request[Any]) -> Failure:
        """Refuse a request that it does not know, and go on (OTP G16)."""
        if self._cell.asked is None:
            self.on_unhandled(message)  # it was told, so nobody waits for the refusal
        name = type(self).__name__
        return Failure(UnhandledRequest(f"{self._cell.label} is a {name} and does not answer {type(message).__name__}"))

    # --- introspection ----------------------------------------------------------------------------

    @handle
    def which_children(self, message: WhichChildren) -> list[ChildInfo]:
        return [describe(child, named=self._names_children) for child in self._children.values()]

    @handle
    def count_children(self, message: CountChildren) -> ChildCounts:
        return count(self._children.values())

    @handle
    def get_statistics(self, message: GetStatistics) -> SupervisorStatistics:
        children = self._children.values()
        return SupervisorStatistics(
            children=len(children),
            active=sum(child.alive for child in children),
            restarting=sum(child.state == "restarting" for child in children),
            restarts=self._restarts,
            restarts_in_window=self._intensity.count(self.environment.monotonic()),
        )

    # --- reports ----------------------------------------------------------------------------------

    def _report(self, context: str, reason: object, child: Child, cell: Cell | None = None, *, times: int = 1) -> None:
        telemetry = self._system.telemetry
        if SupervisorReport in telemetry.wanted:
            ref = cell.ref if cell is not None and times == 1 else None
            offender = Offender(child.spec.id, ref, child.spec, times)
            telemetry.tell(SupervisorReport(self._cell.label, context, reason, offender))

    def _report_exit(self, child: Child, reason: ExitReason) -> None:
        if REPORTED[child.spec.restart, ending(reason)]:
            self._report("child_terminated", reason, child, child.cell)


def start_failure(spec: ChildSpec, cell: Cell, error: Exception | None) -> Exception | None:
    """Turn what made a start fail into what the starter is told (OTP A03, K01)."""
    if isinstance(error, AlreadyRegistered):
        return AlreadyStarted(repr(error.key), error.holder)
    if error is None or isinstance(error, RegistryUnavailable | StartTimeout):
        return error
    reason = cell.reason or Crashed.of(error)
    if isinstance(error, ActorDown) and error.reason is not None and not isinstance(reason, Crashed):
        reason = error.reason  # refused, for the reason that `Refuse` gave (OTP I03)
    return ChildFailed(spec.id, reason)


def as_reason(error: Exception) -> ExitReason:
    """Return the exit reason that stands for a failed start."""
    return error.reason if isinstance(error, ChildFailed) else Crashed.of(error)
