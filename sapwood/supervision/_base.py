"""What all supervisors share: starting one child, budgets, retries and reports."""

from __future__ import annotations

import trio

from sapwood.actors import (
    Actor,
    Cell,
    Crashed,
    ExitReason,
    Restarted,
    Shutdown,
    SupervisorReport,
    notice,
    start,
)
from sapwood.errors import (
    AlreadyRegistered,
    AlreadyStarted,
    ChildFailed,
    InvalidChildSpec,
    RegistryUnavailable,
    StartTimeout,
)
from sapwood.supervision._backoff import Intensity
from sapwood.supervision._children import REPORTED, Child, ending
from sapwood.supervision._spec import ChildSpec


@notice
class Retry:
    """Tells a supervisor to try a restart again, unless the child has been dealt with since (OTP C08)."""

    __slots__ = ("child", "incarnation")

    def __init__(self, child: Child) -> None:
        self.child = child
        self.incarnation = child.incarnation


class BaseSupervisor(Actor):
    """Base of the supervisors: an actor whose task owns a nursery, in which each child is one task."""

    __supervises__ = True
    trap_exits = True

    def __init__(self, restarts: int, period: float) -> None:
        self._intensity = Intensity(restarts, period)
        self._restarts = 0

    def format_state(self) -> str:
        return f"intensity={self._intensity.restarts} in {self._intensity.period:g} s, restarts={self._restarts}"

    def cells(self) -> list[Cell]:
        """Return the cells of its running children, in start order."""
        raise InvalidChildSpec("supervisor", "a subclass that knows its children", type(self).__name__)

    # --- starting one child -----------------------------------------------------------------------

    def _new_cell(self, child: Child) -> Cell:
        child.incarnation += 1
        return Cell(self._cell.system, child.spec.birth, self._cell, child.incarnation)

    @property
    def _nursery(self) -> trio.Nursery:
        nursery = self._cell.nursery
        assert nursery is not None
        return nursery

    async def _launch(self, child: Child) -> Exception | None:
        """Start a child; return what made it fail. An ignored start leaves the child without a process."""
        cell = self._new_cell(child)
        try:
            await start(cell, self._nursery, child.spec.start_timeout)
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            child.cell = None
            return start_failure(child.spec, cell, error)
        self._settle(child, cell)
        return None

    def _settle(self, child: Child, cell: Cell) -> None:
        if cell.ignored:
            child.stopped()
        else:
            child.started(cell, self.environment.monotonic())

    # --- restarting -------------------------------------------------------------------------------

    def _may_restart(self, child: Child, reason: ExitReason) -> bool:
        """Take one unit of the budget, or give up (OTP C09, D06, D08)."""
        self._restarts += 1
        now = self.environment.monotonic()
        if self._intensity.add(now):
            return True
        self._report("shutdown", "reached max restart intensity", child)
        child.due(reason)
        self.stop(Shutdown("reached max restart intensity"))
        return False

    def _schedule(self, child: Child, reason: ExitReason) -> bool:
        """Put a restart off for the child's backoff; False if it is to be restarted at once."""
        backoff = child.spec.backoff
        if backoff is None:
            return False
        environment = self.environment
        if child.cell is not None and environment.monotonic() - child.born >= backoff.reset_after:
            child.failures = 0
        child.failures += 1
        child.due(reason)
        child.cancel_retry()
        child.retry = self.send_after(backoff.delay(child.failures, environment.random), Retry(child))
        return True

    def _try_again(self, child: Child, reason: ExitReason) -> None:
        """Queue another attempt behind whatever waits, so that requests are served in between (OTP C08)."""
        if not self._schedule(child, reason):
            child.due(reason)
            self._cell.put_entry(Retry(child))

    def _restarted(self, child: Child, reason: ExitReason) -> None:
        telemetry = self._cell.system.telemetry
        if telemetry.listeners and child.cell is not None:
            count = self._intensity.count(self.environment.monotonic())
            telemetry.tell(Restarted(self._cell.label, child.cell.label, reason, count))

    # --- reports ----------------------------------------------------------------------------------

    def _report(self, context: str, reason: object, child: Child) -> None:
        telemetry = self._cell.system.telemetry
        if telemetry.listeners:
            telemetry.tell(SupervisorReport(self._cell.label, context, reason, child.spec))

    def _report_exit(self, child: Child, reason: ExitReason) -> None:
        if REPORTED[child.spec.restart, ending(reason)]:
            self._report("child_terminated", reason, child)


def start_failure(spec: ChildSpec, cell: Cell, error: Exception) -> Exception:
    """Turn what made a start fail into what the starter is told (OTP A03, K01)."""
    if isinstance(error, AlreadyRegistered):
        return AlreadyStarted(repr(error.key), error.holder)
    if isinstance(error, RegistryUnavailable | StartTimeout):
        return error
    return ChildFailed(spec.id, cell.reason or cell.leaving or Crashed.of(error))


def as_reason(error: Exception) -> ExitReason:
    """Return the exit reason that stands for a failed start."""
    return error.reason if isinstance(error, ChildFailed) else Crashed.of(error)
