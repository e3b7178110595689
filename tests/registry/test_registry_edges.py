"""Edges of the registry: what it says while it drains, keys that equal others in Python, starts that must not fail."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from sapwood.actors import Actor, ActorSystem, Ref, open_system
from sapwood.errors import InvalidKey, RegistryUnavailable
from sapwood.registry import (
    Key,
    LocalBackend,
    NotRunning,
    Partition,
    Registry,
    RegistryWatcher,
    Running,
    Unavailable,
    UniqueDirectory,
)
from sapwood.registry._flights import Flight, Flights
from sapwood.registry._keys import partition_of
from sapwood.supervision import DynamicSupervisor, child
from sapwood.testing import simulate

KEY: Key = ("holder", 1)


class Holder(Actor):
    """Holds a key as long as it lives."""


@asynccontextmanager
async def registry_of(partitions: int = 2) -> AsyncGenerator[tuple[ActorSystem, Registry, list[Ref]]]:
    """Open actors with a registry whose partitions stand in no tree, so that none comes back."""
    async with open_system() as system:
        backend = LocalBackend(partitions)
        homes: list[Ref] = []
        registry = Registry(system, backend, home=lambda: homes[0] if homes else None)
        system.registrar = registry
        parts = [await system.spawn(Partition, backend, index) for index in range(partitions)]
        await system.spawn(RegistryWatcher, backend)
        homes.append(await system.spawn(DynamicSupervisor))
        yield system, registry, parts


@pytest.mark.row("M02")
def test_a_key_has_the_same_partition_in_every_release() -> None:
    digests: dict[Key, int] = {
        ("agent", "conversation-1"): 4046663658,
        ("files", "user", 1): 1694783392,
        ("files", "project", -42): 2676794248,
        ("big", 2**70): 3787444819,
        ("bytes", b"\x00\xff"): 2175524652,
        ("nested", ("a", (1, b"b")), "c"): 318236461,
        ("nested", "a", 1, b"b", "c"): 1288580319,
        ("text", "na\xefve \ud800"): 675020890,
        ("zero", 0): 2990498991,
        ("byte", 255): 3212606050,
    }
    assert {key: partition_of(key, 2**32) for key in digests} == digests


@pytest.mark.row("K06")
@pytest.mark.parametrize("key", [("holder", 1.0), ("holder", True), ("holder", None), ("holder", [1]), ["holder", 1]])
async def test_a_key_that_only_equals_another_one_is_refused_while_that_runs(
    autojump_clock: MockClock, key: Any
) -> None:
    async with registry_of() as (system, registry, _):
        holder = await system.spawn(Holder, key=KEY)
        assert registry.backend.lookup_nowait(KEY) == registry.lookup_nowait(KEY) == Running(holder)

        for look in (registry.lookup_nowait, registry.backend.lookup_nowait, registry.whereis):
            with pytest.raises(InvalidKey):
                look(key)
        registry.drain()
        with pytest.raises(InvalidKey):
            registry.lookup_nowait(key)


@pytest.mark.row("S4-056", "S4-046")
async def test_while_it_drains_the_registry_answers_nothing_else(autojump_clock: MockClock) -> None:
    async with registry_of() as (system, registry, _):
        holder = await system.spawn(Holder, key=KEY)
        assert registry.running() == {KEY: holder}
        assert registry.available

        registry.drain()

        assert registry.lookup_nowait(KEY) == Unavailable("draining")
        assert await registry.lookup(("other", 1)) == Unavailable("draining")
        assert not registry.available
        with pytest.raises(RegistryUnavailable) as caught:
            registry.running()
        assert (caught.value.operation, caught.value.reason) == ("list what runs", "draining")
        assert registry.statistics().draining
        assert holder.alive


async def test_one_partition_that_is_down_makes_the_registry_unavailable_as_a_whole(autojump_clock: MockClock) -> None:
    async with registry_of(3) as (_, registry, parts):
        assert registry.available
        parts[1].kill()
        await parts[1].wait_stopped()

        assert not registry.available
        answers = {type(registry.lookup_nowait(("key", number))) for number in range(50)}
        assert answers == {NotRunning, Unavailable}


@pytest.mark.parametrize(("draining", "reason"), [(False, "starting"), (True, "draining")])
async def test_without_a_home_nothing_is_started_and_the_answer_says_why(
    autojump_clock: MockClock, draining: Any, reason: Any
) -> None:
    async with open_system() as system:
        backend = LocalBackend(1)
        registry = Registry(system, backend)
        system.registrar = registry
        await system.spawn(Partition, backend, 0)

        async def drain(registry: Registry) -> None:
            await trio.lowlevel.checkpoint()
            registry.drain()

        # The lookup must have been answered before the registry drains.
        assert await registry._start(KEY, child(Holder), None) == Unavailable("starting")
        if draining:
            await drain(registry)
        assert await registry._start(KEY, child(Holder), None) == Unavailable(reason)


async def test_lookups_of_a_backend_that_need_not_wait_are_checkpoints_nevertheless(
    autojump_clock: MockClock,
) -> None:
    async with registry_of() as (_, registry, _parts):
        with trio.testing.assert_checkpoints():
            assert await registry.backend.lookup(KEY) == NotRunning()
        with trio.testing.assert_checkpoints():
            assert await registry.lookup(KEY) == NotRunning()


@pytest.mark.parametrize("error", [MemoryError("full"), trio.TrioInternalError("broken")], ids=["memory", "trio"])
def test_a_fatal_error_in_a_start_ends_the_run_and_is_no_answer(error: Exception) -> None:
    class Failing(Actor):
        def on_start(self) -> None:
            raise error

    async def main() -> None:
        async with registry_of() as (_, registry, _parts):
            await registry.get_or_start(KEY, child(Failing))

    with pytest.raises(BaseException) as caught:
        simulate(1, main)

    assert error in leaves(caught.value)


@pytest.mark.parametrize("error", [MemoryError("full"), trio.TrioInternalError("broken")], ids=["memory", "trio"])
async def test_a_start_under_way_that_fails_fatally_is_no_outcome_and_leaves_nothing(error: Exception) -> None:
    async def start() -> Running[Ref]:
        await trio.lowlevel.checkpoint()
        raise error

    begun: list[tuple[Flights, Flight]] = []
    with pytest.RaisesGroup(type(error)):
        async with trio.open_nursery() as nursery:
            flights = Flights(nursery)
            begun.append((flights, flights.launch(KEY, start)))
    [(flights, flight)] = begun
    assert (len(flights), flight.error) == (0, None)


def leaves(error: BaseException | None) -> list[BaseException]:
    """Return an error, what its groups consist of, and all their causes."""
    if error is None:
        return []
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return [error, *leaves(error.__cause__), *(leaf for part in parts for leaf in leaves(part))]


async def test_the_watcher_says_how_many_keys_outlived_a_recovery(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        backend = LocalBackend(2)
        system.registrar = Registry(system, backend)
        parts = [await system.spawn(Partition, backend, index) for index in range(2)]
        for number in range(10):
            await system.spawn(Holder, key=("holder", number))
        for part in parts:
            part.kill()
            await part.wait_stopped()
        for index in range(2):
            await system.spawn(Partition, backend, index)
        assert backend.statistics().partitions == ("recovering", "recovering")

        watcher = await system.spawn(RegistryWatcher, backend)

        assert (await watcher.get_state())["kept"] == 10
        assert backend.statistics().keys == 10


def test_the_defaults_of_the_registry_are_those_of_the_documentation() -> None:
    assert len(LocalBackend().statistics().partitions) == 4
    assert Unavailable("recovering").retry_after == 1.0
    for ask in (Registry.ask, UniqueDirectory.ask):
        assert inspect.signature(ask).parameters["timeout"].default == 5.0


@pytest.mark.parametrize("reason", ["starting", "draining", "registry_down", "recovering", "unreachable", "strange"])
async def test_a_start_that_a_backend_refuses_is_answered_with_its_reason_if_that_is_known(
    autojump_clock: MockClock, reason: str
) -> None:
    class Refusing(LocalBackend):
        def claim(self, key: Key, ref: Ref) -> None:
            raise RegistryUnavailable(f"register {key!r}", reason, 2.5)

    async with open_system() as system:
        backend = Refusing(1)
        registry = Registry(system, backend)
        system.registrar = registry
        await system.spawn(Partition, backend, 0)
        home = await system.spawn(DynamicSupervisor)

        found = await registry.get_or_start(KEY, child(Holder), under=home)

    known: Any = reason if reason != "strange" else "unreachable"
    assert found == Unavailable(known, 2.5)
