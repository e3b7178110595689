"""Actors whose state is the fold of their log."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood import Actor, Request, handle
from sapwood.actors import Crashed, Down, RealEnvironment, SimulatedEnvironment, TaskDone, message, open_system, record
from sapwood.errors import ActorDown, InvalidOption, NotRunningInside, RecordCorrupt, SequenceConflict, StoreUnavailable
from sapwood.messaging.patterns import EventSourced, FoldedLog, Snapshots
from sapwood.messaging.queues import MessageLog, open_memory_store
from sapwood.persistence import Store, open_store
from tests.messaging.patterns.kit import Account, Bank, Cents, Deposit, Deposited, Withdraw, Withdrawn, open_world

PROGRAM = Path(__file__).parent / "programs" / "deposit_until_killed.py"


async def snapshots(store: Store) -> list[tuple[Any, ...]]:
    return await store.read(
        lambda connection: connection.execute("SELECT log, seq, version FROM pattern_snapshots").fetchall()
    )


@pytest.mark.row("S2-055")
async def test_an_event_sourced_actor_started_again_has_the_state_that_its_events_fold_to(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as (store, system):
        bank = await system.spawn(Bank, store, "account-1")
        assert [await bank.ask(Deposit(100)), await bank.ask(Withdraw(30)), await bank.ask(Deposit(5))] == [1, 2, 3]
        bank.kill()
        await bank.wait_stopped()

        bank = await system.spawn(Bank, store, "account-1")
        assert await bank.ask(Cents()) == 75
        other = await system.spawn(Bank, store, "account-2")
        assert await other.ask(Cents()) == 0
        log = MessageLog(store, system.environment, "account-1")
        events = [stored.message.payload for stored in await log.read()]
        assert events == [Deposited(100), Withdrawn(30), Deposited(5)]


async def test_a_refused_command_and_an_event_that_cannot_be_folded_store_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Rash(Bank):
        @handle
        async def withdraw(self, command: Withdraw) -> int:
            return await self.emit(Deposited(1), Withdrawn(command.cents))

    async with open_world(tmp_path) as (store, system):
        bank = await system.spawn(Bank, store, "a")
        with pytest.raises(ValueError, match="not that much there"):
            await bank.ask(Withdraw(1))
        await bank.stop()
        rash = await system.spawn(Rash, store, "a")
        with pytest.raises(ActorDown, match="cannot follow"):
            await rash.ask(Withdraw(100))
        assert await MessageLog(store, system.environment, "a").last_seq() == 0
        assert await (await system.spawn(Bank, store, "a")).ask(Cents()) == 0


async def test_an_actor_whose_log_somebody_else_has_written_to_stores_nothing_and_starts_anew(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as (store, system):
        outdated = await system.spawn(Bank, store, "a")
        await outdated.ask(Deposit(10))
        current = await system.spawn(Bank, store, "a")
        await current.ask(Withdraw(8))
        with pytest.raises(ActorDown) as raised:
            await outdated.ask(Withdraw(5))
        assert isinstance(raised.value.reason, Crashed)
        assert isinstance(raised.value.reason.exception, SequenceConflict)
        assert await current.ask(Cents()) == 2
        assert await (await system.spawn(Bank, store, "a")).ask(Cents()) == 2


@pytest.mark.row("S2-055")
async def test_a_snapshot_spares_the_events_before_it_and_is_left_out_if_it_is_damaged_or_of_another_version(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Often(Bank):
        snapshot_every = 3

    class Doubling(Often):
        snapshot_version = 2

        def evolve(self, state: Account, event: Any) -> Account:
            after = super().evolve(state, event)
            return Account(after.cents, after.changes + 1)

    async with open_world(tmp_path) as (store, system):
        bank = await system.spawn(Often, store, "a")
        for _ in range(7):
            await bank.ask(Deposit(1))
        assert await snapshots(store) == [("a", 6, 1)]
        await bank.stop()

        doubling = await system.spawn(Doubling, store, "a")
        assert (await doubling.get_state())["_folded"].state == Account(7, 14)
        await doubling.stop()

        await store.write(lambda connection: connection.execute("UPDATE pattern_snapshots SET state = x'00'").close())
        bank = await system.spawn(Often, store, "a")
        assert await bank.ask(Cents()) == 7
        for _ in range(3):
            await bank.ask(Deposit(1))
        ((_, seq, _),) = await snapshots(store)
        await bank.stop()

        log = MessageLog(store, system.environment, "a")
        await log.trim(before=seq + 1)
        assert await (await system.spawn(Often, store, "a")).ask(Cents()) == 10, "only the snapshot has the rest"
        await store.write(lambda connection: connection.execute("DELETE FROM pattern_snapshots").close())
        with pytest.raises(RecordCorrupt, match="were removed"):
            await system.spawn(Often, store, "a")


async def test_a_state_that_cannot_be_saved_is_refused_at_the_start_and_works_without_snapshots(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Counter(EventSourced[int]):
        def initial(self) -> int:
            return 0

        def evolve(self, state: int, event: Any) -> int:
            return state + 1

        @handle
        async def deposit(self, command: Deposit) -> int:
            await self.emit(Deposited(command.cents))
            return self.state

    class Unsaved(Counter):
        snapshot_every = None

    async with open_world(tmp_path) as (store, system):
        with pytest.raises(InvalidOption, match="snapshot_every = None"):
            await system.spawn(Counter, store, "a")
        assert await (await system.spawn(Unsaved, store, "a")).ask(Deposit(1)) == 1


@pytest.mark.parametrize(("every", "version"), [(0, 1), (1, 0), (True, 1)])
def test_snapshot_rules_out_of_their_range_are_refused(every: int, version: int) -> None:
    with pytest.raises(InvalidOption, match="expected an int >= 1"):
        Snapshots(every, version)


async def test_a_class_whose_on_start_does_not_read_the_log_is_told_what_to_write(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Forgetful(Bank):
        async def on_start(self) -> None:
            await trio.lowlevel.checkpoint()

    async with open_world(tmp_path) as (store, system):
        bank = await system.spawn(Forgetful, store, "a")
        with pytest.raises(ActorDown, match=r"await super\(\).on_start\(\)") as raised:
            await bank.ask(Cents())
        assert isinstance(raised.value.reason, Crashed)
        assert isinstance(raised.value.reason.exception, NotRunningInside)


async def test_a_store_that_cannot_write_leaves_state_and_log_as_they_were(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    environment = SimulatedEnvironment()
    async with open_store(tmp_path / "s.db", environment) as store:
        folded = FoldedLog(store, environment, "a", initial=Account(), evolve=Bank.evolve.__get__(Bank(store, "a")))
        await folded.load()
        await folded.append(Deposited(1))
    with pytest.raises(StoreUnavailable):
        await folded.append(Deposited(1))
    assert (folded.state, folded.seq) == (Account(1, 1), 1)


async def test_an_append_that_was_cut_off_is_looked_up_before_anything_is_decided_on_an_old_state(
    autojump_clock: MockClock,
) -> None:
    outcomes: set[str] = set()
    for steps in range(80):
        environment = SimulatedEnvironment(steps)
        async with open_memory_store(environment) as store:
            folded = FoldedLog(store, environment, "a", initial=0, evolve=lambda state, event: state + event.cents)
            await folded.load()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(folded.append, Deposited(1))
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            stored = await MessageLog(store, environment, "a").last_seq()
            if folded.seq == stored:
                await folded.append(Deposited(10))
                outcomes.add("returned" if stored else "nothing was stored")
            else:
                with pytest.raises(SequenceConflict):
                    await folded.append(Deposited(10))
                outcomes.add("stored, and nobody was told")
                assert folded.state == 1
                await folded.append(Deposited(10))
            assert folded.state == 10 + stored
    assert outcomes == {"returned", "nothing was stored", "stored, and nobody was told"}


# --- work beside the actor ------------------------------------------------------------------------


@record("test.patterns.set")
class SetX:
    value: int


@record("test.patterns.added")
class AddedY:
    value: int


@record("test.patterns.gone")
class ChildGone:
    name: str


@record("test.patterns.desk")
class Desk:
    x: int = 0
    y: int = 0
    gone: tuple[str, ...] = ()


@message("test.patterns.slow")
class Slow:
    value: int
    strict: bool = False


@message("test.patterns.add")
class Add:
    value: int


class Idler(Actor):
    """A child to be watched."""


class Busy(EventSourced[Desk]):
    """Does slow work in a task with what it knew at its begin, and applies the result as an event."""

    snapshot_every = None

    def __init__(self, store: Store, log: str, delay: float, child: Any) -> None:
        super().__init__(store, log)
        self.delay = delay
        self.child = child
        self.conflicts = 0

    async def on_start(self) -> None:
        await super().on_start()
        self.monitor(self.child)

    def initial(self) -> Desk:
        return Desk()

    def evolve(self, state: Desk, event: Any) -> Desk:
        match event:
            case SetX(value=value):
                return Desk(value, state.y, state.gone)
            case AddedY(value=value):
                return Desk(state.x, state.y + value, state.gone)
            case _:
                return Desk(state.x, state.y, (*state.gone, event.name))

    @handle
    def slow(self, command: Slow) -> None:
        self.start_task(self._work, command, self.seq)

    async def _work(self, command: Slow, seq: int) -> None:
        await trio.sleep(self.delay)
        await self.emit(SetX(command.value), expected_seq=seq if command.strict else None)

    @handle
    async def add(self, command: Add) -> None:
        await self.emit(AddedY(command.value))

    @handle
    async def down(self, notice: Down) -> None:
        await self.emit(ChildGone("child"))

    @handle
    def worked(self, done: TaskDone) -> None:
        if isinstance(done.reason, Crashed) and isinstance(done.reason.exception, SequenceConflict):
            self.conflicts += 1


@message("test.patterns.state")
class Ask(Request[Desk]):
    pass


@pytest.mark.row("BR-53")
async def test_slow_work_beside_the_actor_overwrites_nothing_that_was_committed_meanwhile_in_any_schedule(
    autojump_clock: MockClock,
) -> None:
    source = random.Random(53)
    conflicts = 0
    environment = SimulatedEnvironment(53)
    async with open_memory_store(environment) as store, open_system(environment) as system:
        for number in range(1000):
            child = await system.spawn(Idler)
            busy = await system.spawn(Busy, store, f"desk-{number}", source.choice([0.0, 0.1, 0.2]), child)
            strict = number % 4 == 0
            steps: list[Any] = [Slow(7, strict), Add(1), Add(2), "die", 0.1, 0.1]
            source.shuffle(steps)
            for step in steps:
                if step == "die":
                    child.kill()
                elif isinstance(step, float):
                    await trio.sleep(step)
                else:
                    busy.tell(step)
            await trio.sleep(0.5)
            state = await busy.get_state()
            desk: Desk = state["_folded"].state
            assert (desk.y, desk.gone) == (3, ("child",))
            assert desk.x == (0 if state["conflicts"] else 7)
            assert strict or not state["conflicts"]
            conflicts += state["conflicts"]
            await busy.stop()
        assert 0 < conflicts < 250, "an outdated decision is refused, and only that"


# --- a model of it --------------------------------------------------------------------------------

COMMANDS = st.lists(
    st.one_of(
        st.builds(Deposit, st.integers(1, 50)),
        st.builds(Withdraw, st.integers(1, 50)),
        st.sampled_from(["restart", "kill"]),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(commands=COMMANDS, every=st.sampled_from([1, 2, 5, None]))
def test_any_sequence_of_commands_and_restarts_leaves_the_state_of_a_plain_variable(
    tmp_path_factory: pytest.TempPathFactory, commands: list[Any], every: int | None
) -> None:
    class Some(Bank):
        snapshot_every = every

    async def main() -> None:
        expected = 0
        async with open_world(tmp_path_factory.mktemp("model")) as (store, system):
            bank = await system.spawn(Some, store, "a")
            for command in commands:
                match command:
                    case "restart":
                        await bank.stop()
                        bank = await system.spawn(Some, store, "a")
                    case "kill":
                        bank.kill()
                        await bank.wait_stopped()
                        bank = await system.spawn(Some, store, "a")
                    case Deposit(cents=cents):
                        await bank.ask(command)
                        expected += cents
                    case _ if command.cents <= expected:
                        await bank.ask(command)
                        expected -= command.cents
                    case _:
                        with pytest.raises(ValueError, match="not that much"):
                            await bank.ask(command)
                assert await bank.ask(Cents()) == expected

    trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.row("S2-055")
def test_a_process_killed_in_the_middle_of_its_commands_has_all_that_it_confirmed(tmp_path: Path) -> None:
    confirmed = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, str(PROGRAM), str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            start = int(process.stdout.readline())
            assert confirmed <= start <= confirmed + 1, "what was under way is there wholly or not at all"
            for _ in range(20):
                confirmed = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            confirmed = max([confirmed, *map(int, process.stdout.read().split())])

    async def look() -> int:
        environment = RealEnvironment()
        async with open_store(tmp_path / "bank.db", environment) as store:
            log = MessageLog(store, environment, "a")
            return sum([stored.message.payload.cents for stored in await log.read()])

    assert trio.run(look) in (confirmed, confirmed + 1)
