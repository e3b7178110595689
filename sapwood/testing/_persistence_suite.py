"""What every store of conversations must do, as tests to derive from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio

from sapwood.actors import record
from sapwood.errors import AgentExists, CodecError, SequenceConflict, StaleEpoch
from sapwood.persistence import AgentPersistence, Claim, Missing, NumberedLine, Stored

E = TypeVar("E", bound=Exception)


@record("testing.happened")
class Happened:
    """An event, or a line of a transcript."""

    what: Any


@record("testing.folded")
class Folded:
    """A state."""

    seen: tuple[Any, ...]


@contextmanager
def refusal(error: type[E]) -> Generator[None]:
    """Fail unless the block raises this error."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"expected {error.__name__}; nothing was raised")


def happened(*what: Any) -> list[Happened]:
    """Make events."""
    return [Happened(item) for item in what]


async def append(store: AgentPersistence, claim: Claim, *what: Any, lines: Sequence[Any] = ()) -> int:
    """Append events right after a claim."""
    return await store.append(
        claim.agent_id, epoch=claim.epoch, expected_seq=claim.seq, events=happened(*what), lines=happened(*lines)
    )


async def load(store: AgentPersistence, agent_id: str = "a") -> Stored:
    """Load an agent of which something is stored."""
    found = await store.load(agent_id)
    assert isinstance(found, Stored), found
    return found


def told(entries: Sequence[Any]) -> list[Any]:
    """Return what events say."""
    return [entry.event.what for entry in entries]


def written(lines: Sequence[NumberedLine]) -> list[tuple[int, Any]]:
    """Return what lines say, with their numbers."""
    return [(each.number, each.line.what) for each in lines]


