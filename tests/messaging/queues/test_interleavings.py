"""Seeded runs in which senders and receivers are cancelled, fail, are too slow and are fenced at every moment."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial
from typing import Any, get_args

import attrs
import pytest
import trio

from sapwood.actors import SimulatedEnvironment
from sapwood.errors import LeaseLost, QueueClosed, QueueFenced
from sapwood.messaging.queues import (
    Delivery,
    DeliveryMode,
    Message,
    Ordering,
    Queue,
    QueueOptions,
    open_memory_store,
    open_queue,
)
from sapwood.persistence import Store
from sapwood.supervision import Backoff
from sapwood.testing import simulate

BLOCKS = 6
MESSAGES = 14
MODES = [(mode, ordering) for mode in get_args(DeliveryMode) for ordering in get_args(Ordering)]


@attrs.define
class World:
    """One run: what was promised to senders, and what receivers saw."""

    seed: int
    mode: DeliveryMode
    ordering: Ordering
    environment: SimulatedEnvironment
    store: Store
    source: random.Random
    accepted: dict[int, int] = attrs.field(factory=dict[int, int])
    unknown: set[int] = attrs.field(factory=set[int])
    deliveries: Counter[int] = attrs.field(factory=Counter[int])
    effects: Counter[int] = attrs.field(factory=Counter[int])
    acking: set[int] = attrs.field(factory=set[int])
    acked: list[int] = attrs.field(factory=list[int])
    happened: Counter[str] = attrs.field(factory=Counter[str])

    def options(self) -> QueueOptions:
        return QueueOptions(
            mode=self.mode,
            ordering=self.ordering,
            visibility=2.0,
            max_attempts=4,
            dead_retries=0,
            capacity=6,
            retry=Backoff(initial=0.05, factor=2.0, maximum=1.0, jitter=0.5),
            dedup_window=10_000.0 if self.mode == "effectively_once" else None,
        )


def key_of(number: int) -> str:
    return "abc"[number % 3]


async def produce(world: World, queue: Queue, numbers: list[int]) -> None:
    for number in numbers:
        if number in world.accepted or (number in world.unknown and world.mode != "effectively_once"):
            continue
        world.unknown.add(number)
        with trio.move_on_after(world.source.choice([0.0, 0.01, 5.0, 50.0])):
            appended = await queue.append(Message(b"%d" % number, id=f"m{number}", key=key_of(number)))
            world.accepted[number] = appended.seq
            world.unknown.discard(number)
        await trio.sleep(world.source.uniform(0, 0.1))


async def consume(world: World, queue: Queue) -> None:
    while True:
        with trio.CancelScope() as scope:
            if world.source.random() < 0.4:
                scope.deadline = trio.current_time() + world.source.choice([0.0, 0.01, 0.5, 3.0])
            deliveries = await queue.receive_batch(world.source.randint(1, 3))
            await work(world, deliveries)
        if scope.cancelled_caught:
            world.happened["receiver cancelled"] += 1


async def work(world: World, deliveries: list[Delivery]) -> None:
    started = 0
    try:
        for delivery in deliveries:
            started += 1
            await handle(world, delivery)
    finally:
        for number, delivery in enumerate(deliveries, 1):
            delivery.abandon(started=number <= started)


async def handle(world: World, delivery: Delivery) -> None:
    number = int(delivery.payload)
    world.deliveries[number] += 1
    assert delivery.attempt <= world.options().attempts
    await trio.sleep(world.source.choice([0.0, 0.0, 0.01, 0.3, 2.5]))
    chance = world.source.random()
    try:
        if chance < 0.15:
            await delivery.nack("planned")
            world.happened["nack"] += 1
        elif chance < 0.18:
            await delivery.reject("planned")
            world.happened["reject"] += 1
        else:
            await settle(world, delivery, number)
    except LeaseLost:
        world.happened["lease lost"] += 1


async def settle(world: World, delivery: Delivery, number: int) -> None:
    def effect(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO effects (number) VALUES (?)", (number,))

    world.acking.add(number)
    if world.mode == "effectively_once":
        await delivery.ack_with(effect)
    else:
        await delivery.ack()
    world.acked.append(number)


async def live(world: World) -> None:
    """One life of the queue. It ends with everything cancelled, or fenced while everything goes on."""
    numbers = list(range(MESSAGES))
    opened = partial(open_queue, world.store, world.environment, "q", world.options())
    async with opened() as queue, trio.open_nursery() as nursery:
        for start in range(3):
            nursery.start_soon(until_fenced, produce, world, queue, numbers[start::3])
        for _ in range(3):
            nursery.start_soon(until_fenced, consume, world, queue)
        await trio.sleep(world.source.uniform(0.0, 4.0))
        if world.source.random() < 0.5:
            world.happened["fenced"] += 1
            async with opened():
                await trio.sleep(world.source.uniform(0.0, 1.0))
        nursery.cancel_scope.cancel()


async def until_fenced(function: Any, world: World, *args: Any) -> None:
    with suppress(QueueFenced, QueueClosed):
        await function(world, *args)


async def interleave(seed: int, mode: DeliveryMode, ordering: Ordering) -> Counter[str]:
    environment = SimulatedEnvironment(seed)
    async with open_memory_store(environment) as store:
        await store.write(lambda connection: connection.execute("CREATE TABLE effects (number)").close())
        world = World(seed, mode, ordering, environment, store, random.Random(seed))
        for _ in range(world.source.randint(1, 3)):
            await live(world)
        await finish(world)
    return world.happened


async def finish(world: World) -> None:
    handled_last: list[int] = []
    async with open_queue(world.store, world.environment, "q", world.options()) as queue:
        while await queue.depth():
            delivery = await queue.receive()
            number = int(delivery.payload)
            world.deliveries[number] += 1
            handled_last.append(number)
            await settle(world, delivery, number)
        dead = {int(letter.message.message.payload) for letter in await queue.dead_letters.list() if letter.message}
        figures = await queue.statistics()
    effects = await world.store.read(
        lambda connection: [number for (number,) in connection.execute("SELECT number FROM effects")]
    )
    check(world, dead, Counter(effects))
    assert (figures.depth, figures.in_flight, figures.blocked) == (0, 0, 0)


def check(world: World, dead: set[int], effects: Counter[int]) -> None:
    acked = Counter(world.acked)
    for number in world.accepted:
        if world.mode == "effectively_once":
            assert effects[number] == (number not in dead), (
                f"{number}: effects {effects[number]}, dead {number in dead}"
            )
        # A receiver cancelled in its ack does not learn whether it was carried out.
        assert acked[number] <= 1
        assert acked[number] or number in dead or number in world.acking, f"{number} was lost"
        assert world.deliveries[number] <= world.options().attempts
    if world.ordering == "partitioned":
        by_key: dict[str, list[int]] = defaultdict(list)
        for number in world.acked:
            if number in world.accepted:
                by_key[key_of(number)].append(world.accepted[number])
        for seqs in by_key.values():
            assert seqs == sorted(seqs)
    world.happened["dead"] += len(dead)


def run_all(seeds: range) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        mode, ordering = MODES[seed % len(MODES)]
        try:
            happened += simulate(seed, interleave, seed, mode, ordering)
        except BaseException as error:
            error.add_note(f"seed {seed}, {mode}, {ordering}")
            raise
    return happened


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> int:
    return 2_400 if request.config.getoption("--soak") else 240


@pytest.mark.soak
@pytest.mark.row("S2-025", "S2-026", "S2-027", "S2-031", "S2-032", "S2-036")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_interleaving_loses_a_message_or_doubles_one_beyond_its_mode(block: int, runs: int) -> None:
    size = runs // BLOCKS
    run_all(range(block * size, (block + 1) * size))


def test_everything_that_can_happen_does_happen_in_a_few_interleavings() -> None:
    happened = run_all(range(48))
    assert {"receiver cancelled", "nack", "reject", "lease lost", "fenced", "dead"} <= set(happened)


def test_one_seed_gives_one_history_of_a_queue() -> None:
    mode, ordering = MODES[5]
    assert simulate(5, interleave, 5, mode, ordering) == simulate(5, interleave, 5, mode, ordering)
