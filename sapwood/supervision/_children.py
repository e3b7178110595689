"""Children: the supervisor's book-keeping of one child, and the tables that decide what follows its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

import attrs

from sapwood.actors import Cell, ExitReason, Killed, Normal, Ref, Shutdown, Timer, is_orderly
from sapwood.supervision._spec import ChildSpec, Restart

ChildState: TypeAlias = Literal["running", "restarting", "stopped"]
Ending: TypeAlias = Literal["orderly", "abnormal"]


class Action(Enum):
    """What a supervisor does about a child that has ended by itself."""

    RESTART = "start it again"
    KEEP = "keep its spec, without a process"
    FORGET = "drop its spec"


ON_EXIT: Final[Mapping[tuple[Restart, Ending], Action]] = {
    ("permanent", "orderly"): Action.RESTART,  # B01, B06
    ("permanent", "abnormal"): Action.RESTART,  # B01
    ("transient", "orderly"): Action.KEEP,  # B02, B05
    ("transient", "abnormal"): Action.RESTART,  # B03
    ("temporary", "orderly"): Action.FORGET,  # B04
    ("temporary", "abnormal"): Action.FORGET,  # B04
}

REPORTED: Final[Mapping[tuple[Restart, Ending], bool]] = {
    ("permanent", "orderly"): True,  # P03
    ("permanent", "abnormal"): True,
    ("transient", "orderly"): False,
    ("transient", "abnormal"): True,
    ("temporary", "orderly"): False,
    ("temporary", "abnormal"): True,
}

EXPECTED: Final[Mapping[tuple[Literal["asked", "killed"], Restart], tuple[type[ExitReason], ...]]] = {
    ("asked", "permanent"): (Shutdown,),  # P05, R08
    ("asked", "transient"): (Shutdown, Normal),
    ("asked", "temporary"): (Shutdown, Normal),
    ("killed", "permanent"): (Killed,),
    ("killed", "transient"): (Killed, Shutdown, Normal),
    ("killed", "temporary"): (Killed, Shutdown, Normal),
}


def ending(reason: ExitReason) -> Ending:
    """Classify an exit reason as the tables do."""
    return "orderly" if is_orderly(reason) else "abnormal"


def is_expected(spec: ChildSpec, reason: ExitReason) -> bool:
    """Say whether a child that its supervisor stopped ended as it should."""
    how: Literal["asked", "killed"] = "killed" if spec.shutdown == "brutal_kill" else "asked"
    return isinstance(reason, EXPECTED[how, spec.restart])


NORMAL: Final = Normal()


class Child:
    """One child of a supervisor: its spec, and its present incarnation if there is one."""

    __slots__ = ("born", "cell", "failures", "incarnation", "last_cell", "reason", "refused", "retry", "spec", "state")

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.cell: Cell | None = None
        self.state: ChildState = "stopped"
        self.incarnation = 0
        # While a restart is due: why, the timer that will bring it, how many failures there were in a row, and
        # whether the last start was refused because the registry could not tell.
        self.reason: ExitReason = NORMAL
        self.retry: Timer | None = None
        self.failures = 0
        self.refused = False
        self.born = 0.0
        self.last_cell: Cell | None = None

    @property
    def ref(self) -> Ref | None:
        """Its present ref, or None without a process."""
        return self.cell.ref if self.cell is not None else None

    @property
    def alive(self) -> bool:
        """Whether it has a process at this moment; False also if its end has not been noticed yet (OTP G13)."""
        return self.cell is not None and self.cell.reason is None

    def started(self, cell: Cell, now: float) -> None:
        """Note a new incarnation."""
        self.cell = cell
        self.last_cell = cell
        self.state = "running"
        self.refused = False
        self.born = now

    def stopped(self) -> None:
        """Note that there is no process, and none is to come."""
        self.cell = None
        self.state = "stopped"
        self.refused = False
        self.cancel_retry()

    def due(self, reason: ExitReason) -> None:
        """Note that the child is to be started again."""
        self.cell = None
        self.state = "restarting"
        self.reason = reason
        self.cancel_retry()

    def cancel_retry(self) -> None:
        """Forget a restart that is waiting for its delay."""
        if self.retry is not None:
            self.retry.cancel()
            self.retry = None


@attrs.frozen
class Offender:
    """The child that a `SupervisorReport` is about (OTP P02).

    Attributes:
        id: Its id.
        ref: The ref of the incarnation in question; None if there was none, or if the report stands for several.
        spec: How it is started, restarted and stopped.
        count: How many children with this reason the report stands for; more than 1 only where a dynamic
            supervisor stops.
    """

    id: str
    ref: Ref | None
    spec: ChildSpec
    count: int = 1


@attrs.frozen
class ChildInfo:
    """One line of `which_children`.

    Attributes:
        id: The child's id; None under a dynamic supervisor (OTP H12).
        ref: Its ref, or None without a process.
        state: `running`, `restarting` or `stopped`.
        type: `worker` or `supervisor`.
        restart: Its restart type.
        incarnation: How often a start of it has been tried.
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


@attrs.frozen
class StartedChild:
    """What a start has led to.

    Attributes:
        ref: The child; None if its `on_start` returned `Ignore()`.
        info: What its `on_start` gave with `Started(info)`, or the function with `task_status.started(info)`.
    """

    ref: Ref | None
    info: Any = None


def describe(child: Child, *, named: bool) -> ChildInfo:
    """Describe a child for `which_children`."""
    spec = child.spec
    return ChildInfo(
        spec.id if named else None, child.ref, child.state, spec.type, spec.restart, child.incarnation, spec.birth.name
    )


def count(children: Iterable[Child]) -> ChildCounts:
    """Count children for `count_children`."""
    listed = list(children)
    supervisors = sum(child.spec.type == "supervisor" for child in listed)
    return ChildCounts(len(listed), sum(child.alive for child in listed), supervisors, len(listed) - supervisors)