class AgentPersistenceSuite:
    """Tests that any store of conversations must pass; see `AgentPersistence` for what it promises.

    Derive a test class and say how to open a store; run it with pytest-trio in trio mode:

        class TestMyStore(AgentPersistenceSuite):
            def open(self, folder: Path) -> AbstractAsyncContextManager[AgentPersistence]:
                return open_my_store(folder / "agents")

    Opening one folder twice, one after the other, must show the same data. A store somewhere else takes a name from
    the folder, which is a new one for every test.
    """

    def open(self, folder: Path) -> AbstractAsyncContextManager[AgentPersistence]:
        """Return a context manager that opens a store."""
        raise TypeError("write a method open(folder) that returns a context manager with a store in it")

    @asynccontextmanager
    async def claimed(self, folder: Path) -> AsyncGenerator[tuple[AgentPersistence, Claim]]:
        """Open a store and claim agent `a`."""
        async with self.open(folder) as store:
            yield store, await store.claim("a", owner="one")

    # --- missing, and not missing -----------------------------------------------------------------

    async def test_only_an_agent_of_which_nothing_is_stored_is_missing_and_fresh(self, tmp_path: Path) -> None:
        """Missing is an answer of the store, and ends with the first event."""
        async with self.open(tmp_path) as store:
            assert await store.load("a") == Missing("a")
            assert await store.read_transcript("a") == []
            claim = await store.claim("a", owner="one")
            assert (claim.epoch, claim.seq, claim.fresh, claim.clean) == (1, 0, True, True)
            await append(store, claim, "x")
            assert (await load(store)).seq == 1
            assert not (await store.claim("a", owner="two")).fresh

    async def test_a_snapshot_alone_is_something_that_is_stored(self, tmp_path: Path) -> None:
        """A state without events counts."""
        async with self.claimed(tmp_path) as (store, claim):
            await store.save_snapshot("a", epoch=claim.epoch, seq=0, state=Folded(()))
            assert (await load(store)).snapshot == Folded(())
            with refusal(AgentExists):
                await store.create("a", owner="two", events=happened("y"))

    async def test_what_was_stored_is_there_when_the_store_is_opened_again(self, tmp_path: Path) -> None:
        """Durable means durable."""
        async with self.claimed(tmp_path) as (store, claim):
            await append(store, claim, "x", {"y": [1, 2.5, None]}, lines=["line"])
            await store.save_snapshot("a", epoch=claim.epoch, seq=1, state=Folded(("x",)))
        async with self.open(tmp_path) as store:
            claim = await store.claim("a", owner="two")
            assert (claim.epoch, claim.snapshot, claim.snapshot_seq, claim.seq) == (2, Folded(("x",)), 1, 2)
            assert told(claim.tail) == [{"y": [1, 2.5, None]}]
            assert written(await store.read_transcript("a")) == [(1, "line")]

    # --- claims and epochs ------------------------------------------------------------------------

    async def test_a_claim_fences_off_whoever_held_the_agent(self, tmp_path: Path) -> None:
        """Every kind of write with the older epoch is refused, and changes nothing."""
        async with self.claimed(tmp_path) as (store, old):
            await append(store, old, "x")
            new = await store.claim("a", owner="two")
            assert (new.epoch, new.seq, new.clean) == (old.epoch + 1, 1, False)
            with refusal(StaleEpoch):
                await store.append("a", epoch=old.epoch, expected_seq=1, events=happened("late"), lines=happened("l"))
            with refusal(StaleEpoch):
                await store.append("a", epoch=old.epoch, expected_seq=1, events=[])
            with refusal(StaleEpoch):
                await store.save_snapshot("a", epoch=old.epoch, seq=1, state=Folded(()))
            with refusal(StaleEpoch):
                await store.compact("a", epoch=old.epoch)
            with refusal(StaleEpoch):
                await store.release("a", epoch=old.epoch)
            with refusal(StaleEpoch):
                await store.delete("a", epoch=old.epoch)
            assert told((await load(store)).tail) == ["x"]
            assert await store.read_transcript("a") == []
            assert await append(store, new, "y") == 2

    async def test_of_many_who_claim_at_once_exactly_one_can_write(self, tmp_path: Path) -> None:
        """Epochs are given out once."""
        claims: list[Claim] = []
        async with self.open(tmp_path) as store:

            async def claim() -> None:
                claims.append(await store.claim("a", owner="one"))

            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(claim)
            assert sorted(each.epoch for each in claims) == list(range(1, 11))
            for each in claims:
                if each.epoch < 10:
                    with refusal(StaleEpoch):
                        await append(store, each, "x")
                else:
                    assert await append(store, each, "x") == 1

    async def test_an_agent_that_nobody_has_claimed_takes_nothing(self, tmp_path: Path) -> None:
        """Writing needs a claim."""
        async with self.open(tmp_path) as store:
            with refusal(StaleEpoch):
                await store.append("a", epoch=1, expected_seq=0, events=happened("x"))
            assert await store.load("a") == Missing("a")

    async def test_loading_disturbs_nobody(self, tmp_path: Path) -> None:
        """Whoever holds the agent still does."""
        async with self.claimed(tmp_path) as (store, claim):
            await append(store, claim, "x")
            stored = await load(store)
            assert (stored.epoch, stored.seq, told(stored.tail)) == (claim.epoch, 1, ["x"])
            assert await store.append("a", epoch=claim.epoch, expected_seq=1, events=happened("y")) == 2

    async def test_a_release_is_noted_until_the_next_append(self, tmp_path: Path) -> None:
        """A crash and a clean end are told apart."""
        async with self.claimed(tmp_path) as (store, claim):
            await append(store, claim, "x")
            await store.release("a", epoch=claim.epoch)
            again = await store.claim("a", owner="two")
            assert again.clean
            await append(store, again, "y")
            assert not (await store.claim("a", owner="three")).clean

    # --- appending --------------------------------------------------------------------------------

    async def test_events_have_consecutive_numbers_and_the_epoch_of_their_writer(self, tmp_path: Path) -> None:
        """Sequence numbers have no gaps, also across claims."""
        async with self.claimed(tmp_path) as (store, claim):
            assert await append(store, claim, "x", "y") == 2
            assert await append(store, await store.claim("a", owner="two"), "z") == 3
            entries = await store.read("a")
            assert [(each.seq, each.epoch, each.event.what) for each in entries] == [
                (1, 1, "x"),
                (2, 1, "y"),
                (3, 2, "z"),
            ]
            assert told(await store.read("a", after=1, limit=1)) == ["y"]
            assert await store.read("unknown") == []

    async def test_an_append_that_does_not_continue_the_journal_is_refused(self, tmp_path: Path) -> None:
        """Nothing is written, events or lines."""
        async with self.claimed(tmp_path) as (store, claim):
            await append(store, claim, "x")
            for expected in (0, 2, 99):
                with refusal(SequenceConflict):
                    await store.append(
                        "a", epoch=claim.epoch, expected_seq=expected, events=happened("y"), lines=happened("y")
                    )
            assert told((await load(store)).tail) == ["x"]
            assert await store.read_transcript("a") == []

    async def test_all_events_and_lines_are_stored_or_none(self, tmp_path: Path) -> None:
        """One that cannot be stored keeps out the others."""
        async with self.claimed(tmp_path) as (store, claim):
            for events, lines in (("x", object()), ()), (("x",), ("y", object())):
                with refusal(CodecError):
                    await append(store, claim, *events, lines=lines)
            with refusal(CodecError):
                await store.append("a", epoch=claim.epoch, expected_seq=0, events=["no record"])
            assert await store.load("a") == Missing("a")
            assert await store.read_transcript("a") == []
            assert await append(store, claim, "x") == 1

    async def test_what_is_stored_does_not_change_with_the_live_value(self, tmp_path: Path) -> None:
        """A store keeps values, no references to them."""
        live = {"list": [1]}
        async with self.claimed(tmp_path) as (store, claim):
            await append(store, claim, live, lines=[live])
            live["list"].append(2)
            told((await load(store)).tail)[0]["list"].append(3)
            assert told((await load(store)).tail) == [{"list": [1]}]
            assert written(await store.read_transcript("a")) == [(1, {"list": [1]})]

    async def test_agents_do_not_see_one_another(self, tmp_path: Path) -> None:
        """Every id has a journal, an epoch and a transcript of its own."""
        async with self.claimed(tmp_path) as (store, claim):
            other = await store.claim("b", owner="one")
            await append(store, claim, "x", lines=["a"])
            await append(store, other, "y", "z", lines=["b"])
            await store.claim("b", owner="two")
            assert await store.append("a", epoch=claim.epoch, expected_seq=1, events=happened("w")) == 2
            assert written(await store.read_transcript("b")) == [(1, "b")]
            rows = await store.agents()
            assert [(row.agent_id, row.epoch, row.seq) for row in rows] == [("a", 1, 2), ("b", 2, 2)]

    # --- creating ---------------------------------------------------------------------------------

    async def test_an_agent_is_created_only_where_nothing_is_stored(self, tmp_path: Path) -> None:
        """A second one under the same id changes nothing."""
        async with self.open(tmp_path) as store:
            await store.create("a", owner="one", events=happened("x"), lines=happened("line"))
            with refusal(AgentExists):
                await store.create("a", owner="two", events=happened("y"))
            claim = await store.claim("a", owner="one")
            assert (told(claim.tail), claim.clean, claim.fresh) == (["x"], True, False)
            with refusal(AgentExists):
                await store.create("a", owner="two", events=happened("y"))
            assert await append(store, claim, "z", lines=["next"]) == 2, "whoever holds it still does"
            assert written(await store.read_transcript("a")) == [(1, "line"), (2, "next")]

    async def test_an_agent_that_cannot_be_stored_is_not_created(self, tmp_path: Path) -> None:
        """Bad input changes nothing."""
        async with self.open(tmp_path) as store:
            for events, lines in ([Happened(object())], []), (happened("x"), [Happened(object())]):
                with refusal(CodecError):
                    await store.create("a", owner="one", events=events, lines=lines)
            assert await store.load("a") == Missing("a")

    # --- snapshots, compaction, deletion ----------------------------------------------------------

    async def test_a_claim_has_the_newest_snapshot_and_the_events_after_it(self, tmp_path: Path) -> None:
        """A snapshot neither runs ahead of the journal nor goes back."""
        async with self.claimed(tmp_path) as (store, claim):
            await append(store, claim, "x", "y", "z")
            await store.save_snapshot("a", epoch=claim.epoch, seq=2, state=Folded(("x", "y")))
            for seq in (1, 4):
                with refusal(SequenceConflict):
                    await store.save_snapshot("a", epoch=claim.epoch, seq=seq, state=Folded(()))
            with refusal(CodecError):
                await store.save_snapshot("a", epoch=claim.epoch, seq=3, state={"no": "record"})
            found = await store.claim("a", owner="two")
            assert (found.snapshot, found.snapshot_seq, told(found.tail)) == (Folded(("x", "y")), 2, ["z"])

    async def test_compaction_drops_events_and_leaves_the_transcript_whole(self, tmp_path: Path) -> None:
        """Nothing that a restart or a person needs is dropped."""
        async with self.claimed(tmp_path) as (store, claim):
            seq = 0
            for number in range(4):
                seq = await store.append(
                    "a", epoch=claim.epoch, expected_seq=seq, events=happened(number), lines=happened(number)
                )
                assert await store.compact("a", epoch=claim.epoch, keep=9) >= 0
                await store.save_snapshot("a", epoch=claim.epoch, seq=seq, state=Folded(tuple(range(number + 1))))
            assert await store.compact("a", epoch=claim.epoch, keep=2) > 0
            assert [each.seq for each in await store.read("a")] == [4]
            assert (await load(store)).snapshot == Folded((0, 1, 2, 3))
            assert written(await store.read_transcript("a")) == [(1, 0), (2, 1), (3, 2), (4, 3)]
            assert await store.append("a", epoch=claim.epoch, expected_seq=4, events=happened("next")) == 5

    async def test_a_deleted_agent_is_missing_and_its_owner_fenced_off(self, tmp_path: Path) -> None:
        """Epochs and sequence numbers go on where they were."""
        async with self.claimed(tmp_path) as (store, claim):
            await append(store, claim, "x", lines=["line"])
            assert await store.delete("a")
            assert not await store.delete("a")
            assert await store.load("a") == Missing("a")
            assert await store.read_transcript("a") == []
            assert await store.agents() == []
            with refusal(StaleEpoch):
                await store.append("a", epoch=claim.epoch, expected_seq=1, events=happened("late"))
            again = await store.claim("a", owner="two")
            assert again.fresh
            assert again.epoch > claim.epoch
            assert await append(store, again, "y") == 2
            assert told((await load(store)).tail) == ["y"]
            assert await store.delete("a", epoch=again.epoch)
            await store.create("a", owner="three", events=happened("z"))
            assert told((await load(store)).tail) == ["z"]

    # --- transcripts ------------------------------------------------------------------------------

    async def test_a_transcript_is_read_in_pages_from_either_end(self, tmp_path: Path) -> None:
        """Lines are numbered from 1, and always come in order."""
        async with self.claimed(tmp_path) as (store, claim):
            await append(store, claim, "x", lines=range(1, 8))

            async def numbers(**options: Any) -> list[int]:
                return [each.number for each in await store.read_transcript("a", **options)]

            assert await numbers() == [1, 2, 3, 4, 5, 6, 7]
            assert await numbers(limit=3) == [1, 2, 3]
            assert await numbers(after=3, limit=3) == [4, 5, 6]
            assert await numbers(last=True, limit=3) == [5, 6, 7]
            assert await numbers(last=True, before=5, limit=3) == [2, 3, 4]
            assert await numbers(after=2, before=5) == [3, 4]
            assert await numbers(after=7) == []
