"""Groups B and D: who is restarted, from what, and how often."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import (
    Crashed,
    Environment,
    ExitReason,
    Killed,
    Normal,
    RealEnvironment,
    Ref,
    Shutdown,
    SupervisorReport,
    open_system,
)
from sapwood.errors import ActorDown
from sapwood.supervision import (
    DynamicSupervisor,
    Offender,
    Restart,
    child,
    count_children,
    restart_child,
    start_child,
    supervisor,
    supervisor_statistics,
    terminate_child,
    which_children,
)
from tests.supervision.kit import BoomError, Call, Name, PlainWorker, Stage, Worker, info_of, live_refs, states

ORDERLY: list[ExitReason] = [Normal(), Shutdown(), Shutdown("with detail")]


async def bring_down(stage: Stage, name: str, how: ExitReason) -> None:
    """End a child in the given way."""
    if isinstance(how, Crashed):
        await stage.crash(name)
    elif isinstance(how, Killed):
        await stage.kill(name)
    else:
        await stage.end(name, how)


ABNORMAL: list[ExitReason] = [Killed(), Crashed(BoomError())]
KINDS: list[Any] = [Worker, PlainWorker]


@pytest.mark.row("B01", "B06", "P03")
@pytest.mark.parametrize("how", [*ORDERLY, *ABNORMAL], ids=str)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_permanent_child_is_restarted_after_every_end_at_one_unit_of_budget(
    autojump_clock: MockClock, stage: Stage, how: ExitReason, kind: Any
) -> None:
    top = await stage.supervise(stage.worker("a", kind))
    before = stage.ref("a")

    await bring_down(stage, "a", how)

    assert stage.ref("a") is not before
    assert await states(top) == {"a": "running"}
    assert (await supervisor_statistics(top)).restarts_in_window == 1
    assert [context for context, _, _ in stage.reports] == ["child_terminated"]


@pytest.mark.row("B02", "B05", "B07", "P03")
@pytest.mark.parametrize("how", ORDERLY, ids=str)
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_an_orderly_end_of_a_transient_child_keeps_its_spec_and_touches_nobody(
    autojump_clock: MockClock, stage: Stage, how: ExitReason, strategy: Any
) -> None:
    top = await stage.supervise(
        stage.worker("a"), stage.worker("b", restart="transient"), stage.worker("c"), strategy=strategy
    )
    others = stage.refs("a", "c")

    await bring_down(stage, "b", how)

    assert await states(top) == {"a": "running", "b": "stopped", "c": "running"}
    assert stage.refs("a", "c") == others
    assert (await count_children(top)).active == 2
    assert (await supervisor_statistics(top)).restarts == 0
    assert stage.reports == []


@pytest.mark.row("B03", "P03")
@pytest.mark.parametrize("how", ABNORMAL, ids=str)
async def test_an_abnormal_end_of_a_transient_child_restarts_it(
    autojump_clock: MockClock, stage: Stage, how: ExitReason
) -> None:
    top = await stage.supervise(stage.worker("a", restart="transient"))
    before = stage.ref("a")

    await bring_down(stage, "a", how)

    assert stage.ref("a") is not before
    assert (await supervisor_statistics(top)).restarts == 1
    assert len(stage.reports) == 1


@pytest.mark.row("B04", "B07", "UP-54")
@pytest.mark.parametrize("how", [*ORDERLY, *ABNORMAL], ids=str)
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_a_temporary_child_is_forgotten_and_its_id_is_free_at_once(
    autojump_clock: MockClock, stage: Stage, how: ExitReason, strategy: Any
) -> None:
    top = await stage.supervise(
        stage.worker("a"), stage.worker("b", restart="temporary"), stage.worker("c"), strategy=strategy
    )
    others = stage.refs("a", "c")

    await bring_down(stage, "b", how)

    assert await states(top) == {"a": "running", "c": "running"}
    assert stage.refs("a", "c") == others
    assert (await supervisor_statistics(top)).restarts == 0
    assert [context for context, _, _ in stage.reports] == ([] if how in ORDERLY else ["child_terminated"])
    assert await start_child(top, stage.worker("b")) is stage.ref("b")


@pytest.mark.row("B05")
async def test_an_exception_that_looks_like_a_shutdown_is_a_crash(autojump_clock: MockClock, stage: Stage) -> None:
    class Shutdown(Exception):  # a namesake of the exit reason
        pass

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise Shutdown("please")

    top = await stage.supervise(stage.worker("a", restart="transient"))
    before = stage.ref("a")

    before.tell(Call(fail))
    await stage.settle()

    assert stage.ref("a") is not before
    assert (await supervisor_statistics(top)).restarts == 1


@pytest.mark.row("B08", "D08")
@pytest.mark.parametrize(("restart", "comes_back"), [("permanent", True), ("transient", False), ("temporary", False)])
async def test_a_supervisor_that_gives_up_comes_back_only_where_it_is_permanent(
    autojump_clock: MockClock,
    stage: Stage,
    restart: Restart,
    comes_back: bool,  # noqa: FBT001
) -> None:
    inner = supervisor([stage.worker("a")], strategy="one_for_one", id="inner", restarts=0, restart=restart)
    top = await stage.supervise(inner)
    before = stage.ref("inner")

    await stage.crash("a")

    assert before.exit_reason == Shutdown("reached max restart intensity")
    assert ("inner" in stage.alive) is comes_back
    assert ("a" in stage.alive) is comes_back
    left = {} if restart == "temporary" else {"inner": "running" if comes_back else "stopped"}
    assert await states(top) == left


class Counter(Worker):
    made: int = 0

    def __init__(self, name: str, kept: list[str]) -> None:
        super().__init__(name)
        Counter.made += 1
        self.kept = kept
        self.seen: list[str] = []

    async def on_start(self) -> None:
        self.seen.append("start")
        await trio.lowlevel.checkpoint()


@pytest.mark.row("B09")
async def test_a_restarted_child_is_made_anew_from_its_original_arguments(
    autojump_clock: MockClock, stage: Stage
) -> None:
    arguments = ["original"]
    await stage.supervise(child(Counter, "a", arguments, id="a"))
    before = stage.ref("a")
    made = Counter.made
    state = await before.get_state()
    state["seen"].append("dirt")
    await before.replace_state(lambda old: old | {"name": "changed", "kept": ["changed"]})

    await stage.crash("a")

    assert Counter.made == made + 1
    expected = {"name": "a", "plan": None, "kept": arguments, "seen": ["start"]}
    assert await stage.ref("a").get_state() == expected


@pytest.mark.row("B10")
async def test_the_old_ref_is_down_for_ever_and_the_name_leads_to_the_new_incarnation(
    autojump_clock: MockClock, stage: Stage
) -> None:
    await stage.supervise(child(Worker, "a", key=("name",)))
    [before] = [cell.ref for cell in stage.system.actors if cell.birth.key == ("name",)]
    before.kill()
    await stage.settle()

    [after] = [cell.ref for cell in stage.system.actors if cell.birth.key == ("name",)]

    for _ in range(2):
        with pytest.raises(ActorDown) as down:
            await before.ask(Name())
        assert down.value.reason == Killed()
    assert await after.ask(Name()) == "a"


# --- intensity ------------------------------------------------------------------------------------


@pytest.mark.row("D01", "BR-04")
@pytest.mark.parametrize("intensity", [1, 2, 3])
async def test_as_many_restarts_as_the_intensity_succeed_and_one_more_ends_the_supervisor(
    autojump_clock: MockClock, stage: Stage, intensity: int
) -> None:
    top = await stage.supervise(stage.worker("a"), restarts=intensity, period=5.0)
    for _ in range(intensity):
        await stage.crash("a")
        assert top.alive
        for _ in range(20):
            await which_children(top)  # other messages do not count

    await stage.crash("a")

    assert top.exit_reason == Shutdown("reached max restart intensity")
    assert stage.plan.attempts == ["a"] * intensity
    assert stage.alive == []


@pytest.mark.row("D02")
async def test_intensity_zero_ends_the_supervisor_at_the_first_end_without_a_restart(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a"), restarts=0)

    await stage.end("a")

    assert top.exit_reason == Shutdown("reached max restart intensity")
    assert stage.plan.attempts == []


@pytest.mark.row("D03", "BR-04")
async def test_the_window_slides_and_restarts_that_are_too_old_are_forgiven_one_by_one(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a"), restarts=3, period=5.0)
    for _ in range(20):
        await stage.crash("a")
        await trio.sleep(2)  # never more than 3 in any 5 s
    assert top.alive

    await stage.crash("a")
    await stage.crash("a")

    assert not top.alive


@pytest.mark.row("D03")
async def test_a_success_does_not_reset_the_window(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(stage.worker("a"), restarts=1, period=10.0)
    await stage.crash("a")
    await trio.sleep(9)
    assert top.alive

    await stage.crash("a")

    assert not top.alive


@pytest.mark.row("D04")
@pytest.mark.parametrize(("pause", "lives"), [(2.0, False), (2.0 + 2**-20, True)])
async def test_a_restart_exactly_one_period_old_still_counts(
    autojump_clock: MockClock,
    stage: Stage,
    pause: float,
    lives: bool,  # noqa: FBT001
) -> None:
    top = await stage.supervise(stage.worker("a"), restarts=1, period=2.0)
    await stage.crash("a")
    await trio.sleep(pause)

    await stage.crash("a")

    assert top.alive is lives


@pytest.mark.row("D05")
async def test_all_children_of_a_supervisor_share_one_budget(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(stage.worker("a"), stage.worker("b"), stage.worker("c"), restarts=2)

    await stage.crash("a")
    await stage.crash("b")
    assert top.alive
    await stage.crash("c")

    assert not top.alive


@pytest.mark.row("D06")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_one_group_restart_costs_one_unit_however_many_children_it_touches(
    autojump_clock: MockClock, stage: Stage, strategy: Any
) -> None:
    top = await stage.supervise(*[stage.worker(name) for name in "abcd"], strategy=strategy, restarts=2)

    await stage.crash("a")
    await stage.crash("a")
    assert top.alive
    assert (await supervisor_statistics(top)).restarts_in_window == 2
    await stage.crash("a")

    assert not top.alive


@pytest.mark.row("D07")
async def test_management_by_hand_uses_no_budget(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(stage.worker("a"), restarts=0)

    for _ in range(5):
        await terminate_child(top, "a")
        await restart_child(top, "a")
        await start_child(top, stage.worker("b", restart="temporary"))
        await terminate_child(top, "b")

    assert (await supervisor_statistics(top)).restarts == 0
    assert top.alive


@pytest.mark.row("D08", "E11", "P01")
async def test_a_supervisor_that_gives_up_stops_the_others_in_reverse_order_and_ends_with_shutdown(
    autojump_clock: MockClock,
    stage: Stage,
) -> None:
    top = await stage.supervise(*[stage.worker(name) for name in "abc"], restarts=0)

    await stage.crash("b")

    assert stage.events == [
        "-b BoomError",
        "-c shutdown",
        "-a shutdown",
        "-Supervisor#1 shutdown (reached max restart intensity)",
    ]
    assert stage.reports == [
        ("child_terminated", "b", "BoomError"),
        ("shutdown", "b", "reached max restart intensity"),
    ]
    assert isinstance(top.exit_reason, Shutdown)


class Wandering(RealEnvironment):
    """A world whose wall clock jumps about."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000.0

    def wall(self) -> float:
        return self.now


