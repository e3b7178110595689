"""Sagas: forward in order, back in reverse order, and never lost on the way."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import ActorSystem, SimulatedEnvironment, open_system
from sapwood.errors import (
    DuplicateName,
    InvalidOption,
    SagaConflict,
    SagaUnknown,
    StepRefused,
    StoreUnavailable,
)
from sapwood.messaging.patterns import (
    Begin,
    Look,
    Outcome,
    Retry,
    Saga,
    SagaOptions,
    SagaReport,
    SagaRunner,
    Sagas,
    Step,
    StepContext,
)
from sapwood.messaging.queues import open_memory_store, open_queue
from sapwood.persistence import MigrationSet, Store, StoreEngine, StoreStatistics
from sapwood.supervision import Backoff
from tests.messaging.patterns.kit import open_world

T = TypeVar("T")

QUICK = Backoff(initial=0.1, factor=2.0, maximum=1.0, jitter=0.0)
PROGRAMS = Path(__file__).parent / "programs"


class World:
    """What the steps change: the other side, which tells repeats by the key."""

    def __init__(self, *, failing: str = "", error: Exception | None = None, stubborn: str = "") -> None:
        self.effects: list[str] = []
        self.calls: list[tuple[str, int]] = []
        self.failing = failing
        self.error = error or ConnectionError("the line is down")
        self.stubborn = stubborn

    async def do(self, context: StepContext) -> str:
        self.calls.append((context.step, context.attempt))
        await trio.sleep(0.01)
        if context.step == self.failing:
            raise self.error
        if context.key not in self.effects:
            self.effects.append(context.key)
        return f"{context.step} for {context.input}"

    async def undo(self, context: StepContext) -> None:
        self.calls.append((f"undo {context.step}", context.attempt))
        await trio.sleep(0.01)
        if context.step == self.stubborn:
            raise ConnectionError("still down")
        key = context.key.removesuffix(":undo")
        if key in self.effects:
            self.effects.remove(key)

    def saga(self, *names: str, **options: Any) -> Saga:
        given: dict[str, Any] = {"retry": QUICK, "timeout": 5, **options}
        return Saga("trip", [Step(name, self.do, self.undo, **given) for name in names])


TRIP = ("flight", "hotel", "car")


async def run_to_end(system: ActorSystem, store: StoreEngine, saga: Saga, **options: Any) -> SagaReport:
    runner = await system.spawn(SagaRunner, store, [saga], SagaOptions(**options))
    await runner.ask(Begin(saga.name, "1", "ann"))
    report = await runner.ask(Outcome(saga.name, "1"), timeout=3600)
    await runner.stop()
    return report


@pytest.mark.row("S2-057")
async def test_a_saga_does_its_steps_in_order_and_each_sees_what_those_before_returned(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    seen: list[dict[str, Any]] = []

    async def look(context: StepContext) -> int:
        seen.append(dict(context.results))
        await trio.lowlevel.checkpoint()
        return len(seen)

    async with open_world(tmp_path) as (store, system):
        report = await run_to_end(system, store, Saga("trip", [Step(name, look) for name in TRIP]))
        assert report == SagaReport("trip", "1", "completed", TRIP, (), {"flight": 1, "hotel": 2, "car": 3}, None)
        assert seen == [{}, {"flight": 1}, {"flight": 1, "hotel": 2}]


@pytest.mark.row("S2-057")
async def test_a_step_that_refuses_turns_the_saga_back_at_once_and_what_was_done_is_undone_in_reverse_order(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    world = World(failing="car", error=StepRefused("no car left"))
    async with open_world(tmp_path) as (store, system):
        report = await run_to_end(system, store, world.saga(*TRIP))
        assert (report.phase, report.done, report.error) == ("compensated", (), "car refused: no car left")
        assert world.calls == [("flight", 1), ("hotel", 1), ("car", 1), ("undo hotel", 1), ("undo flight", 1)]
        assert world.effects == []


@pytest.mark.row("S2-057")
async def test_a_step_that_fails_is_tried_again_and_then_undone_too_for_nobody_knows_what_it_did(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    world = World(failing="hotel")
    async with open_world(tmp_path) as (store, system):
        begun = trio.current_time()
        report = await run_to_end(system, store, world.saga(*TRIP))
        assert report.phase == "compensated"
        assert report.error == "hotel failed: ConnectionError: the line is down"
        forward = [("flight", 1), ("hotel", 1), ("hotel", 2), ("hotel", 3)]
        assert world.calls == [*forward, ("undo hotel", 1), ("undo flight", 1)]
        assert world.effects == []
        assert trio.current_time() - begun == pytest.approx(0.1 + 0.2 + 6 * 0.01)


@pytest.mark.row("S2-057")
async def test_a_step_that_refuses_after_an_attempt_with_an_unknown_end_is_undone_all_the_same(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    paid: list[str] = []

    async def pay(context: StepContext) -> None:
        await trio.lowlevel.checkpoint()
        if context.attempt == 2:
            raise StepRefused("the account is closed")
        paid.append(context.id)
        raise ConnectionError("the answer was lost")

    async def give_back(context: StepContext) -> None:
        await trio.lowlevel.checkpoint()
        paid.remove(context.id)

    async with open_world(tmp_path) as (store, system):
        report = await run_to_end(system, store, Saga("trip", [Step("pay", pay, give_back, retry=QUICK)]))
        assert (report.phase, report.error) == ("compensated", "pay refused: the account is closed")
        assert paid == []


@pytest.mark.row("S2-057")
async def test_a_step_that_takes_too_long_is_ended_after_its_time_and_undone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    undone: list[str] = []

    async def undo(context: StepContext) -> None:
        await trio.lowlevel.checkpoint()
        undone.append(context.key)

    async def hang(context: StepContext) -> None:
        await trio.sleep_forever()

    step = Step("slow", hang, undo, timeout=7, attempts=2, retry=QUICK)
    async with open_world(tmp_path) as (store, system):
        report = await run_to_end(system, store, Saga("trip", [step]))
        assert (report.phase, report.error) == ("compensated", "slow took longer than 7 s")
        assert trio.current_time() == pytest.approx(2 * 7 + 0.1)
        assert undone == ["trip:1:slow:undo"]


@pytest.mark.row("S2-057")
async def test_a_compensation_that_fails_for_good_is_a_dead_letter_and_an_alert_with_the_state_and_can_be_retried(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    world = World(failing="car", error=StepRefused("none left"), stubborn="hotel")
    saga = world.saga(*TRIP, compensation_attempts=3)
    alerts: list[SagaReport] = []
    async with open_world(tmp_path) as (store, system), open_queue(store, system.environment, "office") as office:
        options = SagaOptions(on_stuck=alerts.append, dead_letters=office.dead_letters)
        runner = await system.spawn(SagaRunner, store, [saga], options)
        await runner.ask(Begin("trip", "1", "ann"))
        report = await runner.ask(Outcome("trip", "1"), timeout=60)
        error = "the compensation of hotel failed: ConnectionError: still down"
        assert (report.phase, report.done, report.error) == ("stuck", ("flight", "hotel"), error)
        assert world.calls[-3:] == [("undo hotel", 1), ("undo hotel", 2), ("undo hotel", 3)]
        assert alerts == [report]
        (letter,) = await office.dead_letters.list()
        assert letter.message is not None
        assert (letter.message.message.payload, letter.reason, letter.detail) == (report, "rejected", error)
        assert await runner.ask(Sagas("trip")) == {"1": "stuck"}
        await runner.stop()

        runner = await system.spawn(SagaRunner, store, [saga], options)
        await trio.sleep(100)
        assert len(alerts) == 1, "who was told is not told again"
        world.stubborn = ""
        await runner.ask(Retry("trip", "1"))
        report = await runner.ask(Outcome("trip", "1"), timeout=60)
        assert (report.phase, world.effects) == ("compensated", [])
        assert await runner.ask(Sagas("trip")) == {}
        assert await runner.ask(Sagas("trip", "compensated")) == {"1": "compensated"}
        await runner.stop()


async def test_an_alert_that_nobody_took_is_given_again_when_the_runner_starts(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    world = World(failing="car", stubborn="hotel")
    alerts: list[SagaReport] = []
    heard = [False]

    def listen(report: SagaReport) -> None:
        if not heard[0]:
            raise OSError("nobody at home")
        alerts.append(report)

    async with open_world(tmp_path) as (store, system):
        await run_to_end(system, store, world.saga(*TRIP), on_stuck=listen)
        heard[0] = True
        runner = await system.spawn(SagaRunner, store, [world.saga(*TRIP)], SagaOptions(on_stuck=listen))
        await trio.sleep(1)
        assert [report.phase for report in alerts] == ["stuck"]
        await runner.stop()


async def test_a_saga_whose_undone_step_is_no_more_in_its_definition_is_stuck_and_not_forgotten(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    world = World()
    async with open_world(tmp_path) as (store, system):
        runner = await system.spawn(SagaRunner, store, [world.saga("old", "car")])
        await runner.ask(Begin("trip", "1", "ann"))
        await trio.sleep(0.015)
        runner.kill()
        await runner.wait_stopped()
        world.failing = "car"
        report = await run_to_end(system, store, world.saga("car", attempts=1))
        assert (report.phase, report.done) == ("stuck", ("old",))
        assert report.error == "the definition has no step 'old' any more, so nobody knows how to undo it"


async def test_what_cannot_be_stored_as_a_result_fails_its_step(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def strange(context: StepContext) -> object:
        await trio.lowlevel.checkpoint()
        return object()

    async with open_world(tmp_path) as (store, system):
        report = await run_to_end(system, store, Saga("trip", [Step("strange", strange, retry=QUICK)]))
        assert report.phase == "compensated"
        assert report.error is not None
        assert report.error.startswith("strange returned what cannot be stored")


async def test_beginning_a_saga_again_changes_nothing_and_another_input_is_refused(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    world = World()
    async with open_world(tmp_path) as (store, system):
        runner = await system.spawn(SagaRunner, store, [world.saga(*TRIP)])
        for _ in range(3):
            await runner.ask(Begin("trip", "1", {"who": "ann"}))
        with pytest.raises(SagaConflict):
            await runner.ask(Begin("trip", "1", {"who": "bob"}))
        report = await runner.ask(Outcome("trip", "1"))
        await runner.ask(Begin("trip", "1", {"who": "ann"}))
        assert await runner.ask(Outcome("trip", "1")) == await runner.ask(Look("trip", "1")) == report
        assert len(world.calls) == 3
        for request in (Begin("tour", "1"), Look("tour", "1"), Sagas("tour"), Outcome("trip", "2"), Retry("trip", "2")):
            with pytest.raises(SagaUnknown):
                await runner.ask(request)
        await runner.stop()


async def test_a_runner_that_is_stopped_ends_what_it_is_doing_and_begins_nothing_new(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    world = World()
    async with open_world(tmp_path) as (store, system):
        runner = await system.spawn(SagaRunner, store, [world.saga(*TRIP)])
        await runner.ask(Begin("trip", "1", "ann"))
        await trio.sleep(0.015)
        await runner.stop()
        assert [name for name, _ in world.calls] == ["flight", "hotel"]
        report = await run_to_end(system, store, world.saga(*TRIP))
        assert report.phase == "completed"
        assert world.calls == [("flight", 1), ("hotel", 1), ("car", 1)], "no step ran twice"


async def test_a_runner_that_has_been_idle_before_lets_a_step_end_all_the_same_when_it_is_stopped(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    ended: list[str] = []

    async def slow(step: StepContext) -> None:
        await trio.sleep(1)
        ended.append(step.id)

    async with open_world(tmp_path) as (store, system):
        runner = await system.spawn(SagaRunner, store, [Saga("slow", [Step("only", slow)])])
        await runner.ask(Begin("slow", "1", None))
        await runner.ask(Outcome("slow", "1"))
        await trio.sleep(1)
        await runner.ask(Begin("slow", "2", None))
        await trio.sleep(0.5)
        await runner.stop()
        assert ended == ["1", "2"]


# --- crashes --------------------------------------------------------------------------------------


class DyingStore:
    """Stands still for ever at one of its writes, as a process that dies there does: before it, or after it."""

    def __init__(self, store: Store, at: int, *, after: bool) -> None:
        self.store = store
        self.left = at
        self.after = after
        self.dead = trio.Event()

    @property
    def name(self) -> str:
        return self.store.name

    async def write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        self.left -= 1
        here = self.left == 0
        if here and not self.after:
            await self.die()
        value = await self.store.write(operation)
        if here:
            await self.die()
        return value

    async def die(self) -> None:
        self.dead.set()
        await trio.sleep_forever()

    async def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        return await self.store.read(operation)

    async def migrate(self, migrations: MigrationSet) -> None:
        await self.store.migrate(migrations)

    def statistics(self) -> StoreStatistics:
        return self.store.statistics()


SCENARIOS: dict[str, tuple[Callable[[], World], str, list[str]]] = {
    "forward": (World, "completed", [f"trip:1:{name}" for name in TRIP]),
    "refused": (lambda: World(failing="car", error=StepRefused("no")), "compensated", []),
    "failed": (lambda: World(failing="car"), "compensated", []),
    "stuck": (lambda: World(failing="car", stubborn="hotel"), "stuck", ["trip:1:flight", "trip:1:hotel"]),
}


@attrs.frozen
class Life:
    died: bool
    report: SagaReport | None


async def live(system: ActorSystem, store: Any, world: World, alerts: list[SagaReport]) -> Life:
    """Run the saga until it has ended, or the store stands still."""
    died = False
    found: list[SagaReport] = []
    runner = await system.spawn(SagaRunner, store, [world.saga(*TRIP)], SagaOptions(on_stuck=alerts.append))
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            nonlocal died
            await store.dead.wait()
            died = True
            nursery.cancel_scope.cancel()

        if isinstance(store, DyingStore):
            nursery.start_soon(watch)
        await runner.ask(Begin("trip", "1", "ann"), timeout=None)
        found.append(await runner.ask(Outcome("trip", "1"), timeout=None))
        nursery.cancel_scope.cancel()
    runner.kill()
    await runner.wait_stopped()
    return Life(died, found[0] if found else None)


def writes() -> Iterator[tuple[int, bool]]:
    for number in count(1):
        yield number, False
        yield number, True


@pytest.mark.row("S2-057")
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_saga_that_dies_at_any_of_its_writes_ends_with_the_same_effects_as_one_that_does_not(
    autojump_clock: MockClock, scenario: str
) -> None:
    make, phase, effects = SCENARIOS[scenario]
    boundaries = 0
    for number, after in writes():
        environment = SimulatedEnvironment(number)
        async with open_memory_store(environment) as store, open_system(environment) as system:
            world, alerts = make(), list[SagaReport]()
            first = await live(system, DyingStore(store, number, after=after), world, alerts)
            if not first.died:
                break
            boundaries += 1
            second = await live(system, store, world, alerts)
            assert second.report is not None
            assert (second.report.phase, world.effects) == (phase, effects)
            assert bool(alerts) == (phase == "stuck"), "it is told at least once, whatever died"
            undone = [name for name, _ in world.calls if name.startswith("undo")]
            assert list(dict.fromkeys(undone)) == [
                f"undo {name}" for name in reversed(TRIP) if f"undo {name}" in undone
            ], "back it goes in reverse order"
            done = [name for name, _ in world.calls if not name.startswith("undo")]
            assert list(dict.fromkeys(done)) == list(TRIP), "forward it goes in order"
    assert boundaries >= 16, "each step has its intent and its outcome, and before and after each there is a point"


async def test_a_saga_that_the_store_does_not_let_go_on_is_taken_up_again_later_without_harm_to_others(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Failing(DyingStore):
        async def die(self) -> None:
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("test", "locked")

    world = World()
    async with open_world(tmp_path) as (store, system):
        failing: Any = Failing(store, 6, after=False)
        runner = await system.spawn(SagaRunner, failing, [world.saga(*TRIP)])
        for name in ("1", "2"):
            await runner.ask(Begin("trip", name, "ann"))
        reports = [await runner.ask(Outcome("trip", name), timeout=60) for name in ("1", "2")]
        assert [report.phase for report in reports] == ["completed", "completed"]
        assert sorted(world.effects) == sorted(f"trip:{name}:{step}" for name in ("1", "2") for step in TRIP)
        assert failing.left < 0
        await runner.stop()


@pytest.mark.row("S2-057")
@pytest.mark.parametrize("point", ["flight", "hotel:done", "undo flight"])
def test_a_process_killed_in_the_middle_of_a_saga_goes_on_with_it_when_it_runs_again(
    tmp_path: Path, point: str
) -> None:
    program = [sys.executable, str(PROGRAMS / "trip_until_killed.py"), str(tmp_path)]
    first = subprocess.run([*program, point], check=False, capture_output=True, text=True, timeout=60)
    assert first.returncode == -signal.SIGKILL, first.stderr
    second = subprocess.run([*program, ""], check=False, capture_output=True, text=True, timeout=60)
    assert second.returncode == 0, second.stderr
    turns = point.startswith("undo")
    assert json.loads(second.stdout) == ["compensated" if turns else "completed"]
    with closing(sqlite3.connect(tmp_path / "trips.db")) as connection:
        bookings = [name for (name,) in connection.execute("SELECT name FROM bookings ORDER BY rowid")]
    assert bookings == ([] if turns else ["flight", "hotel"])


# --- definitions ----------------------------------------------------------------------------------


async def nothing(context: StepContext) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"attempts": 0}, {"compensation_attempts": True}, {"name": ""}], ids=str
)
def test_a_step_with_a_value_out_of_its_range_is_refused_by_name(options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"name": "n", "action": nothing, **options}
    with pytest.raises(InvalidOption, match=next(iter(options))):
        Step(**given)


def test_a_saga_needs_steps_and_each_name_once() -> None:
    with pytest.raises(InvalidOption, match="at least one step"):
        Saga("s", [])
    with pytest.raises(DuplicateName):
        Saga("s", [Step("a", nothing), Step("a", nothing)])
    with pytest.raises(DuplicateName):
        SagaRunner(None, [Saga("s", [Step("a", nothing)])] * 2)  # type: ignore[arg-type]  # it is refused before
