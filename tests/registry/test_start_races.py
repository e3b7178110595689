"""Starts through the registry that meet others on their way, and what is refused before anything is started."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from sapwood.actors import Actor, Failure, Ref, Request, handle, message, open_system
from sapwood.errors import ActorDown, AlreadyStarted, InvalidKey, RegistryUnavailable, WrongThread
from sapwood.registry import (
    Key,
    LocalBackend,
    Partition,
    Registry,
    RegistryWatcher,
    Running,
    Unavailable,
    UniqueDirectory,
)
from sapwood.supervision import DynamicSupervisor, child, start_child
from sapwood.supervision._children import StartedChild
from sapwood.supervision._requests import StartChild
from tests.registry.directory_kit import running

KEY: Key = ("holder", 1)


@message("start_races.anything")
class Anything(Request[int]):
    pass


class Holder(Actor):
    """Holds a key as long as it lives; may take its time to start."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    async def on_start(self) -> None:
        await trio.sleep(self.seconds)


class Scripted(Actor):
    """Stands in for a supervisor: answers starts with what it was given, in order."""

    def __init__(self, *answers: StartedChild | Failure) -> None:
        self.answers = deque(answers)

    @handle
    def start(self, message: StartChild) -> StartedChild | Failure:
        return self.answers.popleft()


@pytest.fixture
async def registry(autojump_clock: MockClock) -> AsyncIterator[Registry]:
    assert trio.lowlevel.current_clock() is autojump_clock
    async with open_system() as system:
        backend = LocalBackend(1)
        made = Registry(system, backend)
        system.registrar = made
        await system.spawn(Partition, backend, 0)
        await system.spawn(RegistryWatcher, backend)
        yield made


async def ended(registry: Registry, key: Key | None) -> Ref:
    """Return an actor that held a key and has ended."""
    ref = await registry._system.spawn(Holder, key=key)
    ref.kill()
    await ref.wait_stopped()
    return ref


async def test_a_start_that_one_outside_of_the_registry_overtakes_gives_that_actor(
    autojump_clock: MockClock, registry: Registry
) -> None:
    home = await registry._system.spawn(DynamicSupervisor)
    found: list[Any] = []

    async def get_or_start() -> None:
        found.append(await registry.get_or_start(KEY, child(Holder), under=home))

    async with trio.open_nursery() as nursery:
        # Until this one has started the supervisor takes no other request (OTP E13).
        nursery.start_soon(start_child, home, child(Holder, 5.0))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(get_or_start)
        await trio.testing.wait_all_tasks_blocked()
        other = await registry._system.spawn(Holder, key=KEY)
    assert found == [Running(other)]


async def test_a_start_that_is_refused_for_a_holder_that_has_ended_since_is_tried_again(
    autojump_clock: MockClock, registry: Registry
) -> None:
    last = await ended(registry, KEY)
    new = await registry._system.spawn(Holder)
    answers = (Failure(AlreadyStarted("holder", last)), Failure(AlreadyStarted("holder", last)), StartedChild(new))
    scripted = await registry._system.spawn(Scripted, *answers)

    with trio.testing.assert_checkpoints():
        assert await registry.get_or_start(KEY, child(Holder), under=scripted) == Running(new)


async def test_a_start_that_is_refused_many_times_lets_others_run_meanwhile(
    autojump_clock: MockClock, registry: Registry
) -> None:
    last = await ended(registry, KEY)
    answers = [Failure(AlreadyStarted("holder", last))] * 200
    scripted = await registry._system.spawn(Scripted, *answers, StartedChild(await registry._system.spawn(Holder)))
    left: list[int] = []

    async def look() -> None:
        while len(left) < 50:
            left.append(len((await scripted.get_state())["answers"]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await registry.get_or_start(KEY, child(Holder), under=scripted)
    assert len(set(left)) > 10


async def test_an_id_that_another_child_has_is_an_error_and_no_answer(
    autojump_clock: MockClock, registry: Registry
) -> None:
    stranger = await ended(registry, ("other", 2))
    scripted = await registry._system.spawn(Scripted, Failure(AlreadyStarted("holder", stranger)))

    with pytest.raises(AlreadyStarted) as caught:
        await registry.get_or_start(KEY, child(Holder), under=scripted)
    assert caught.value.ref is stranger


async def test_a_supervisor_that_has_ended_counts_as_one_that_is_restarted_unless_all_ends(
    autojump_clock: MockClock, registry: Registry
) -> None:
    home = await ended(registry, None)
    assert await registry.get_or_start(KEY, child(Holder), under=home) == Unavailable("recovering")

    assert await registry._start(KEY, child(Holder), home) == Unavailable("recovering")
    registry.drain()
    assert await registry._start(KEY, child(Holder), home) == Unavailable("draining")


async def test_a_start_from_another_thread_is_refused_though_the_actor_runs_already(
    autojump_clock: MockClock, registry: Registry
) -> None:
    await registry._system.spawn(Holder, key=KEY)

    def elsewhere() -> None:
        trio.run(registry.get_or_start, KEY, child(Holder))

    with pytest.raises(WrongThread, match="get_or_start"):
        await trio.to_thread.run_sync(elsewhere)


@pytest.mark.row("K06")
@pytest.mark.parametrize("key", [("holder", True), ("holder", 1.0), ("holder", [1])])
async def test_a_key_that_only_equals_one_that_is_being_started_is_refused(
    autojump_clock: MockClock, registry: Registry, key: Any
) -> None:
    home = await registry._system.spawn(DynamicSupervisor)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: registry.get_or_start(KEY, child(Holder, 5.0), under=home))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(InvalidKey):
            await registry.get_or_start(key, child(Holder), under=home)


async def test_asking_a_key_of_a_directory_is_a_checkpoint_whatever_comes_of_it(autojump_clock: MockClock) -> None:
    directory: UniqueDirectory[int] = UniqueDirectory("rooms")
    async with running(directory):
        with trio.testing.assert_checkpoints(), pytest.raises(ActorDown):
            await directory.ask(KEY, Anything())
    with trio.testing.assert_checkpoints(), pytest.raises(RegistryUnavailable):
        await directory.ask(KEY, Anything())