@pytest.mark.row("D09", "BR-77")
@pytest.mark.parametrize("jump", [-120.0, 10 * 365 * 86400.0, -1_700_000_000.0])
async def test_jumps_of_the_wall_clock_neither_add_nor_forgive_restarts(autojump_clock: object, jump: float) -> None:
    world = Wandering()
    environment: Environment = world
    async with open_system(environment) as system:
        stage = Stage(system)
        top = await stage.supervise(stage.worker("a"), restarts=2, period=5.0)
        await stage.crash("a")
        world.now += jump
        await stage.crash("a")
        assert top.alive
        await trio.sleep(6)
        world.now -= jump
        await stage.crash("a")
        await stage.crash("a")
        assert top.alive

        world.now += jump
        await stage.crash("a")

        assert not top.alive


@pytest.mark.row("D10")
async def test_a_restarted_supervisor_begins_with_an_empty_window(autojump_clock: MockClock, stage: Stage) -> None:
    inner = supervisor([stage.worker("a")], strategy="one_for_one", id="inner", restarts=2)
    top = await stage.supervise(inner, restarts=3)
    crashes = 0
    while top.alive:
        await stage.crash("a")
        crashes += 1

    # Two restarts and a give-up for each of the four lives of the inner supervisor.
    assert crashes == (2 + 1) * (3 + 1)


