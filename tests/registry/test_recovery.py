"""What follows the death of a partition: who is taken down, who keeps a key, and when answers come again."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel

from sapwood import Runtime, open_runtime
from sapwood.actors import (
    Actor,
    Exited,
    ExitReason,
    Ref,
    Restarted,
    Shutdown,
    SimulatedEnvironment,
    SupervisorReport,
    TelemetryEvent,
    handle,
    message,
    open_system,
)
from sapwood.errors import RegistryUnavailable
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
)
from sapwood.supervision import DynamicSupervisor, child, restart_child, start_child, terminate_child
from sapwood.testing import Invariants

KEY: Key = ("holder", 1)

pytestmark = pytest.mark.sapwood(seeds=5)


@message("recovery.crash")
class Crash:
    pass


class Holder(Actor):
    """Holds a key; takes `seconds` to stop, shielded or not."""

    def __init__(self, seconds: float = 0.0, shielded: bool = False) -> None:  # noqa: FBT001, FBT002  # child arguments
        self.seconds = seconds
        self.shielded = shielded

    async def on_stop(self, reason: ExitReason) -> None:
        with trio.CancelScope(shield=self.shielded):
            await trio.sleep(self.seconds)

    @handle
    def crash(self, message: Crash) -> None:
        raise ValueError("crashes")


def find(runtime: Runtime, label: str) -> Ref:
    return next(node.ref for node in runtime.tree().walk() if node.label == label)


def partitions(runtime: Runtime) -> list[Ref]:
    return [node.ref for node in runtime.tree().walk() if node.label.startswith("partition-")]


def exits_of(runtime: Runtime, label: str) -> list[ExitReason]:
    """Return a list to which the exit reasons of actors with this label are added."""
    seen: list[ExitReason] = []

    def hear(event: TelemetryEvent) -> None:
        if isinstance(event, Exited) and event.actor == label:
            seen.append(event.reason)

    runtime.telemetry.subscribe(hear)
    return seen


async def hold(runtime: Runtime, key: Key = KEY, *args: object) -> Ref:
    return await runtime.spawn(Holder, *args, key=key)


async def until_ready(runtime: Runtime) -> None:
    """Let what was killed die, and wait until everything is back."""
    await trio.sleep(0.001)
    for _ in range(2_000):
        if runtime.ready():
            return
        await trio.sleep(0.01)
    pytest.fail(f"not ready after 20 s: {runtime.registry.statistics()}\n{runtime.tree().render()}")


async def states(runtime: Runtime) -> list[PartitionState]:
    """Return the states that the first partition goes through until everything is ready again."""
    seen: list[PartitionState] = []
    for _ in range(200):
        state = runtime.registry.statistics().partitions[0]
        if seen[-1:] != [state]:
            seen.append(state)
        await trio.lowlevel.checkpoint()
    assert runtime.ready()
    return seen


class TestOnePartitionDies:
    @pytest.mark.row("S4-052", "S4-053", "AR-24.42")
    async def test_all_that_the_tree_registered_ends_and_comes_back_on_the_next_request(self, runtime: Runtime) -> None:
        refs = [await hold(runtime, ("holder", number)) for number in range(20)]
        watcher = exits_of(runtime, "registry-watcher")
        partitions(runtime)[0].kill()
        await until_ready(runtime)

        assert not any(ref.alive for ref in refs)
        assert runtime.registry.running() == {}
        assert watcher == [Shutdown("registry_down")]
        assert isinstance(await runtime.get_or_start(KEY, child(Holder)), Running)
        assert sum(node.kind == "Holder" for node in runtime.tree().walk()) == 1

    async def test_its_place_goes_through_down_and_recovering(self, runtime: Runtime) -> None:
        partitions(runtime)[0].kill()
        seen = await states(runtime)
        assert seen in (["up", "down", "recovering", "up"], ["up", "recovering", "up"])

    async def test_while_one_recovers_the_others_answer(self, runtime: Runtime) -> None:
        await hold(runtime, KEY, 2.0)
        partitions(runtime)[0].kill()
        await trio.sleep(1)
        assert sorted(runtime.registry.statistics().partitions) == ["recovering", "up", "up", "up"]
        answers = {type(runtime.registry.lookup_nowait(("other", number))) for number in range(50)}
        assert answers == {NotRunning, Unavailable}
        with pytest.raises(RegistryUnavailable):
            runtime.registry.running()

    async def test_recovery_waits_until_the_last_holder_has_really_ended(self, runtime: Runtime) -> None:
        await hold(runtime, KEY, 60.0, True)  # noqa: FBT003  # shielded: it does not die of its kill
        for partition in partitions(runtime):
            partition.kill()
        for _ in range(30):
            await trio.sleep(1.9)
            assert runtime.registry.lookup_nowait(KEY) == Unavailable("recovering")
            assert await runtime.get_or_start(KEY, child(Holder)) == Unavailable("recovering")
            assert not runtime.ready()
        await trio.sleep(10)
        assert runtime.registry.lookup_nowait(KEY) == NotRunning()
        assert runtime.ready()


class TestTheWatcher:
    async def test_its_own_death_takes_the_holders_down_but_loses_no_answer(self, runtime: Runtime) -> None:
        ref = await hold(runtime)
        find(runtime, "registry-watcher").kill()
        for _ in range(100):
            found = runtime.registry.lookup_nowait(KEY)
            assert found == (Running(ref) if ref.alive else NotRunning())
            await trio.lowlevel.checkpoint()
        await until_ready(runtime)
        assert not ref.alive

    async def test_it_may_die_in_the_same_moment_as_a_partition(self, runtime: Runtime) -> None:
        await hold(runtime)
        partitions(runtime)[0].kill()
        find(runtime, "registry-watcher").kill()
        for partition in partitions(runtime)[1:]:
            partition.kill()
        await until_ready(runtime)
        assert runtime.registry.lookup_nowait(KEY) == NotRunning()

    @pytest.mark.row("S4-055")
    async def test_an_orderly_stop_does_not_look_to_it_like_a_death(self) -> None:
        async with open_runtime(environment=SimulatedEnvironment(), signals=False) as runtime:
            watcher = exits_of(runtime, "registry-watcher")
            others = exits_of(runtime, "partition-0")
            reports: list[TelemetryEvent] = []
            runtime.telemetry.subscribe(
                lambda event: reports.append(event) if isinstance(event, SupervisorReport | Restarted) else None
            )
        assert watcher == [Shutdown()]
        assert others == [Shutdown()]
        assert reports == []

    async def test_a_restart_of_it_by_hand_takes_no_key_from_the_living(self, runtime: Runtime) -> None:
        """Its supervisor ends nothing then, so its start proves nothing; the backend still knows who lives."""
        ref = await hold(runtime)
        core = find(runtime, "core")
        await terminate_child(core, "registry-watcher")
        for partition in partitions(runtime):
            partition.kill()
        await trio.sleep(1)
        assert runtime.registry.lookup_nowait(KEY) == Unavailable("recovering")
        await restart_child(core, "registry-watcher")
        assert ref.alive
        assert runtime.registry.lookup_nowait(KEY) == Running(ref)


@pytest.mark.row("S4-054", "AR-24.43")
class TestFurtherDeathsOnTheWay:
    @pytest.mark.sapwood(seeds=1, restarts=1000)
    @pytest.mark.parametrize("again", ["partition-0", "partition-1", "registry-watcher", "registry", "agents", "core"])
    async def test_a_second_one_at_any_step_of_the_recovery_is_recovered_from(
        self, runtime: Runtime, invariants: Invariants, again: str
    ) -> None:
        outside = await self.outside(runtime)
        for step in range(40):
            inside = await hold(runtime, KEY, 0.01)
            find(runtime, "partition-0").kill()
            for _ in range(step):
                await trio.lowlevel.checkpoint()
            for node in runtime.tree().walk():
                if node.label == again:
                    node.ref.kill()
            await until_ready(runtime)
            assert not inside.alive
            assert runtime.registry.lookup_nowait(KEY) == NotRunning()
            assert runtime.registry.running("outside") == outside
        invariants.assert_hold()

    async def outside(self, runtime: Runtime) -> dict[Key, Ref]:
        """Start holders that no part of the runtime's tree can reach."""
        keys: list[Key] = [("outside", number) for number in range(8)]
        return {key: await runtime.system.spawn(Holder, key=key) for key in keys}

    @pytest.mark.sapwood(seeds=5, restarts=3)
    async def test_partitions_that_die_too_often_take_their_supervisor_along_and_then_the_core(
        self, runtime: Runtime
    ) -> None:
        registry = exits_of(runtime, "registry")
        ref = await hold(runtime)
        for _ in range(4):
            for partition in find_all(runtime, "partition-0"):
                partition.kill()
            await trio.sleep(0.01)
        await until_ready(runtime)
        assert registry == [Shutdown("reached max restart intensity")]
        assert not ref.alive
        assert runtime.registry.lookup_nowait(KEY) == NotRunning()
        await hold(runtime)


