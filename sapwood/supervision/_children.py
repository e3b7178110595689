"""Children: the supervisor's book-keeping of one child, and the tables that decide what follows its end."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio

from sapwood.actors import Cell, ChildStuck, ExitReason, Killed, Normal, Ref, Shutdown, Timer, is_orderly
from sapwood.supervision._spec import ChildSpec, Restart

ChildState: TypeAlias = Literal["running", "restarting", "stopped"]

STUCK_AFTER: Final = 5.0
"""Seconds after a kill before a child that still runs is reported as stuck."""


class Action(Enum):
    """What a supervisor does about a child that has ended by itself."""

    RESTART = "start it again"
    KEEP = "keep its spec, without a process"
    FORGET = "drop its spec"


ON_EXIT: Final[Mapping[tuple[Restart, Literal["orderly", "abnormal"]], Action]] = {
    ("permanent", "orderly"): Action.RESTART,  # B01, B06
    ("permanent", "abnormal"): Action.RESTART,  # B01
    ("transient", "orderly"): Action.KEEP,  # B02, B05
    ("transient", "abnormal"): Action.RESTART,  # B03
    ("temporary", "orderly"): Action.FORGET,  # B04
    ("temporary", "abnormal"): Action.FORGET,  # B04
}

REPORTED: Final[Mapping[tuple[Restart, Literal["orderly", "abnormal"]], bool]] = {
    ("permanent", "orderly"): True,  # P03
    ("permanent", "abnormal"): True,
    ("transient", "orderly"): False,
    ("transient", "abnormal"): True,
    ("temporary", "orderly"): False,
    ("temporary", "abnormal"): True,
}


def ending(reason: ExitReason) -> Literal["orderly", "abnormal"]:
    """Classify an exit reason as the tables do."""
    return "orderly" if is_orderly(reason) else "abnormal"


class Child:
    """One child of a supervisor: its spec, and its present incarnation if there is one."""

    __slots__ = ("born", "cell", "failures", "incarnation", "last_ref", "reason", "retry", "spec", "state")

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.cell: Cell | None = None
        self.state: ChildState = "stopped"
        self.incarnation = 0
        # While a restart is due: why, the timer that will bring it, and how many failures there were in a row.
        self.reason: ExitReason = Normal()
        self.retry: Timer | None = None
        self.failures = 0
        self.born = 0.0
        self.last_ref: Ref | None = None

    @property
    def ref(self) -> Ref | None:
        """Its present ref, or None without a process."""
        return self.cell.ref if self.cell is not None else None

    def started(self, cell: Cell, now: float) -> None:
        """Note a new incarnation."""
        self.cell = cell
        self.last_ref = cell.ref
        self.state = "running"
        self.born = now

    def stopped(self) -> None:
        """Note that there is no process, and none is to come."""
        self.cell = None
        self.state = "stopped"
        self.cancel_retry()

    def due(self, reason: ExitReason) -> None:
        """Note that the child is to be started again."""
        self.cell = None
        self.state = "restarting"
        self.reason = reason

    def cancel_retry(self) -> None:
        """Forget a restart that is waiting for its delay."""
        if self.retry is not None:
            self.retry.cancel()
            self.retry = None


@attrs.frozen
class ChildInfo:
    """One line of `which_children`.

    Attributes:
        id: The child's id; None under a dynamic supervisor (OTP H12).
        ref: Its ref, or None without a process.
        state: `running`, `restarting` or `stopped`.
        type: `worker` or `supervisor`.
        restart: Its restart type.
        incarnation: How often it has been started.
        label: What kind of actor it is.
    """

    id: str | None
    ref: Ref | None
    state: ChildState
    type: str
    restart: Restart
    incarnation: int
    label: str


@attrs.frozen
class ChildCounts:
    """Answer of `count_children` (OTP G13).

    Attributes:
        specs: All retained specs, running or not.
        active: Those with a process now.
        supervisors: Specs of type supervisor, running or not.
        workers: Specs of type worker, running or not.
    """

    specs: int
    active: int
    supervisors: int
    workers: int


def info(child: Child, *, named: bool = True) -> ChildInfo:
    """Describe a child for `which_children`."""
    spec = child.spec
    return ChildInfo(
        spec.id if named else None, child.ref, child.state, spec.type, spec.restart, child.incarnation, spec.birth.name
    )


def counts(children: list[Child]) -> ChildCounts:
    """Count children for `count_children`."""
    supervisors = sum(child.spec.type == "supervisor" for child in children)
    active = sum(child.cell is not None for child in children)
    return ChildCounts(len(children), active, supervisors, len(children) - supervisors)


def is_expected(spec: ChildSpec, reason: ExitReason) -> bool:
    """Say whether a child that its supervisor stopped ended as it should (OTP P05, R08)."""
    if spec.shutdown == "brutal_kill":
        return isinstance(reason, Killed)
    return isinstance(reason, Shutdown) or (isinstance(reason, Normal) and spec.restart != "permanent")


async def stop_cell(cell: Cell, spec: ChildSpec, supervisor: str) -> ExitReason:
    """Stop a child as its spec says: ask, wait, kill; return how it really ended (OTP E02–E06, E08, E09).

    Ends only when the child has ended. One that survives its kill by `STUCK_AFTER` seconds is reported.
    """
    if cell.reason is not None:
        return cell.reason
    if spec.shutdown != "brutal_kill":
        cell.shut_down(Shutdown())
        with trio.move_on_after(float("inf") if spec.shutdown is None else spec.shutdown):
            return await cell.ref.wait_stopped()
    return await kill_cell(cell, spec, supervisor)


async def kill_cell(cell: Cell, spec: ChildSpec, supervisor: str) -> ExitReason:
    """Kill a child and wait until it has ended."""
    cell.kill()
    with trio.move_on_after(STUCK_AFTER):
        return await cell.ref.wait_stopped()
    reason: Any = cell.reason
    if reason is None:
        cell.system.telemetry.tell(ChildStuck(supervisor, cell.label, STUCK_AFTER))
    return await cell.ref.wait_stopped()
