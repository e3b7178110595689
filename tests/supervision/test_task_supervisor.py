"""Group L: supervised tasks, their results, and bounded streams of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Actor, Crashed, Exit, Killed, Normal, Ref, Shutdown, handle
from sapwood.errors import ActorDown, AskTimeout, ChildNotFound, InvalidOption, MaxChildren, NotOwner
from sapwood.supervision import (
    Failed,
    Returned,
    TaskHandle,
    Tasks,
    TaskSupervisor,
    count_children,
    results,
    supervisor_statistics,
)
from tests.supervision.kit import BoomError, Call, Stage, Worker, on_stage, simulate


async def double(number: int) -> int:
    await trio.sleep(number)
    return number * 2


async def fail(text: str) -> int:
    await trio.lowlevel.checkpoint()
    raise BoomError(text)


@pytest.fixture
async def tasks(autojump_clock: MockClock, stage: Stage) -> AsyncIterator[Tasks]:
    made = Tasks(await stage.system.spawn(TaskSupervisor))
    yield made
    assert made.supervisor.alive


class Caller(Actor):
    """An actor that runs what it is asked to run, and keeps the exits that it gets if it traps them."""

    def __init__(self, *, traps: bool = False) -> None:
        self.trap_exits = traps
        self.exits: list[Exit] = []
        self.kept: Any = None

    @handle
    async def call(self, message: Call) -> Any:
        self.kept = await message.function()
        return self.kept

    @handle
    def exited(self, message: Exit) -> None:
        self.exits.append(message)


@pytest.mark.row("L01")
async def test_a_task_delivers_its_result_once_and_leaves_no_message_behind(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    caller = await stage.system.spawn(Caller)
    seen: list[int] = []

    async def use() -> str:
        task = await tasks.launch(double, 3)
        assert task.ref in await tasks.children()
        seen.append(await task.result())
        seen.append(await task.result())
        return "done"

    assert await caller.ask(Call(use), timeout=60) == "done"
    await stage.settle()

    assert seen == [6, 6]
    statistics = caller.statistics()
    assert (statistics.waiting, statistics.links, statistics.monitoring) == (0, 0, 0)
    assert stage.dead_letters == []
    assert await tasks.children() == []


@pytest.mark.row("L01", "L03")
@pytest.mark.parametrize("traps", [False, True])
async def test_a_linked_task_that_returns_before_its_caller_goes_on_harms_it_not(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks, *, traps: bool
) -> None:
    caller = await stage.system.spawn(Caller, traps=traps)

    async def at_once() -> int:  # without a checkpoint, so that it ends within its start
        return 5

    async def use() -> int:
        return await (await tasks.launch(at_once)).result()

    assert await caller.ask(Call(use)) == 5
    await stage.settle()
    assert caller.alive


@pytest.mark.row("L02", "L05", "UP-52")
async def test_an_unlinked_task_that_crashes_is_seen_by_its_caller_and_does_it_no_harm(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    caller = await stage.system.spawn(Caller)

    async def use() -> Any:
        task = await tasks.launch_nolink(fail, "bad luck")
        outcome = await task.poll(5)
        with pytest.raises(ActorDown, match="crashed with BoomError: bad luck"):
            await task.result()
        return outcome

    outcome = await caller.ask(Call(use))

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.reason, Crashed)
    assert isinstance(outcome.reason.exception, BoomError)
    assert caller.alive


@pytest.mark.row("L03")
async def test_a_linked_task_that_crashes_takes_its_caller_down_though_it_never_awaited(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    caller = await stage.system.spawn(Caller)

    await caller.ask(Call(lambda: tasks.launch(fail, "bad luck")))
    await stage.settle()

    assert isinstance(caller.exit_reason, Crashed)
    assert isinstance(caller.exit_reason.exception, BoomError)


@pytest.mark.row("L03", "J04")
async def test_a_caller_that_traps_exits_gets_the_end_of_its_linked_task_as_a_message(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    caller = await stage.system.spawn(Caller, traps=True)

    task = await caller.ask(Call(lambda: tasks.launch(fail, "bad luck")))
    await stage.settle()

    assert caller.alive
    assert [message.ref for message in (await caller.get_state())["exits"]] == [task.ref]


@pytest.mark.row("L03")
@pytest.mark.parametrize("linked", [True, False])
async def test_a_dying_caller_takes_down_its_linked_tasks_and_no_others(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks, linked: Any
) -> None:
    caller = await stage.system.spawn(Caller)
    launch = tasks.launch if linked else tasks.launch_nolink
    task = await caller.ask(Call(lambda: launch(double, 100)))

    caller.kill()
    await stage.settle()

    assert task.ref.alive is not linked
    await trio.sleep(200)
    assert task.ref.exit_reason == (Killed() if linked else Normal())


@pytest.mark.row("L03", "L04")
@pytest.mark.parametrize("linked", [True, False])
async def test_work_of_a_caller_that_dies_before_it_was_handed_over_is_not_begun(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks, linked: Any
) -> None:
    ran: list[str] = []

    async def work() -> None:
        ran.append("work")
        await trio.lowlevel.checkpoint()

    caller = await stage.system.spawn(Caller)
    await tasks.supervisor.suspend()
    caller.tell(Call(lambda: (tasks.launch if linked else tasks.launch_nolink)(work)))
    await stage.settle()
    caller.kill()
    await stage.settle()
    await tasks.supervisor.resume()
    await stage.settle()

    assert ran == []
    assert (await count_children(tasks.supervisor)).specs == 0


@pytest.mark.row("L03", "L04")
def test_a_caller_that_dies_at_any_moment_of_the_launch_leaves_no_linked_task() -> None:
    async def act(pause: int, stage: Stage) -> None:
        tasks = Tasks(await stage.system.spawn(TaskSupervisor))
        caller = await stage.system.spawn(Caller)
        caller.tell(Call(lambda: tasks.launch(double, 1000)))
        for _ in range(pause):
            await trio.lowlevel.checkpoint()
        caller.kill()
        await stage.settle()
        assert await tasks.children() == []

    for seed in range(100):
        simulate(on_stage(partial(act, seed % 12)), seed)


@pytest.mark.row("L05")
async def test_waiting_too_long_raises_and_a_late_result_disturbs_nobody(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    task = await tasks.launch_nolink(double, 3)

    with pytest.raises(AskTimeout):
        await task.result(timeout=2)
    assert stage.clock() == 2
    assert await task.poll() is None
    await trio.sleep(5)

    assert await task.result() == 6
    assert stage.dead_letters == []


@pytest.mark.row("L06")
async def test_only_the_actor_that_started_a_task_may_wait_for_it_or_stop_it(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    owner = await stage.system.spawn(Caller)
    other = await stage.system.spawn(Caller)
    task: TaskHandle[int] = await owner.ask(Call(lambda: tasks.launch_nolink(double, 1)))
    deeds: list[Callable[[], Any]] = [task.result, task.poll, task.shutdown, lambda: results([task])]

    async def attempt() -> int:
        refused = 0
        for deed in deeds:
            with pytest.raises(NotOwner):
                await deed()
            refused += 1
        return refused

    assert await other.ask(Call(attempt)) == 4
    assert await attempt() == 4
    assert task.ref.alive
    assert await owner.ask(Call(task.result)) == 2


@pytest.mark.row("L06")
async def test_a_task_of_the_owner_may_wait_for_what_the_owner_started(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    got: list[int] = []

    class Owner(Caller):
        async def begin(self) -> None:
            task = await tasks.launch(double, 1)

            async def wait() -> None:
                got.append(await task.result())

            self.start_task(wait)

    owner = await stage.system.spawn(Owner)
    actor: Any = owner._cell.actor
    await owner.ask(Call(actor.begin))
    await trio.sleep(2)

    assert got == [2]


@pytest.mark.row("L07")
@pytest.mark.parametrize("end", [double, fail])
async def test_tasks_are_temporary_and_forgotten_as_soon_as_they_end(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks, end: Any
) -> None:
    argument: Any = 1 if end is double else "bad luck"
    ref = await tasks.start_child(end, argument)
    await trio.sleep(2)

    assert not ref.alive
    assert await tasks.children() == []
    assert (await supervisor_statistics(tasks.supervisor)).restarts == 0
    with pytest.raises(ChildNotFound):
        await tasks.terminate_child(ref)


@pytest.mark.row("L07")
async def test_a_task_with_another_restart_type_is_restarted(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    ref = await tasks.start_child(fail_once, stage, restart="transient")
    await stage.settle()

    assert not ref.alive
    assert len(await tasks.children()) == 1
    await tasks.terminate_child((await tasks.children())[0])
    assert await tasks.children() == []


async def fail_once(stage: Stage) -> None:
    stage.plan.next("task")
    if len(stage.plan.attempts) == 1:
        raise BoomError("once")
    await trio.sleep_forever()


@pytest.mark.row("L08")
async def test_start_child_forgets_the_task_and_its_failure_reaches_nobody(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    caller = await stage.system.spawn(Caller)

    ref: Ref = await caller.ask(Call(lambda: tasks.start_child(fail, "bad luck")))
    await stage.settle()

    assert isinstance(ref.exit_reason, Crashed)
    assert caller.alive
    assert caller.statistics().waiting == 0


@pytest.mark.row("L09")
async def test_a_full_task_supervisor_refuses_every_kind_of_task(autojump_clock: MockClock, stage: Stage) -> None:
    tasks = Tasks(await stage.system.spawn(TaskSupervisor, max_children=1))
    first = await tasks.launch(double, 5)

    for start in (tasks.start_child, tasks.launch, tasks.launch_nolink, tasks.run):
        with pytest.raises(MaxChildren, match="limit of 1 children"):
            await start(double, 1)

    assert await first.result() == 10
    assert await tasks.run(double, 1) == 2


@pytest.mark.row("L10")
async def test_polling_gives_nothing_until_the_end_and_then_the_outcome_again_and_again(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    good, bad = await tasks.launch_nolink(double, 3), await tasks.launch_nolink(fail, "x")
    await stage.settle()

    assert [await good.poll(), await good.poll(1)] == [None, None]
    for _ in range(2):
        assert await good.poll(10) == Returned(6)
        outcome = await bad.poll()
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.reason, Crashed)
    assert stage.clock() == 3


@pytest.mark.row("L10")
@pytest.mark.parametrize(
    ("cleanup", "timeout", "outcome", "took"),
    [
        (0.0, 5.0, None, 0.0),
        (2.0, 5.0, None, 2.0),
        (9.0, 5.0, Failed(Killed()), 9.0),
        (0.0, "brutal_kill", None, 0.0),
    ],
)
async def test_shutting_a_task_down_stops_it_and_says_if_it_had_to_be_killed(
    autojump_clock: MockClock, tasks: Tasks, cleanup: float, timeout: Any, *, outcome: Any, took: float
) -> None:
    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(cleanup)

    task = await tasks.launch_nolink(work)
    begun = trio.current_time()

    assert await task.shutdown(timeout) == outcome

    assert trio.current_time() - begun == took
    assert await tasks.children() == []


@pytest.mark.row("L10")
async def test_shutting_down_a_task_that_has_ended_gives_its_outcome_and_spares_a_linked_caller(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    good, bad = await tasks.launch_nolink(double, 1), await tasks.launch_nolink(fail, "x")
    await trio.sleep(2)
    assert await good.shutdown() == Returned(2)
    outcome = await bad.shutdown()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.reason, Crashed)

    caller = await stage.system.spawn(Caller)

    async def use() -> Any:
        return [await (await tasks.launch(trio.sleep_forever)).shutdown(how) for how in (5.0, "brutal_kill")]

    assert await caller.ask(Call(use)) == [None, None]
    assert caller.alive


@pytest.mark.row("L11")
async def test_many_results_come_in_the_order_of_the_tasks_within_one_time_out(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    launched = [await tasks.launch_nolink(double, number) for number in (3, 1, 2)]
    assert await results(launched, timeout=5) == [6, 2, 4]
    assert stage.clock() == 3
    assert await results([]) == []

    mixed = [await tasks.launch_nolink(double, 50), await tasks.launch_nolink(fail, "x")]
    with pytest.raises(ActorDown):
        await results(mixed)
    assert stage.clock() == 3
    assert not mixed[0].done
    with pytest.raises(AskTimeout):
        await results(mixed[:1], timeout=4)
    assert stage.clock() == 7


async def test_run_returns_the_result_and_ends_the_task_when_the_wait_ends(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks
) -> None:
    assert await tasks.run(double, 2) == 4
    with pytest.raises(ActorDown):
        await tasks.run(fail, "x")
    with pytest.raises(AskTimeout):
        await tasks.run(double, 10, timeout=1)
    with trio.move_on_after(1):
        await tasks.run(double, 10)
    await stage.settle()

    assert await tasks.children() == []


async def test_a_task_supervisor_that_stops_stops_its_tasks(autojump_clock: MockClock, stage: Stage) -> None:
    tasks = Tasks(await stage.system.spawn(TaskSupervisor))
    task = await tasks.launch_nolink(trio.sleep_forever)

    await tasks.supervisor.stop()

    assert await task.poll() == Failed(Shutdown())
    with pytest.raises(ActorDown):
        await tasks.launch(double, 1)


# --- streams --------------------------------------------------------------------------------------


class Load:
    """Counts what runs at a time."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.begun: list[int] = []

    async def work(self, number: int) -> int:
        self.begun.append(number)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await trio.sleep(10 - number)
            if number == 3:
                raise BoomError("three")
            return number
        finally:
            self.running -= 1


