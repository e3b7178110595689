"""Edges of supervised tasks, of function children and of partitions: names, checkpoints, time limits, leftovers."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from sapwood.actors import Actor, Exit, Killed, Shutdown, handle
from sapwood.errors import ChildFailed, InvalidChildSpec, InvalidOption, NotOwner
from sapwood.supervision import (
    DynamicSupervisor,
    PartitionSupervisor,
    TaskHandle,
    Tasks,
    TaskSupervisor,
    child,
    partition,
    partition_count,
    resize_partitions,
    stable_hash,
    start_child,
)
from sapwood.supervision._requests import StartChild
from tests.supervision.kit import Call, Name, SlowWorker, Stage, Worker, on_stage, simulate


async def double(number: int) -> int:
    await trio.sleep(number)
    return number * 2


async def work_for(seconds: float, log: list[str]) -> None:
    log.append("begun")
    await trio.sleep(seconds)
    log.append("ended")


class Trapper(Actor):
    """Does what it is asked to do, and keeps the exits of what it is linked with."""

    trap_exits = True

    def __init__(self) -> None:
        self.exits: list[Exit] = []

    @handle
    async def call(self, message: Call) -> Any:
        return await message.function()

    @handle
    def exited(self, message: Exit) -> None:
        self.exits.append(message)


async def make_tasks(stage: Stage) -> Tasks:
    return Tasks(await stage.system.spawn(TaskSupervisor))


class TestTasks:
    @pytest.mark.row("L06")
    async def test_a_task_of_another_is_refused_with_what_was_tried(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        tasks, owner = await make_tasks(stage), await stage.system.spawn(Trapper)
        task: TaskHandle[int] = await owner.ask(Call(lambda: tasks.launch_nolink(double, 1)))

        for deed, name in ((task.result, "wait for"), (task.poll, "wait for"), (task.shutdown, "stop")):
            with pytest.raises(NotOwner, match=f"only that may {name} it"):
                await deed()

    async def test_a_task_is_labelled_by_the_name_of_its_function(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        tasks = await make_tasks(stage)
        named = await tasks.launch_nolink(double, 1)
        nameless = await tasks.launch_nolink(partial(double), 1)

        assert named.ref.label.startswith("double")
        assert nameless.ref.label.startswith("partial")

    async def test_waiting_for_and_stopping_what_has_ended_are_checkpoints(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        task = await (await make_tasks(stage)).launch_nolink(double, 1)
        await task.result()

        for deed in (task.result, task.poll, task.shutdown):
            with trio.testing.assert_checkpoints():
                await deed()
            with trio.CancelScope() as scope:
                scope.cancel()
                await deed()
            assert scope.cancelled_caught

    async def test_stopping_a_linked_task_takes_back_the_exit_that_already_waits(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        tasks, owner = await make_tasks(stage), await stage.system.spawn(Trapper)
        found: list[Any] = []

        async def launch_and_stop() -> None:
            task = await tasks.launch(double, 1)
            await trio.sleep(2)
            found.append(await task.shutdown())

        await owner.ask(Call(launch_and_stop), timeout=None)
        await stage.settle()

        assert len(found) == 1
        assert (await owner.get_state())["exits"] == []

    @pytest.mark.row("L02", "L04")
    @pytest.mark.parametrize("way", ["launch_nolink", "stream"])
    def test_a_task_without_a_link_that_has_begun_goes_on_whatever_becomes_of_its_caller(self, way: str) -> None:
        logs: list[list[str]] = []

        async def act(pause: int, stage: Stage) -> None:
            log: list[str] = []
            logs.append(log)
            tasks = await make_tasks(stage)
            caller = await stage.system.spawn(Trapper)

            async def launch() -> None:
                if way == "launch_nolink":
                    await tasks.launch_nolink(work_for, 5.0, log)
                else:
                    await tasks._start_item(partial(work_for, 5.0), log)

            caller.tell(Call(launch))
            for _ in range(pause):
                await trio.lowlevel.checkpoint()
            caller.kill()
            await trio.sleep(20)
            assert log in ([], ["begun", "ended"])

        for seed in range(150):
            simulate(on_stage(partial(act, seed % 15)), seed)
        assert [] in logs
        assert ["begun", "ended"] in logs

    async def test_an_item_of_a_stream_gets_five_seconds_to_stop(self, autojump_clock: MockClock, stage: Stage) -> None:
        tasks = await make_tasks(stage)

        async def clean_up_for(seconds: float) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(seconds)

        started = [await tasks._start_item(clean_up_for, seconds) for seconds in (4.9, 5.1)]
        await trio.sleep(1)
        await tasks.supervisor.stop()

        assert [task.ref.exit_reason for task in started] == [Shutdown(), Killed()]

    async def test_work_whose_caller_died_before_it_was_handed_over_is_not_begun(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        log: list[str] = []
        tasks, caller = await make_tasks(stage), await stage.system.spawn(Trapper)

        caller.tell(Call(lambda: tasks.launch_nolink(work_for, 5.0, log)))
        caller.kill()
        await trio.sleep(10)

        assert tasks.supervisor.alive
        assert log == []


class TestStreams:
    async def test_a_stream_takes_part_in_the_schedule_from_its_beginning_to_its_end(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        none: list[int] = []
        stream = (await make_tasks(stage)).stream(double, none)

        with trio.testing.assert_checkpoints():
            await stream.__aenter__()
        with trio.testing.assert_checkpoints(), pytest.raises(StopAsyncIteration):
            await anext(stream)
        await stream.__aexit__(None, None, None)

    async def test_a_stream_that_has_been_left_gives_nothing_more(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        stream = (await make_tasks(stage)).stream(double, [1, 2, 3], max_concurrency=1)
        async with stream:
            await anext(stream)

        with pytest.raises(InvalidOption, match="async with"):
            await anext(stream)

    async def test_entering_a_stream_that_was_left_begins_no_task_twice(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        tasks = await make_tasks(stage)
        stream = tasks.stream(double, [1, 2, 3], max_concurrency=2)
        async with stream:
            await anext(stream)
        async with stream:
            rest = [outcome async for outcome in stream]

        assert len(rest) == 1


class TestFunctions:
    async def test_a_function_that_never_says_it_has_started_is_named_in_the_error(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        async def forgetful(*, task_status: Any, remembers: bool = False) -> None:
            await trio.lowlevel.checkpoint()
            if remembers:
                task_status.started()

        with pytest.raises(ChildFailed, match="StartError: forgetful returned without a call"):
            await start_child(await stage.system.spawn(DynamicSupervisor), child(forgetful))


class TestPartitions:
    @pytest.mark.row("M01")
    @pytest.mark.parametrize(("cores", "expected"), [(None, 1), (3, 3)])
    async def test_there_are_as_many_partitions_as_cores_and_one_if_that_is_not_known(
        self,
        autojump_clock: MockClock,
        stage: Stage,
        monkeypatch: pytest.MonkeyPatch,
        cores: int | None,
        expected: int,
    ) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        top = await stage.system.spawn(PartitionSupervisor, stage.worker("w"))

        assert partition_count(top) == expected
        assert partition(top, 0).alive

    async def test_one_partition_serves_every_key(self, autojump_clock: MockClock, stage: Stage) -> None:
        top = await stage.system.spawn(partial(PartitionSupervisor, stage.worker("w"), partitions=1))

        assert {partition(top, key) for key in (0, 1, -7, "a", ("b", 2))} == {partition(top, 0)}


class TestResizing:
    async def test_no_key_leads_to_a_partition_that_is_about_to_stop(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        spec = child(partial(SlowWorker, cleanup=3.0), "w", stage.plan, shutdown=5.0)
        top = await stage.system.spawn(partial(PartitionSupervisor, spec, partitions=4))
        kept = {partition(top, 0), partition(top, 1)}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(resize_partitions, top, 2)
            await trio.sleep(1)
            assert len(stage.alive) == 5
            assert {partition(top, number) for number in range(20)} == kept
            assert partition_count(top) == 2

    async def test_a_resize_that_fails_stops_what_it_had_begun_last_one_first(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        top = await stage.system.spawn(partial(PartitionSupervisor, child(Worker, "w", stage.plan), partitions=4))
        await resize_partitions(top, 1)
        stage.forget()
        stage.plan.script("w", "ok", "ok", "fail")

        with pytest.raises(ChildFailed):
            await resize_partitions(top, 4)

        ends = [event for event in stage.events if "shutdown" in event]
        assert ends == ["-Worker-2 shutdown", "-Worker-1 shutdown"]
        assert partition_count(top) == 1


class Maker:
    """Makes a worker when it is called."""

    def __call__(self, name: str) -> Worker:
        return Worker(name)


async def test_an_object_whose_call_is_a_plain_one_makes_the_actor(autojump_clock: MockClock, stage: Stage) -> None:
    ref = await start_child(await stage.system.spawn(DynamicSupervisor), child(Maker(), "a"))

    assert ref is not None
    assert await ref.ask(Name()) == "a"


@pytest.mark.row("M02")
def test_a_hash_is_the_same_in_every_release() -> None:
    keys = (None, False, True, 0, 1, 0.0, "", "a", b"a", (), ("a", 1), ((False,),))
    assert [stable_hash(key) for key in keys] == [
        6753767377493465268,
        10627274567523206935,
        11037929603529112794,
        12297546399917769860,
        13024614643441407826,
        5535435542140061109,
        2669058277339150580,
        17943541893490360969,
        11511738472233352766,
        18221627273312335878,
        8062620225738988750,
        14454107304300434440,
    ]


async def test_what_is_no_spec_is_refused_by_a_dynamic_supervisor_too(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.system.spawn(DynamicSupervisor)
    bad: Any = "worker"

    with pytest.raises(InvalidChildSpec, match=r"child\(\.\.\.\)"):
        await top.ask(StartChild(bad))

    assert top.alive
