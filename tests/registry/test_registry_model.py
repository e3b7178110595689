"""Random deaths and starts of partitions, watcher and holders: every answer of the registry against a model."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood import Runtime, open_runtime
from sapwood.actors import Actor, ActorSystem, Ref, SimulatedEnvironment, open_system
from sapwood.errors import AlreadyRegistered, AlreadyStarted, RegistryUnavailable
from sapwood.registry import (
    Key,
    LocalBackend,
    NotRunning,
    Partition,
    PartitionState,
    Registry,
    RegistryWatcher,
    Running,
    Unavailable,
    UnavailableReason,
)
from sapwood.registry._keys import partition_of
from sapwood.supervision import DynamicSupervisor, child, start_child
from sapwood.testing import Invariants, simulate

PARTITIONS = 3
KEYS: tuple[Key, ...] = tuple(("model", number) for number in range(6))
REASONS: dict[PartitionState, UnavailableReason] = {
    "starting": "starting",
    "down": "registry_down",
    "recovering": "recovering",
}


class Holder(Actor):
    """Holds a key as long as it lives."""


def settle() -> Any:
    return trio.testing.wait_all_tasks_blocked()


# ---------------------------------------------------------------- partitions and watcher by hand


@attrs.define
class Table:
    """What one partition knows: whether it can answer, and whether its past is over if it is down."""

    state: PartitionState = "starting"
    settled: bool = False
    watched: bool = False


@attrs.define
class Model:
    """The local backend without actors: the states of its partitions, and who lives."""

    tables: list[Table] = attrs.field(factory=lambda: [Table() for _ in range(PARTITIONS)])
    watcher: bool = False
    living: set[Key] = attrs.field(factory=set[Key])

    def table(self, key: Key) -> Table:
        return self.tables[partition_of(key, PARTITIONS)]

    def answer(self, key: Key) -> str:
        """A holder is found, and its absence is told, only by a partition that knows all that it must know."""
        state = self.table(key).state
        if state != "up":
            return REASONS[state]
        return "running" if key in self.living else "not running"

    def start_partition(self, index: int) -> None:
        table = self.tables[index]
        table.state = "up" if table.state == "starting" or table.settled else "recovering"
        table.settled = False
        table.watched = self.watcher

    def kill_partition(self, index: int) -> None:
        table = self.tables[index]
        table.state = "down"
        if table.watched:
            self.kill_watcher()
        table.watched = False

    def start_watcher(self) -> None:
        """It proves that all is over which it had to outlive; what lives nevertheless keeps its key."""
        self.watcher = True
        for table in self.tables:
            table.watched = table.state in ("up", "recovering")
            if table.state == "recovering":
                table.state = "up"
            elif table.state == "down":
                table.settled = True

    def kill_watcher(self) -> None:
        self.watcher = False
        for table in self.tables:
            table.watched = False

    def start_holder(self, key: Key) -> str:
        answer = self.answer(key)
        if answer == "not running":
            self.living.add(key)
            return "started"
        return "taken" if answer == "running" else answer


steps = st.one_of(
    st.tuples(st.just("partition"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("partition"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("watcher"), st.none()),
    st.tuples(st.just("start"), st.sampled_from(KEYS)),
    st.tuples(st.just("start"), st.sampled_from(KEYS)),
    st.tuples(st.just("kill"), st.sampled_from(KEYS)),
)


class Comparison:
    """One program, carried out by both: what is dead is started, what lives is killed."""

    def __init__(self, system: ActorSystem) -> None:
        self.model = Model()
        self.system = system
        self.backend = LocalBackend(PARTITIONS)
        self.registry = Registry(system, self.backend)
        system.registrar = self.registry
        self.partitions: list[Ref | None] = [None] * PARTITIONS
        self.watcher: Ref | None = None
        self.holders: dict[Key, Ref] = {}

    async def run(self, program: list[tuple[str, Any]]) -> None:
        self.compare()
        for what, which in program:
            match what:
                case "partition":
                    await self.toggle_partition(which)
                case "watcher":
                    await self.toggle_watcher()
                case "start":
                    await self.start_holder(which)
                case _:
                    self.kill_holder(which)
            await settle()
            self.compare()

    async def toggle_partition(self, index: int) -> None:
        present = self.partitions[index]
        if present is not None and present.alive:
            present.kill()
            self.model.kill_partition(index)
        else:
            self.partitions[index] = await self.system.spawn(Partition, self.backend, index)
            self.model.start_partition(index)

    async def toggle_watcher(self) -> None:
        if self.watcher is not None and self.watcher.alive:
            self.watcher.kill()
            self.model.kill_watcher()
        else:
            self.watcher = await self.system.spawn(RegistryWatcher, self.backend)
            self.model.start_watcher()

    async def start_holder(self, key: Key) -> None:
        outcome = "started"
        try:
            self.holders[key] = await self.system.spawn(Holder, key=key)
        except AlreadyRegistered as taken:
            outcome = "taken" if taken.holder is self.holders[key] else "taken by another"
        except RegistryUnavailable as unavailable:
            outcome = unavailable.reason
        assert outcome == self.model.start_holder(key)

    def kill_holder(self, key: Key) -> None:
        if key in self.model.living:
            self.holders.pop(key).kill()
            self.model.living.remove(key)

    def compare(self) -> None:
        model = self.model
        expected = {key: model.answer(key) for key in KEYS}
        assert {key: self.answer(key) for key in KEYS} == expected
        assert (self.watcher is not None and self.watcher.alive) == model.watcher
        states = tuple(table.state for table in model.tables)
        found = [key for key in KEYS if expected[key] == "running"]
        statistics = self.registry.statistics()
        assert (statistics.partitions, statistics.keys) == (states, len(found))
        assert self.registry.available == (set(states) == {"up"})
        if self.registry.available:
            assert self.registry.running() == {key: self.holders[key] for key in found}
        else:
            with pytest.raises(RegistryUnavailable):
                self.registry.running()

    def answer(self, key: Key) -> str:
        match self.registry.lookup_nowait(key):
            case Running(ref):
                assert ref is self.holders[key]
                assert ref.alive
                return "running"
            case NotRunning():
                return "not running"
            case Unavailable(reason):
                return reason


@pytest.mark.row("S4-044", "S4-052", "S4-053")
@settings(max_examples=300)
@given(program=st.lists(steps, max_size=30), seed=st.integers(0, 2**32))
def test_the_local_backend_answers_in_every_history_what_the_model_says(
    program: list[tuple[str, Any]], seed: int
) -> None:
    async def main() -> None:
        async with open_system() as system:
            await Comparison(system).run(program)

    simulate(seed, main)


# ---------------------------------------------------------------- the registry in its tree

INSIDE, OUTSIDE = KEYS[:3], KEYS[3:]

deaths = st.one_of(
    st.tuples(st.just("start"), st.sampled_from(KEYS), st.sampled_from(["temporary", "permanent"])),
    st.tuples(st.just("start"), st.sampled_from(KEYS), st.sampled_from(["temporary", "permanent"])),
    st.tuples(st.just("kill"), st.sampled_from(KEYS), st.none()),
    st.tuples(st.just("partition"), st.integers(0, 3), st.none()),
    st.tuples(st.just("actor"), st.sampled_from(["registry-watcher", "registry", "core", "agents"]), st.none()),
)


class Tree:
    """A runtime, and which keys must be held in it: those below `agents` fall with the registry, others do not."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.held: dict[Key, str] = {}

    async def run(self, program: list[tuple[str, Any, Any]]) -> None:
        for what, which, restart in program:
            if what == "start":
                await self.start(which, restart)
            elif what == "kill":
                self.kill(which)
            else:
                self.find(which if what == "actor" else f"partition-{which}").kill()
                # The user's children come after the core, and fall with it.
                safe = () if which == "core" else OUTSIDE
                self.held = {key: kind for key, kind in self.held.items() if key in safe}
            await settle()
            self.compare()

    async def start(self, key: Key, restart: Any) -> None:
        under = self.find("outside" if key in OUTSIDE else "agents")
        spec = child(Holder, key=key, restart=restart)
        if key in self.held:
            with pytest.raises(AlreadyStarted):
                await start_child(under, spec)
        else:
            await start_child(under, spec)
            self.held[key] = restart

    def kill(self, key: Key) -> None:
        found = self.runtime.registry.lookup_nowait(key)
        if isinstance(found, Running):
            found.ref.kill()
            if self.held[key] == "temporary":
                del self.held[key]

    def find(self, label: str) -> Ref:
        [found] = [node.ref for node in self.runtime.tree().walk() if node.label == label]
        return found

    def compare(self) -> None:
        assert self.runtime.ready()
        living = {cell.ref.key: cell.ref for cell in self.runtime.system.actors if cell.ref.key in KEYS}
        assert set(living) == set(self.held)
        assert self.runtime.registry.running() == living
        answers = {key: self.runtime.registry.lookup_nowait(key) for key in KEYS}
        assert answers == {key: Running(living[key]) if key in living else NotRunning() for key in KEYS}


@pytest.mark.row("S4-052", "S4-053", "S4-054")
@settings(max_examples=60)
@given(program=st.lists(deaths, max_size=12), seed=st.integers(0, 2**32))
def test_when_all_has_come_back_every_key_is_held_that_should_be_and_no_other(
    program: list[tuple[str, Any, Any]], seed: int
) -> None:
    async def main() -> None:
        home = child(DynamicSupervisor, id="outside")
        environment = SimulatedEnvironment(seed)
        async with open_runtime(environment=environment, children=[home], restarts=1_000, signals=False) as runtime:
            invariants = Invariants(runtime)
            with invariants.watching():
                await Tree(runtime).run(program)
            invariants.assert_hold()

    simulate(seed, main)