def find_all(runtime: Runtime, label: str) -> list[Ref]:
    return [node.ref for node in runtime.tree().walk() if node.label == label and node.ref.alive]


class TestHoldersOutsideOfTheCore:
    async def test_they_live_on_and_keep_their_keys(self) -> None:
        children = [child(Holder, key=("outside", number)) for number in range(8)]
        async with open_runtime(environment=SimulatedEnvironment(), children=children, signals=False) as runtime:
            before = runtime.registry.running()
            assert len(before) == 8
            inside = await hold(runtime)
            for partition in partitions(runtime):
                partition.kill()
            await until_ready(runtime)
            assert not inside.alive
            assert runtime.registry.running() == before
            assert all(ref.alive for ref in before.values())

    async def test_one_that_ends_while_its_partition_is_away_frees_its_key(self, runtime: Runtime) -> None:
        outside = await runtime.system.spawn(Holder, key=("outside", 1))
        await hold(runtime, KEY, 2.0)
        for partition in partitions(runtime):
            partition.kill()
        await trio.sleep(1)
        outside.kill()
        await outside.wait_stopped()
        assert runtime.registry.lookup_nowait(("outside", 1)) == Unavailable("recovering")
        await until_ready(runtime)
        assert runtime.registry.lookup_nowait(("outside", 1)) == NotRunning()

    async def test_one_that_crashes_meanwhile_is_restarted_when_its_key_can_be_given_again(self) -> None:
        """However long that takes, it uses up nothing of its supervisor's budget."""
        keyed = child(Holder, key=("outside", 1))
        options = {"environment": SimulatedEnvironment(), "children": [keyed], "restarts": 4, "signals": False}
        async with open_runtime(**options) as runtime:  # type: ignore[arg-type]  # pairs of different types
            await hold(runtime, KEY, 4.0)
            old = runtime.registry.whereis(("outside", 1))
            assert old is not None
            for partition in partitions(runtime):
                partition.kill()
            await trio.sleep(1)
            old.tell(Crash())
            for _ in range(25):
                await trio.sleep(0.1)
                assert runtime.registry.lookup_nowait(("outside", 1)) == Unavailable("recovering")
            await until_ready(runtime)
            await trio.sleep(0.2)
            new = runtime.registry.whereis(("outside", 1))
            assert new is not None
            assert new is not old


