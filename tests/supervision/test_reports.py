"""Rows P01 to P06: what supervisors report, and what they do not."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from sapwood.actors import CrashReport, ExitReason, Killed, Normal, Restarted, Shutdown, Spawned, SupervisorReport
from sapwood.errors import ChildFailed
from sapwood.supervision import (
    DynamicSupervisor,
    Offender,
    Restart,
    Supervisor,
    child,
    start_child,
    supervisor,
)
from tests.supervision.kit import SlowWorker, Stage

CONTEXTS = {"start_error", "child_terminated", "shutdown_error", "shutdown"}


def raw(stage: Stage) -> list[SupervisorReport]:
    return [event for event in stage.history if isinstance(event, SupervisorReport)]


@pytest.mark.row("P01", "P02")
async def test_a_report_carries_supervisor_context_reason_and_the_offending_child(
    autojump_clock: MockClock, stage: Stage
) -> None:
    spec = stage.worker("a", restart="transient", shutdown=2.0)
    await stage.supervise(supervisor([spec], strategy="one_for_one", id="inner", restarts=0, restart="temporary"))
    dead = stage.ref("a")

    await stage.crash("a")

    terminated, gave_up = raw(stage)
    assert set(attrs.asdict(terminated)) == {"supervisor", "context", "reason", "offender"}
    assert (terminated.supervisor, terminated.context) == ("inner", "child_terminated")
    assert terminated.reason == dead.exit_reason
    assert terminated.offender == Offender("a", dead, spec)
    assert (gave_up.supervisor, gave_up.context) == ("inner", "shutdown")
    assert gave_up.reason == "reached max restart intensity"
    assert gave_up.offender == Offender("a", dead, spec)
    offender = terminated.offender.spec
    assert (offender.restart, offender.significant, offender.shutdown, offender.type) == (
        "transient",
        False,
        2.0,
        "worker",
    )
    assert offender.birth.args == ("a", stage.plan)


@pytest.mark.row("P01")
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_no_report_has_a_context_of_its_own_making(
    autojump_clock: MockClock, stage: Stage, strategy: Any
) -> None:
    top = await stage.supervise(
        stage.worker("a"),
        stage.worker("b", restart="transient"),
        child(partial(SlowWorker, fails=True), "c", id="c"),
        strategy=strategy,
        restarts=2,
    )
    stage.plan.script("a", "fail")
    for name in ("b", "a", "a"):
        if top.alive:
            await stage.crash(name)

    assert {report.context for report in raw(stage)} == CONTEXTS
    assert {report.supervisor for report in raw(stage)} == {"Supervisor#1"}


ENDS: dict[str, ExitReason | None] = {"normal": Normal(), "shutdown": Shutdown(), "crash": None, "kill": None}


@pytest.mark.row("P03")
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("end", list(ENDS))
async def test_ends_of_permanent_children_and_abnormal_ends_are_reported(
    autojump_clock: MockClock, stage: Stage, restart: Restart, end: str
) -> None:
    reported = restart == "permanent" or end in ("crash", "kill")
    for top in (await stage.supervise(), await stage.system.spawn(DynamicSupervisor)):
        await start_child(top, stage.worker("a", restart=restart))
        stage.forget()
        match ENDS[end], end:
            case None, "crash":
                await stage.crash("a")
            case None, _:
                await stage.kill("a")
            case reason, _:
                await stage.end("a", reason)

        assert [report.context for report in raw(stage)] == ["child_terminated"] * reported
        await top.stop()


@pytest.mark.row("P04")
async def test_a_start_error_is_reported_at_init_and_for_each_failed_restart_but_not_for_start_child(
    autojump_clock: MockClock,
    stage: Stage,
) -> None:
    stage.plan.script("a", "fail")
    with pytest.raises(ChildFailed):
        await stage.system.spawn(Supervisor, [stage.worker("a")], strategy="one_for_one")
    assert stage.reports == [("start_error", "a", "ChildFailed")]

    top = await stage.supervise(stage.worker("b"), restarts=10)
    stage.plan.script("b", "fail", "fail", "fail", "ok")
    await stage.crash("b")
    assert [context for context, _, _ in stage.reports] == ["child_terminated", *["start_error"] * 3]

    stage.forget()
    stage.plan.script("c", "fail")
    with pytest.raises(ChildFailed):
        await start_child(top, stage.worker("c"))
    assert stage.reports == []


@pytest.mark.row("P05")
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("dynamic", [False, True])
async def test_a_child_that_stops_with_an_orderly_reason_of_its_own_is_expected_unless_permanent_and_normal(
    autojump_clock: MockClock, stage: Stage, restart: Restart, dynamic: Any
) -> None:
    class Leaves(SlowWorker):
        """Ends for its own reason while it is stopped."""

        def __init__(self, name: str, reason: ExitReason) -> None:
            super().__init__(name)
            self.own = reason

        async def on_stop(self, reason: ExitReason) -> None:
            self._cell.leaving = self.own

    for own in (Normal(), Shutdown("my own"), Killed()):
        spec = child(Leaves, "a", own, id="a", restart=restart)
        top = await stage.system.spawn(DynamicSupervisor) if dynamic else await stage.supervise(spec)
        if dynamic:
            await start_child(top, spec)
        stage.forget()

        await top.stop()

        expected = isinstance(own, Shutdown) or (isinstance(own, Normal) and restart != "permanent")
        assert stage.reports == ([] if expected else [("shutdown_error", "a", str(own))])


@pytest.mark.row("P06")
async def test_each_start_and_restart_is_told_once_and_an_ignored_one_is_not(
    autojump_clock: MockClock, stage: Stage
) -> None:
    stage.plan.script("b", "ignore")
    top = await stage.system.spawn(Supervisor, [stage.worker("a"), stage.worker("b")], strategy="one_for_one")
    await stage.crash("a")
    await start_child(top, stage.worker("c"))

    told = [event.actor for event in stage.history if isinstance(event, Spawned)]
    assert told == ["a", "Supervisor#1", "a", "c"]
    assert all(
        event.parent == top.label for event in stage.history if isinstance(event, Spawned) and event.actor == "a"
    )


@pytest.mark.row("P06", "P09")
async def test_for_one_crash_the_crash_report_the_supervisors_report_and_the_new_start_follow_in_order(
    autojump_clock: MockClock,
    stage: Stage,
) -> None:
    await stage.supervise(stage.worker("a"))

    await stage.crash("a")

    kinds = [type(event) for event in stage.history]
    assert [kind for kind in kinds if kind in (CrashReport, SupervisorReport, Spawned, Restarted)] == [
        CrashReport,
        SupervisorReport,
        Spawned,
        Restarted,
    ]
