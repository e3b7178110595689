"""Group C: what falls and comes back together, in which order, and what if a restart fails."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import ChildExit, Crashed, Restarted, SupervisorReport
from sapwood.errors import AlreadyPresent, ChildRestarting
from sapwood.supervision import (
    Backoff,
    DynamicSupervisor,
    delete_child,
    restart_child,
    start_child,
    supervisor,
    supervisor_statistics,
    terminate_child,
)
from sapwood.supervision._base import Retry
from tests.supervision.kit import (
    BoomError,
    Crash,
    PlainWorker,
    SlowWorker,
    Stage,
    Worker,
    on_stage,
    simulate,
    states,
)

ABCD = ("a", "b", "c", "d")


@pytest.mark.row("C01")
async def test_one_for_one_replaces_the_ended_child_alone(autojump_clock: MockClock, stage: Stage) -> None:
    await stage.supervise(*[stage.worker(name) for name in ABCD])
    others = stage.refs("a", "c", "d")

    await stage.crash("b")

    assert stage.events == ["-b BoomError", "+b"]
    assert stage.refs("a", "c", "d") == others


@pytest.mark.row("C02", "C04")
async def test_one_for_all_stops_the_others_in_reverse_order_and_starts_all_in_order(
    autojump_clock: MockClock, stage: Stage
) -> None:
    await stage.supervise(*[stage.worker(name) for name in ABCD], strategy="one_for_all")
    before = stage.refs(*ABCD)

    await stage.crash("b")

    assert stage.events == ["-b BoomError", "-d shutdown", "-c shutdown", "-a shutdown", "+a", "+b", "+c", "+d"]
    assert not any(ref.alive for ref in before)


@pytest.mark.row("C03", "C04")
async def test_rest_for_one_replaces_the_ended_child_and_those_after_it(
    autojump_clock: MockClock, stage: Stage
) -> None:
    await stage.supervise(*[stage.worker(name) for name in ABCD], strategy="rest_for_one")
    first = stage.ref("a")

    await stage.crash("b")

    assert stage.events == ["-b BoomError", "-d shutdown", "-c shutdown", "+b", "+c", "+d"]
    assert stage.ref("a") is first


@pytest.mark.row("C04")
async def test_the_next_child_is_not_told_to_stop_before_the_last_one_is_dead(
    autojump_clock: MockClock, stage: Stage
) -> None:
    log: list[str] = []

    def slow(name: str, seconds: float) -> Any:
        return stage.worker(name, lambda *args: SlowWorker(*args, cleanup=seconds, log=log))

    await stage.supervise(slow("a", 0), slow("b", 3), slow("c", 2), stage.worker("d"), strategy="one_for_all")

    await stage.crash("d")
    await trio.sleep(10)

    assert log == [
        "stop c shutdown",
        "clean c",
        "stop b shutdown",
        "clean b",
        "stop a shutdown",
        "clean a",
    ]


@pytest.mark.row("C05")
async def test_the_order_is_that_of_insertion_and_a_re_added_child_comes_last(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(*[stage.worker(name) for name in ("z", "m", "a")], strategy="one_for_all")
    await start_child(top, stage.worker("b"))
    await terminate_child(top, "m")
    await delete_child(top, "m")
    await start_child(top, stage.worker("m"))
    assert list(await states(top)) == ["z", "a", "b", "m"]
    stage.forget()

    await stage.crash("a")

    assert stage.events == ["-a BoomError", "-m shutdown", "-b shutdown", "-z shutdown", "+z", "+a", "+b", "+m"]


@pytest.mark.row("C06", "F07")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_temporary_sibling_that_falls_with_the_group_is_dropped(
    autojump_clock: MockClock, stage: Stage, strategy: Any
) -> None:
    top = await stage.supervise(
        stage.worker("a"), stage.worker("b", restart="temporary"), stage.worker("c"), strategy=strategy
    )

    await stage.crash("a")

    assert stage.events == ["-a BoomError", "-c shutdown", "-b shutdown", "+a", "+c"]
    assert await states(top) == {"a": "running", "c": "running"}


@pytest.mark.row("C07")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_group_restart_starts_every_spec_in_its_range_even_what_did_not_run(
    autojump_clock: MockClock, stage: Stage, strategy: Any
) -> None:
    stage.plan.script("ignored", "ignore")
    top = await stage.supervise(
        stage.worker("first"),
        stage.worker("a"),
        stage.worker("finished", restart="transient"),
        stage.worker("ignored"),
        stage.worker("stopped"),
        supervisor([stage.worker("leaf")], strategy="one_for_one", id="inner"),
        strategy=strategy,
    )
    await stage.end("finished")
    await terminate_child(top, "stopped")
    await terminate_child(top, "inner")
    assert [name for name, state in (await states(top)).items() if state == "stopped"] == [
        "finished",
        "ignored",
        "stopped",
        "inner",
    ]
    stage.forget()

    await stage.crash("a")

    restarted = ["+a", "+finished", "+ignored", "+stopped", "+leaf", "+inner"]
    expected = {"one_for_all": ["-a BoomError", "-first shutdown", "+first", *restarted]}
    assert stage.events == expected.get(strategy, ["-a BoomError", *restarted])


@pytest.mark.row("C07")
async def test_a_rest_for_one_restart_leaves_alone_what_stands_before_and_does_not_run(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(*[stage.worker(name) for name in ABCD], strategy="rest_for_one")
    await terminate_child(top, "a")

    await stage.crash("b")

    assert (await states(top))["a"] == "stopped"


@pytest.mark.row("C08", "C09", "E15", "UP-58")
@pytest.mark.parametrize("kind", [Worker, PlainWorker])
async def test_a_supervisor_that_restarts_in_vain_answers_requests_and_stops_in_between(
    autojump_clock: MockClock, stage: Stage, kind: Any
) -> None:
    top = await stage.supervise(stage.worker("a", kind), stage.worker("b"), restarts=10**9)
    for _ in range(5):
        stage.plan.script("a", *["fail"] * 100_000)
        stage.ref("a").tell(Crash())
        with trio.fail_after(5):
            await stage.plan.tried(500)
            assert await states(top) == {"a": "restarting", "b": "running"}
            attempts = len(stage.plan.attempts)
            await states(top)
            await states(top)
        assert len(stage.plan.attempts) - attempts < 1000
        await terminate_child(top, "a")
        stage.forget()
        await stage.settle()
        assert stage.plan.attempts == []
        stage.plan.script("a")
        await restart_child(top, "a")

    stage.plan.script("a", *["fail"] * 100_000)
    stage.ref("a").tell(Crash())
    await stage.plan.tried(500)
    with trio.fail_after(5):
        await top.stop()
    assert stage.alive == []


@pytest.mark.row("C09", "P04", "D01")
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_every_attempt_to_restart_costs_a_unit_and_is_reported_when_it_fails(
    autojump_clock: MockClock, stage: Stage, strategy: Any
) -> None:
    top = await stage.supervise(stage.worker("a"), strategy=strategy, restarts=3)
    stage.plan.script("a", "fail", "fail", "ok", "ok")

    await stage.crash("a")
    assert stage.plan.attempts == ["a", "a", "a"]
    assert (await supervisor_statistics(top)).restarts_in_window == 3
    assert stage.reports == [
        ("child_terminated", "a", "BoomError"),
        ("start_error", "a", "ChildFailed"),
        ("start_error", "a", "ChildFailed"),
    ]

    await stage.crash("a")
    assert not top.alive


@pytest.mark.row("C09", "D01", "BR-04")
async def test_restarts_that_keep_failing_use_up_the_budget(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(stage.worker("a"), restarts=3)
    stage.plan.script("a", *["fail"] * 10)

    await stage.crash("a")

    assert stage.plan.attempts == ["a", "a", "a"]
    assert not top.alive


@pytest.mark.row("C10")
async def test_one_for_all_starts_over_with_the_whole_group_when_a_member_fails(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(*[stage.worker(name) for name in ABCD], strategy="one_for_all", restarts=5)
    stage.plan.script("c", "fail", "fail", "ok")

    await stage.crash("b")

    fallen = ["-b BoomError", "-d shutdown", "-c shutdown", "-a shutdown"]
    in_vain = ["+a", "+b", "-c BoomError", "-b shutdown", "-a shutdown"]
    assert stage.events == [*fallen, *in_vain, *in_vain, "+a", "+b", "+c", "+d"]
    assert (await supervisor_statistics(top)).restarts == 3


@pytest.mark.row("C11")
async def test_rest_for_one_goes_on_from_the_member_that_failed(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(*[stage.worker(name) for name in ABCD], strategy="rest_for_one", restarts=5)
    stage.plan.script("c", "fail", "fail", "ok")

    await stage.crash("b")

    fallen = ["-b BoomError", "-d shutdown", "-c shutdown"]
    assert stage.events == [*fallen, "+b", "-c BoomError", "-c BoomError", "+c", "+d"]
    assert (await supervisor_statistics(top)).restarts == 3


@pytest.mark.row("C12", "G12", "G03", "G09", "G11")
@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("one_for_all", {"a": "running", "b": "running", "c": "restarting", "d": "stopped"}),
        ("rest_for_one", {"a": "running", "b": "running", "c": "restarting", "d": "stopped"}),
    ],
)
async def test_a_half_restarted_group_is_shown_as_it_is(
    autojump_clock: MockClock, stage: Stage, strategy: Any, expected: dict[str, str]
) -> None:
    top = await stage.supervise(*[stage.worker(name) for name in ABCD], strategy=strategy, restarts=10**9)
    stage.plan.script("c", *["fail"] * 1_000_000)
    first = stage.ref("a")

    stage.ref("b").tell(Crash())
    await stage.plan.tried(50)

    assert await states(top) == expected
    assert first.alive is (strategy == "rest_for_one")
    with pytest.raises(ChildRestarting):
        await delete_child(top, "c")
    with pytest.raises(ChildRestarting):
        await restart_child(top, "c")
    with pytest.raises(AlreadyPresent):
        await start_child(top, stage.worker("c"))

    await terminate_child(top, "c")
    assert (await states(top))["c"] == "stopped"


@pytest.mark.row("C10")
async def test_when_an_earlier_member_fails_the_retry_is_its_own_and_the_first_cause_waits(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(*[stage.worker(name) for name in ABCD], strategy="one_for_all", restarts=10**9)
    stage.plan.script("a", *["fail"] * 1_000_000)

    stage.ref("c").tell(Crash())
    await stage.plan.tried(50)
    assert await states(top) == {"a": "restarting", "b": "stopped", "c": "stopped", "d": "stopped"}
    stage.plan.script("a")
    await stage.settle()

    assert await states(top) == dict.fromkeys(ABCD, "running")


def crash_texts(stage: Stage) -> list[str]:
    """Return what the children crashed with, as the supervisor reported it."""
    reasons = [event.reason for event in stage.history if isinstance(event, SupervisorReport)]
    return sorted(str(reason.exception) for reason in reasons if isinstance(reason, Crashed))


@pytest.mark.row("C13", "E08", "P05")
def test_children_that_die_at_once_make_one_restart_and_every_reason_is_kept() -> None:
    async def act(stage: Stage) -> None:
        top = await stage.supervise(*[stage.worker(name) for name in ABCD], strategy="one_for_all")
        for name in "bcd":
            stage.ref(name).tell(Crash(name))
        await stage.settle()

        assert (await supervisor_statistics(top)).restarts == 1
        assert stage.plan.attempts == list(ABCD)
        assert crash_texts(stage) == ["b", "c", "d"]
        assert await states(top) == dict.fromkeys(ABCD, "running")

    for seed in range(100):
        simulate(on_stage(act), seed)


@pytest.mark.row("C13", "E08")
async def test_under_rest_for_one_a_later_death_is_consumed_by_an_earlier_childs_restart(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(*[stage.worker(name) for name in ABCD], strategy="rest_for_one")
    # The supervisor is busy, so that it sees both deaths only afterwards, that of b first.
    async with trio.open_nursery() as nursery:
        stage.plan.script("slow", "1")
        nursery.start_soon(start_child, top, stage.worker("slow"))
        await stage.settle()
        await stage.crash("b", text="b")
        await stage.crash("c", text="c")

    await stage.settle()

    assert (await supervisor_statistics(top)).restarts == 1
    assert stage.plan.attempts == ["slow", "b", "c", "d", "slow"]
    assert crash_texts(stage) == ["b", "c"]


@pytest.mark.row("C10", "G07")
async def test_when_the_retry_of_a_failed_member_is_cancelled_nobody_is_left_waiting_for_it(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a"), stage.worker("b"), strategy="one_for_all")
    stage.plan.script("a", "late fail")
    async with trio.open_nursery() as nursery:
        stage.ref("b").tell(Crash())
        await stage.settle()
        # Asked while the group is being restarted, so that it is answered before the retry.
        nursery.start_soon(terminate_child, top, "a")

    assert await states(top) == {"a": "stopped", "b": "stopped"}
    await delete_child(top, "b")


@pytest.mark.row("BR-02", "C08")
async def test_a_retry_of_an_earlier_incarnation_does_nothing(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(stage.worker("a", backoff=Backoff(initial=10, jitter=0)))
    actor: Any = top._cell.actor
    stale = Retry(actor._children["a"])
    await stage.crash("a")
    await trio.sleep(11)
    await stage.crash("a")
    stage.forget()

    top._cell.put_entry(stale)
    await stage.settle()

    assert stage.plan.attempts == []
    assert await states(top) == {"a": "restarting"}


@pytest.mark.row("C14", "G16")
@pytest.mark.parametrize("dynamic", [False, True])
async def test_exits_of_actors_that_are_no_children_are_ignored(
    autojump_clock: MockClock, stage: Stage, dynamic: Any
) -> None:
    top = await stage.system.spawn(DynamicSupervisor) if dynamic else await stage.supervise(strategy="one_for_all")
    await start_child(top, stage.worker("a"))
    await start_child(top, stage.worker("b", backoff=Backoff(initial=10, jitter=0)))
    replaced, waiting = stage.refs("a", "b")
    await stage.crash("a")
    await stage.crash("b")
    await trio.sleep(1)
    stranger = await stage.system.spawn(Worker, "stranger")
    linked = await stage.system.spawn(Linker, top)
    stage.forget()

    for ref in (replaced, waiting, stranger):
        top._cell.put_entry(ChildExit(ref, Crashed(BoomError())))
    linked.kill()
    await stage.settle()

    assert stage.events == ["-Linker#1 killed"]
    assert stage.reports == []
    assert (await supervisor_statistics(top)).restarts == 1


class Linker(Worker):
    def __init__(self, other: Any) -> None:
        super().__init__("linker")
        self.other = other

    async def on_start(self) -> None:
        self.link(self.other)
        await trio.lowlevel.checkpoint()


@pytest.mark.row("C15", "P06")
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_a_restart_that_is_ignored_is_done_with_no_process_and_no_retry(
    autojump_clock: MockClock, stage: Stage, strategy: Any
) -> None:
    top = await stage.supervise(stage.worker("a"), stage.worker("b"), strategy=strategy)
    stage.plan.script("a", "ignore", "ok")

    await stage.crash("a")

    assert await states(top) == {"a": "stopped", "b": "running"}
    assert stage.plan.attempts.count("a") == 1
    assert "a" not in [event.child for event in stage.history if isinstance(event, Restarted)]


@pytest.mark.row("C16")
async def test_children_added_at_run_time_do_not_come_back_with_their_supervisor(
    autojump_clock: MockClock, stage: Stage
) -> None:
    inner = supervisor([stage.worker("a")], strategy="one_for_one", id="inner")
    await stage.supervise(inner)
    await start_child(stage.ref("inner"), stage.worker("b"))

    await stage.kill("inner")

    assert await states(stage.ref("inner")) == {"a": "running"}


@pytest.mark.row("C01", "C02", "C03")
async def test_a_restart_is_told_with_the_reason_of_the_first_death(autojump_clock: MockClock, stage: Stage) -> None:
    await stage.supervise(*[stage.worker(name) for name in "abc"], strategy="rest_for_one")

    await stage.crash("b", text="first cause")

    told = [event for event in stage.history if isinstance(event, Restarted)]
    assert [event.child for event in told] == ["b", "c"]
    assert {str(event.reason) for event in told} == {"crashed with BoomError: first cause"}
    assert {event.restarts_in_window for event in told} == {1}