@pytest.fixture
def load() -> Load:
    return Load()


def names(outcomes: list[Any]) -> list[int | str]:
    return [outcome.value if isinstance(outcome, Returned) else "failed" for outcome in outcomes]


@pytest.mark.row("L12")
@pytest.mark.parametrize("concurrency", [1, 3, 50])
async def test_a_stream_keeps_the_order_of_its_items_and_its_bound(
    autojump_clock: MockClock, tasks: Tasks, load: Load, concurrency: int
) -> None:
    async with tasks.stream(load.work, range(8), max_concurrency=concurrency) as outcomes:
        seen = [outcome async for outcome in outcomes]

    assert names(seen) == [0, 1, 2, "failed", 4, 5, 6, 7]
    assert load.most == min(concurrency, 8)
    assert await tasks.children() == []


@pytest.mark.row("L12")
async def test_an_unordered_stream_gives_outcomes_as_they_end(
    autojump_clock: MockClock, tasks: Tasks, load: Load
) -> None:
    async with tasks.stream(load.work, [0, 5, 2, 9, 1], max_concurrency=3, ordered=False) as outcomes:
        seen = [outcome async for outcome in outcomes]

    assert names(seen) == [5, 9, 2, 0, 1]
    assert load.most == 3


@pytest.mark.row("L12")
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("how", ["break", "raise", "cancel"])
async def test_a_consumer_that_stops_early_kills_what_runs_and_leaks_nothing(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks, load: Load, *, ordered: Any, how: str
) -> None:
    caller = await stage.system.spawn(Caller)

    async def consume() -> None:
        try:
            with trio.move_on_after(100) as scope:
                async with tasks.stream(load.work, range(8), max_concurrency=3, ordered=ordered) as outcomes:
                    async for _ in outcomes:
                        if how == "break":
                            break
                        if how == "raise":
                            raise BoomError("enough")  # noqa: TRY301  # what the test is about
                        scope.cancel()
        except BoomError:
            assert how == "raise"
        assert load.running == 0
        assert await tasks.children() == []

    await caller.ask(Call(consume), timeout=100)

    assert len(load.begun) == 3
    statistics = caller.statistics()
    assert (statistics.waiting, statistics.links, statistics.monitoring) == (0, 0, 0)


