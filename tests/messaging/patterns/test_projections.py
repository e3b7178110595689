"""Read models that follow the log of the write side."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood import handle
from sapwood.actors import ActorSystem, Crashed, Ref
from sapwood.errors import ActorDown, InvalidOption, ProjectionBehind, SequenceConflict
from sapwood.messaging.patterns import Projection, Reach, Rebuild
from sapwood.messaging.queues import MessageLog, StoredMessage
from sapwood.persistence import Store
from sapwood.supervision import Supervisor, child
from tests.messaging.patterns.kit import Balances, Bank, Cents, Deposit, Deposited, Withdraw, open_world, read_cents


async def start(system: ActorSystem, store: Store) -> tuple[Ref, Ref]:
    return await system.spawn(Bank, store, "a"), await system.spawn(Balances, store, "balances", "a")


@pytest.mark.row("S2-056")
async def test_commands_go_to_the_write_side_and_queries_see_the_read_side_which_has_what_they_ask_for(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as (store, system):
        bank, balances = await start(system, store)
        await trio.sleep(0.1)
        seq = await bank.ask(Deposit(100))
        begun = trio.current_time()
        assert await balances.ask(Cents()) == 0, "it lags, and says what it has"
        assert await balances.ask(Cents(at_least=seq)) == 100, "whoever wrote sees what it wrote"
        assert trio.current_time() == begun, "without waiting for the interval"
        await bank.ask(Withdraw(40))
        await trio.sleep(0.51)
        assert await balances.ask(Cents()) == 60, "and without being asked it follows within the interval"
        with pytest.raises(ActorDown, match="no handler"):
            await balances.ask(Deposit(1))


@pytest.mark.row("S2-056")
async def test_a_projection_started_again_goes_on_where_it_was_and_counts_no_event_twice(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as (store, system):
        bank, balances = await start(system, store)
        for round_number in range(1, 6):
            seq = [await bank.ask(Deposit(1)) for _ in range(10)][-1]
            if round_number % 2:
                assert await balances.ask(Reach(seq)) == seq
            balances.kill()
            await balances.wait_stopped()
            await bank.ask(Deposit(1))  # while it is down
            balances = await system.spawn(Balances, store, "balances", "a", 0.5, 3)
        assert await balances.ask(Cents(at_least=55)) == 55
        assert (await store.read(lambda tx: tx.execute("SELECT changes FROM test_balance").fetchone())) == (55,)


async def test_a_query_for_what_is_not_there_yet_waits_for_it_and_holds_up_no_other_query(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as (store, system):
        bank, balances = await start(system, store)
        results: list[int] = []

        async def early() -> None:
            results.append(await balances.ask(Cents(at_least=1)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(early)
            await trio.sleep(1)
            assert await balances.ask(Cents()) == 0
            assert results == []
            await bank.ask(Deposit(7))
        assert results == [7]
        with pytest.raises(ProjectionBehind, match="has reached 1 and not 9"):
            await balances.ask(Reach(9, within=2))
        with pytest.raises(ProjectionBehind):
            await balances.ask(Cents(at_least=9))
        assert (await balances.get_state())["_waiting"] == []


async def test_a_query_that_fails_fails_alone_and_the_projection_goes_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Wrong(Balances):
        @handle
        def cents(self, query: Cents) -> None:
            self.answer(lambda connection: connection.execute("SELECT 1 FROM nowhere"), at_least=query.at_least)

    async with open_world(tmp_path) as (store, system):
        wrong = await system.spawn(Wrong, store, "w", "a")
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            await wrong.ask(Cents())
        assert await wrong.ask(Reach(0)) == 0


async def test_an_event_that_cannot_be_projected_changes_nothing_and_crashes_the_projection_until_it_can(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    broken = True

    class Fragile(Balances):
        def project(self, connection: sqlite3.Connection, stored: StoredMessage) -> None:
            super().project(connection, stored)
            if broken and stored.seq == 3:
                raise ValueError("this one cannot be")

    async with open_world(tmp_path) as (store, system):
        log = MessageLog(store, system.environment, "a")
        await log.open()
        await log.append(*[Deposited(1)] * 5)
        fragile = await system.spawn(Fragile, store, "f", "a", 0.5, 2)
        reason = await fragile.wait_stopped()
        assert isinstance(reason, Crashed)
        assert str(reason.exception) == "this one cannot be"
        assert await store.read(read_cents) == 2, "the batch that has it is rolled back as a whole"
        broken = False
        fragile = await system.spawn(Fragile, store, "f", "a")
        assert await fragile.ask(Cents(at_least=5)) == 5


async def test_a_projection_is_built_anew_when_asked_and_when_its_version_is_another(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Doubled(Balances):
        version = 2

        def project(self, connection: sqlite3.Connection, stored: StoredMessage) -> None:
            super().project(connection, stored)
            super().project(connection, stored)

    async with open_world(tmp_path) as (store, system):
        bank, balances = await start(system, store)
        seq = await bank.ask(Deposit(4))
        await balances.ask(Reach(seq))
        await store.write(lambda tx: tx.execute("UPDATE test_balance SET cents = 99").close())
        await balances.ask(Rebuild())
        assert await balances.ask(Cents(at_least=seq)) == 4
        await balances.stop()
        doubled = await system.spawn(Doubled, store, "balances", "a")
        assert await doubled.ask(Cents(at_least=seq)) == 8


async def test_of_two_projections_under_one_name_one_ends_and_no_event_is_counted_twice(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as (store, system):
        bank, first = await start(system, store)
        second = await system.spawn(Balances, store, "balances", "a", 0.7)
        seq = [await bank.ask(Deposit(1)) for _ in range(5)][-1]
        await trio.sleep(3)
        assert await bank.ask(Deposit(1)) == seq + 1
        await trio.sleep(3)
        ended = [ref for ref in (first, second) if not ref.alive]
        assert len(ended) == 1
        assert isinstance(ended[0].exit_reason, Crashed)
        assert isinstance(ended[0].exit_reason.exception, SequenceConflict)
        assert await store.read(read_cents) == 6


async def test_a_projection_says_so_if_events_were_removed_before_it_read_them(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as (store, system):
        log = MessageLog(store, system.environment, "a")
        await log.open()
        await log.append(*[Deposited(1)] * 5)
        await log.trim(before=3)
        balances = await system.spawn(Balances, store, "balances", "a")
        assert "events from 1 to 2 were removed" in str(await balances.wait_stopped())


async def test_a_supervised_projection_whose_store_fails_for_a_moment_comes_back_and_catches_up(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    failures = [True]

    class Shaky(Balances):
        def project(self, connection: sqlite3.Connection, stored: StoredMessage) -> None:
            if failures:
                failures.pop()
                raise sqlite3.OperationalError("disk I/O error")
            super().project(connection, stored)

    async with open_world(tmp_path) as (store, system):
        bank = await system.spawn(Bank, store, "a")
        home = await system.spawn(lambda: Supervisor([child(Shaky, store, "s", "a")], strategy="one_for_one"))
        await bank.ask(Deposit(3))
        await trio.sleep(2)
        assert failures == []
        assert await store.read(read_cents) == 3
        await home.stop()


@pytest.mark.parametrize(("interval", "batch"), [(0, 1), (float("nan"), 1), (1.0, 0)])
def test_a_projection_with_options_out_of_their_range_is_refused(interval: float, batch: int) -> None:
    class Nothing(Projection):
        def reset(self, connection: sqlite3.Connection) -> None:
            """Have no tables."""

        def project(self, connection: sqlite3.Connection, stored: StoredMessage) -> None:
            """Write nothing."""

    with pytest.raises(InvalidOption, match="interval > 0"):
        Nothing(None, "n", "a", interval, batch)  # type: ignore[arg-type]  # it is refused before
