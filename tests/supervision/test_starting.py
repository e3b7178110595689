"""Group A: start order, failing starts, rollback, and what is refused before anything starts."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Actor, Crashed, Ignore, Killed, Shutdown, Started, StartResult, open_system
from sapwood.errors import (
    AlreadyStarted,
    ChildFailed,
    InvalidChildSpec,
    InvalidMessage,
    InvalidOption,
    StartError,
    StartTimeout,
)
from sapwood.supervision import (
    ChildSpec,
    DynamicSupervisor,
    Restart,
    Supervisor,
    child,
    count_children,
    get_child_spec,
    restart_child,
    start_child,
    supervisor,
    terminate_child,
    which_children,
)
from tests.supervision.kit import (
    BoomError,
    PlainWorker,
    SlowWorker,
    Stage,
    Worker,
    info_of,
    on_stage,
    simulate,
    states,
)


@pytest.mark.row("A01")
async def test_children_start_one_after_another_in_list_order(autojump_clock: MockClock, stage: Stage) -> None:
    stage.plan.script("a", "2")
    stage.plan.script("b", "1")

    await stage.system.spawn(Supervisor, [stage.worker(name) for name in "abc"], strategy="one_for_one")

    assert stage.events == ["+a", "+b", "+c", "+Supervisor#1"]
    assert stage.clock() == 3.0


@pytest.mark.row("A01")
async def test_a_child_is_not_even_made_before_the_one_in_front_of_it_has_started(
    autojump_clock: MockClock, stage: Stage
) -> None:
    stage.plan.script("a", "hang")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(stage.system.spawn, Supervisor, [stage.worker("a"), stage.worker("b")], strategy="one_for_one")
        )
        await stage.settle()

        assert stage.plan.attempts == ["a"]
        nursery.cancel_scope.cancel()


@pytest.mark.row("A02", "P04")
async def test_a_failing_start_stops_the_children_before_it_in_reverse_order_each_by_its_own_setting(
    autojump_clock: MockClock,
    stage: Stage,
) -> None:
    log: list[str] = []
    stage.plan.script("c", "fail")
    children = [
        child(SlowWorker, "a", id="a"),
        child(partial(SlowWorker, cleanup=2.0, log=log), "b", id="b"),
        stage.worker("c"),
        stage.worker("d"),
    ]

    with pytest.raises(ChildFailed) as failed:
        await stage.system.spawn(Supervisor, children, strategy="one_for_one")

    assert failed.value.child == "c"
    assert isinstance(failed.value.reason, Crashed)
    assert isinstance(failed.value.reason.exception, BoomError)
    assert stage.events == [
        "+a",
        "+b",
        "-c BoomError",
        "-b shutdown",
        "-a shutdown",
        "-Supervisor#1 ChildFailed",
    ]
    assert log == ["stop b shutdown", "clean b"]
    assert stage.clock() == 2.0
    assert stage.reports == [("start_error", "c", "ChildFailed")]
    assert stage.alive == []


def not_an_actor() -> int:
    return 5


class RaisesInInit(Actor):
    def __init__(self) -> None:
        raise BoomError("init")


class CallsStop(Actor):
    def on_start(self) -> None:
        self.stop(Shutdown("on second thoughts"))


@pytest.mark.row("A03")
@pytest.mark.parametrize(
    ("start", "error"),
    [(RaisesInInit, BoomError), (not_an_actor, InvalidOption), (partial(Worker), TypeError)],
)
async def test_whatever_makes_a_start_fail_is_carried_in_the_error_after_the_rollback(
    autojump_clock: MockClock, stage: Stage, start: Any, error: type[Exception]
) -> None:
    with pytest.raises(ChildFailed) as failed:
        await stage.system.spawn(Supervisor, [stage.worker("a"), child(start, id="b")], strategy="one_for_one")

    assert isinstance(failed.value.reason, Crashed)
    assert isinstance(failed.value.reason.exception, error)
    assert stage.events[0] == "+a"
    assert "-a shutdown" in stage.events
    assert stage.alive == []


@pytest.mark.row("A03")
async def test_a_start_that_returns_something_else_fails_and_the_error_names_that_value(
    autojump_clock: MockClock, stage: Stage
) -> None:
    stage.plan.script("a", "wrong")

    with pytest.raises(ChildFailed, match="got 5"):
        await stage.system.spawn(Supervisor, [stage.worker("a")], strategy="one_for_one")


@pytest.mark.row("A03")
async def test_a_refused_start_and_one_that_stops_itself_fail_with_the_reason_they_gave(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise()
    stage.plan.script("a", "refuse")

    with pytest.raises(ChildFailed) as refused:
        await start_child(top, stage.worker("a"))
    with pytest.raises(ChildFailed) as stopped:
        await start_child(top, child(CallsStop, id="b"))

    assert refused.value.reason == Shutdown("not today")
    assert stopped.value.reason == Shutdown("on second thoughts")
    assert await which_children(top) == []


@pytest.mark.row("A03", "UP-58")
@pytest.mark.parametrize("top", [Supervisor, DynamicSupervisor])
async def test_a_child_killed_while_it_starts_has_failed_to_start(
    autojump_clock: MockClock, stage: Stage, top: Any
) -> None:
    options: dict[str, Any] = {"strategy": "one_for_one"} if top is Supervisor else {}
    ref = await stage.system.spawn(top, **options)
    stage.plan.script("a", "hang")

    async def kill() -> None:
        await stage.settle()
        stage.ref("a").kill()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        with pytest.raises(ChildFailed) as failed:
            await start_child(ref, stage.worker("a"))

    assert failed.value.reason == Killed()
    assert await which_children(ref) == []


@pytest.mark.row("A04")
async def test_the_first_failing_child_ends_the_start_whatever_the_intensity(
    autojump_clock: MockClock, stage: Stage
) -> None:
    stage.plan.script("a", "fail", "ok")

    with pytest.raises(ChildFailed):
        await stage.system.spawn(Supervisor, [stage.worker("a")], strategy="one_for_one", restarts=1000)

    assert stage.plan.attempts == ["a"]


@pytest.mark.row("A05")
@pytest.mark.parametrize("kind", [Worker, PlainWorker])
@pytest.mark.parametrize("top", [partial(Supervisor, strategy="one_for_one"), DynamicSupervisor])
def test_a_failed_start_leaves_its_name_free_at_once(kind: Any, top: Any) -> None:
    async def act(stage: Stage) -> None:
        ref = await stage.system.spawn(top)
        for _ in range(3):
            stage.plan.script("a", "fail", "refuse")
            spec = stage.worker("a", kind, key=("name",), restart="temporary")
            for _ in range(2):
                with pytest.raises(ChildFailed):
                    await start_child(ref, spec)

            started = await start_child(ref, spec)

            assert started is not None
            assert len(stage.alive) == 2
            await terminate_child(ref, started)

    for seed in range(20):
        simulate(on_stage(act), seed)


class Thoughtful(Supervisor):
    """Starts nothing unless it is wanted; fails after its children have started, if told so."""

    def __init__(self, children: list[ChildSpec], then: Any) -> None:
        super().__init__(children, strategy="one_for_one")
        self.then = then

    async def on_start(self) -> StartResult:
        if self.then == "ignore":
            return Ignore()
        await super().on_start()
        if isinstance(self.then, Exception):
            raise self.then
        result: StartResult = self.then
        return result


@pytest.mark.row("A06")
async def test_a_supervisor_whose_start_ignores_ends_normally_without_starting_a_child(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise()

    answer = await start_child(top, child(Thoughtful, [stage.worker("a")], "ignore", id="inner"))

    assert answer is None
    assert stage.plan.attempts == []
    assert stage.events == ["-inner normal"]
    assert await states(top) == {"inner": "stopped"}


@pytest.mark.row("A07")
@pytest.mark.parametrize(("then", "error"), [(5, InvalidMessage), (BoomError("late"), BoomError)])
async def test_a_supervisor_whose_start_goes_wrong_after_its_children_started_stops_them_and_fails(
    autojump_clock: MockClock, stage: Stage, then: Any, error: type[Exception]
) -> None:
    with trio.fail_after(60), pytest.raises(error):
        await stage.system.spawn(Thoughtful, [stage.worker("a"), stage.worker("b")], then)

    assert stage.events == ["+a", "+b", "-b shutdown", "-a shutdown", f"-Thoughtful#1 {error.__name__}"]
    assert stage.alive == []


@pytest.mark.row("A06", "A07")
async def test_a_supervisor_that_ignores_after_its_children_started_stops_them(
    autojump_clock: MockClock, stage: Stage
) -> None:
    with trio.fail_after(60), pytest.raises(StartError):
        await stage.system.spawn(Thoughtful, [stage.worker("a")], Ignore())

    assert stage.events == ["+a", "-a shutdown", "-Thoughtful#1 normal"]


@pytest.mark.row("A02")
async def test_a_subclass_that_outlives_a_failed_start_of_its_children_has_none_of_them(
    autojump_clock: MockClock, stage: Stage
) -> None:
    class Tolerant(Supervisor):
        async def on_start(self) -> None:
            with suppress(ChildFailed):
                await super().on_start()

    stage.plan.script("b", "fail")

    top = await stage.system.spawn(Tolerant, [stage.worker("a"), stage.worker("b")], strategy="one_for_one")

    assert await states(top) == {"a": "stopped", "b": "stopped"}
    assert stage.alive == ["Tolerant#1"]


@pytest.mark.row("A07")
async def test_a_supervisor_that_raises_in_init_fails_to_start_with_that_error(
    autojump_clock: MockClock, stage: Stage
) -> None:
    def make() -> Supervisor:
        raise BoomError("init")

    with pytest.raises(BoomError):
        await stage.system.spawn(make)
    with pytest.raises(ChildFailed) as failed:
        await stage.system.spawn(Supervisor, [child(make, id="inner")], strategy="one_for_one")

    assert isinstance(failed.value.reason, Crashed)
    assert isinstance(failed.value.reason.exception, BoomError)


@pytest.mark.row("A08")
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"strategy": "all_for_one"}, "strategy"),
        ({"restarts": -1}, "restarts"),
        ({"restarts": 1.0}, "restarts"),
        ({"restarts": True}, "restarts"),
        ({"period": 0}, "period"),
        ({"period": -1.0}, "period"),
        ({"period": float("nan")}, "period"),
        ({"period": "5"}, "period"),
        ({"period": True}, "period"),
        ({"auto_shutdown": "always"}, "auto_shutdown"),
    ],
)
async def test_a_wrong_option_of_a_supervisor_is_refused_before_a_child_starts(
    autojump_clock: MockClock, stage: Stage, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidChildSpec) as refused:
        await stage.system.spawn(partial(Supervisor, [stage.worker("a")], **({"strategy": "one_for_one"} | options)))

    assert refused.value.field == field
    assert stage.plan.attempts == []


@pytest.mark.row("A08")
async def test_a_supervisor_needs_a_strategy_and_knows_no_other_options(
    autojump_clock: MockClock, stage: Stage
) -> None:
    with pytest.raises(TypeError, match="strategy"):
        await stage.system.spawn(Supervisor, [stage.worker("a")])
    with pytest.raises(TypeError, match="strateyg"):
        await stage.system.spawn(Supervisor, [stage.worker("a")], strateyg="one_for_one")
    assert stage.plan.attempts == []


@pytest.mark.row("A09", "E06")
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"id": ""}, "id"),
        ({"id": 5}, "id"),
        ({"restart": "sometimes"}, "restart"),
        ({"shutdown": -1}, "shutdown"),
        ({"shutdown": "kill"}, "shutdown"),
        ({"shutdown": True}, "shutdown"),
        ({"shutdown": float("nan")}, "shutdown"),
        ({"significant": 1}, "significant"),
        ({"backoff": 1.0}, "backoff"),
        ({"start_timeout": 0}, "start_timeout"),
        ({"start_timeout": "1"}, "start_timeout"),
        ({"detach_stuck": "yes"}, "detach_stuck"),
    ],
)
def test_a_wrong_field_of_a_child_spec_is_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidChildSpec, match=f"'{field}': expected .*; got ") as refused:
        child(Worker, "a", **options)

    assert refused.value.field == field


@pytest.mark.row("A09")
@pytest.mark.parametrize("start", [5, None, int, "Worker", object()])
def test_a_child_spec_refuses_what_cannot_be_started(start: Any) -> None:
    with pytest.raises(
        InvalidChildSpec, match="an Actor class, a function that returns an Actor, or an async function"
    ):
        child(start)


@pytest.mark.row("A09")
def test_a_child_spec_made_by_hand_is_checked_as_well() -> None:
    spec = child(Worker, "a")

    wrong: dict[str, Any] = {"birth": Worker, "type": "daemon", "restart": "sometimes"}
    for field, value in wrong.items():
        with pytest.raises(InvalidChildSpec, match=field):
            attrs.evolve(spec, **{field: value})


@pytest.mark.row("A09")
async def test_a_supervisor_refuses_children_that_are_no_specs_before_one_starts(
    autojump_clock: MockClock, stage: Stage
) -> None:
    with pytest.raises(InvalidChildSpec, match="specs made with child"):
        await stage.system.spawn(Supervisor, [stage.worker("a"), Worker], strategy="one_for_one")
    assert stage.plan.attempts == []


@pytest.mark.row("A10")
async def test_two_children_with_one_id_are_refused_before_one_starts(autojump_clock: MockClock, stage: Stage) -> None:
    with pytest.raises(InvalidChildSpec, match="an id that no other child has; got 'a'"):
        await stage.system.spawn(
            Supervisor, [stage.worker("a"), stage.worker("b"), stage.worker("a")], strategy="one_for_one"
        )
    assert stage.plan.attempts == []


@pytest.mark.row("A11", "G14")
async def test_a_spec_has_the_defaults_of_its_kind(autojump_clock: MockClock, stage: Stage) -> None:
    inner = supervisor([], strategy="one_for_one", id="inner")
    top = await stage.supervise(child(Worker, "a", id="worker"), inner, child(DynamicSupervisor, id="dynamic"))

    worker = await get_child_spec(top, "worker")

    assert (worker.restart, worker.type, worker.significant, worker.shutdown) == ("permanent", "worker", False, 5.0)
    assert (worker.backoff, worker.start_timeout, worker.detach_stuck) == (None, None, False)
    for name in ("inner", "dynamic"):
        spec = await get_child_spec(top, name)
        assert (spec.restart, spec.type, spec.significant, spec.shutdown) == ("permanent", "supervisor", False, None)


@pytest.mark.row("A11", "A09")
def test_a_function_that_returns_a_supervisor_may_be_declared_as_one() -> None:
    def make() -> Supervisor:
        return Supervisor(strategy="one_for_one")

    assert (child(make).type, child(make).shutdown) == ("worker", 5.0)
    assert (child(make, type="supervisor").type, child(make, type="supervisor").shutdown) == ("supervisor", None)
    wrong: Any = "daemon"
    with pytest.raises(InvalidChildSpec, match="type"):
        child(make, type=wrong)


@pytest.mark.row("A11")
def test_the_default_id_is_the_key_or_the_name_of_what_is_started() -> None:
    async def serve() -> None: ...

    assert child(Worker, "a").id == "Worker"
    assert child(Worker, "a", key=("agent", 1)).id == "('agent', 1)"
    assert child(partial(Worker, "a")).id == "Worker"
    assert child(serve).id == "serve"


@pytest.mark.row("A12", "P06")
async def test_an_ignored_start_keeps_the_spec_and_lets_the_others_start(
    autojump_clock: MockClock, stage: Stage
) -> None:
    stage.plan.script("b", "ignore")

    top = await stage.system.spawn(Supervisor, [stage.worker(name) for name in "abc"], strategy="one_for_one")

    assert stage.events == ["+a", "-b normal", "+c", "+Supervisor#1"]
    assert await states(top) == {"a": "running", "b": "stopped", "c": "running"}
    assert (await info_of(top, "b")).ref is None
    assert (await count_children(top)).specs == 3


@pytest.mark.row("A13")
@pytest.mark.parametrize("restart", ["temporary", "transient"])
async def test_only_a_temporary_child_whose_start_is_ignored_leaves_no_spec(
    autojump_clock: MockClock, stage: Stage, restart: Restart
) -> None:
    stage.plan.script("a", "ignore")
    stage.plan.script("b", "ignore")
    top = await stage.system.spawn(Supervisor, [stage.worker("a", restart=restart)], strategy="one_for_one")

    answer = await start_child(top, stage.worker("b", restart=restart))

    assert answer is None
    left = {} if restart == "temporary" else {"a": "stopped", "b": "stopped"}
    assert await states(top) == left
    assert (await count_children(top)).specs == len(left)


@pytest.mark.row("A14")
async def test_extra_info_of_a_start_reaches_the_caller_of_start_child_and_restart_child(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise()
    stage.plan.script("a", "info:one", "info:two", "info:three")

    ref, info = await start_child(top, stage.worker("a"), with_info=True)
    assert (ref, info) == (stage.ref("a"), "one")

    await stage.crash("a")
    assert stage.ref("a") is not ref

    await terminate_child(top, "a")
    ref, info = await restart_child(top, "a", with_info=True)
    assert (ref, info) == (stage.ref("a"), "three")

    await terminate_child(top, "a")
    assert await restart_child(top, "a") is stage.ref("a")


@pytest.mark.row("A14")
async def test_extra_info_passes_through_a_dynamic_supervisor_and_from_a_function(
    autojump_clock: MockClock, stage: Stage
) -> None:
    dynamic = await stage.system.spawn(DynamicSupervisor)
    marker = object()

    class Plain(Actor):
        def on_start(self) -> StartResult:
            return Started(marker)

    async def serve(task_status: trio.TaskStatus[int]) -> None:
        task_status.started(8080)
        await trio.sleep_forever()

    stage.plan.script("a", "info:one")
    stage.plan.script("b", "ignore")

    assert await start_child(dynamic, stage.worker("a"), with_info=True) == (stage.ref("a"), "one")
    assert (await start_child(dynamic, child(Plain), with_info=True))[1] is marker
    assert (await start_child(dynamic, child(serve), with_info=True))[1] == 8080
    assert await start_child(dynamic, stage.worker("b"), with_info=True) == (None, None)
    assert await start_child(dynamic, stage.worker("c"), with_info=True) == (stage.ref("c"), None)


@pytest.mark.row("A15", "N07")
async def test_the_reasons_of_nested_supervisors_that_fail_to_start_nest(
    autojump_clock: MockClock, stage: Stage
) -> None:
    stage.plan.script("leaf", "fail")
    inner = supervisor([stage.worker("b"), stage.worker("leaf")], strategy="one_for_one", id="inner")
    outer = supervisor([stage.worker("a"), inner], strategy="one_for_one", id="outer")

    with pytest.raises(ChildFailed) as failed:
        await stage.system.spawn(Supervisor, [outer], strategy="one_for_one")

    names: list[str] = []
    error: BaseException = failed.value
    while isinstance(error, ChildFailed):
        names.append(error.child)
        assert isinstance(error.reason, Crashed)
        error = error.reason.exception
    assert names == ["outer", "inner", "leaf"]
    assert isinstance(error, BoomError)
    assert stage.alive == []


async def test_a_start_that_takes_too_long_is_killed_and_fails(autojump_clock: MockClock, stage: Stage) -> None:
    for make in (partial(Supervisor, strategy="one_for_one"), DynamicSupervisor):
        top = await stage.system.spawn(make)
        stage.plan.script("a", "10")

        with pytest.raises(StartTimeout) as late:
            await start_child(top, stage.worker("a", start_timeout=2.0, key=("name",)))

        assert late.value.timeout == 2.0
        assert "a" not in stage.alive
        assert await start_child(top, stage.worker("a", key=("name",))) is not None
        await top.stop()


async def test_a_start_in_time_is_not_disturbed_by_the_limit(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise()
    stage.plan.script("a", "1.5")

    ref = await start_child(top, stage.worker("a", start_timeout=2.0))
    await trio.sleep(10)

    assert ref is not None
    assert ref.alive


@pytest.mark.row("K01")
async def test_a_key_that_is_taken_makes_the_start_fail_with_its_holder(
    autojump_clock: MockClock, stage: Stage
) -> None:
    holder = await stage.system.spawn(Worker, "holder", key=("name",))
    for make in (partial(Supervisor, strategy="one_for_one"), DynamicSupervisor):
        top = await stage.system.spawn(make)

        with pytest.raises(AlreadyStarted) as taken:
            await start_child(top, stage.worker("a", key=("name",)))

        assert taken.value.ref is holder
        assert stage.plan.attempts == []
        assert await which_children(top) == []


async def test_a_system_that_closes_in_the_middle_of_a_start_leaves_nothing(autojump_clock: object) -> None:
    async with open_system() as system:
        stage = Stage(system)
        stage.plan.script("b", "hang")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                partial(system.spawn, Supervisor, [stage.worker("a"), stage.worker("b")], strategy="one_for_one")
            )
            await stage.settle()
            assert "a" in stage.alive
            nursery.cancel_scope.cancel()
    assert stage.alive == []
