"""Many threads, many tasks: every history is one that a sequential store could have had."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

from sapwood.actors import RealEnvironment, SimulatedEnvironment
from sapwood.errors import ConflictError
from sapwood.messaging.shared import DurableSharedMemory, SharedMemory, Write
from sapwood.persistence import open_store
from sapwood.testing import simulate
from tests.messaging.shared.kit import Awaited, Operation, State, is_linearizable


def read(state: State) -> tuple[State, Any]:
    value, version = state
    return state, None if value is None else (value, version)


def write(new: Any, expected: int, state: State) -> tuple[State, Any]:
    value, version = state
    actual = version if value is not None else -2
    if expected not in (-1, actual):
        return state, "conflict"
    return (new, version + 1), version + 1


def delete(state: State) -> tuple[State, Any]:
    value, version = state
    return (None, version), value is not None


async def perform(memory: Awaited, kind: str, value: int, expected: int, key: str) -> Any:
    match kind:
        case "read":
            found = await memory.read(key)
            return None if found is None else (found.value, found.version)
        case "delete":
            return await memory.delete(key)
        case _:
            try:
                return (await memory.write(key, value, expected_version=expected)).version
            except ConflictError:
                return "conflict"


def step_of(kind: str, value: int, expected: int) -> Callable[[State], tuple[State, Any]]:
    return {"read": read, "delete": delete}.get(kind, partial(write, value, expected))


def draw(source: random.Random) -> tuple[str, int]:
    kind = source.choices(["read", "write", "delete"], [3, 5, 1])[0]
    return kind, source.choice([-1, -1, -2, 0, 1, 2, 3])


def test_the_checker_itself_tells_good_histories_from_bad_ones() -> None:
    def operation(begin: int, end: int, kind: str, answer: Any, expected: int = -1) -> Operation:
        return Operation(begin, end, step_of(kind, 7, expected), answer)

    assert is_linearizable([operation(1, 4, "write", 0), operation(2, 3, "read", None)])
    assert is_linearizable([operation(1, 4, "write", 0), operation(2, 3, "read", (7, 0))])
    assert not is_linearizable([operation(1, 2, "write", 0), operation(3, 4, "read", None)])
    assert not is_linearizable([operation(1, 2, "write", 0), operation(3, 4, "write", 0)])
    assert not is_linearizable([operation(1, 4, "write", 0, expected=-2), operation(2, 3, "write", 0, expected=-2)])


def perform_in_thread(  # noqa: PLR0917  # what one thread is given
    seed: int,
    memory: SharedMemory,
    clock: count[int],
    history: dict[str, list[Operation]],
    number: int,
    gate: threading.Barrier,
) -> None:
    source = random.Random(seed * 100 + number)
    gate.wait()
    for turn in range(8):
        kind, expected = draw(source)
        value = number * 1_000 + turn
        key = source.choice("ab")
        begin = next(clock)
        answer: Any
        if kind == "read":
            found = memory.read(key)
            answer = None if found is None else (found.value, found.version)
        elif kind == "delete":
            answer = memory.delete(key, "x")
        else:
            try:
                answer = memory.write(key, value, agent_id="x", expected_version=expected).version
            except ConflictError:
                answer = "conflict"
        history[key].append(Operation(begin, next(clock), step_of(kind, value, expected), answer))


@pytest.mark.row("S1-047")
def test_the_history_of_each_key_under_many_threads_is_linearizable(hasty_threads: None) -> None:
    for seed in range(60):
        memory = SharedMemory()
        clock = count()
        history: dict[str, list[Operation]] = {"a": [], "b": []}
        gate = threading.Barrier(4)

        work = partial(perform_in_thread, seed, memory, clock, history)
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(work, number, gate) for number in range(4)]:
                done.result()
        for key, operations in history.items():
            assert is_linearizable(operations), (seed, key)


async def record_tasks(memory: Awaited, seed: int, tasks: int, turns: int, pause: Callable[[], float]) -> None:
    clock = count()
    history: dict[str, list[Operation]] = {"a": [], "b": []}

    async def work(number: int) -> None:
        source = random.Random(seed * 100 + number)
        for turn in range(turns):
            kind, expected = draw(source)
            value = number * 1_000 + turn
            key = source.choice("ab")
            begin = next(clock)
            answer = await perform(memory, kind, value, expected, key)
            history[key].append(Operation(begin, next(clock), step_of(kind, value, expected), answer))
            await trio.sleep(pause())

    async with trio.open_nursery() as nursery:
        for number in range(tasks):
            nursery.start_soon(work, number)
    for key, operations in history.items():
        assert is_linearizable(operations), (seed, key)


@pytest.mark.row("S1-047")
def test_the_history_of_each_key_under_any_schedule_of_tasks_is_linearizable() -> None:
    async def scenario(seed: int, *, durable: bool) -> None:
        environment = SimulatedEnvironment(seed)
        pause = partial(environment.random.choice, [0.0, 0.01])
        if not durable:
            await record_tasks(Awaited(SharedMemory(environment=environment)), seed, 5, 6, pause)
            return
        async with open_store(":memory:", environment) as store:
            memory = DurableSharedMemory(store, environment)
            await memory.open()
            await record_tasks(Awaited(memory), seed, 5, 6, pause)

    for seed in range(40):
        simulate(seed, partial(scenario, durable=seed % 2 == 1), seed)


async def test_the_history_of_each_key_in_a_real_file_is_linearizable(tmp_path: Path) -> None:
    environment = RealEnvironment()
    async with open_store(tmp_path / "store.db", environment) as store:
        for seed in range(5):
            memory = DurableSharedMemory(store, environment, space=f"s{seed}")
            await memory.open()
            await record_tasks(Awaited(memory), seed, 6, 8, lambda: 0.0)


@pytest.mark.row("S1-042", "S1-043", "S1-047")
def test_readers_in_other_threads_never_see_half_a_batch(hasty_threads: None) -> None:
    memory = SharedMemory()
    memory.write_batch([Write("from", 1_000), Write("to", 0)], agent_id="bank")
    stop = threading.Event()
    sums: set[int] = set()

    def audit() -> None:
        while not stop.is_set():
            found = memory.read_many(["from", "to"])
            snapshot = memory.snapshot()
            sums.add(sum(value.value for value in found.values() if value is not None))
            sums.add(sum(value.value for value in snapshot.values()))

    def transfer(number: int) -> None:
        for _ in range(100):
            while True:
                both = memory.read_many(["from", "to"])
                source, target = both["from"], both["to"]
                assert source is not None
                assert target is not None
                try:
                    memory.write_batch(
                        [
                            Write("from", source.value - 1, source.version),
                            Write("to", target.value + 1, target.version),
                        ],
                        agent_id=f"t{number}",
                    )
                except ConflictError:
                    continue
                break

    with ThreadPoolExecutor(5) as pool:
        auditor = pool.submit(audit)
        for done in [pool.submit(transfer, number) for number in range(4)]:
            done.result()
        stop.set()
        auditor.result()
    assert sums == {1_000}
    final = memory.read_many(["from", "to"])
    assert {key: (value.value, value.version) for key, value in final.items() if value is not None} == {
        "from": (600, 400),
        "to": (400, 400),
    }


@pytest.mark.row("S1-047")
def test_no_update_is_lost_between_threads(hasty_threads: None) -> None:
    memory = SharedMemory()

    def add(value: dict[str, int]) -> dict[str, int]:
        return {**value, "count": value["count"] + 1}

    def work(number: int) -> None:
        for _ in range(200):
            memory.update("k", add, agent_id=f"t{number}", default={"count": 0})

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result()
    final = memory.read("k")
    assert final is not None
    assert (final.value, final.version) == ({"count": 800}, 799)


def test_two_writes_in_one_tick_or_with_the_clock_set_back_are_never_refused() -> None:
    class Jumpy(SimulatedEnvironment):
        def wall(self) -> float:
            return 1_700_000_000.0 - self.random.choice([0, 5])

    memory = SharedMemory(environment=Jumpy())
    for version in range(20):
        assert (
            memory.write("k", version, agent_id="a", expected_version=version - 1 if version else -2).version == version
        )


def test_functions_of_the_caller_may_use_the_store_again() -> None:
    memory = SharedMemory()
    memory.write("rate", 3, agent_id="a")

    def scaled(value: int) -> int:
        rate = memory.read("rate")
        assert rate is not None
        memory.write("log", value, agent_id="a")
        return value * int(rate.value)

    assert memory.update("k", scaled, agent_id="a", default=2).value == 6
