"""The tools of chaos tests: simulation, chaos, invariants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from sapwood import Actor, Killed, Runtime, child, open_runtime
from sapwood.actors import Exited, SimulatedEnvironment, TelemetryEvent
from sapwood.errors import InvalidOption
from sapwood.registry import LocalBackend, NotRunning
from sapwood.testing import Chaos, Invariants, Target, simulate

ROOT = Path(__file__).parents[2]


class Holder(Actor):
    pass


HISTORY = """
import re
import trio
from sapwood import Actor, child, open_runtime
from sapwood.actors import SimulatedEnvironment
from sapwood.testing import Chaos, simulate

class Holder(Actor):
    async def on_stop(self, reason):
        await trio.sleep(0.01)

async def live(seed):
    history = []
    environment = SimulatedEnvironment(seed)
    async with open_runtime(environment=environment, restarts=1000, signals=False) as runtime:
        runtime.telemetry.subscribe(lambda event: history.append(f"{trio.current_time():.6f} {event}"))
        async with trio.open_nursery() as nursery:
            chaos = Chaos(runtime, nursery)
            chaos.randomly(kill=("registry", "agents", "supervisors", "store"), every=(0.01, 0.2))
            for number in range(30):
                try:
                    await runtime.get_or_start(("holder", number % 7), child(Holder))
                except Exception as error:
                    history.append(repr(error))
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
        history.append(environment.new_id())
    return history

