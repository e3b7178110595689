"""Consumers and pools of them, under supervisors."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from sapwood.actors import ActorSystem, SimulatedEnvironment, open_system
from sapwood.errors import InvalidOption, RejectMessage
from sapwood.messaging.queues import (
    Consumer,
    Delivery,
    Handled,
    PoolOptions,
    QueueOptions,
    Retire,
    WorkerPool,
    open_queue,
)
from sapwood.persistence import StoreEngine
from sapwood.supervision import DynamicSupervisor, Supervisor, child, start_child
from tests.messaging.queues.kit import Job, quick


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with open_system() as made:
        yield made


async def do_nothing(delivery: Delivery) -> None:
    await trio.lowlevel.checkpoint()


async def hang(delivery: Delivery) -> None:
    await trio.sleep_forever()


async def settle() -> None:
    """Wait until all have done what they can do now."""
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.row("S2-039", "S2-040")
async def test_competing_consumers_share_a_queue_evenly_and_each_message_goes_to_one(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, system: ActorSystem
) -> None:
    done: list[int] = []

    async def work(delivery: Delivery) -> None:
        await trio.sleep(1)
        done.append(delivery.payload.number)

    async with open_queue(store, environment, "q") as queue:
        home = await system.spawn(DynamicSupervisor)
        refs = [await start_child(home, child(Consumer, queue, work)) for _ in range(4)]
        await queue.append_many([Job(number) for number in range(40)])
        await trio.sleep(10.5)
        assert sorted(done) == list(range(40))
        assert [await ref.ask(Handled()) for ref in refs if ref is not None] == [10, 10, 10, 10]
        await home.stop()


@pytest.mark.row("S1-054", "S2-046")
async def test_a_handler_that_returns_raises_or_rejects_has_the_message_acknowledged_retried_or_dead(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, system: ActorSystem
) -> None:
    seen: Counter[int] = Counter()

    async def work(delivery: Delivery) -> None:
        number = delivery.payload.number
        seen[number] += 1
        await trio.lowlevel.checkpoint()
        if number == 1 and seen[number] == 1:
            raise ConnectionError("once")
        if number == 2:
            raise RejectMessage("never")
        if number == 3:
            raise ConnectionError("always")
        if number == 4:
            await delivery.ack()

    async with open_queue(store, environment, "q", quick(dead_retries=0)) as queue:
        worker = await system.spawn(Consumer, queue, work)
        await queue.append_many([Job(number) for number in range(5)])
        await trio.sleep(5)
        assert seen == {0: 1, 1: 2, 2: 1, 3: 3, 4: 1}
        assert [(letter.seq, letter.reason, letter.detail) for letter in await queue.dead_letters.list()] == [
            (3, "rejected", "RejectMessage: never"),
            (4, "delivery_failed", "ConnectionError: always"),
        ]
        assert await queue.depth() == 0
        await worker.stop()


async def test_a_consumer_that_is_stopped_finishes_the_message_in_hand_and_gives_back_what_it_prefetched(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, system: ActorSystem
) -> None:
    done: list[int] = []

    async def work(delivery: Delivery) -> None:
        await trio.sleep(2)
        done.append(delivery.payload.number)

    async with open_queue(store, environment, "q") as queue:
        home = await system.spawn(partial(Supervisor, [child(Consumer, queue, work, 5)], strategy="one_for_one"))
        await queue.append_many([Job(number) for number in range(5)])
        await trio.sleep(1)
        await home.stop()
        assert done == [0]
        rest = await queue.poll(10)
        assert [(delivery.payload.number, delivery.attempt) for delivery in rest] == [(1, 1), (2, 1), (3, 1), (4, 1)]


@pytest.mark.row("S2-027")
async def test_what_a_killed_consumer_had_in_hand_comes_again_at_once_and_not_after_its_time_out(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, system: ActorSystem
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(visibility=3600)) as queue:
        worker = await system.spawn(Consumer, queue, hang, 2)
        await queue.append_many([b"in hand", b"prefetched"])
        await trio.sleep(1)
        worker.kill()
        with trio.fail_after(1):
            first, second = await queue.receive(), await queue.receive()
        assert (first.payload, first.attempt) == (b"in hand", 2)
        assert (second.payload, second.attempt) == (b"prefetched", 1)


async def test_a_handler_that_is_too_slow_loses_its_message_and_the_consumer_goes_on(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, system: ActorSystem
) -> None:
    done: list[tuple[int, int]] = []

    async def work(delivery: Delivery) -> None:
        await trio.sleep(20 if delivery.attempt == 1 else 1)
        done.append((delivery.payload.number, delivery.attempt))

    async with open_queue(store, environment, "q", QueueOptions(visibility=10)) as queue:
        worker = await system.spawn(Consumer, queue, work)
        await queue.append(Job(1))
        await trio.sleep(30)
        assert done == [(1, 1), (1, 2)]
        assert (await queue.statistics()).counts["refused"] == 1
        assert await queue.depth() == 0
        await worker.stop()


async def test_a_consumer_ends_when_its_queue_is_closed_and_when_it_is_asked_to_retire(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, system: ActorSystem
) -> None:
    async with open_queue(store, environment, "q") as queue:
        idle, closed = [await system.spawn(Consumer, queue, do_nothing) for _ in range(2)]
        idle.tell(Retire())
        await settle()
        assert not idle.alive
        assert closed.alive
    await settle()
    assert not closed.alive
    with pytest.raises(InvalidOption, match="prefetch: expected at least 1"):
        Consumer(queue, do_nothing, prefetch=0)


@pytest.mark.row("S2-042", "S2-039")
async def test_a_pool_grows_with_the_depth_of_its_queue_and_shrinks_when_it_is_worked_off(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, system: ActorSystem
) -> None:
    done: list[int] = []

    async def work(delivery: Delivery) -> None:
        await trio.sleep(1)
        done.append(delivery.payload.number)

    async with open_queue(store, environment, "q") as queue:
        pool = WorkerPool(queue, work, PoolOptions(minimum=1, maximum=5, per_consumer=4, patience=2))
        root = await system.spawn(partial(Supervisor, [pool.spec(id="pool")], strategy="one_for_one"))
        await settle()
        sizes = [pool.size]
        await queue.append_many([Job(number) for number in range(60)])
        for _ in range(40):
            await trio.sleep(1)
            sizes.append(pool.size)
        assert sizes[0] == 1
        assert max(sizes) == 5
        assert sizes[-1] == 1
        assert sorted(done) == list(range(60)), "nothing is lost or doubled as consumers go"
        await root.stop()


@pytest.mark.row("S2-042")
async def test_a_pool_replaces_consumers_that_are_killed_and_loses_none_of_their_messages(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, system: ActorSystem
) -> None:
    done: Counter[int] = Counter()

    async def work(delivery: Delivery) -> None:
        await trio.sleep(1)
        done[delivery.payload.number] += 1

    async with open_queue(store, environment, "q", quick(max_attempts=100)) as queue:
        pool = WorkerPool(queue, work, PoolOptions(minimum=3, maximum=3))
        root = await system.spawn(partial(Supervisor, [pool.spec(id="pool")], strategy="one_for_one"))
        await queue.append_many([Job(number) for number in range(30)])
        for _ in range(8):
            await trio.sleep(1.3)
            pool.consumers()[0].kill()
        await trio.sleep(30)
        assert sorted(done) == list(range(30))
        assert pool.size == 3
        await root.stop()
        assert pool.size == 0


async def test_a_pool_whose_queue_is_closed_comes_to_rest_and_brings_nothing_down(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock, system: ActorSystem
) -> None:
    async with open_queue(store, environment, "q") as queue:
        pool = WorkerPool(queue, do_nothing, PoolOptions(minimum=3))
        root = await system.spawn(partial(Supervisor, [pool.spec(id="pool")], strategy="one_for_one"))
        await trio.sleep(2)
        assert pool.size == 3
    await trio.sleep(60)
    assert pool.size == 0
    assert root.alive
    await root.stop()


@pytest.mark.parametrize("number", [0, 1, 10, 11, 1000])
def test_a_pool_wants_as_many_consumers_as_the_depth_asks_for(number: int) -> None:
    options = PoolOptions(minimum=1, maximum=8, per_consumer=10)
    assert options.wanted(number) == {0: 1, 1: 1, 10: 1, 11: 2, 1000: 8}[number]


@pytest.mark.parametrize("bad", [{"minimum": 3, "maximum": 2}, {"per_consumer": 0}, {"interval": 0}, {"patience": 0}])
def test_a_pool_option_out_of_its_range_is_refused_by_name(bad: dict[str, int]) -> None:
    with pytest.raises(InvalidOption, match=f"pool option {list(bad)[-1]}: expected"):
        PoolOptions(**bad)