async def test_statistics_count_attempts_and_what_lies_in_the_window(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(stage.worker("a"), stage.worker("b"), restarts=10, period=5.0)
    stage.plan.script("a", "fail", "ok")
    await stage.crash("a")
    await trio.sleep(6)
    await stage.crash("b")
    await terminate_child(top, "b")

    statistics = await supervisor_statistics(top)

    assert attrs.asdict(statistics) == {
        "children": 2,
        "active": 1,
        "restarting": 0,
        "restarts": 3,
        "restarts_in_window": 1,
    }


async def test_incarnations_are_counted_and_the_report_names_the_dead_one(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a"))
    before: Ref = stage.ref("a")
    await stage.crash("a")

    info = await info_of(top, "a")

    assert info.incarnation == 2
    assert (await live_refs(top))["a"].statistics().incarnation == 2
    [report] = [event for event in stage.history if isinstance(event, SupervisorReport)]
    assert isinstance(report.offender, Offender)
    assert report.offender.ref is before


@pytest.mark.row("UP-52")
async def test_siblings_go_on_untouched_when_one_of_many_fails(autojump_clock: MockClock, stage: Stage) -> None:
    dynamic = await stage.system.spawn(DynamicSupervisor)
    refs = [
        await start_child(dynamic, child(Worker, str(number), id=str(number), restart="temporary"))
        for number in range(5)
    ]

    await stage.crash("2")

    assert [ref.alive for ref in refs if ref is not None] == [True, True, False, True, True]
