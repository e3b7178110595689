"""Records that cannot be read: typed, kept in quarantine, never taken for a fresh start."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import msgpack
import pytest

from sapwood.actors import RealEnvironment, record
from sapwood.errors import FutureVersion, RecordCorrupt, StoreCorrupt
from sapwood.persistence import Journal, Store, open_store, read_summary

ENVIRONMENT = RealEnvironment()

SELECT = {
    "journal": "SELECT record, epoch, checksum FROM journal WHERE seq = ?",
    "snapshots": "SELECT record, epoch, checksum FROM snapshots WHERE seq = ?",
}
UPDATE = {
    "journal": "UPDATE journal SET record = ?, checksum = ? WHERE seq = ?",
    "snapshots": "UPDATE snapshots SET record = ?, checksum = ? WHERE seq = ?",
}
EVERYTHING = (
    "SELECT * FROM journal ORDER BY seq",
    "SELECT * FROM snapshots ORDER BY seq",
    "SELECT epoch, last_seq FROM agents",
)


@record("test.corrupt_event")
class Event:
    number: int


@record("test.corrupt_state")
class State:
    numbers: tuple[int, ...]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[Store]:
    """Agent "a" with ten events and snapshots at 4 and 8, compacted."""
    async with open_store(path, ENVIRONMENT) as store:
        journal = Journal(store, ENVIRONMENT)
        claim = await journal.claim("a", owner="one")
        await journal.append("a", epoch=1, expected_seq=claim.seq, events=[Event(number) for number in range(1, 11)])
        for seq in (4, 8):
            await journal.save_snapshot("a", epoch=1, seq=seq, state=State(tuple(range(1, seq + 1))))
        await journal.compact("a", epoch=1)
        yield store


@pytest.fixture
def journal(store: Store) -> Journal:
    return Journal(store, ENVIRONMENT)


async def execute(store: Store, *statements: str) -> None:
    def operation(connection: sqlite3.Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    await store.write(operation)


async def rewrite(store: Store, table: str, seq: int, change: Callable[[bytes], bytes], *, checksum: bool) -> None:
    """Change a stored record, and mend its checksum too if asked to."""

    def operation(connection: sqlite3.Connection) -> None:
        select, update = SELECT[table], UPDATE[table]
        (old, epoch, old_checksum) = connection.execute(select, (seq,)).fetchone()
        new = change(old)
        right = crc32(new, crc32(f"a\x00{seq}\x00{epoch}".encode()))
        connection.execute(update, (new, right if checksum else old_checksum, seq))

    await store.write(operation)


async def quarantined(store: Store) -> list[tuple[str, int, str, bytes]]:
    return await store.read(
        lambda connection: connection.execute(
            "SELECT source, seq, reason, record FROM quarantine ORDER BY id"
        ).fetchall()
    )


async def stored(store: Store) -> list[Any]:
    def operation(connection: sqlite3.Connection) -> list[Any]:
        return [connection.execute(statement).fetchall() for statement in EVERYTHING]

    return await store.read(operation)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def as_record(name: str, version: int, **fields: Any) -> Callable[[bytes], bytes]:
    return lambda _: msgpack.packb(msgpack.ExtType(1, msgpack.packb([name, version, fields])))


async def test_a_store_in_order_has_an_empty_quarantine(store: Store, journal: Journal) -> None:
    claim = await journal.claim("a", owner="two")
    assert (claim.snapshot, [entry.event.number for entry in claim.tail]) == (State(tuple(range(1, 9))), [9, 10])
    assert await quarantined(store) == []


@pytest.mark.row("AR-22.15")
@pytest.mark.parametrize(
    ("change", "checksum", "reason"),
    [
        (flipped, False, "the checksum does not match"),
        (lambda data: data[:5], False, "the checksum does not match"),
        (lambda data: b"", True, "cannot be read"),
        (lambda data: b"\xc1\xc1", True, "cannot be read"),
        (as_record("test.corrupt_event", 1, number="9"), True, "expected int; got str '9'"),
        (as_record("test.never_declared", 1), True, "no class has the wire name 'test.never_declared'"),
    ],
)
async def test_an_event_that_cannot_be_read_fails_the_claim_is_kept_once_and_changes_nothing_else(
    store: Store, journal: Journal, change: Callable[[bytes], bytes], reason: str, *, checksum: bool
) -> None:
    await rewrite(store, "journal", 9, change, checksum=checksum)
    before = await stored(store)

    for _ in range(3):
        with pytest.raises(RecordCorrupt) as caught:
            await journal.claim("a", owner="two")
        assert (caught.value.agent_id, caught.value.seq, caught.value.source) == ("a", 9, "journal")
        assert reason in caught.value.reason
    with pytest.raises(RecordCorrupt):
        await journal.read("a")

    assert await stored(store) == before
    ((source, seq, kept_reason, data),) = await quarantined(store)
    assert (source, seq, data) == ("journal", 9, before[0][4][5])
    assert reason in kept_reason


async def test_whoever_holds_the_agent_goes_on_when_another_claim_fails(store: Store, journal: Journal) -> None:
    await rewrite(store, "journal", 9, flipped, checksum=False)
    with pytest.raises(RecordCorrupt):
        await journal.claim("a", owner="two")

    assert await journal.append("a", epoch=1, expected_seq=10, events=[Event(11)]) == 11


async def test_events_before_a_damaged_one_can_still_be_read(store: Store, journal: Journal) -> None:
    await rewrite(store, "journal", 9, flipped, checksum=False)

    assert [entry.event.number for entry in await journal.read("a", limit=4)] == [5, 6, 7, 8]
    assert [entry.event.number for entry in await journal.read("a", after=9)] == [10]


async def test_a_damaged_snapshot_is_quarantined_and_the_one_before_it_serves(store: Store, journal: Journal) -> None:
    await rewrite(store, "snapshots", 8, flipped, checksum=False)

    claim = await journal.claim("a", owner="two")

    assert (claim.snapshot, claim.snapshot_seq, claim.seq) == (State((1, 2, 3, 4)), 4, 10)
    assert [entry.event.number for entry in claim.tail] == [5, 6, 7, 8, 9, 10]
    ((source, seq, reason, _),) = await quarantined(store)
    assert (source, seq) == ("snapshots", 8)
    assert "checksum" in reason


async def test_without_a_readable_snapshot_the_agent_does_not_start_afresh(store: Store, journal: Journal) -> None:
    for seq in (4, 8):
        await rewrite(store, "snapshots", seq, flipped, checksum=False)

    with pytest.raises(RecordCorrupt) as caught:
        await journal.claim("a", owner="two")

    assert (caught.value.source, caught.value.seq) == ("snapshots", 8)
    assert len(await quarantined(store)) == 2


async def test_compaction_drops_nothing_that_a_damaged_snapshot_would_have_to_replace(
    store: Store, journal: Journal
) -> None:
    await rewrite(store, "snapshots", 8, flipped, checksum=False)
    before = await stored(store)

    with pytest.raises(RecordCorrupt):
        await journal.compact("a", epoch=1, keep=1)

    assert await stored(store) == before


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("DELETE FROM journal WHERE seq = 9", 9),
        ("DELETE FROM journal WHERE seq = 10", 10),
        ("DELETE FROM journal", 9),
        ("UPDATE agents SET last_seq = 9", 10),
        ("UPDATE journal SET seq = 11 WHERE seq = 10", 10),
        ("UPDATE agents SET last_seq = 7", 8),
    ],
)
async def test_a_missing_or_surplus_event_is_noticed(store: Store, journal: Journal, statement: str, seq: int) -> None:
    await execute(store, statement)

    with pytest.raises(RecordCorrupt, match="missing, or does not belong here") as caught:
        await journal.claim("a", owner="two")

    assert caught.value.seq == seq


async def test_events_that_changed_places_are_noticed(store: Store, journal: Journal) -> None:
    await execute(
        store,
        "UPDATE journal SET seq = 99 WHERE seq = 9",
        "UPDATE journal SET seq = 9 WHERE seq = 10",
        "UPDATE journal SET seq = 10 WHERE seq = 99",
    )
    with pytest.raises(RecordCorrupt, match="checksum"):
        await journal.claim("a", owner="two")


@pytest.mark.row("UP-68", "AR-22.16")
@pytest.mark.parametrize("table", ["journal", "snapshots"])
async def test_a_record_of_newer_code_is_refused_unchanged_and_not_called_damaged(
    store: Store, journal: Journal, table: str
) -> None:
    seq = 9 if table == "journal" else 8
    await rewrite(store, table, seq, as_record("test.corrupt_event", 2, number=1, more=2), checksum=True)
    before = await stored(store)

    with pytest.raises(FutureVersion) as caught:
        await journal.claim("a", owner="two")

    assert (caught.value.name, caught.value.found, caught.value.known) == ("test.corrupt_event", 2, 1)
    assert await stored(store) == before
    assert await quarantined(store) == []


async def test_the_quarantine_outlives_the_agent_and_can_be_inspected(
    store: Store, journal: Journal, path: Path
) -> None:
    await rewrite(store, "journal", 9, flipped, checksum=False)
    with pytest.raises(RecordCorrupt):
        await journal.claim("a", owner="two")
    assert await journal.delete("a")

    (row,) = read_summary(path).quarantine

    assert (row.source, row.agent_id, row.seq, row.kind) == ("journal", "a", 9, "test.corrupt_event")
    assert row.at > 1_000_000_000
    assert (await journal.claim("a", owner="three")).fresh


@pytest.mark.row("AR-22.15")
async def test_a_page_that_sqlite_finds_damaged_makes_the_store_corrupt(path: Path) -> None:
    async with open_store(path, ENVIRONMENT) as store:
        journal = Journal(store, ENVIRONMENT)
        claim = await journal.claim("a", owner="one")
        await journal.append("a", epoch=1, expected_seq=claim.seq, events=[Event(2**9000 + n) for n in range(50)])
    content = bytearray(path.read_bytes())
    content[-8192:] = b"\xff" * 8192
    path.write_bytes(content)

    async with open_store(path, ENVIRONMENT) as store:
        journal = Journal(store, ENVIRONMENT)
        with pytest.raises((StoreCorrupt, RecordCorrupt)):
            await journal.claim("a", owner="two")