class TestClaims:
    async def test_nothing_registers_while_the_partition_recovers(self, runtime: Runtime) -> None:
        await hold(runtime, KEY, 2.0)
        for partition in partitions(runtime):
            partition.kill()
        await trio.sleep(1)
        outside = await runtime.system.spawn(DynamicSupervisor)
        with pytest.raises(RegistryUnavailable, match="recovering"):
            await start_child(outside, child(Holder, key=("new", 1)))
        with pytest.raises(RegistryUnavailable, match="recovering"):
            await runtime.spawn(Holder, key=("new", 1))
        await until_ready(runtime)
        assert await start_child(outside, child(Holder, key=("new", 1)))

    async def test_a_partition_that_comes_late_answers_at_once_for_what_ended_before(self) -> None:
        async with open_system() as system:
            backend = LocalBackend(1)
            system.registrar = registry = Registry(system, backend)
            first = await system.spawn(Partition, backend, 0)
            await system.spawn(RegistryWatcher, backend)
            inside = await system.spawn(Holder, key=("inside", 1))
            outside = await system.spawn(Holder, key=("outside", 1))

            first.kill()
            await first.wait_stopped()
            assert registry.lookup_nowait(("inside", 1)) == Unavailable("registry_down")
            inside.kill()
            await inside.wait_stopped()
            await system.spawn(RegistryWatcher, backend)
            assert backend.statistics().partitions == ("down",)
            assert registry.lookup_nowait(("inside", 1)) == Unavailable("registry_down")

            second = await system.spawn(Partition, backend, 0)
            assert registry.lookup_nowait(("inside", 1)) == NotRunning()
            assert registry.lookup_nowait(("outside", 1)) == Running(outside)

            second.kill()
            await second.wait_stopped()
            await system.spawn(Partition, backend, 0)
            assert registry.lookup_nowait(("outside", 1)) == Unavailable("recovering")

    async def test_a_late_partition_that_dies_before_the_watcher_hears_of_it_counts_as_a_death(self) -> None:
        async with open_system() as system:
            backend = LocalBackend(1)
            system.registrar = Registry(system, backend)
            first = await system.spawn(Partition, backend, 0)
            first.kill()
            await first.wait_stopped()
            watcher = await system.spawn(RegistryWatcher, backend)
            second = await system.spawn(Partition, backend, 0)
            second.kill()
            assert await watcher.wait_stopped() == Shutdown("registry_down")


@pytest.mark.row("AR-24.44", "S4-056")
async def test_a_runtime_that_stops_affects_itself_alone(runtime: Runtime) -> None:
    async with open_runtime(environment=SimulatedEnvironment(), signals=False) as other:
        ref = await hold(runtime)
        other.begin_stop()
        assert other.registry.lookup_nowait(KEY) == Unavailable("draining")
        assert runtime.registry.lookup_nowait(KEY) == Running(ref)
    assert runtime.registry.lookup_nowait(KEY) == Running(ref)
    assert runtime.ready()


@pytest.mark.row("M02", "M03")
async def test_a_key_keeps_its_partition_whatever_happens_and_in_every_process(runtime: Runtime) -> None:
    async def silenced(index: int) -> set[int]:
        """Return which keys a partition answers for."""
        await hold(runtime, KEY, 1.0)
        partitions(runtime)[index].kill()
        await trio.sleep(0.5)
        numbers = {n for n in range(40) if isinstance(runtime.registry.lookup_nowait(("key", n)), Unavailable)}
        await until_ready(runtime)
        return numbers

    first = [await silenced(index) for index in range(4)]
    assert sorted(number for numbers in first for number in numbers) == list(range(40))
    assert [await silenced(index) for index in range(4)] == first