print(re.sub("0x[0-9a-f]+", "", "\\n".join(simulate(SEED, live, SEED))))
"""


def history(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", HISTORY.replace("SEED", str(seed))]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout


class TestSimulation:
    def test_one_seed_gives_one_history_in_every_process(self) -> None:
        first = history(1, "1")
        assert first.count("Exited") > 20
        assert history(1, "2") == first
        assert history(2, "1") != first

    def test_time_passes_without_waiting(self) -> None:
        async def sleep() -> float:
            await trio.sleep(10_000)
            return trio.current_time()

        assert simulate(1, sleep) == pytest.approx(10_000)

    def test_another_seed_is_another_interleaving(self) -> None:
        async def race() -> tuple[str, ...]:
            order: list[str] = []

            async def run(name: str) -> None:
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
                    order.append(name)

            async with trio.open_nursery() as nursery:
                for name in "abcd":
                    nursery.start_soon(run, name)
            return tuple(order)

        orders = {simulate(seed, race) for seed in range(50)}
        assert len(orders) > 40
        assert {simulate(seed, race) for seed in range(50)} == orders

    def test_what_the_function_raises_comes_out_and_the_scheduler_is_as_before(self) -> None:
        from trio._core import _run

        before = _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r

        async def fail() -> None:
            await trio.lowlevel.checkpoint()
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            simulate(1, fail)
        assert (_run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r) == before


TARGETS: list[tuple[Target, set[str]]] = [
    ("registry", {f"partition-{index}" for index in range(4)}),
    ("watcher", {"registry-watcher"}),
    ("agents", {"Holder(('holder', 1))"}),
    ("store", {"store"}),
    ("supervisors", {"registry", "agents", "filesystems"}),
]


class TestChaos:
    @pytest.mark.sapwood(seeds=5)
    @pytest.mark.parametrize(("target", "labels"), TARGETS)
    async def test_a_target_is_killed_and_noted(
        self, runtime: Runtime, chaos: Chaos, target: Target, labels: set[str]
    ) -> None:
        exits: list[Exited] = []

        def hear(event: TelemetryEvent) -> None:
            if isinstance(event, Exited):
                exits.append(event)

        await runtime.get_or_start(("holder", 1), child(Holder))
        runtime.telemetry.subscribe(hear)
        ref = chaos.kill(target)
        assert ref is not None
        assert ref.label in labels
        assert [(kill.target, kill.actor) for kill in chaos.kills] == [(target, ref.label)]
        await trio.sleep(1)
        assert exits[0].actor == ref.label or target == "supervisors"
        assert ref.exit_reason == Killed()

    @pytest.mark.sapwood
    async def test_where_there_is_nothing_to_kill_nothing_is(self, runtime: Runtime, chaos: Chaos) -> None:
        assert chaos.kill("agents") is None
        assert chaos.kills == []

    @pytest.mark.sapwood(restarts=1000)
    async def test_it_goes_on_until_it_is_stopped(self, runtime: Runtime, chaos: Chaos) -> None:
        chaos.randomly(kill=["registry"], every=(1.0, 1.0))
        await trio.sleep(10.5)
        assert [round(kill.at) for kill in chaos.kills] == list(range(1, 11))
        chaos.stop()
        await trio.sleep(10)
        assert len(chaos.kills) == 10

    @pytest.mark.sapwood
    @pytest.mark.parametrize(
        ("kill", "every"),
        [
            (["registri"], (1, 2)),
            (["registry", "x"], (1, 2)),
            ([], (1, 2)),
            (["registry"], (2, 1)),
            (["store"], (0, 1)),
        ],
    )
    async def test_what_makes_no_sense_is_refused(
        self, runtime: Runtime, chaos: Chaos, kill: Any, every: tuple[float, float]
    ) -> None:
        with pytest.raises(InvalidOption):
            chaos.randomly(kill=kill, every=every)
        await trio.sleep(10)
        assert chaos.kills == []
        with pytest.raises(InvalidOption, match="expected a target out of registry, watcher"):
            chaos.kill("registri")  # type: ignore[arg-type]  # the mistake


class TestInvariants:
    def break_lookups(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def forgetful(self: LocalBackend, key: object) -> NotRunning:
            return NotRunning()

        monkeypatch.setattr(LocalBackend, "lookup_nowait", forgetful)

    def test_one_that_breaks_is_seen_at_the_step_where_it_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def live() -> None:
            environment = SimulatedEnvironment()
            async with open_runtime(environment=environment, signals=False) as runtime:
                with Invariants(runtime).watching() as invariants:
                    await runtime.spawn(Holder, key=("holder", 1))
                    await trio.sleep(3)
                    invariants.assert_hold()
                    self.break_lookups(monkeypatch)
                    await trio.sleep(1)
                    with pytest.raises(AssertionError, match=r"at 3\.000 s: \('holder', 1\) lives"):
                        invariants.assert_hold("unavailable_is_never_not_running")
                    invariants.assert_hold("no_two_live_per_key", "no_lookup_returns_the_dead")

        simulate(1, live)

    def test_a_lookup_that_returns_the_dead_is_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(LocalBackend, "release", lambda self, key, ref: None)

        async def live() -> None:
            environment = SimulatedEnvironment()
            async with open_runtime(environment=environment, signals=False) as runtime:
                with Invariants(runtime).watching() as invariants:
                    ref = await runtime.spawn(Holder, key=("holder", 1))
                    ref.kill()
                    await trio.sleep(1)
                    with pytest.raises(AssertionError, match=r"a lookup of .* returned .*down"):
                        invariants.assert_hold("no_lookup_returns_the_dead")

        simulate(1, live)

    def test_two_live_holders_are_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(LocalBackend, "claim", lambda self, key, ref: None)

        async def live() -> None:
            environment = SimulatedEnvironment()
            async with open_runtime(environment=environment, signals=False) as runtime:
                with Invariants(runtime).watching() as invariants:
                    for _ in range(2):
                        await runtime.spawn(Holder, key=("holder", 1))
                    await trio.lowlevel.checkpoint()
                    with pytest.raises(AssertionError, match="has 2 live holders"):
                        invariants.assert_hold("no_two_live_per_key")

        simulate(1, live)

    @pytest.mark.sapwood
    async def test_further_ones_can_be_added_and_unknown_ones_are_refused(self, invariants: Invariants) -> None:
        problems: list[str] = []
        invariants.add("paid_once", lambda: problems)
        invariants.assert_hold("paid_once")
        invariants.assert_hold()
        problems.append("paid twice")
        with pytest.raises(AssertionError, match=r"paid_once at .* paid twice"):
            invariants.assert_hold()
        invariants.assert_hold("no_two_live_per_key")
        with pytest.raises(InvalidOption, match=r"expected one of no_two_live_per_key, .*, paid_once"):
            invariants.assert_hold("paid_onc")
        with pytest.raises(InvalidOption, match="there already"):
            invariants.add("no_two_live_per_key", list)
        problems.clear()
