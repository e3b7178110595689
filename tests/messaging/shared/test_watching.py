"""Watches: every change once and in order, or a gap that is told."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, assert_never

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from sapwood.actors import RealEnvironment, SimulatedEnvironment
from sapwood.errors import InvalidOption
from sapwood.messaging.shared import (
    Change,
    Deleted,
    DurableSharedMemory,
    Missed,
    SharedMemory,
    VersionedValue,
    Write,
    Written,
)
from sapwood.persistence import open_store
from tests.messaging.shared.kit import Awaited


def apply(state: dict[str, VersionedValue], change: Change) -> None:
    match change:
        case Written(value=value):
            state[value.key] = value
        case Deleted(key=key):
            del state[key]
        case Missed(snapshot=snapshot):
            state.clear()
            state.update(snapshot)
        case _:
            assert_never(change)


def shown(changes: Sequence[Change]) -> list[Any]:
    return [
        (change.key, change.value.value) if isinstance(change, Written) else type(change).__name__ for change in changes
    ]


async def take(watch: Any, number: int) -> list[Change]:
    changes: list[Change] = []
    with trio.fail_after(10):
        while len(changes) < number:
            changes.append(await anext(watch))
    return changes


async def test_a_watch_gets_every_change_under_its_prefix_once_and_in_order(memory: Awaited) -> None:
    await memory.write("a:1", "before")
    watch = await memory.watch("a:")
    assert {key: value.value for key, value in watch.snapshot.items()} == {"a:1": "before"}
    await memory.write("a:1", "x")
    await memory.write("b:1", "elsewhere")
    await memory.write_batch([Write("a:2", "y"), Write("b:2", "elsewhere")])
    await memory.delete("a:1", "cleaner")
    changes = await take(watch, 3)
    assert shown(changes) == [("a:1", "x"), ("a:2", "y"), "Deleted"]
    deleted = changes[-1]
    assert isinstance(deleted, Deleted)
    assert (deleted.key, deleted.version, deleted.agent_id) == ("a:1", 1, "cleaner")
    assert [change.seq for change in changes] == sorted({change.seq for change in changes})
    watch.close()
    with pytest.raises(StopAsyncIteration):
        await anext(watch)


async def test_a_reader_that_waits_is_woken_by_a_write_and_by_the_end_of_the_watch(memory: Awaited) -> None:
    seen: list[Change] = []
    ended = trio.Event()

    async def follow() -> None:
        with await memory.watch() as watch:
            task.append(watch)
            async for change in watch:
                seen.append(change)
                changed.set()
        ended.set()

    task: list[Any] = []
    changed = trio.Event()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            while not task:
                await trio.lowlevel.checkpoint()
            await memory.write("k", 1)
            await changed.wait()
            assert shown(seen) == [("k", 1)]
            await trio.testing.wait_all_tasks_blocked(0.01)
            with pytest.raises(trio.BusyResourceError):
                await anext(task[0])
            task[0].close()
            await ended.wait()


async def test_a_cancelled_reader_loses_no_change(memory: Awaited) -> None:
    watch = await memory.watch()
    for _ in range(3):
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(watch)
    await memory.write("k", 1)
    assert shown(await take(watch, 1)) == [("k", 1)]


async def test_what_a_watcher_does_to_a_value_changes_nothing_in_the_store(memory: Awaited) -> None:
    watch = await memory.watch()
    other = await memory.watch()
    await memory.write("k", [1])
    [change] = await take(watch, 1)
    assert isinstance(change, Written)
    change.value.value.append(2)
    assert shown(await take(other, 1)) == [("k", [1])]
    assert (await memory.read("k")).value == [1]


async def test_a_slow_watcher_is_told_of_the_gap_and_goes_on_from_a_snapshot() -> None:
    memory = SharedMemory()
    watch = memory.watch("a", capacity=2)
    for number in range(5):
        memory.write("a", number, agent_id="x")
        memory.write("b", number, agent_id="x")
    changes = [watch.receive_nowait() for _ in range(3)]
    assert shown(changes) == [("a", 0), ("a", 1), "Missed"]
    missed = changes[-1]
    assert isinstance(missed, Missed)
    assert missed.count == 3
    assert {key: value.value for key, value in missed.snapshot.items()} == {"a": 4}
    with pytest.raises(trio.WouldBlock):
        watch.receive_nowait()
    memory.write("a", "next", agent_id="x")
    assert shown([await anext(watch)]) == [("a", "next")]
    watch.close()
    with pytest.raises(trio.EndOfChannel):
        watch.receive_nowait()


async def test_what_comes_while_a_gap_is_untold_belongs_to_the_gap() -> None:
    memory = SharedMemory()
    watch = memory.watch(capacity=2)
    for number in range(3):
        memory.write("a", number, agent_id="x")
    assert shown([watch.receive_nowait()]) == [("a", 0)]
    memory.write("a", 3, agent_id="x")
    second, missed = watch.receive_nowait(), watch.receive_nowait()
    assert shown([second, missed]) == [("a", 1), "Missed"]
    assert isinstance(missed, Missed)
    assert (missed.count, missed.snapshot["a"].value) == (2, 3)


async def test_no_change_falls_between_the_snapshot_of_a_watch_and_its_first_change(hasty_threads: None) -> None:
    memory = SharedMemory()
    stop = threading.Event()
    memory.write("k", 0, agent_id="x")

    def work() -> None:
        while not stop.is_set():
            memory.update("k", lambda value: value + 1, agent_id="x")

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        try:
            for _ in range(200):
                with memory.watch("k") as watch:
                    before = watch.snapshot["k"].version
                    change = await anext(watch)
                assert isinstance(change, Written)
                assert change.value.version == before + 1
        finally:
            stop.set()
        done.result()


async def test_a_watcher_behind_the_log_of_a_store_is_told_of_the_gap(tmp_path: Path) -> None:
    environment = RealEnvironment()
    async with open_store(tmp_path / "store.db", environment) as store:
        memory = DurableSharedMemory(store, environment, log_size=4)
        await memory.open()
        watch = await memory.watch()
        for number in range(40):
            await memory.write("a", number, agent_id="x")
        [missed] = await take(watch, 1)
        assert isinstance(missed, Missed)
        assert missed.count is None
        assert missed.snapshot["a"].value == 39
        await memory.write("a", "next", agent_id="x")
        assert shown(await take(watch, 1)) == [("a", "next")]


async def test_a_watch_sees_what_threads_write_without_a_gap_or_a_repetition() -> None:
    memory = SharedMemory()
    state: dict[str, VersionedValue] = {}

    watched = threading.Event()

    def work(number: int) -> None:
        for turn in range(150):
            if turn == 100:
                watched.wait()
            memory.write(f"k{turn % 5}", (number, turn), agent_id=f"t{number}")
            if turn % 7 == 0:
                memory.delete(f"k{turn % 3}", f"t{number}")

    def run_all() -> None:
        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(work, number) for number in range(3)]:
                done.result()
        memory.write("end", True, agent_id="main")  # noqa: FBT003  # a value

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, run_all)
            await trio.sleep(0.002)
            last = 0
            with memory.watch(capacity=100_000) as watch:
                watched.set()
                state.update(watch.snapshot)
                async for change in watch:
                    assert change.seq > last
                    last = change.seq
                    apply(state, change)
                    if "end" in state:
                        break
    assert state == memory.snapshot()


async def test_changes_of_another_process_are_seen_after_the_poll_interval(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    environment = SimulatedEnvironment()
    path = tmp_path / "store.db"
    async with open_store(path, environment) as store, open_store(path, environment) as other:
        memory = DurableSharedMemory(store, environment, poll=2.0)
        stranger = DurableSharedMemory(other, environment)
        await memory.open()
        await stranger.open()
        watch = await memory.watch()
        seen: list[Change] = []

        async def follow() -> None:
            seen.append(await anext(watch))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.sleep(0.5)
            await stranger.write("k", 1, agent_id="stranger")
    assert shown(seen) == [("k", 1)]
    assert trio.current_time() == pytest.approx(2.0)


def test_a_watch_that_nobody_holds_any_more_leaves_nothing_behind() -> None:
    memory = SharedMemory()
    kept = memory.watch("a")
    for _ in range(100):
        memory.watch("a")
    gc.collect()
    memory.write("a", 1, agent_id="x")
    assert memory.statistics().watchers == 1
    assert len(memory._feeds._feeds) == 1
    with kept:
        pass
    assert memory.statistics().watchers == 0


def test_a_watch_that_cannot_work_is_refused() -> None:
    with pytest.raises(InvalidOption, match="at least 1 change; got 0"):
        SharedMemory().watch(capacity=0)
    with pytest.raises(InvalidOption, match="expected a prefix of keys"):
        SharedMemory().watch(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
