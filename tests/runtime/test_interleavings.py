"""Seeded interleavings of kills, starts, lookups and messages; what must hold is checked after every task step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import cast

import attrs
import pytest
import trio

from sapwood import Runtime, open_runtime
from sapwood.actors import (
    Actor,
    DeadLetter,
    Exited,
    Ref,
    Request,
    SimulatedEnvironment,
    TelemetryEvent,
    handle,
    message,
)
from sapwood.errors import ActorDown, AlreadyStarted, AskTimeout, ChildFailed, RegistryUnavailable
from sapwood.registry import Key, Lookup, NotRunning, Running, Unavailable
from sapwood.supervision import ChildSpec, DynamicSupervisor, child, start_child
from sapwood.testing import Chaos, Invariants, Target, simulate

BLOCKS = 100
INSIDE: tuple[Key, ...] = (("inside", 1), ("inside", "two"), ("inside", ("three", 3)))
OUTSIDE: tuple[Key, ...] = (("outside", 1), ("outside", b"two"))
KEYS = INSIDE + OUTSIDE
ACTIONS = 40
TASKS = 4


@message("interleavings.poke")
class Poke:
    number: int


@message("interleavings.count")
class Count(Request[int]):
    pass


class World:
    """The truth, kept by the actors themselves and by telemetry, without asking the registry."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.alive: Counter[Key] = Counter()
        self.wrong: list[str] = []
        self.told = 0
        self.handled = 0
        self.dead_letters = 0
        self.starts = 0
        self.answers: Counter[str] = Counter()

    def born(self, key: Key) -> None:
        self.starts += 1
        self.alive[key] += 1
        if self.alive[key] != 1:
            self.wrong.append(f"{self.alive[key]} holders of {key!r} live")

    def hear(self, event: TelemetryEvent) -> None:
        if isinstance(event, Exited) and event.key in KEYS:
            self.alive[cast("Key", event.key)] -= 1
        elif isinstance(event, DeadLetter) and isinstance(event.message, Poke):
            self.dead_letters += 1

    def judge(self, key: Key, found: Lookup[Ref]) -> None:
        self.answers[type(found).__name__] += 1
        match found:
            case NotRunning() if self.alive[key]:
                self.wrong.append(f"{key!r} lives and was not found")
            case Running(ref) if not self.alive[key] or not ref.alive:
                self.wrong.append(f"{key!r} was found and is dead")
            case _:
                pass


class Probe(Actor):
    def __init__(self, world: World, key: Key) -> None:
        self.world = world
        self.fate = world.random.random()
        world.born(key)

    async def on_start(self) -> None:
        await trio.sleep(0.02 * self.fate if self.fate > 0.5 else 0)
        if self.fate < 0.1:
            raise ValueError("fails to start")

    async def on_stop(self, reason: object) -> None:
        await trio.sleep(0.1 * self.fate)

    @handle
    def poke(self, message: Poke) -> None:
        self.world.handled += 1
        if message.number % 17 == 0:
            raise ValueError("crashes")
        if message.number % 19 == 0:
            self.stop()

    @handle
    async def count(self, message: Count) -> int:
        await trio.sleep(0.01 * self.fate)
        return self.world.handled


