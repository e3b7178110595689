"""Group M: the partition supervisor and its routes."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood.actors import Ref, Shutdown
from sapwood.errors import ActorDown, AskCycle, ChildFailed, InvalidChildSpec, InvalidOption
from sapwood.supervision import (
    Backoff,
    ChildCounts,
    PartitionSupervisor,
    Supervisor,
    child,
    count_children,
    partition,
    partition_count,
    resize_partitions,
    stable_hash,
    start_child,
    supervisor_statistics,
    terminate_child,
    which_children,
)
from sapwood.supervision._partitions import partition_index
from tests.supervision.kit import BoomError, Call, Crash, Name, SlowWorker, Stage, Worker


async def partitioned(stage: Stage, partitions: int | None = 3, **options: Any) -> Ref:
    make = partial(PartitionSupervisor, child(Worker, "w", **options.pop("spec", {})), partitions=partitions, **options)
    top = await stage.system.spawn(make)
    await stage.settle()
    stage.forget()
    return top


@pytest.mark.row("M01")
async def test_it_starts_so_many_identical_children_and_lists_exactly_those(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await partitioned(stage, 4)

    infos = await which_children(top)

    assert [info.id for info in infos] == ["0", "1", "2", "3"]
    assert len({info.ref for info in infos}) == 4
    assert await count_children(top) == ChildCounts(specs=4, active=4, supervisors=0, workers=4)
    assert partition_count(top) == 4
    with pytest.raises(InvalidChildSpec):
        await start_child(top, child(Worker, "x"))
    assert len(await which_children(top)) == 4


@pytest.mark.row("M01")
async def test_there_are_as_many_partitions_as_cores_by_default(autojump_clock: MockClock, stage: Stage) -> None:
    top = await partitioned(stage, None)

    assert partition_count(top) == (os.cpu_count() or 1)


@pytest.mark.row("M02")
async def test_integers_route_by_their_absolute_value_and_others_by_their_hash(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await partitioned(stage, 3)
    refs = [info.ref for info in await which_children(top)]

    for number in range(-10, 11):
        assert partition(top, number) is refs[abs(number) % 3]
    for key in ("a", b"a", None, 1.5, ("user", 1), ("user", ("x", b"y"))):
        assert partition(top, key) is refs[stable_hash(key) % 3]
        assert partition(top, key) is partition(top, key)


@pytest.mark.row("M02", "K06")
def test_a_bool_is_a_key_of_its_own_and_equal_values_of_different_types_are_different_keys() -> None:
    assert len({stable_hash(key) for key in (1, 1.0, True, "1", b"1", (1,))}) == 6
    assert len({stable_hash(key) for key in (0, 0.0, False, "", b"", (), None, -0.0)}) == 8
    assert stable_hash(("a", "bc")) != stable_hash(("ab", "c"))
    assert stable_hash((("a",), "b")) != stable_hash(("a", ("b",)))
    bools = {partition_index(flag, 1000) for flag in (False, True)}
    assert bools == {stable_hash(flag) % 1000 for flag in (False, True)} != {0, 1}


@pytest.mark.row("M02")
def test_a_hash_is_the_same_in_every_process() -> None:
    keys = ["a", b"a", ("user", 1), 2.5, True, None, "\udc80"]
    program = f"from sapwood.supervision import stable_hash; print([stable_hash(key) for key in {keys!r}])"
    for salt in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": salt}, capture_output=True, check=True
        )
        assert done.stdout.decode().strip() == str([stable_hash(key) for key in keys])
    assert stable_hash("a") == 17_943_541_893_490_360_969


@pytest.mark.row("M02")
@pytest.mark.parametrize("key", [[1], {"a": 1}, object(), ("a", [1])])
def test_a_key_that_has_no_stable_hash_is_refused(key: Any) -> None:
    with pytest.raises(InvalidOption, match="expected None, bool, int, float, str, bytes or a tuple"):
        stable_hash(key)


@pytest.mark.row("M02")
@given(
    key=st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.binary(), st.tuples),
    n=st.integers(1, 9),
)
def test_every_key_has_a_partition(key: object, n: int) -> None:
    assert 0 <= partition_index(key, n) < n


@pytest.mark.row("M03")
async def test_a_restarted_partition_takes_its_keys_over_and_no_other_key_moves(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await partitioned(stage, 3)
    before = [partition(top, number) for number in range(3)]

    before[1].tell(Crash())
    await stage.settle()

    after = [partition(top, number) for number in range(3)]
    assert [old is new for old, new in zip(before, after, strict=True)] == [True, False, True]
    assert await after[1].ask(Name()) == "w"


@pytest.mark.row("M04")
async def test_with_arguments_gives_each_partition_arguments_of_its_own_also_after_a_restart(
    autojump_clock: MockClock, stage: Stage
) -> None:
    def arguments(args: tuple[Any, ...], index: int) -> list[Any]:
        return [f"{args[0]}{index}"]

    top = await partitioned(stage, 3, with_arguments=arguments)
    partition(top, 2).tell(Crash())
    await stage.settle()

    assert [await partition(top, number).ask(Name()) for number in range(3)] == ["w0", "w1", "w2"]


@pytest.mark.row("M05", "F09")
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"partitions": 0}, InvalidChildSpec),
        ({"partitions": -1}, InvalidChildSpec),
        ({"partitions": 1.0}, InvalidChildSpec),
        ({"partitions": True}, InvalidChildSpec),
        ({"with_arguments": lambda args, index: 5}, InvalidChildSpec),
        ({"with_arguments": lambda args, index: "ab"}, InvalidChildSpec),
        ({"spec": Worker}, InvalidChildSpec),
        ({"spec": child(Worker, "w", key=("w",))}, InvalidChildSpec),
        ({"spec": child(Worker, "w", restart="transient", significant=True)}, InvalidChildSpec),
        ({"auto_shutdown": "any_significant"}, TypeError),
        ({"strategy": "all"}, InvalidChildSpec),
    ],
)
async def test_options_that_cannot_work_are_refused_before_a_partition_starts(
    autojump_clock: MockClock, stage: Stage, options: dict[str, Any], error: type[Exception]
) -> None:
    spec = options.pop("spec", stage.worker("w"))
    with pytest.raises(error):
        await stage.system.spawn(partial(PartitionSupervisor, spec, **({"partitions": 2} | options)))
    with pytest.raises(TypeError, match="spec"):
        await stage.system.spawn(partial(PartitionSupervisor, partitions=2))

    assert stage.plan.attempts == []


@pytest.mark.row("M05")
async def test_partitions_share_one_budget_of_three_restarts_in_five_seconds(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await partitioned(stage, 4)
    for number in range(3):
        partition(top, number).tell(Crash())
        await stage.settle()
    assert (await supervisor_statistics(top)).restarts_in_window == 3

    partition(top, 3).tell(Crash())
    await stage.settle()

    assert top.exit_reason == Shutdown("reached max restart intensity")


@pytest.mark.row("M06")
async def test_a_route_through_a_dead_or_other_supervisor_or_to_a_partition_without_a_process_is_refused(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await partitioned(stage, 2, spec={"backoff": Backoff(initial=10)})
    other = await stage.system.spawn(Supervisor, strategy="one_for_one")
    with pytest.raises(InvalidOption, match="a PartitionSupervisor"):
        partition(other, 1)

    partition(top, 0).tell(Crash())
    await stage.settle()
    with pytest.raises(ActorDown, match=r"partition 0 of .* is down: crashed"):
        partition(top, 0)
    await terminate_child(top, "1")
    with pytest.raises(ActorDown, match="partition 1 of"):
        partition(top, 1)

    await top.stop()
    for deed in (lambda: partition(top, 1), lambda: partition_count(top)):
        with pytest.raises(ActorDown):
            deed()


@pytest.mark.row("M07")
async def test_a_resize_stops_the_highest_partitions_or_starts_them_again_and_keeps_all_specs(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await partitioned(stage, 4)
    first = partition(top, 0)

    assert await resize_partitions(top, 2) == 4

    assert stage.events == ["-Worker-3 shutdown", "-Worker-2 shutdown"]
    assert await count_children(top) == ChildCounts(specs=4, active=2, supervisors=0, workers=4)
    assert [partition(top, key).label for key in range(4)] == ["Worker-0", "Worker-1", "Worker-0", "Worker-1"]
    assert partition_count(top) == 2

    stage.forget()
    assert await resize_partitions(top, 3) == 2
    assert stage.events == ["+Worker-2"]
    assert [partition(top, key).label for key in range(4)] == ["Worker-0", "Worker-1", "Worker-2", "Worker-0"]
    assert partition(top, 0) is first

    assert await resize_partitions(top, 3) == 3


@pytest.mark.row("M07")
async def test_without_any_partitions_routing_fails_until_there_are_some_again(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await partitioned(stage, 2)
    assert await resize_partitions(top, 0) == 2
    assert partition_count(top) == 0
    for key in (0, "a"):
        with pytest.raises(ActorDown, match="resized to 0"):
            partition(top, key)

    for wrong in (-1, 3, 1.0, True):
        with pytest.raises(InvalidOption, match="an int from 0 to 2"):
            await resize_partitions(top, wrong)  # type: ignore[arg-type]  # what the test is about
    assert await resize_partitions(top, 2) == 0
    assert partition(top, 1).label == "Worker-1"


@pytest.mark.row("M07")
async def test_resizes_at_the_same_time_happen_one_after_another(autojump_clock: MockClock, stage: Stage) -> None:
    spec = child(partial(SlowWorker, cleanup=1.0), "w", id="w")
    top = await stage.system.spawn(partial(PartitionSupervisor, spec, partitions=4))
    sizes: list[int] = []

    async def resize(to: int) -> None:
        sizes.append(await resize_partitions(top, to))

    async with trio.open_nursery() as nursery:
        for to in (1, 3, 2, 4):
            nursery.start_soon(resize, to)

    # Whatever their order, each found what the one before it had left.
    assert sorted([*sizes, partition_count(top)]) == sorted([4, 1, 3, 2, 4])
    assert (await count_children(top)).active == partition_count(top)


@pytest.mark.row("M07", "C07")
async def test_partitions_that_a_resize_has_stopped_do_not_come_back_when_the_group_restarts(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await partitioned(stage, 3, strategy="one_for_all")
    await resize_partitions(top, 2)
    stage.forget()

    partition(top, 0).tell(Crash())
    await stage.settle()

    assert stage.events == ["-Worker-0 BoomError", "-Worker-1 shutdown", "+Worker-0", "+Worker-1"]


@pytest.mark.row("M07")
async def test_a_partition_that_fails_to_start_undoes_the_resize(autojump_clock: MockClock, stage: Stage) -> None:
    names: list[str] = []

    def make(index: int) -> Worker:
        names.append(str(index))
        if index == 2 and names.count("2") == 2:
            raise BoomError("no")
        return Worker(str(index))

    spec = child(make, 0, id="w")
    supervisor = partial(PartitionSupervisor, spec, partitions=3, with_arguments=lambda args, index: [index])
    top = await stage.system.spawn(supervisor)
    await resize_partitions(top, 1)

    with pytest.raises(ChildFailed):
        await resize_partitions(top, 3)

    assert partition_count(top) == 1
    assert (await count_children(top)).active == 1
    assert await resize_partitions(top, 3) == 1


@pytest.mark.row("M07", "E17")
async def test_a_partition_may_not_wait_for_its_own_removal(autojump_clock: MockClock, stage: Stage) -> None:
    top = await partitioned(stage, 2)

    async def refused() -> None:
        with pytest.raises(AskCycle):
            await resize_partitions(top, 1)

    await partition(top, 1).ask(Call(refused))
    await partition(top, 0).ask(Call(partial(resize_partitions, top, 1)))

    assert partition_count(top) == 1
    assert await resize_partitions(top, 2) == 1
    with pytest.raises(InvalidOption, match="a PartitionSupervisor"):
        await resize_partitions(partition(top, 0), 1)
