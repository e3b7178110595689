"""Group G: adding, stopping, starting again, removing and listing children of a running supervisor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Request, Shutdown, message
from sapwood.errors import (
    ActorDown,
    AlreadyPresent,
    AlreadyStarted,
    ChildFailed,
    ChildNotFound,
    ChildRestarting,
    ChildRunning,
    InvalidChildSpec,
    UnhandledRequest,
)
from sapwood.supervision import (
    Backoff,
    ChildCounts,
    ChildInfo,
    DynamicSupervisor,
    child,
    count_children,
    delete_child,
    get_child_spec,
    restart_child,
    start_child,
    supervisor,
    supervisor_statistics,
    terminate_child,
    which_children,
)
from tests.supervision.kit import Crash, SlowWorker, Stage, Worker, info_of, states

SLOW = Backoff(initial=10.0, jitter=0.0)


@message("test.supervision.odd")
class Odd(Request[int]):
    pass


@pytest.mark.row("G01")
async def test_start_child_starts_the_child_at_the_end_of_the_order_and_returns_its_ref(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("z"))

    ref = await start_child(top, stage.worker("a"))

    assert ref is stage.ref("a")
    assert await states(top) == {"z": "running", "a": "running"}
    await top.stop()
    assert stage.events == ["+a", "-a shutdown", "-z shutdown", "-Supervisor#1 normal"]


@pytest.mark.row("G01", "H06")
@pytest.mark.parametrize("spec", [Worker, None, {"id": "a", "start": Worker}])
async def test_start_child_refuses_what_is_no_spec_in_the_caller_and_changes_nothing(
    autojump_clock: MockClock, stage: Stage, spec: Any
) -> None:
    top = await stage.supervise(stage.worker("a"))
    dead = await stage.system.spawn(DynamicSupervisor)
    await dead.stop()

    for target in (top, dead):
        with pytest.raises(InvalidChildSpec, match="spec made with child"):
            await start_child(target, spec)

    assert await states(top) == {"a": "running"}


@pytest.mark.row("G02")
async def test_start_child_with_the_id_of_a_running_child_gives_that_child_and_drops_the_new_spec(
    autojump_clock: MockClock,
    stage: Stage,
) -> None:
    top = await stage.supervise(stage.worker("a"))

    with pytest.raises(AlreadyStarted) as taken:
        await start_child(top, stage.worker("a", restart="temporary"))

    assert taken.value.ref is stage.ref("a")
    assert (await get_child_spec(top, "a")).restart == "permanent"
    assert stage.plan.attempts == []


@pytest.mark.row("G03")
async def test_start_child_with_the_id_of_a_spec_that_does_not_run_is_refused(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("stopped"), stage.worker("waiting", backoff=SLOW))
    await terminate_child(top, "stopped")
    await stage.crash("waiting")

    for name in ("stopped", "waiting"):
        with pytest.raises(AlreadyPresent):
            await start_child(top, stage.worker(name))

    assert await states(top) == {"stopped": "stopped", "waiting": "restarting"}


@pytest.mark.row("G04", "P04", "UP-53")
async def test_a_failing_start_child_tells_its_caller_and_leaves_no_trace(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("b"), restarts=0)
    stage.plan.script("a", "fail")

    with pytest.raises(ChildFailed, match="child a failed to start: crashed with BoomError: start of a"):
        await start_child(top, stage.worker("a"))
    await stage.settle()

    assert await states(top) == {"b": "running"}
    assert (await supervisor_statistics(top)).restarts == 0
    assert stage.plan.attempts == ["a"]
    assert stage.reports == []


@pytest.mark.row("G05", "UP-54")
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_terminate_child_stops_the_child_keeps_its_spec_and_touches_nobody_else(
    autojump_clock: MockClock, stage: Stage, strategy: Any
) -> None:
    log: list[str] = []
    slow = child(lambda name: SlowWorker(name, cleanup=2, log=log), "b", id="b")
    top = await stage.supervise(stage.worker("a"), slow, stage.worker("c"), strategy=strategy)
    others = stage.refs("a", "c")
    begun = stage.clock()

    await terminate_child(top, "b")
    assert stage.clock() - begun == 2
    await trio.sleep(100)

    assert log == ["stop b shutdown", "clean b"]
    assert await states(top) == {"a": "running", "b": "stopped", "c": "running"}
    assert stage.refs("a", "c") == others
    assert stage.events == ["-b shutdown"]


@pytest.mark.row("G06")
async def test_terminate_child_is_idempotent_and_refuses_an_unknown_id(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(stage.worker("a"))
    await terminate_child(top, "a")

    await terminate_child(top, "a")
    with pytest.raises(ChildNotFound):
        await terminate_child(top, "b")

    assert await states(top) == {"a": "stopped"}


async def test_terminate_child_of_an_ordinary_supervisor_takes_a_ref_too(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a"))
    stranger = await stage.system.spawn(Worker, "stranger")

    await terminate_child(top, stage.ref("a"))
    with pytest.raises(ChildNotFound):
        await terminate_child(top, stranger)

    assert await states(top) == {"a": "stopped"}
    assert stranger.alive


@pytest.mark.row("G07", "BR-02")
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_terminate_child_cancels_a_restart_that_waits_for_its_delay(
    autojump_clock: MockClock, stage: Stage, strategy: Any
) -> None:
    top = await stage.supervise(stage.worker("a", backoff=SLOW), strategy=strategy)
    await stage.crash("a")
    await trio.sleep(2)
    assert await states(top) == {"a": "restarting"}

    await terminate_child(top, "a")
    assert await states(top) == {"a": "stopped"}
    assert stage.system.statistics().deadlines == 0
    await trio.sleep(100)

    assert stage.plan.attempts == []
    assert await states(top) == {"a": "stopped"}


@pytest.mark.row("BR-02")
@pytest.mark.parametrize("replacement", ["same", "new"])
async def test_a_child_started_meanwhile_under_the_id_is_the_only_one_after_the_old_delay(
    autojump_clock: MockClock, stage: Stage, replacement: str
) -> None:
    top = await stage.supervise(stage.worker("a", backoff=SLOW))
    await stage.crash("a")
    await trio.sleep(2)

    await terminate_child(top, "a")
    if replacement == "same":
        await restart_child(top, "a")
    else:
        await delete_child(top, "a")
        await start_child(top, stage.worker("a"))
    current = stage.ref("a")
    await trio.sleep(100)

    assert stage.ref("a") is current
    assert stage.plan.attempts == ["a"]


@pytest.mark.row("BR-02")
async def test_a_second_crash_of_the_child_started_meanwhile_has_its_own_delay(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a", backoff=SLOW), restarts=10)
    await stage.crash("a")
    await trio.sleep(8)
    await terminate_child(top, "a")
    await restart_child(top, "a")
    await stage.crash("a")  # at 8 s; its second failure in a row waits 20 s
    stage.forget()

    await trio.sleep(19)
    assert stage.plan.attempts == []
    await trio.sleep(2)

    assert stage.plan.attempts == ["a"]


@pytest.mark.row("G08")
async def test_terminate_child_removes_the_spec_of_a_temporary_child(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(stage.worker("a", restart="temporary"))

    await terminate_child(top, "a")

    assert await states(top) == {}
    with pytest.raises(ChildNotFound):
        await restart_child(top, "a")


@pytest.mark.row("G09", "G11")
@pytest.mark.parametrize("operation", [restart_child, delete_child])
async def test_restart_and_delete_work_only_on_a_child_at_rest(
    autojump_clock: MockClock, stage: Stage, operation: Callable[..., Awaitable[Any]]
) -> None:
    top = await stage.supervise(stage.worker("running"), stage.worker("waiting", backoff=SLOW), stage.worker("rests"))
    await stage.crash("waiting")
    await terminate_child(top, "rests")

    for name, error in {"running": ChildRunning, "waiting": ChildRestarting, "unknown": ChildNotFound}.items():
        with pytest.raises(error):
            await operation(top, name)
    answer = await operation(top, "rests")

    after = await states(top)
    assert after.pop("running") == "running"
    assert after.pop("waiting") == "restarting"
    assert after == ({"rests": "running"} if operation is restart_child else {})
    assert answer is (stage.ref("rests") if operation is restart_child else None)


@pytest.mark.row("G10")
async def test_a_restart_child_that_fails_or_is_ignored_leaves_the_child_at_rest(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a"), restarts=0)
    await terminate_child(top, "a")
    stage.plan.script("a", "fail", "ignore")

    with pytest.raises(ChildFailed):
        await restart_child(top, "a")
    await stage.settle()
    assert await states(top) == {"a": "stopped"}
    assert await restart_child(top, "a") is None

    assert await states(top) == {"a": "stopped"}
    assert stage.plan.attempts == ["a", "a"]
    assert (await supervisor_statistics(top)).restarts == 0


@pytest.mark.row("G12")
async def test_which_children_lists_every_retained_spec_in_start_order(autojump_clock: MockClock, stage: Stage) -> None:
    inner = supervisor([], strategy="one_for_one", id="inner", restart="transient")
    top = await stage.supervise(
        stage.worker("b"), inner, stage.worker("waiting", backoff=SLOW), stage.worker("a", restart="temporary")
    )
    await terminate_child(top, "inner")
    await stage.crash("waiting")

    assert await which_children(top) == [
        ChildInfo("b", stage.ref("b"), "running", "worker", "permanent", 1, "Worker"),
        ChildInfo("inner", None, "stopped", "supervisor", "transient", 1, "Supervisor"),
        ChildInfo("waiting", None, "restarting", "worker", "permanent", 1, "Worker"),
        ChildInfo("a", stage.ref("a"), "running", "worker", "temporary", 1, "Worker"),
    ]


@pytest.mark.row("G13")
async def test_count_children_counts_specs_processes_and_declared_types(
    autojump_clock: MockClock, stage: Stage
) -> None:
    inner = supervisor([stage.worker("leaf")], strategy="one_for_one", id="inner")
    other = supervisor([], strategy="one_for_one", id="other")
    top = await stage.supervise(inner, other, stage.worker("a"), stage.worker("b", backoff=SLOW))
    assert await count_children(top) == ChildCounts(specs=4, active=4, supervisors=2, workers=2)

    await terminate_child(top, "other")
    await stage.crash("b")

    assert await count_children(top) == ChildCounts(specs=4, active=2, supervisors=2, workers=2)


@pytest.mark.row("G13")
async def test_a_child_that_is_dead_counts_no_more_even_before_its_end_was_noticed(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a"), stage.worker("b"))
    await top.suspend()
    stage.ref("a").tell(Crash())
    await stage.settle()
    seen: list[ChildCounts] = []

    async with trio.open_nursery() as nursery:
        # Asked before the death, answered after it and before its notice: the question waits in front.
        async def ask() -> None:
            seen.append(await count_children(top))

        nursery.start_soon(ask)
        await stage.settle()
        actor: Any = top._cell.actor
        active = actor.count_children(None).active
        await top.resume()

    assert active == 1
    assert seen[0].specs == 2


@pytest.mark.row("G14")
async def test_get_child_spec_returns_the_spec_with_its_defaults_or_says_that_there_is_none(
    autojump_clock: MockClock, stage: Stage
) -> None:
    spec = stage.worker("a")
    top = await stage.supervise(spec)
    await start_child(top, stage.worker("b", restart="temporary", shutdown="brutal_kill"))

    assert await get_child_spec(top, "a") == spec
    assert (await get_child_spec(top, "b")).shutdown == "brutal_kill"
    with pytest.raises(ChildNotFound):
        await get_child_spec(top, "c")


@pytest.mark.row("G15")
async def test_every_call_on_a_dead_supervisor_fails_at_once(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(stage.worker("a"))
    await top.stop()
    begun = stage.clock()
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: start_child(top, stage.worker("b")),
        lambda: terminate_child(top, "a"),
        lambda: restart_child(top, "a"),
        lambda: delete_child(top, "a"),
        lambda: get_child_spec(top, "a"),
        lambda: which_children(top),
        lambda: count_children(top),
        lambda: supervisor_statistics(top),
    ]

    for call in calls:
        with pytest.raises(ActorDown):
            await call()

    assert stage.clock() == begun


@pytest.mark.row("G15")
async def test_a_call_that_waits_when_its_supervisor_gives_up_fails_at_once(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a"), restarts=0)
    stage.plan.script("b", "5")
    errors: list[ActorDown] = []

    async def start(name: str) -> None:
        try:
            await start_child(top, stage.worker(name))
        except ActorDown as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start, "b")
        await stage.settle()
        stage.ref("a").tell(Crash())
        await stage.settle()
        nursery.start_soon(start, "c")

    assert [error.reason for error in errors] == [Shutdown("reached max restart intensity")]
    assert stage.alive == []


@pytest.mark.row("G16")
@pytest.mark.parametrize("dynamic", [False, True])
async def test_a_message_that_a_supervisor_does_not_know_is_dropped_and_recorded(
    autojump_clock: MockClock, stage: Stage, dynamic: Any
) -> None:
    top = await stage.system.spawn(DynamicSupervisor) if dynamic else await stage.supervise(stage.worker("a"))

    top.tell(Crash())
    top.tell(Odd())
    with pytest.raises(UnhandledRequest, match="does not answer Odd"):
        await top.ask(Odd())
    await stage.settle()

    assert top.alive
    assert stage.dead_letters == ["Crash", "Odd"]
    assert len(await which_children(top)) == (0 if dynamic else 1)


async def test_management_calls_that_a_dynamic_supervisor_does_not_have_are_refused(
    autojump_clock: MockClock, stage: Stage
) -> None:
    dynamic = await stage.system.spawn(DynamicSupervisor)
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: restart_child(dynamic, "a"),
        lambda: delete_child(dynamic, "a"),
        lambda: get_child_spec(dynamic, "a"),
    ]
    for call in calls:
        with pytest.raises(UnhandledRequest):
            await call()
    with pytest.raises(InvalidChildSpec, match="the ref of a child"):
        await terminate_child(dynamic, "a")

    assert dynamic.alive


async def test_incarnation_counts_starts_by_hand_and_by_the_supervisor(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(stage.worker("a"))
    await stage.crash("a")
    await terminate_child(top, "a")
    await restart_child(top, "a")

    assert (await info_of(top, "a")).incarnation == 3
