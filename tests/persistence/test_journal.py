"""What any journal must do. To test another implementation, add it to `JOURNALS`."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sapwood.actors import Environment, RealEnvironment, SimulatedEnvironment, record
from sapwood.errors import (
    CodecError,
    InvalidOption,
    PersistenceError,
    SequenceConflict,
    StaleEpoch,
    StoreUnavailable,
)
from sapwood.persistence import (
    Claim,
    Journal,
    JournalStore,
    MigrationSet,
    SnapshotPolicy,
    Store,
    StoreStatistics,
    open_store,
)

T = TypeVar("T")


@record("test.happened")
class Happened:
    what: Any


@record("test.state")
class State:
    seen: tuple[Any, ...]


JournalMaker = Callable[[Path], AbstractAsyncContextManager[JournalStore]]


class JumpingClock(RealEnvironment):
    """A wall clock that jumps as the test says."""

    def __init__(self, *times: float) -> None:
        super().__init__()
        self.times = list(times)

    def wall(self) -> float:
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]


def sqlite_journal(make_environment: Callable[[], Environment], *, in_memory: bool) -> JournalMaker:
    @asynccontextmanager
    async def make(folder: Path) -> AsyncGenerator[JournalStore]:
        environment = make_environment()
        async with open_store(":memory:" if in_memory else folder / "journal.db", environment) as store:
            yield Journal(store, environment)

    return make


JOURNALS: dict[str, JournalMaker] = {
    "sqlite file": sqlite_journal(RealEnvironment, in_memory=False),
    "sqlite memory": sqlite_journal(RealEnvironment, in_memory=True),
    "sqlite file, simulated": sqlite_journal(SimulatedEnvironment, in_memory=False),
}


@pytest.fixture(params=JOURNALS)
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[JournalStore]:
    async with JOURNALS[request.param](tmp_path) as journal:
        yield journal


def events_of(claim: Claim) -> list[Any]:
    return [entry.event.what for entry in claim.tail]


async def appended(journal: JournalStore, claim: Claim, *what: Any) -> int:
    return await journal.append(
        claim.agent_id, epoch=claim.epoch, expected_seq=claim.seq, events=[Happened(item) for item in what]
    )


@pytest.mark.row("S4-038")
async def test_an_agent_of_which_nothing_is_stored_is_fresh_and_only_then(journal: JournalStore) -> None:
    first = await journal.claim("a", owner="one")
    again = await journal.claim("a", owner="two")

    assert first == Claim("a", 1, None, 0, (), 0, fresh=True, clean=True)
    assert again == Claim("a", 2, None, 0, (), 0, fresh=True, clean=False)
    assert await appended(journal, again, "x") == 1
    third = await journal.claim("a", owner="three")
    assert (third.epoch, third.fresh, third.seq, events_of(third)) == (3, False, 1, ["x"])


async def test_a_snapshot_alone_is_something_that_is_stored(journal: JournalStore) -> None:
    claim = await journal.claim("a", owner="one")
    await journal.save_snapshot("a", epoch=1, seq=0, state=State(("given",)))

    again = await journal.claim("a", owner="two")

    assert claim.fresh
    assert (again.fresh, again.snapshot, again.snapshot_seq, again.seq) == (False, State(("given",)), 0, 0)


async def test_events_come_back_in_order_with_their_sequence_numbers_and_epochs(journal: JournalStore) -> None:
    one = await journal.claim("a", owner="one")
    assert await appended(journal, one, "x", ("y", 2**70)) == 2
    two = await journal.claim("a", owner="two")
    assert await appended(journal, two, {1: b"z"}) == 3

    entries = await journal.read("a")

    assert [(entry.seq, entry.epoch, entry.event) for entry in entries] == [
        (1, 1, Happened("x")),
        (2, 1, Happened(("y", 2**70))),
        (3, 2, Happened({1: b"z"})),
    ]
    assert list((await journal.claim("a", owner="three")).tail) == entries


@pytest.mark.row("S4-040")
async def test_history_can_be_read_in_pages_without_a_claim(journal: JournalStore) -> None:
    await appended(journal, await journal.claim("a", owner="one"), *range(10))

    pages = [await journal.read("a", after=after, limit=4) for after in (0, 4, 8, 10)]

    assert [[entry.event.what for entry in page] for page in pages] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], []]
    assert await journal.read("unknown") == []
    assert (await journal.claim("a", owner="two")).epoch == 2


@pytest.mark.row("UP-8")
async def test_a_stale_epoch_is_refused_and_nothing_is_written(journal: JournalStore) -> None:
    old = await journal.claim("a", owner="old")
    await appended(journal, old, "x")
    new = await journal.claim("a", owner="new")

    for attempt in (
        journal.append("a", epoch=old.epoch, expected_seq=1, events=[Happened("lost")]),
        journal.append("a", epoch=old.epoch, expected_seq=1, events=[]),
        journal.save_snapshot("a", epoch=old.epoch, seq=1, state=State(())),
        journal.compact("a", epoch=old.epoch),
        journal.release("a", epoch=old.epoch),
        journal.delete("a", epoch=old.epoch),
    ):
        with pytest.raises(StaleEpoch) as caught:
            await attempt
        assert (caught.value.agent_id, caught.value.held, caught.value.current) == ("a", 1, 2)

    assert await journal.append("a", epoch=new.epoch, expected_seq=1, events=[Happened("y")]) == 2
    assert [entry.event.what for entry in await journal.read("a")] == ["x", "y"]


async def test_an_agent_that_nobody_claimed_takes_no_events(journal: JournalStore) -> None:
    with pytest.raises(StaleEpoch) as caught:
        await journal.append("a", epoch=1, expected_seq=0, events=[Happened("x")])

    assert caught.value.current == 0
    assert await journal.agents() == []


@pytest.mark.row("UP-1")
@pytest.mark.parametrize("expected", [0, 1, 3, -1])
async def test_an_append_that_does_not_continue_the_journal_is_refused_whole(
    journal: JournalStore, expected: int
) -> None:
    claim = await journal.claim("a", owner="one")
    await appended(journal, claim, "x", "y")

    with pytest.raises(SequenceConflict) as caught:
        await journal.append("a", epoch=1, expected_seq=expected, events=[Happened("z"), Happened("w")])

    assert (caught.value.expected, caught.value.found) == (expected, 2)
    assert len(await journal.read("a")) == 2


@pytest.mark.row("BR-29", "BR-32", "UP-70")
async def test_an_event_that_cannot_be_stored_is_refused_before_anything_is_written(journal: JournalStore) -> None:
    await journal.claim("a", owner="one")

    for bad in (Happened(object()), "no record", Happened({"x": [object()]})):
        with pytest.raises(CodecError):
            await journal.append("a", epoch=1, expected_seq=0, events=[Happened("good"), bad])
        with pytest.raises(CodecError):
            await journal.save_snapshot("a", epoch=1, seq=0, state=bad)

    assert await journal.append("a", epoch=1, expected_seq=0, events=[Happened("good")]) == 1
    assert (await journal.claim("a", owner="two")).snapshot is None


@pytest.mark.row("BR-31")
async def test_text_that_plain_utf_8_refuses_is_stored_and_later_saves_succeed(journal: JournalStore) -> None:
    claim = await journal.claim("a", owner="one")
    texts = ("ok \ud83d", "a\x00b", "name-\udcff")
    seq = await appended(journal, claim, *texts)
    await journal.save_snapshot("a", epoch=1, seq=seq, state=State(texts))
    await journal.append("a", epoch=1, expected_seq=seq, events=[Happened("after")])

    again = await journal.claim("a", owner="two")

    assert again.snapshot == State(texts)
    assert events_of(again) == ["after"]


@pytest.mark.row("UP-71")
async def test_what_was_stored_does_not_change_when_the_live_value_does(journal: JournalStore) -> None:
    await journal.claim("a", owner="one")
    live = [1]
    await journal.append("a", epoch=1, expected_seq=0, events=[Happened(live)])
    await journal.save_snapshot("a", epoch=1, seq=0, state=State((live,)))

    live.append(2)

    again = await journal.claim("a", owner="two")
    assert (again.snapshot, events_of(again)) == (State(([1],)), [[1]])


async def test_an_append_without_events_checks_the_claim_and_writes_nothing(journal: JournalStore) -> None:
    claim = await journal.claim("a", owner="one")
    seq = await appended(journal, claim, "x")

    assert await journal.append("a", epoch=1, expected_seq=seq, events=[]) == seq
    assert len(await journal.read("a")) == 1


# --- snapshots and compaction -----------------------------------------------------------------------------


async def test_a_claim_returns_the_newest_snapshot_and_only_the_events_after_it(journal: JournalStore) -> None:
    claim = await journal.claim("a", owner="one")
    await appended(journal, claim, *range(6))
    for seq in (2, 4):
        await journal.save_snapshot("a", epoch=1, seq=seq, state=State(tuple(range(seq))))

    again = await journal.claim("a", owner="two")

    assert (again.snapshot, again.snapshot_seq, again.seq) == (State((0, 1, 2, 3)), 4, 6)
    assert events_of(again) == [4, 5]


async def test_a_snapshot_beyond_the_journal_or_older_than_another_is_refused(journal: JournalStore) -> None:
    claim = await journal.claim("a", owner="one")
    await appended(journal, claim, *range(5))
    await journal.save_snapshot("a", epoch=1, seq=3, state=State(("three",)))

    for seq, found in ((6, 5), (2, 3), (-1, 5)):
        with pytest.raises(SequenceConflict) as caught:
            await journal.save_snapshot("a", epoch=1, seq=seq, state=State(("wrong",)))
        assert (caught.value.expected, caught.value.found) == (seq, found)

    await journal.save_snapshot("a", epoch=1, seq=3, state=State(("three again",)))
    assert (await journal.claim("a", owner="two")).snapshot == State(("three again",))


async def test_compaction_keeps_two_snapshots_and_all_events_that_either_needs(journal: JournalStore) -> None:
    claim = await journal.claim("a", owner="one")
    await appended(journal, claim, *range(10))
    assert await journal.compact("a", epoch=1) == 0
    for seq in (2, 4, 8):
        await journal.save_snapshot("a", epoch=1, seq=seq, state=State((seq,)))

    assert await journal.compact("a", epoch=1) == 4
    assert [entry.seq for entry in await journal.read("a")] == [5, 6, 7, 8, 9, 10]
    assert await journal.compact("a", epoch=1, keep=1) == 4
    assert [entry.seq for entry in await journal.read("a")] == [9, 10]
    with pytest.raises(InvalidOption, match="keep"):
        await journal.compact("a", epoch=1, keep=0)
    again = await journal.claim("a", owner="two")
    assert (again.snapshot, again.seq, events_of(again)) == (State((8,)), 10, [8, 9])
    assert await journal.append("a", epoch=2, expected_seq=10, events=[Happened("next")]) == 11


def test_a_snapshot_is_due_after_so_many_events() -> None:
    policy = SnapshotPolicy(every=200)

    assert [policy.is_due(seq=seq, snapshot_seq=100) for seq in (100, 299, 300, 999)] == [False, False, True, True]
    with pytest.raises(InvalidOption, match="every"):
        SnapshotPolicy(every=0)


# --- the life of an agent ---------------------------------------------------------------------------------


async def test_a_released_agent_was_left_cleanly_until_something_is_appended(journal: JournalStore) -> None:
    await journal.claim("a", owner="one")
    await journal.release("a", epoch=1)
    assert [row.released for row in await journal.agents()] == [True]
    assert (await journal.claim("a", owner="two")).clean

    await journal.release("a", epoch=2)
    await journal.append("a", epoch=2, expected_seq=0, events=[Happened("x")])
    assert not (await journal.claim("a", owner="three")).clean


async def test_a_deleted_agent_is_gone_but_its_numbers_never_restart(journal: JournalStore) -> None:
    claim = await journal.claim("a", owner="one")
    await appended(journal, claim, "x", "y")
    await journal.save_snapshot("a", epoch=1, seq=1, state=State(()))
    assert await journal.delete("a", epoch=1)

    assert await journal.agents() == []
    assert await journal.read("a") == []
    with pytest.raises(StaleEpoch):
        await journal.append("a", epoch=1, expected_seq=2, events=[Happened("ghost")])
    with pytest.raises(StaleEpoch):
        await journal.append("a", epoch=2, expected_seq=2, events=[Happened("ghost")])
    assert not await journal.delete("a")

    again = await journal.claim("a", owner="two")
    assert again == Claim("a", 3, None, 2, (), 2, fresh=True, clean=True)
    assert await appended(journal, again, "new") == 3
    assert [(entry.seq, entry.event.what) for entry in await journal.read("a")] == [(3, "new")]
    assert events_of(await journal.claim("a", owner="three")) == ["new"]


async def test_deleting_an_agent_nobody_knows_changes_nothing(journal: JournalStore) -> None:
    assert not await journal.delete("a")
    assert (await journal.claim("a", owner="one")).epoch == 1


async def test_deleting_without_an_epoch_fences_off_whoever_holds_the_agent(journal: JournalStore) -> None:
    await journal.claim("a", owner="one")
    assert await journal.delete("a")

    with pytest.raises(StaleEpoch):
        await journal.append("a", epoch=1, expected_seq=0, events=[Happened("ghost")])


async def test_the_list_of_agents_says_who_holds_them_and_how_far_they_are(journal: JournalStore) -> None:
    await journal.claim("b", owner="one")
    claim = await journal.claim("a", owner="two")
    await appended(journal, claim, *range(3))
    await journal.save_snapshot("a", epoch=1, seq=2, state=State(()))

    rows = await journal.agents()

    assert [(row.agent_id, row.epoch, row.owner, row.seq, row.snapshot_seq, row.released) for row in rows] == [
        ("a", 1, "two", 3, 2, False),
        ("b", 1, "one", 0, None, False),
    ]
    assert all(row.at > 1_000_000_000 for row in rows)


@pytest.mark.parametrize("wrong", ["", "a\x00b", "\ud83d", "x" * 513], ids=ascii)
async def test_an_agent_id_that_other_tools_could_not_show_is_refused(journal: JournalStore, wrong: str) -> None:
    for call in (
        journal.claim(wrong, owner="one"),
        journal.claim("a", owner=wrong),
        journal.append(wrong, epoch=1, expected_seq=0, events=[]),
        journal.save_snapshot(wrong, epoch=1, seq=0, state=State(())),
        journal.compact(wrong, epoch=1),
        journal.read(wrong),
        journal.release(wrong, epoch=1),
        journal.delete(wrong),
    ):
        with pytest.raises(InvalidOption, match="1 to 512 characters"):
            await call
    assert await journal.agents() == []


async def test_agents_do_not_see_one_another(journal: JournalStore) -> None:
    async def live(name: str) -> None:
        claim = await journal.claim(name, owner=name)
        seq = claim.seq
        for number in range(20):
            seq = await journal.append(name, epoch=claim.epoch, expected_seq=seq, events=[Happened((name, number))])

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(live, f"agent-{number}")

    for number in range(20):
        claim = await journal.claim(f"agent-{number}", owner="reader")
        assert events_of(claim) == [(f"agent-{number}", step) for step in range(20)]


@pytest.mark.row("UP-8")
async def test_of_many_claims_at_once_each_gets_its_own_epoch_and_only_the_last_may_write(
    journal: JournalStore,
) -> None:
    claims: list[Claim] = []
    refused: list[Exception] = []

    async def claim_and_write(owner: str) -> None:
        claim = await journal.claim("a", owner=owner)
        claims.append(claim)
        try:
            await journal.append("a", epoch=claim.epoch, expected_seq=claim.seq, events=[Happened(owner)])
        except PersistenceError as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(claim_and_write, str(number))

    assert sorted(claim.epoch for claim in claims) == list(range(1, 21))
    entries = await journal.read("a")
    assert len(entries) == 20 - len(refused) >= 1
    assert [entry.epoch for entry in entries] == sorted(entry.epoch for entry in entries)
    for claim in claims:
        assert [entry.epoch for entry in claim.tail] == [e.epoch for e in entries if e.epoch < claim.epoch]


async def test_a_claim_takes_in_what_the_former_owner_writes_meanwhile(journal: JournalStore) -> None:
    claim = await journal.claim("a", owner="busy")
    acknowledged: list[int] = []

    async def write_until_fenced() -> None:
        seq = claim.seq
        while True:
            try:
                seq = await journal.append("a", epoch=claim.epoch, expected_seq=seq, events=[Happened(seq + 1)])
                acknowledged.append(seq)
                if seq % 7 == 0:
                    await journal.save_snapshot("a", epoch=claim.epoch, seq=seq, state=State((seq,)))
                    await journal.compact("a", epoch=claim.epoch, keep=1)
            except StaleEpoch:
                return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_until_fenced)
        with trio.fail_after(30):
            while len(acknowledged) < 30:
                await trio.lowlevel.checkpoint()
        taken = await journal.claim("a", owner="successor")

    assert taken.seq == len(acknowledged)
    assert [entry.seq for entry in taken.tail] == list(range(taken.snapshot_seq + 1, taken.seq + 1))


class Interrupted:
    """A store where something happens between the first read and what follows it."""

    def __init__(self, store: Store, happening: Callable[[], Awaitable[object]]) -> None:
        self.store = store
        self.happening: Callable[[], Awaitable[object]] | None = happening
        self.name = store.name

    async def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        value = await self.store.read(operation)
        happening, self.happening = self.happening, None
        if happening is not None:
            await happening()
        return value

    async def write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        return await self.store.write(operation)

    async def migrate(self, migrations: MigrationSet) -> None:
        await self.store.migrate(migrations)

    def statistics(self) -> StoreStatistics:
        return self.store.statistics()


async def test_an_agent_deleted_while_it_is_claimed_does_not_come_back_to_life() -> None:
    environment = SimulatedEnvironment()
    async with open_store(":memory:", environment) as store:
        journal = Journal(store, environment)
        await journal.claim("a", owner="one")
        await journal.save_snapshot("a", epoch=1, seq=0, state=State(("old",)))
        interrupted = Journal(Interrupted(store, lambda: journal.delete("a")), environment)

        claim = await interrupted.claim("a", owner="two")

    assert claim == Claim("a", 3, None, 0, (), 0, fresh=True, clean=True)


async def test_a_claim_that_finds_the_journal_compacted_meanwhile_loads_it_again() -> None:
    environment = SimulatedEnvironment()
    async with open_store(":memory:", environment) as store:
        journal = Journal(store, environment)
        claim = await journal.claim("a", owner="one")
        await appended(journal, claim, 1)

        async def go_on() -> None:
            await journal.append("a", epoch=1, expected_seq=1, events=[Happened(2), Happened(3)])
            await journal.save_snapshot("a", epoch=1, seq=2, state=State((1, 2)))
            await journal.compact("a", epoch=1)

        again = await Journal(Interrupted(store, go_on), environment).claim("a", owner="two")

    assert (again.snapshot, again.snapshot_seq, again.seq) == (State((1, 2)), 2, 3)
    assert events_of(again) == [3]


@pytest.mark.row("BR-77")
async def test_a_wall_clock_that_jumps_changes_no_order(tmp_path: Path) -> None:
    clock = JumpingClock(5_000.0, 2_000_000_000.0, 0.0, -100.0, 1_700_000_000.0)
    async with open_store(tmp_path / "store.db", clock) as store:
        journal = Journal(store, clock)
        claim = await journal.claim("a", owner="one")
        seq = claim.seq
        for number in range(4):
            seq = await journal.append("a", epoch=1, expected_seq=seq, events=[Happened(number)])
        entries = await journal.read("a")

        assert [entry.event.what for entry in entries] == [0, 1, 2, 3]
        assert [entry.at for entry in entries] == [2_000_000_000.0, 0.0, -100.0, 1_700_000_000.0]
        assert events_of(await journal.claim("a", owner="two")) == [0, 1, 2, 3]


@pytest.mark.row("AR-22.15")
async def test_a_store_that_cannot_answer_never_looks_like_an_empty_one(journal: JournalStore, tmp_path: Path) -> None:
    environment = RealEnvironment()
    async with open_store(tmp_path / "closed.db", environment) as store:
        journal = Journal(store, environment)
        await appended(journal, await journal.claim("a", owner="one"), "x")

    for call in (
        journal.claim("a", owner="two"),
        journal.append("a", epoch=1, expected_seq=1, events=[Happened("y")]),
        journal.read("a"),
        journal.agents(),
        journal.delete("a"),
    ):
        with pytest.raises(StoreUnavailable):
            await call


# --- any sequence of calls against a model ----------------------------------------------------------------


@attrs.define
class Model:
    """What one agent's journal should hold; each method makes a call and says what should come of it."""

    journal: JournalStore
    epoch: int = 0
    base: int = 0
    events: list[int] = attrs.field(factory=list[int])
    snapshots: dict[int, tuple[int, ...]] = attrs.field(factory=dict[int, "tuple[int, ...]"])

    async def claim(self) -> None:
        self.epoch += 1
        seq = max(self.snapshots, default=self.base)

        claim = await self.journal.claim("a", owner="model")

        assert claim.epoch == self.epoch
        assert claim.snapshot == (State(self.snapshots[seq]) if self.snapshots else None)
        assert (claim.snapshot_seq, claim.seq) == (seq, len(self.events))
        assert events_of(claim) == self.events[seq:]
        assert claim.fresh is (not self.snapshots and len(self.events) == self.base)

    async def append(self, behind: int, off: int, count: int) -> None:
        seq = len(self.events)
        events = [Happened(number) for number in range(seq, seq + count)]
        call = self.journal.append("a", epoch=self.epoch - behind, expected_seq=seq + off, events=events)
        if behind or off:
            with pytest.raises(StaleEpoch if behind else SequenceConflict):
                await call
        else:
            assert await call == seq + count
            self.events += range(seq, seq + count)

    async def snapshot(self, back: int) -> None:
        seq = len(self.events) - back
        state = tuple(self.events[: max(seq, 0)])
        call = self.journal.save_snapshot("a", epoch=self.epoch, seq=seq, state=State(state))
        if seq < max(self.snapshots, default=self.base):
            with pytest.raises(SequenceConflict):
                await call
        else:
            await call
            self.snapshots[seq] = state

    async def compact(self, keep: int) -> None:
        await self.journal.compact("a", epoch=self.epoch, keep=keep)
        for seq in sorted(self.snapshots)[:-keep]:
            del self.snapshots[seq]

    async def delete(self) -> None:
        assert await self.journal.delete("a", epoch=self.epoch)
        self.base = len(self.events)
        self.snapshots.clear()
        self.epoch += 1
        assert await self.journal.read("a") == []
        await self.claim()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("claim")),
        st.tuples(
            st.just("append"), st.sampled_from([0, 0, 0, 1]), st.sampled_from([0, 0, 0, 1, -1]), st.integers(0, 3)
        ),
        st.tuples(st.just("snapshot"), st.integers(0, 3)),
        st.tuples(st.just("compact"), st.integers(1, 3)),
        st.tuples(st.just("delete")),
    ),
    max_size=30,
)


@given(steps)
def test_any_sequence_of_calls_does_what_the_model_says(steps: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        environment = SimulatedEnvironment()
        async with open_store(":memory:", environment) as store:
            model = Model(Journal(store, environment))
            await model.claim()
            for name, *arguments in steps:
                await getattr(model, name)(*arguments)

    trio.run(run)
