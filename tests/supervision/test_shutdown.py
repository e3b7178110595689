"""Group E: in which order, how long, and with which reason children are stopped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Actor, Exited, Killed, Normal, Ref, Shutdown, open_system
from sapwood.errors import ActorDown, AskCycle, ChildFailed
from sapwood.supervision import (
    Backoff,
    ChildSpec,
    DynamicSupervisor,
    Supervisor,
    child,
    start_child,
    supervisor,
    terminate_child,
    which_children,
)
from tests.supervision.kit import (
    Block,
    BoomError,
    Call,
    Crash,
    Name,
    SlowWorker,
    Stage,
    Worker,
    on_stage,
    simulate,
    states,
)


def slow(name: str, seconds: float, log: list[str] | None = None, *, fails: bool = False, **options: Any) -> ChildSpec:
    """A child that takes so many seconds to clean up."""
    return child(partial(SlowWorker, cleanup=seconds, log=log, fails=fails), name, id=name, **options)


def reasons(stage: Stage) -> dict[str, Any]:
    """Return `{label: exit reason}` of all that has ended."""
    return {event.actor: event.reason for event in stage.history if isinstance(event, Exited)}


@pytest.mark.row("E01", "E16")
async def test_a_supervisor_stops_its_children_one_by_one_in_reverse_order_and_then_itself(
    autojump_clock: MockClock, stage: Stage
) -> None:
    inner = supervisor([stage.worker("x"), stage.worker("y")], strategy="one_for_one", id="inner")
    top = await stage.supervise(stage.worker("a"), inner, stage.worker("b"))

    await top.stop()

    assert stage.events == [
        "-b shutdown",
        "-y shutdown",
        "-x shutdown",
        "-inner shutdown",
        "-a shutdown",
        "-Supervisor#1 normal",
    ]


@pytest.mark.row("E02", "P05")
@pytest.mark.parametrize(("cleanup", "limit", "took"), [(1.0, 2.0, 1.0), (3.0, 2.0, 2.0), (0.5, 0.25, 0.25)])
async def test_a_child_has_its_shutdown_time_and_is_then_killed(
    autojump_clock: MockClock, stage: Stage, cleanup: float, limit: float, took: float
) -> None:
    top = await stage.supervise(slow("a", cleanup, shutdown=limit))
    begun = stage.clock()

    await top.stop()

    assert stage.clock() - begun == took
    in_time = cleanup < limit
    assert reasons(stage)["a"] == (Shutdown() if in_time else Killed())
    assert stage.reports == ([] if in_time else [("shutdown_error", "a", "killed")])


@pytest.mark.row("E03")
async def test_a_child_that_does_not_trap_exits_ends_at_once_and_its_clean_up_does_not_run(
    autojump_clock: MockClock, stage: Stage
) -> None:
    log: list[str] = []

    class Untrapped(SlowWorker):
        trap_exits = False

    top = await stage.supervise(child(partial(Untrapped, cleanup=3, log=log), "a", id="a"))
    stage.ref("a").tell(Block(trio.Event()))
    begun = stage.clock()

    await top.stop()

    assert reasons(stage)["a"] == Shutdown()
    assert log == []
    assert stage.clock() == begun


@pytest.mark.row("E04", "P05")
async def test_brutal_kill_asks_nothing_and_runs_no_clean_up(autojump_clock: MockClock, stage: Stage) -> None:
    log: list[str] = []
    top = await stage.supervise(slow("a", 0, log, shutdown="brutal_kill"))

    await top.stop()

    assert reasons(stage)["a"] == Killed()
    assert log == []
    assert stage.reports == []


@pytest.mark.row("E05")
async def test_an_unlimited_shutdown_waits_for_however_long_it_takes(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(slow("a", 100_000.0, shutdown=None))
    begun = stage.clock()

    await top.stop()

    assert stage.clock() - begun == 100_000.0
    assert reasons(stage)["a"] == Shutdown()


@pytest.mark.row("E06")
async def test_a_shutdown_time_of_zero_asks_and_kills_without_waiting(autojump_clock: MockClock, stage: Stage) -> None:
    log: list[str] = []
    top = await stage.supervise(slow("traps", 1, log, shutdown=0), stage.worker("at_once", shutdown=0))
    begun = stage.clock()

    await top.stop()

    assert stage.clock() == begun
    assert reasons(stage)["traps"] == Killed()
    assert reasons(stage)["at_once"] == Shutdown()
    assert "clean traps" not in log


@pytest.mark.row("E07", "H11")
async def test_a_supervisor_takes_the_sum_of_its_childrens_times_and_a_dynamic_one_the_maximum(
    autojump_clock: MockClock, stage: Stage
) -> None:
    specs = [slow(name, seconds, shutdown=10) for name, seconds in {"a": 1, "b": 2, "c": 4}.items()]
    top = await stage.supervise(*specs)
    dynamic = await stage.system.spawn(DynamicSupervisor)
    for spec in specs:
        await start_child(dynamic, spec)

    begun = stage.clock()
    await top.stop()
    assert stage.clock() - begun == 7

    begun = stage.clock()
    await dynamic.stop()
    assert stage.clock() - begun == 4


@pytest.mark.row("E08")
async def test_a_child_dead_already_costs_no_time_and_is_reported_with_its_real_reason(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a"), slow("b", 3), restarts=10)
    stage.ref("a").tell(Crash("in the meantime"))
    begun = stage.clock()

    # Both requests reach the supervisor before it sees the death of a, which happens while it waits for b.
    top.exit(Shutdown("now"))
    await top.wait_stopped()

    assert stage.clock() - begun == 3
    assert stage.reports == [("shutdown_error", "a", "BoomError")]
    assert stage.plan.attempts == []


@pytest.mark.row("E09")
async def test_a_child_that_unlinks_itself_or_is_killed_from_outside_cannot_hang_the_stop(
    autojump_clock: MockClock, stage: Stage
) -> None:
    class Unlinker(SlowWorker):
        async def on_stop(self, reason: Any) -> None:
            self.unlink(top.ref)
            await super().on_stop(reason)

    class Holder:
        ref: Ref

    top = Holder()
    top.ref = await stage.supervise(child(partial(Unlinker, cleanup=2), "a", id="a"), slow("b", 50, shutdown=None))
    victim = stage.ref("b")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(top.ref.stop)
        await trio.sleep(1)
        victim.kill()
        with trio.fail_after(10):
            await top.ref.wait_stopped()

    assert reasons(stage)["b"] == Killed()
    assert reasons(stage)["a"] == Shutdown()


@pytest.mark.row("E09", "E08")
def test_a_stop_that_races_with_a_death_always_ends_and_restarts_nothing() -> None:
    async def act(stage: Stage) -> None:
        top = await stage.supervise(*[slow(name, 0) for name in "abc"], restarts=100)
        refs = stage.refs("a", "b", "c")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(terminate_child, top, "b"))
            nursery.start_soon(top.stop)
            for ref, deed in zip(refs, (Crash(), Crash(), None), strict=True):
                await trio.lowlevel.checkpoint()
                ref.kill() if deed is None else ref.tell(deed)
        assert stage.alive == []
        ended = [line.split()[0] for line in stage.events if not line.startswith("+")]
        started = [line for line in stage.events if line.startswith("+")]
        assert len(ended) == len(started) + 4

    for seed in range(100):
        simulate(on_stage(lambda stage: tolerant(act, stage)), seed)


async def tolerant(act: Callable[[Stage], Any], stage: Stage) -> None:
    """Run an act in which a request may find its supervisor gone."""
    try:
        await act(stage)
    except* ActorDown:
        await stage.settle()
        assert stage.alive == []


@pytest.mark.row("E10", "P05")
@pytest.mark.parametrize("dynamic", [False, True])
async def test_a_child_that_crashes_in_its_clean_up_is_reported_and_the_others_are_stopped(
    autojump_clock: MockClock, stage: Stage, dynamic: Any
) -> None:
    specs = [slow("a", 0), slow("b", 0, fails=True), slow("c", 0)]
    top = await stage.system.spawn(DynamicSupervisor) if dynamic else await stage.supervise(*specs)
    for spec in specs if dynamic else ():
        await start_child(top, spec)
    stage.forget()

    await top.stop()

    assert stage.reports == [("shutdown_error", "b", "BoomError")]
    assert stage.alive == []
    ends = {label: type(reason).__name__ for label, reason in reasons(stage).items()}
    assert (ends["a"], ends["b"], ends["c"]) == ("Shutdown", "Crashed", "Shutdown")


@pytest.mark.row("E11")
@pytest.mark.parametrize("reason", [Normal(), Shutdown("upgrade"), Killed()], ids=str)
async def test_children_always_see_a_plain_shutdown_whatever_their_supervisor_ends_with(
    autojump_clock: MockClock, stage: Stage, reason: Any
) -> None:
    log: list[str] = []
    top = await stage.supervise(slow("a", 0, log), stage.worker("b"))

    await top.stop(reason)

    assert log == ["stop a shutdown", "clean a"]
    assert reasons(stage) == {"a": Shutdown(), "b": Shutdown(), "Supervisor#1": reason}


class Parent(Supervisor):
    """A supervisor that sends exit signals to its children when told."""

    def on_unhandled(self, message: Any) -> None:
        target, reason = message.function
        target.exit(reason)


@pytest.mark.row("E12")
@pytest.mark.parametrize("reason", [Normal(), Shutdown("x"), Killed()], ids=str)
async def test_an_exit_from_its_parent_makes_a_supervisor_stop_its_children_and_end_with_that_reason(
    autojump_clock: MockClock, stage: Stage, reason: Any
) -> None:
    inner = supervisor([slow("a", 1), stage.worker("b")], strategy="one_for_one", id="inner", restart="temporary")
    top = await stage.system.spawn(Parent, [inner], strategy="one_for_one")
    await stage.settle()
    stage.forget()

    top.tell(Call((stage.ref("inner"), reason)))
    await trio.sleep(2)

    assert stage.events == ["-b shutdown", "-a shutdown", f"-inner {reason}"]


@pytest.mark.row("E12")
async def test_an_exit_from_outside_stops_a_supervisor_and_one_from_another_actor_does_not(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a"))
    other = await stage.system.spawn(Worker, "other")

    async def signal() -> None:
        await trio.lowlevel.checkpoint()
        top.exit(Shutdown("none of your business"))

    await other.ask(Call(signal))
    await stage.settle()
    assert top.alive

    top.exit(Normal())
    await stage.settle()

    assert top.exit_reason == Normal()
    assert reasons(stage)["a"] == Shutdown()


@pytest.mark.row("E13")
@pytest.mark.parametrize("dynamic", [False, True])
async def test_a_stop_that_reaches_a_supervisor_during_a_start_takes_effect_after_it(
    autojump_clock: MockClock, stage: Stage, dynamic: Any
) -> None:
    top = await stage.system.spawn(DynamicSupervisor) if dynamic else await stage.supervise()
    stage.plan.script("a", "3")
    stage.forget()
    outcome: list[Ref | None] = []

    async def start() -> None:
        outcome.append(await start_child(top, stage.worker("a")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start)
        await trio.sleep(1)
        begun = stage.clock()
        await top.stop()

    assert stage.clock() - begun == 2
    assert len(outcome) == 1
    assert stage.events == ["+a", "-a shutdown", f"-{top.label} normal"]


@pytest.mark.row("E13")
@pytest.mark.parametrize("dynamic", [False, True])
async def test_requests_wait_while_a_child_starts_and_are_served_in_order(
    autojump_clock: MockClock, stage: Stage, dynamic: Any
) -> None:
    top = await stage.system.spawn(DynamicSupervisor) if dynamic else await stage.supervise()
    stage.plan.script("a", "3")
    stage.plan.script("b", "fail")
    seen: list[str] = []

    async def start(name: str) -> None:
        try:
            await start_child(top, stage.worker(name))
        except ChildFailed:
            seen.append(f"{name} failed")
        else:
            seen.append(f"{name} at {stage.clock() - begun}")

    async with trio.open_nursery() as nursery:
        begun = stage.clock()
        for name in "abc":
            nursery.start_soon(start, name)
            await stage.settle()
        assert stage.plan.attempts == ["a"]
        assert len(await which_children(top)) == 2

    assert seen == ["a at 3.0", "b failed", "c at 3.0"]


@pytest.mark.row("E14", "BR-01", "E02")
@pytest.mark.parametrize("finite", [0.05, 0, "brutal_kill"])
def test_descendants_of_a_supervisor_that_is_killed_in_its_teardown_end_before_it(finite: Any) -> None:
    async def act(stage: Stage) -> None:
        leaf = child(partial(SlowWorker, cleanup=5.0), "leaf", id="leaf", key=("leaf",))
        middle = supervisor([leaf, slow("second", 5)], strategy="one_for_one", id="middle", shutdown=finite)
        top = await stage.supervise(middle)

        await top.stop()

        assert stage.alive == []
        assert stage.clock() == (0.05 if finite == 0.05 else 0)
        ends = reasons(stage)
        assert ends["leaf(('leaf',))"] == Killed()
        assert ends["second"] == Killed()
        assert list(ends)[-2:] == ["middle", "Supervisor#1"]
        taken = await stage.system.spawn(Worker, "x", key=("leaf",))
        assert taken.alive

    for seed in range(10):
        simulate(on_stage(act), seed)


@pytest.mark.row("E14", "BR-01")
def test_a_supervisor_killed_hard_leaves_no_descendant_and_every_leaf_was_killed() -> None:
    async def act(stage: Stage) -> None:
        def branch(name: str) -> ChildSpec:
            leaves = [child(SlowWorker, f"{name}{n}", id=f"{name}{n}", key=(name, n)) for n in range(3)]
            return supervisor(leaves, strategy="one_for_all", id=name)

        top = await stage.supervise(branch("x"), branch("y"), child(DynamicSupervisor, id="z"))
        await start_child(stage.ref("z"), stage.worker("z0"))
        stage.forget()

        top.kill()
        await top.wait_stopped()

        assert stage.alive == []
        assert stage.system.registrar.table == {}  # type: ignore[attr-defined]  # the plain registrar of a bare system
        assert set(map(str, reasons(stage).values())) == {"killed"}
        assert len(reasons(stage)) == 11
        assert list(reasons(stage))[-1] == "Supervisor#1"

    for seed in range(20):
        simulate(on_stage(act), seed)


@pytest.mark.row("E14")
async def test_a_supervisor_that_kills_itself_asks_no_child_to_stop(autojump_clock: MockClock, stage: Stage) -> None:
    class Suicidal(Supervisor):
        def on_unhandled(self, message: Any) -> None:
            self.ref.kill()

    log: list[str] = []
    top = await stage.system.spawn(Suicidal, [slow("b", 0, log), stage.worker("a")], strategy="one_for_one")
    top.tell(Crash())
    await stage.settle()

    assert reasons(stage) == {"a": Killed(), "b": Killed(), "Suicidal#1": Killed()}
    assert log == []


@pytest.mark.row("E14", "B01")
async def test_a_killed_inner_supervisor_comes_back_only_after_all_below_it_are_gone(
    autojump_clock: MockClock, stage: Stage
) -> None:
    inner = supervisor(
        [child(SlowWorker, "leaf", id="leaf", key=("leaf",))], strategy="one_for_one", id="inner", shutdown=1.0
    )
    await stage.supervise(inner)

    await stage.kill("inner")

    assert stage.events == ["-leaf(('leaf',)) killed", "-inner killed", "+leaf(('leaf',))", "+inner"]


@pytest.mark.row("E15")
async def test_a_supervisor_stops_at_once_though_a_child_waits_for_its_restart(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a", backoff=Backoff(initial=100, maximum=100)))
    await stage.crash("a")
    assert await states(top) == {"a": "restarting"}
    begun = stage.clock()

    await top.stop()
    await trio.sleep(200)

    assert stage.clock() - begun == 200
    assert stage.plan.attempts == []


@pytest.mark.row("E16")
async def test_stop_returns_when_the_whole_subtree_is_down_and_no_name_resolves(
    autojump_clock: MockClock, stage: Stage
) -> None:
    leaf = child(partial(SlowWorker, cleanup=2.0), "leaf", key=("leaf",), id="leaf")
    top = await stage.supervise(supervisor([leaf], strategy="one_for_one", id="inner", key=("inner",)))

    await top.stop(Shutdown("done"), timeout=10)

    assert top.exit_reason == Shutdown("done")
    assert stage.alive == []
    assert stage.system.registrar.table == {}  # type: ignore[attr-defined]  # the plain registrar of a bare system


@pytest.mark.row("E17")
async def test_a_child_that_asks_an_ancestor_to_stop_its_own_branch_is_told_so_at_once(
    autojump_clock: MockClock, stage: Stage
) -> None:
    inner = supervisor([slow("a", 0, shutdown=None)], strategy="one_for_one", id="inner")
    top = await stage.supervise(inner)
    leaf = stage.ref("a")
    chains: list[tuple[str, ...]] = []

    async def attempt(wait_for_the_end: Callable[[], Any]) -> None:
        try:
            await wait_for_the_end()
        except AskCycle as cycle:
            chains.append(cycle.chain)

    for wait_for_the_end in (partial(terminate_child, top, "inner"), stage.ref("inner").stop, top.stop):
        await leaf.ask(Call(partial(attempt, wait_for_the_end)))

    assert chains == [
        ("a", "Supervisor#1", "inner", "a"),
        ("a", "inner", "a"),
        ("a", "Supervisor#1", "inner", "a"),
    ]
    assert stage.events == []


@pytest.mark.row("E17")
async def test_a_dynamic_supervisor_tells_a_child_that_it_cannot_wait_for_its_own_end(
    autojump_clock: MockClock, stage: Stage
) -> None:
    dynamic = await stage.system.spawn(DynamicSupervisor)
    ref = await start_child(dynamic, slow("a", 0, shutdown=None))
    assert ref is not None
    caught: list[AskCycle] = []

    async def suicide() -> None:
        try:
            await terminate_child(dynamic, ref)
        except AskCycle as cycle:
            caught.append(cycle)

    await ref.ask(Call(suicide))

    assert caught[0].chain == ("a", "DynamicSupervisor#1", "a")
    assert ref.alive


@pytest.mark.row("E17")
async def test_a_child_may_have_its_branch_stopped_from_a_task_of_its_own(
    autojump_clock: MockClock, stage: Stage
) -> None:
    class Leaver(Worker):
        def __init__(self, top: Ref) -> None:
            super().__init__("leaver")
            self.top = top

        async def tell_it(self) -> str:
            self.start_task(terminate_child, self.top, "inner")
            await trio.lowlevel.checkpoint()
            return "asked"

    top = await stage.supervise()
    await start_child(top, supervisor([child(Leaver, top, id="a")], strategy="one_for_one", id="inner"))
    leaf = stage.ref("a")
    actor: Any = leaf._cell.actor

    assert await leaf.ask(Call(actor.tell_it)) == "asked"
    await stage.settle()

    assert await states(top) == {"inner": "stopped"}
    assert not leaf.alive


async def test_a_subclass_that_fails_in_its_on_stop_still_stops_its_children_in_order(
    autojump_clock: MockClock, stage: Stage
) -> None:
    class Rude(Supervisor):
        async def on_stop(self, reason: Any) -> None:
            await trio.lowlevel.checkpoint()
            raise BoomError("no time")

    rude = await stage.system.spawn(Rude, [stage.worker("a"), stage.worker("b")], strategy="one_for_one")
    stage.forget()

    with trio.fail_after(60), pytest.raises(ActorDown):
        await rude.stop()

    assert stage.events == ["-b shutdown", "-a shutdown", "-Rude#1 BoomError"]


async def test_a_subclass_with_tasks_of_its_own_stops(autojump_clock: MockClock, stage: Stage) -> None:
    class Busy(Supervisor):
        async def on_start(self) -> None:
            await super().on_start()
            self.start_task(trio.sleep_forever)

    busy = await stage.system.spawn(Busy, [stage.worker("a")], strategy="one_for_one")

    with trio.fail_after(60):
        await busy.stop()

    assert stage.alive == []


class Interrupting(Actor):
    """Lets through what must end the run."""

    def on_unhandled(self, message: Any) -> None:
        raise message.function


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), MemoryError()], ids=repr)
@pytest.mark.parametrize("depth", [0, 2])
def test_what_must_end_the_run_ends_it_from_any_depth_with_nothing_left(error: BaseException, depth: int) -> None:
    left: list[str] = []

    async def program() -> None:
        async with open_system() as system:
            stage = Stage(system)
            spec = child(Interrupting, id="victim")
            for level in range(depth):
                spec = supervisor([stage.worker(f"w{level}"), spec], strategy="one_for_one", id=f"s{level}")
            await stage.supervise(spec)
            stage.ref("victim").tell(Call(error))
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)
                left.extend(stage.alive)

    with pytest.RaisesGroup(type(error), flatten_subgroups=True):
        simulate(program, 0)
    assert left == []


async def test_messages_sent_before_the_stop_are_handled_by_a_child_that_traps(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(slow("a", 0))
    ref = stage.ref("a")
    answers: list[str] = []

    async def ask() -> None:
        answers.append(await ref.ask(Name()))

    gate = trio.Event()
    ref.tell(Block(gate))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await stage.settle()
        nursery.start_soon(top.stop)
        await stage.settle()
        gate.set()

    assert answers == ["a"]
