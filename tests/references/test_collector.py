"""Collections at an interval, and what stores tell of themselves."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from sapwood.actors import SimulatedEnvironment, open_system
from sapwood.errors import InvalidOption, ReferenceInUse, ReferenceNotFound, ReferenceUnavailable
from sapwood.persistence import open_store
from sapwood.references import (
    Collected,
    MemoryConfig,
    MemoryReferenceStore,
    ReferenceConfig,
    ReferenceOperation,
    SQLiteReferenceStore,
    collect_regularly,
    collector,
    metrics_listener,
    open_reference_store,
)
from sapwood.supervision import Supervisor

MINUTE = 60.0


@pytest.mark.row("S0-008", "S0-009")
async def test_an_entry_of_ten_minutes_is_gone_after_the_collections_of_every_five(
    autojump_clock: trio.testing.MockClock,
) -> None:
    config = ReferenceConfig(backend="memory", memory=MemoryConfig(gc_interval=5 * MINUTE, ttl=10 * MINUTE))
    async with open_reference_store(config, environment=SimulatedEnvironment()) as store:
        await trio.sleep(MINUTE)
        reference = await store.store(b"data")
        await trio.sleep(9.9 * MINUTE)
        assert await store.resolve(reference) == b"data"
        await trio.sleep(5 * MINUTE)
        statistics = await store.stats()
        assert (statistics.references, statistics.bytes, statistics.collected) == (0, 0, 1)
        assert statistics.collections == 3
        with pytest.raises(ReferenceNotFound, match="not found"):
            await store.resolve(reference)


@pytest.mark.row("S0-014", "S0-018")
async def test_a_supervised_collector_collects_and_ends_with_its_supervisor(
    autojump_clock: trio.testing.MockClock,
) -> None:
    environment = SimulatedEnvironment()
    store = MemoryReferenceStore(environment, ttl=10)
    async with open_system(environment=environment) as system:
        supervisor = await system.spawn(partial(Supervisor, [collector(store, 3600)], strategy="one_for_one"))
        held, _ = await store.store(b"held", owner="a"), await store.store(b"kept")
        await trio.sleep(3601)
        assert await store.list() == (held,)
        assert (await store.stats()).references == 1
        await supervisor.stop()
    await trio.sleep(10_000)
    assert (await store.stats()).collections == 1


def make_flaky(store: MemoryReferenceStore, failures: list[Exception]) -> None:
    """Let the next collections of a store fail."""
    shelf: Any = store._shelf
    collect = shelf.collect

    async def collect_or_fail() -> Collected:
        if failures:
            await trio.lowlevel.checkpoint()
            raise failures.pop()
        collected: Collected = await collect()
        return collected

    shelf.collect = collect_or_fail


async def test_a_collector_goes_on_when_the_store_was_unavailable_and_says_how_often(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = MemoryReferenceStore(SimulatedEnvironment(), ttl=10)
    make_flaky(store, [ReferenceUnavailable("memory", "is down") for _ in range(3)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect_regularly, store, 60)
        await trio.sleep(60 * 5 + 1)
        nursery.cancel_scope.cancel()
    statistics = await store.stats()
    assert (statistics.failed_collections, statistics.collections) == (3, 2)


async def test_a_collector_that_crashes_is_restarted_by_its_supervisor(
    autojump_clock: trio.testing.MockClock,
) -> None:
    environment = SimulatedEnvironment()
    store = MemoryReferenceStore(environment)
    make_flaky(store, [KeyError("a fault")])
    async with open_system(environment=environment) as system:
        await system.spawn(partial(Supervisor, [collector(store, 60)], strategy="one_for_one"))
        await trio.sleep(60 * 4 + 1)
    assert (await store.stats()).collections == 3


@pytest.mark.parametrize("interval", [0, -1, True, None, float("nan"), "1"])
def test_an_interval_that_is_no_time_is_refused(interval: Any) -> None:
    with pytest.raises(InvalidOption, match="interval"):
        collector(MemoryReferenceStore(SimulatedEnvironment()), interval)


@pytest.mark.row("S0-042")
async def test_a_listener_is_told_of_every_call_with_outcome_and_bytes() -> None:
    heard: list[ReferenceOperation] = []
    store = MemoryReferenceStore(SimulatedEnvironment(), listener=heard.append)
    reference = await store.store(b"12345", owner="a")
    await store.resolve(reference)
    with pytest.raises(ReferenceNotFound):
        await store.resolve("0" * 64)
    with pytest.raises(ReferenceInUse):
        await store.delete(reference)
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.stats()
    await store.release(reference, "a")
    await store.collect()

    assert [(event.operation, event.outcome, event.bytes) for event in heard] == [
        ("store", "ok", 5),
        ("resolve", "ok", 5),
        ("resolve", "not_found", 0),
        ("delete", "in_use", 0),
        ("stats", "cancelled", 0),
        ("release", "ok", 0),
        ("collect", "ok", 5),
    ]
    assert {event.store for event in heard} == {"memory"}


async def test_a_listener_that_raises_is_removed_and_harms_nothing() -> None:
    def listen(event: ReferenceOperation) -> None:
        raise ValueError("no disk")

    store = MemoryReferenceStore(SimulatedEnvironment(), listener=listen)
    reference = await store.store(b"data")
    assert await store.resolve(reference) == b"data"
    assert (await store.stats()).listener_failure == "ValueError: no disk"


class Instrument:
    """A counter or histogram that keeps its points."""

    def __init__(self) -> None:
        self.points: list[tuple[float, dict[str, str]]] = []

    def record(self, value: float, attributes: dict[str, str]) -> None:
        self.points.append((value, attributes))

    add = record


class RecordingMeter:
    """The part of an OpenTelemetry meter that creates counters and histograms."""

    def __init__(self) -> None:
        self.instruments: dict[str, Instrument] = {}

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Instrument:
        return self.instruments.setdefault(name, Instrument())

    create_histogram = create_counter


@pytest.mark.row("S0-042")
async def test_operations_bytes_and_durations_are_exported_as_metrics() -> None:
    meter = RecordingMeter()
    environment = SimulatedEnvironment()
    async with open_store(":memory:", environment) as engine:
        store = SQLiteReferenceStore(engine, environment, listener=metrics_listener(meter))
        await store.open()
        for _ in range(3):
            await store.store(b"12345")
        with pytest.raises(ReferenceNotFound):
            await store.resolve("0" * 64)

    def found(name: str, operation: str, outcome: str) -> list[float]:
        attributes = {"store": ":memory:", "operation": operation, "outcome": outcome}
        return [value for value, given in meter.instruments[name].points if given == attributes]

    assert found("sapwood.references.operations", "store", "ok") == [1, 1, 1]
    assert found("sapwood.references.bytes", "store", "ok") == [5, 5, 5]
    assert found("sapwood.references.duration", "store", "ok") == [0, 0, 0]
    assert found("sapwood.references.operations", "resolve", "not_found") == [1]
    assert found("sapwood.references.bytes", "resolve", "not_found") == []
