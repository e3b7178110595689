"""Durable participants under crashes of all kinds, seed by seed: nothing is lost, nothing doubled beyond the mode."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal

import attrs
import pytest
import trio

from sapwood import Runtime, open_runtime
from sapwood.actors import SimulatedEnvironment
from sapwood.errors import BusUnavailable
from sapwood.messaging import BusOptions, Envelope, HandlerOptions
from sapwood.messaging.bus import current_delivery
from sapwood.messaging.queues import DeliveryMode, open_memory_store
from sapwood.persistence import Store
from sapwood.supervision import Backoff
from sapwood.testing import simulate
from tests.messaging.bus.kit import Number

BLOCKS: Final = 4
LIVES: Final = 3
MESSAGES: Final = 8
ORDERS: Final[tuple[Literal["fifo", "priority", "none"], ...]] = ("fifo", "priority", "none")
QUICK = Backoff(initial=0.05, factor=2.0, maximum=0.2, jitter=0.2)


@attrs.define
class History:
    """What a run did, over all its lives."""

    mode: DeliveryMode
    source: random.Random
    accepted: set[int] = attrs.field(factory=set[int])
    tried: set[int] = attrs.field(factory=set[int])
    begun: Counter[int] = attrs.field(factory=Counter[int])
    returned: Counter[int] = attrs.field(factory=Counter[int])
    kills: int = 0


def effect(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("INSERT INTO test_effects (number) VALUES (?)", (number,))


async def work(history: History, store: Store, envelope: Envelope[Any]) -> None:
    number, source = envelope.payload.value, history.source
    history.begun[number] += 1
    await trio.sleep(source.choice([0.0, 0.01, 0.1]))
    if source.random() < 0.2:
        raise ConnectionError("by chance")
    if history.mode == "effectively_once":
        await current_delivery().ack_with(partial(effect, number=number))
    else:
        await store.write(partial(effect, number=number))
        await trio.sleep(source.choice([0.0, 0.01]))
    history.returned[number] += 1


async def send_some(history: History, runtime: Runtime, first: int) -> None:
    client, source = runtime.bus.client("client"), history.source
    for number in range(first, first + MESSAGES):
        history.tried.add(number)
        envelope = client.make(Number(number), recipient="worker")
        with trio.move_on_after(source.choice([0.0, 0.001, 0.05, 1.0, 60.0])):
            wait = source.random() < 0.3
            try:
                report = await runtime.bus.send(envelope, wait=wait, timeout=60)
            except BusUnavailable:
                continue
            if report.deliveries[0].reason in (None, "handler_failed"):
                history.accepted.add(number)
            if source.random() < 0.3 and history.mode == "effectively_once":
                with suppress(BusUnavailable):
                    await runtime.bus.send(envelope)
        await trio.sleep(source.choice([0.0, 0.02, 0.1]))


async def kill_some(history: History, runtime: Runtime) -> None:
    while True:
        await trio.sleep(history.source.uniform(0.02, 0.5))
        for cell in list(runtime.system.actors):
            if cell.label.startswith("bus/worker") or (cell.label == "keeper" and history.source.random() < 0.3):
                history.kills += 1
                cell.ref.kill()


async def live(history: History, store: Store, environment: SimulatedEnvironment, life: int) -> None:
    options = BusOptions(queues=lambda: store)
    async with open_runtime(bus=options, environment=environment, signals=False) as runtime:
        order = history.source.choice(ORDERS)
        handler = HandlerOptions(
            delivery=history.mode, retry=QUICK, attempts=4, order=order, workers=3 if order == "none" else 1
        )
        await runtime.bus.register("worker", partial(work, history, store), handler)
        last = life == LIVES - 1
        async with trio.open_nursery() as nursery:
            if not last:
                nursery.start_soon(kill_some, history, runtime)
                nursery.start_soon(send_some, history, runtime, life * 100)
                await trio.sleep(history.source.uniform(0.1, 2))
                nursery.cancel_scope.cancel()
        if not last:
            # The process dies: whatever it has in hand is cut off.
            for cell in list(runtime.system.actors):
                if cell.label.startswith("bus/worker"):
                    cell.ref.kill()
            return
        await trio.sleep(60)
        dead = [letter.original.payload.value for letter in runtime.bus.dead_letters.inspect(limit=None)]
        rows = await store.read(lambda db: db.execute("SELECT number FROM test_effects").fetchall())
        check(history, Counter(number for (number,) in rows), Counter(dead))


def check(history: History, effects: Counter[int], dead: Counter[int]) -> None:
    assert history.accepted <= set(effects) | set(dead), "none is lost"
    assert set(effects) | set(dead) <= history.tried, "none is made up"
    assert all(count == 1 for count in dead.values()), "one dead letter for each"
    if history.mode == "effectively_once":
        assert all(count == 1 for count in effects.values()), "one effect for each"
        assert not set(effects) & set(dead), "what had its effect is not dead"
    else:
        assert all(effects[number] <= history.begun[number] for number in effects)
        doubled = sum(count - 1 for count in effects.values() if count > 1)
        assert doubled <= 3 * (history.kills + LIVES), "only what was in hand at a crash is done twice"


async def scenario(seed: int) -> None:
    history = History("effectively_once" if seed % 2 else "at_least_once", random.Random(seed))
    environment = SimulatedEnvironment(seed)
    async with open_memory_store(environment) as store:
        await store.write(lambda db: db.execute("CREATE TABLE test_effects (number INTEGER)").close())
        for life in range(LIVES):
            await live(history, store, environment, life)


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> int:
    return 1_000 if request.config.getoption("--soak") else 200


@pytest.mark.soak
@pytest.mark.row("S2-026", "S2-030", "S2-031", "S2-032")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_crash_cancellation_or_restart_loses_a_message_of_the_bus_or_doubles_it_beyond_its_mode(
    block: int, runs: int
) -> None:
    size = runs // BLOCKS
    for seed in range(block * size, (block + 1) * size):
        try:
            simulate(seed, scenario, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