@pytest.mark.row("L12")
async def test_killing_the_consuming_actor_kills_its_stream(
    autojump_clock: MockClock, stage: Stage, tasks: Tasks, load: Load
) -> None:
    async def consume() -> None:
        async with tasks.stream(load.work, range(8), max_concurrency=3) as outcomes:
            async for _ in outcomes:
                await trio.sleep_forever()

    caller = await stage.system.spawn(Caller)
    caller.tell(Call(consume))
    await trio.sleep(1)
    caller.kill()
    await caller.wait_stopped()

    assert load.running == 0
    assert await tasks.children() == []


@pytest.mark.row("L12")
async def test_a_stream_takes_items_only_as_outcomes_are_consumed(
    autojump_clock: MockClock, tasks: Tasks, load: Load
) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    async with tasks.stream(load.work, items(), max_concurrency=2) as outcomes:
        await anext(outcomes)
        await trio.sleep(1000)
        assert taken == [0, 1]
        await anext(outcomes)
        assert taken == [0, 1, 2]


@pytest.mark.row("L12", "L09")
async def test_a_stream_without_room_says_so_and_can_be_left(
    autojump_clock: MockClock, stage: Stage, load: Load
) -> None:
    tasks = Tasks(await stage.system.spawn(TaskSupervisor, max_children=2))

    async with tasks.stream(load.work, range(8), max_concurrency=3) as outcomes:
        with pytest.raises(MaxChildren):
            await anext(outcomes)

    assert await tasks.children() == []


async def test_a_stream_is_used_in_its_block_only_and_with_a_sensible_bound(
    autojump_clock: MockClock, tasks: Tasks, load: Load
) -> None:
    stream = tasks.stream(load.work, range(3))
    with pytest.raises(InvalidOption, match="async with"):
        await anext(stream)
    for bound in (0, -1, 1.5, True):
        with pytest.raises(InvalidOption, match="max_concurrency"):
            tasks.stream(load.work, range(3), max_concurrency=bound)  # type: ignore[arg-type]  # wrong on purpose


async def test_a_worker_may_use_a_stream_in_its_handler(autojump_clock: MockClock, stage: Stage, tasks: Tasks) -> None:
    worker = await stage.system.spawn(Worker, "w")

    async def consume() -> list[Any]:
        async with tasks.stream(double, [1, 2]) as outcomes:
            return [outcome async for outcome in outcomes]

    assert await worker.ask(Call(consume)) == [Returned(2), Returned(4)]
