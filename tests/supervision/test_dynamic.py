"""Group H: the dynamic supervisor."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import (
    Actor,
    Exited,
    ExitReason,
    Ignore,
    Killed,
    Normal,
    Ref,
    Shutdown,
    StartResult,
    SupervisorReport,
)
from sapwood.errors import ActorDown, ChildFailed, ChildNotFound, InvalidChildSpec, MaxChildren, StartTimeout
from sapwood.supervision import (
    Backoff,
    ChildCounts,
    ChildInfo,
    ChildSpec,
    DynamicSupervisor,
    Restart,
    child,
    count_children,
    start_child,
    supervisor,
    supervisor_statistics,
    terminate_child,
    which_children,
)
from tests.supervision.kit import Crash, End, PlainWorker, SlowWorker, Stage, Worker, on_stage, simulate

KINDS: list[Any] = [Worker, PlainWorker]


async def dynamic(stage: Stage, *specs: ChildSpec, **options: Any) -> Ref:
    top = await stage.system.spawn(DynamicSupervisor, **options)
    for spec in specs:
        await start_child(top, spec)
    stage.forget()
    return top


async def started(top: Ref, spec: ChildSpec) -> Ref:
    ref = await start_child(top, spec)
    assert ref is not None
    return ref


@pytest.mark.row("H01")
async def test_a_dynamic_supervisor_starts_empty_and_many_children_may_share_an_id(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await dynamic(stage)
    assert await which_children(top) == []

    refs = [await started(top, stage.worker("same")) for _ in range(3)]

    assert len(set(refs)) == 3
    refs[1].tell(Crash())
    await stage.settle()
    assert [ref.alive for ref in refs] == [True, False, True]
    assert (await count_children(top)).active == 3


@pytest.mark.row("H01")
async def test_a_dynamic_supervisor_has_no_strategy_to_choose(autojump_clock: MockClock, stage: Stage) -> None:
    with pytest.raises(TypeError, match="strategy"):
        await stage.system.spawn(DynamicSupervisor, strategy="one_for_all")


@pytest.mark.row("H02")
@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_a_full_supervisor_refuses_without_calling_the_start_function(
    autojump_clock: MockClock, stage: Stage, limit: int
) -> None:
    top = await dynamic(stage, *[stage.worker(str(n)) for n in range(limit)], max_children=limit)

    with pytest.raises(MaxChildren) as full:
        await start_child(top, stage.worker("late"))

    assert full.value.limit == limit
    assert stage.plan.attempts == []


@pytest.mark.row("H02")
@pytest.mark.parametrize("limit", [-1, 1.0, True, "many"])
async def test_a_wrong_limit_is_refused(autojump_clock: MockClock, stage: Stage, limit: Any) -> None:
    with pytest.raises(InvalidChildSpec, match="max_children"):
        await stage.system.spawn(DynamicSupervisor, max_children=limit)


@pytest.mark.row("H02")
async def test_a_place_is_free_again_when_a_child_ends_or_fails_to_start(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await dynamic(stage, stage.worker("a", restart="temporary"), max_children=1)
    await stage.end("a")
    for kind in KINDS:
        stage.plan.script("b", "fail", "ignore")
        with pytest.raises(ChildFailed):
            await start_child(top, stage.worker("b", kind))
        assert await start_child(top, stage.worker("b", kind)) is None

    assert await start_child(top, stage.worker("c")) is not None


@pytest.mark.row("H03")
@pytest.mark.parametrize("state", ["restarting", "delayed", "restarted", "starting"])
async def test_a_child_in_any_state_of_a_restart_occupies_its_place(
    autojump_clock: MockClock, stage: Stage, state: str
) -> None:
    backoff = Backoff(initial=10) if state == "delayed" else None
    top = await dynamic(stage, max_children=1, restarts=10**9)
    if state == "starting":
        stage.plan.script("a", "10")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_child, top, stage.worker("a", backoff=backoff))
        await stage.settle()
        if state == "restarting":
            stage.plan.script("a", *["fail"] * 100_000)
            stage.ref("a").tell(Crash())
            await stage.plan.tried(20)
        elif state != "starting":
            await stage.crash("a")

        with pytest.raises(MaxChildren):
            await start_child(top, stage.worker("b"))

        nursery.cancel_scope.cancel()


class Extra(Worker):
    seen: list[tuple[Any, ...]] = []  # noqa: RUF012  # reset by the test

    def __init__(self, *args: Any) -> None:
        super().__init__("extra")
        Extra.seen.append(args)


@pytest.mark.row("H04")
async def test_extra_arguments_come_first_and_exactly_once_at_every_start(
    autojump_clock: MockClock, stage: Stage
) -> None:
    Extra.seen = []
    top = await dynamic(stage, extra_arguments=("x", "y"), restarts=10)
    await start_child(top, child(Extra, 1, 2, id="a"))
    for _ in range(3):
        await stage.crash("a")

    assert Extra.seen == [("x", "y", 1, 2)] * 4


@pytest.mark.row("H04")
async def test_extra_arguments_reach_async_functions_too(autojump_clock: MockClock, stage: Stage) -> None:
    calls: list[tuple[Any, ...]] = []

    async def serve(*args: Any, **keywords: Any) -> None:
        calls.append((args, keywords))
        await trio.sleep(1)

    top = await dynamic(stage, extra_arguments=("x",), restarts=10)
    await start_child(top, child(partial(serve, 1, deep=True), 2))
    await trio.sleep(2.5)
    await top.stop()

    assert calls == [(("x", 1, 2), {"deep": True})] * 3


@pytest.mark.row("H05")
@pytest.mark.parametrize("kind", KINDS)
async def test_an_ignored_start_stores_nothing_and_an_error_is_the_bare_reason(
    autojump_clock: MockClock, stage: Stage, kind: Any
) -> None:
    top = await dynamic(stage)
    stage.plan.script("a", "ignore", "fail", "refuse")

    assert await start_child(top, stage.worker("a", kind)) is None
    with pytest.raises(ChildFailed, match="crashed with BoomError: start of a"):
        await start_child(top, stage.worker("a", kind))
    with pytest.raises(ChildFailed, match="not today"):
        await start_child(top, stage.worker("a", kind))

    assert await which_children(top) == []
    assert stage.alive == [top.label]


@pytest.mark.row("H06")
async def test_a_wrong_spec_is_refused_in_the_caller_though_the_supervisor_is_dead(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await dynamic(stage)
    await top.stop()
    wrong: Any = Worker

    with pytest.raises(InvalidChildSpec):
        await start_child(top, wrong)
    with pytest.raises(ActorDown):
        await start_child(top, stage.worker("a"))


@pytest.mark.row("H07")
async def test_terminate_child_takes_the_ref_of_a_child_once_and_leaves_others_alone(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await dynamic(stage)
    ref = await started(top, stage.worker("a"))
    stranger = await stage.system.spawn(Worker, "stranger")

    await terminate_child(top, ref)
    assert ref.exit_reason == Shutdown()
    for unknown in (ref, stranger, top):
        with pytest.raises(ChildNotFound):
            await terminate_child(top, unknown)

    assert stranger.alive
    assert await which_children(top) == []


@pytest.mark.row("H07")
async def test_terminate_child_uses_the_childs_own_shutdown_setting(autojump_clock: MockClock, stage: Stage) -> None:
    top = await dynamic(stage)
    ref = await started(top, child(partial(SlowWorker, cleanup=9), "a", shutdown=3))
    begun = stage.clock()

    await terminate_child(top, ref)

    assert stage.clock() - begun == 3
    assert ref.exit_reason == Killed()


@pytest.mark.row("H08", "BR-02")
@pytest.mark.parametrize("delayed", [False, True])
async def test_the_last_known_ref_of_a_restarting_child_removes_it_and_its_retry_does_nothing(
    autojump_clock: MockClock, stage: Stage, delayed: Any
) -> None:
    top = await dynamic(stage, restarts=10**9)
    spec = stage.worker("a", backoff=Backoff(initial=10) if delayed else None)
    ref = await started(top, spec)
    stage.forget()
    stage.plan.script("a", *["fail"] * 1_000_000)
    ref.tell(Crash())
    if delayed:
        await trio.sleep(15)
    else:
        await stage.plan.tried(50)
    [info] = await which_children(top)
    assert (info.state, info.ref) == ("restarting", None)

    await terminate_child(top, ref)
    stage.forget()
    await trio.sleep(1000)

    assert stage.plan.attempts == []
    assert await which_children(top) == []
    assert (await supervisor_statistics(top)).children == 0


@pytest.mark.row("H09", "C09", "P04")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_failed_restart_is_tried_again_at_a_unit_of_budget_each(
    autojump_clock: MockClock, stage: Stage, kind: Any
) -> None:
    top = await dynamic(stage, stage.worker("a", kind), restarts=3)
    stage.plan.script("a", "fail", "fail", "ok", "ok")

    await stage.crash("a")
    assert (await supervisor_statistics(top)).restarts_in_window == 3
    assert [context for context, _, _ in stage.reports] == ["child_terminated", "start_error", "start_error"]
    await stage.crash("a")

    assert top.exit_reason == Shutdown("reached max restart intensity")
    assert stage.alive == []


@pytest.mark.row("H09", "D01", "D02")
@pytest.mark.parametrize("intensity", [0, 2])
async def test_a_dynamic_supervisor_gives_up_beyond_its_intensity(
    autojump_clock: MockClock, stage: Stage, intensity: int
) -> None:
    top = await dynamic(stage, stage.worker("a"), stage.worker("b"), restarts=intensity)
    for _ in range(intensity):
        await stage.crash("a")
        assert top.alive

    await stage.crash("b")

    assert top.exit_reason == Shutdown("reached max restart intensity")
    assert ("shutdown", "b", "reached max restart intensity") in stage.reports
    assert stage.alive == []


@pytest.mark.row("H09", "C15")
async def test_a_restart_that_is_ignored_removes_the_child(autojump_clock: MockClock, stage: Stage) -> None:
    top = await dynamic(stage, stage.worker("a"), stage.worker("b"), max_children=2)
    stage.plan.script("a", "ignore")

    await stage.crash("a")

    assert len(await which_children(top)) == 1
    assert await start_child(top, stage.worker("c")) is not None


@pytest.mark.row("H10", "B01", "B02", "B03", "B04")
@pytest.mark.parametrize("how", [Normal(), Shutdown("x"), Killed(), "crash"], ids=str)
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
async def test_a_dynamic_child_is_replaced_or_forgotten_by_its_restart_type(
    autojump_clock: MockClock, stage: Stage, how: ExitReason | str, restart: Restart
) -> None:
    top = await dynamic(stage)
    ref = await started(top, stage.worker("a", restart=restart))
    orderly = isinstance(how, Normal | Shutdown)

    if isinstance(how, Killed):
        ref.kill()
    else:
        ref.tell(Crash() if isinstance(how, str) else End(how))
    await stage.settle()

    replaced = restart == "permanent" or (restart == "transient" and not orderly)
    infos = await which_children(top)
    assert [info.state for info in infos] == (["running"] if replaced else [])
    assert all(info.ref is not ref for info in infos)
    assert (await supervisor_statistics(top)).restarts == int(replaced)


@pytest.mark.row("H11", "P05", "P02")
async def test_on_shutdown_each_child_keeps_its_own_setting(autojump_clock: MockClock, stage: Stage) -> None:
    log: list[str] = []

    def slow(name: str, cleanup: float, **options: Any) -> ChildSpec:
        return child(partial(SlowWorker, cleanup=cleanup, log=log), name, id=name, **options)

    top = await dynamic(
        stage,
        slow("killed", 1, shutdown="brutal_kill"),
        slow("late", 8, shutdown=2),
        slow("later", 9, shutdown=3),
        slow("good", 1, shutdown=5),
        slow("patient", 20, shutdown=None),
        slow("at once", 1, shutdown=0),
    )
    begun = stage.clock()

    await top.stop()

    assert stage.clock() - begun == 20
    ends = {event.actor: (str(event.reason)) for event in stage.history if isinstance(event, Exited)}
    assert ends == {
        "killed": "killed",
        "at once": "killed",
        "good": "shutdown",
        "late": "killed",
        "later": "killed",
        "patient": "shutdown",
        top.label: "normal",
    }
    # The order of the ends is that of the times.
    assert list(ends)[2:] == ["good", "late", "later", "patient", top.label]
    assert set(log[:4]) == {f"stop {name} shutdown" for name in ("late", "later", "good", "patient")}
    assert "stop killed shutdown" not in log


@pytest.mark.row("P02")
async def test_many_unexpected_ends_with_one_reason_are_one_report_with_a_count(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await dynamic(
        stage, *[child(partial(SlowWorker, cleanup=9), str(n), id=str(n), shutdown=1) for n in range(5)]
    )

    await top.stop()

    [report] = [event for event in stage.history if isinstance(event, SupervisorReport)]
    assert (report.context, report.reason) == ("shutdown_error", Killed())
    assert (report.offender.count, report.offender.ref) == (5, None)


@pytest.mark.row("H12")
async def test_counts_and_lists_show_tracked_children_without_ids(autojump_clock: MockClock, stage: Stage) -> None:
    inner = supervisor([], strategy="one_for_one", id="inner")
    top = await dynamic(stage, stage.worker("a"), inner, stage.worker("waiting", backoff=Backoff(initial=10)))
    await stage.crash("waiting")

    assert await count_children(top) == ChildCounts(specs=3, active=2, supervisors=1, workers=2)
    assert await which_children(top) == [
        ChildInfo(None, stage.ref("a"), "running", "worker", "permanent", 1, "Worker"),
        ChildInfo(None, stage.ref("inner"), "running", "supervisor", "permanent", 1, "Supervisor"),
        ChildInfo(None, None, "restarting", "worker", "permanent", 1, "Worker"),
    ]
    assert attrs.asdict(await supervisor_statistics(top)) == {
        "children": 3,
        "active": 2,
        "restarting": 1,
        "restarts": 0,
        "restarts_in_window": 0,
    }


# --- starts that wait -----------------------------------------------------------------------------


@pytest.mark.row("E13")
async def test_a_crash_of_another_child_waits_while_a_child_starts(autojump_clock: MockClock, stage: Stage) -> None:
    top = await dynamic(stage, stage.worker("a"))
    stage.plan.script("b", "5")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_child, top, stage.worker("b"))
        await stage.settle()
        await stage.crash("a")
        assert stage.plan.attempts == ["b"]

    await stage.settle()
    assert stage.plan.attempts == ["b", "a"]
    assert len(await which_children(top)) == 2


async def test_a_dynamic_child_with_an_async_start_is_restarted(autojump_clock: MockClock, stage: Stage) -> None:
    top = await dynamic(stage, stage.worker("a"))
    stage.plan.script("a", "5", "ok")
    before = stage.ref("a")
    before.tell(Crash())
    await trio.sleep(4)
    assert [info.state for info in await states_within(top, stage)] == []

    await trio.sleep(2)

    assert stage.ref("a") is not before
    [info] = await which_children(top)
    assert (info.state, info.incarnation) == ("running", 2)


async def states_within(top: Ref, stage: Stage) -> list[ChildInfo]:
    """Return what the supervisor answers at once: nothing while it waits for a child to start."""
    with trio.move_on_after(0.5):
        return await which_children(top)
    return []


async def test_killing_the_supervisor_in_the_middle_of_a_start_leaves_nothing_and_tells_the_caller(
    autojump_clock: MockClock,
    stage: Stage,
) -> None:
    top = await dynamic(stage)
    stage.plan.script("a", "hang")
    async with trio.open_nursery() as nursery:

        async def kill() -> None:
            await stage.settle()
            top.kill()

        nursery.start_soon(kill)
        with pytest.raises(ActorDown) as down:
            await start_child(top, stage.worker("a", key=("name",)))

    assert down.value.reason == Killed()
    assert stage.alive == []
    assert stage.system.registrar.table == {}  # type: ignore[attr-defined]  # the plain registrar of a bare system


async def test_a_caller_that_gives_up_does_not_undo_the_start(autojump_clock: MockClock, stage: Stage) -> None:
    top = await dynamic(stage)
    stage.plan.script("a", "5")

    with trio.move_on_after(1):
        await start_child(top, stage.worker("a"))
    await trio.sleep(5)

    assert [info.state for info in await which_children(top)] == ["running"]


@pytest.mark.row("E13", "H02")
def test_starts_stops_and_crashes_at_once_keep_the_books_right() -> None:
    async def act(source: random.Random, stage: Stage) -> None:
        top = await dynamic(stage, max_children=4, restarts=1000)

        async def life(name: str, kind: Any) -> None:
            for _ in range(3):
                stage.plan.script(name, *source.sample(["ok", "0.5", "fail", "ignore"], 4))
                try:
                    ref = await start_child(top, stage.worker(name, kind, restart="transient", start_timeout=0.4))
                except (ChildFailed, MaxChildren, StartTimeout):
                    continue
                if ref is not None:
                    ref.tell(Crash())
                    await trio.sleep(0.1)
                    try:
                        await terminate_child(top, ref)
                    except ChildNotFound:
                        continue

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(life, f"c{number}", KINDS[number % 2])
        await stage.settle()
        infos = await which_children(top)
        assert {info.ref for info in infos if info.ref} == {
            cell.ref for cell in stage.system.actors if cell.parent is top._cell
        }
        assert all(info.ref is not None and info.ref.alive for info in infos)
        assert len(infos) <= 4

    for seed in range(60):
        simulate(on_stage(partial(act, random.Random(seed))), seed)


class Silent(Actor):
    def on_start(self) -> StartResult:
        return Ignore()


async def test_a_thousand_starts_that_are_ignored_leave_nothing_behind(autojump_clock: MockClock, stage: Stage) -> None:
    top = await dynamic(stage)
    for _ in range(1_000):
        assert await start_child(top, child(Silent)) is None
    assert (await supervisor_statistics(top)).children == 0
    assert len(stage.system.actors) == 1