@attrs.frozen
class Driver:
    """Does random things to one runtime."""

    runtime: Runtime
    world: World
    chaos: Chaos
    outside: Ref

    async def drive(self) -> None:
        random = self.world.random
        kills: tuple[Target, ...] = ("registry", "registry", "watcher", "agents", "supervisors", "store")
        for _ in range(ACTIONS):
            await trio.sleep(random.choice((0, 0, 0, 0.001, 0.03)))
            key = random.choice(KEYS)
            action = random.randrange(12)
            if action == 0:
                self.chaos.kill(random.choice(kills[:5] if random.random() < 0.9 else kills))
            elif action == 1:
                self.kill(key)
            elif action < 4:
                await self.start(key)
            elif action < 6:
                await self.get_or_start(key)
            elif action < 10:
                self.poke(key)
            else:
                await self.ask(key)

    def spec(self, key: Key) -> ChildSpec:
        restart = self.world.random.choice(("temporary", "transient", "permanent"))
        return child(Probe, self.world, key, key=key, restart=restart)  # type: ignore[arg-type]  # one of the three

    def home(self, key: Key) -> Ref | None:
        if key in OUTSIDE:
            return self.outside
        return next((node.ref for node in self.runtime.tree().walk() if node.label == "agents"), None)

    def lookup(self, key: Key) -> Lookup[Ref]:
        found = self.runtime.registry.lookup_nowait(key)
        self.world.judge(key, found)
        return found

    def kill(self, key: Key) -> None:
        found = self.lookup(key)
        if isinstance(found, Running):
            found.ref.kill()

    async def start(self, key: Key) -> None:
        home = self.home(key)
        if home is not None:
            with trio.move_on_after(self.world.random.choice((0.005, 1.0))):
                try:
                    await start_child(home, self.spec(key))
                except (ActorDown, AlreadyStarted, ChildFailed, RegistryUnavailable) as refused:
                    self.world.answers[type(refused).__name__] += 1

    async def get_or_start(self, key: Key) -> None:
        under = self.outside if key in OUTSIDE else None
        with trio.move_on_after(self.world.random.choice((0.005, 1.0))):
            try:
                self.world.judge(key, await self.runtime.registry.get_or_start(key, self.spec(key), under=under))
            except (ActorDown, ChildFailed) as failed:
                self.world.answers[type(failed).__name__] += 1

    def poke(self, key: Key) -> None:
        found = self.lookup(key)
        if isinstance(found, Running):
            self.world.told += 1
            found.ref.tell(Poke(self.world.random.randrange(200)))

    async def ask(self, key: Key) -> None:
        try:
            await self.runtime.registry.ask(key, Count(), timeout=1.0)
        except (ActorDown, RegistryUnavailable, AskTimeout) as failed:
            self.world.answers[type(failed).__name__] += 1


async def interleave(seed: int) -> Counter[str]:
    environment = SimulatedEnvironment(seed)
    world = World(environment.random)
    outside = child(DynamicSupervisor, id="outside", shutdown=5.0)
    async with open_runtime(environment=environment, children=[outside], restarts=10_000, signals=False) as runtime:
        runtime.telemetry.subscribe(world.hear)
        invariants = Invariants(runtime)
        with invariants.watching():
            async with trio.open_nursery() as nursery:
                chaos = Chaos(runtime, nursery)
                home = next(node.ref for node in runtime.tree().walk() if node.label == "outside")
                driver = Driver(runtime, world, chaos, home)
                for _ in range(TASKS):
                    nursery.start_soon(driver.drive)
            await trio.sleep(30)
            assert runtime.ready()
            for key in KEYS:
                assert isinstance(runtime.registry.lookup_nowait(key), Running | NotRunning)
                found = await running(runtime, key, partial(Probe, world, key))
                found.ref.tell(Poke(1))
                world.told += 1
                assert await found.ref.ask(Count()) == world.handled
        invariants.assert_hold()
    assert not world.wrong
    assert +world.alive == Counter()
    assert world.told == world.handled + world.dead_letters
    world.answers["starts"] = world.starts
    world.answers["steps"] = invariants.checks
    return world.answers


async def running(runtime: Runtime, key: Key, make: Callable[[], Actor]) -> Running[Ref]:
    """Start an actor for a key in spite of those that fail to start by chance."""
    while True:
        try:
            found = await runtime.registry.get_or_start(key, child(make))
        except ChildFailed:
            continue
        assert not isinstance(found, Unavailable)
        return found


@pytest.mark.soak
@pytest.mark.row("S4-044", "S4-045", "S4-047", "S4-052", "AR-24.41", "AR-24.42", "AR-24.43", "UP-50", "UP-51")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_interleaving_gives_two_live_holders_or_hides_one_or_loses_a_message(block: int, interleavings: int) -> None:
    size = interleavings // BLOCKS
    run_all(range(block * size, (block + 1) * size))


def run_all(seeds: range) -> Counter[str]:
    answers: Counter[str] = Counter()
    for seed in seeds:
        try:
            answers += simulate(seed, interleave, seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return answers


def test_everything_that_can_happen_does_happen_in_a_few_interleavings() -> None:
    expected = {"Running", "NotRunning", "Unavailable", "ActorDown", "AlreadyStarted", "ChildFailed"}
    answers = run_all(range(30))
    assert expected | {"RegistryUnavailable"} <= set(answers)
    assert answers["starts"] > 300


def test_one_seed_gives_one_history() -> None:
    assert simulate(7, interleave, 7) == simulate(7, interleave, 7)
