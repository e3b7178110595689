"""What the store in a file does beyond the suite: it lasts, it is shared, and it knows damage when it sees it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import trio

from sapwood.actors import RealEnvironment
from sapwood.errors import InvalidOption, ReferenceCorrupt, ReferenceNotFound, ReferenceUnavailable
from sapwood.persistence import Store, open_store
from sapwood.references import (
    Reference,
    ReferenceConfig,
    ReferenceStore,
    SQLiteConfig,
    SQLiteReferenceStore,
    open_reference_store,
)
from sapwood.testing._suite_kit import SteppedEnvironment, noise

PROGRAMS = Path(__file__).parent / "programs"
ENVIRONMENT = RealEnvironment()
MIB = 1024 * 1024


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncGenerator[tuple[SQLiteReferenceStore, Store]]:
    async with open_store(path, ENVIRONMENT) as engine:
        store = SQLiteReferenceStore(engine, ENVIRONMENT, **options)
        await store.open()
        yield store, engine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.mark.row("S0-010")
async def test_a_later_session_resolves_what_an_earlier_one_stored(path: Path) -> None:
    async with opened(path) as (store, _):
        small = await store.store(b"small", type="session_state", content_type="text/plain")
        large = await store.store(noise(3 * MIB), owner="a")

    async with opened(path) as (store, _):
        assert await store.list() == tuple(sorted([small, large], key=lambda reference: reference.id))
        assert await store.resolve(small) == b"small"
        assert await store.resolve(large.id) == noise(3 * MIB)
        assert [lease.owner for lease in (await store.describe(large)).leases] == ["a"]


@pytest.mark.row("S0-010", "S0-012")
def test_a_process_killed_while_it_stores_leaves_no_reference_half_written(path: Path) -> None:
    program = [sys.executable, str(PROGRAMS / "store_until_killed.py"), str(path)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("held ")


@pytest.mark.row("S0-011")
async def test_readers_in_other_connections_go_on_while_a_payload_is_written(path: Path) -> None:
    async with opened(path) as (store, engine):
        (mode,) = await engine.read(lambda db: db.execute("PRAGMA journal_mode").fetchone())
        assert mode == "wal"
        there = await store.store(b"there before")
        other = sqlite3.connect(path)
        seen: list[int] = []

        async def chunks() -> AsyncIterator[bytes]:
            for number in range(4):
                yield noise(MIB, seed=number)
                assert await store.resolve(there) == b"there before"
                seen.append(other.execute("SELECT count(*) FROM reference_items").fetchone()[0])

        await store.store_stream(chunks())
        assert seen == [1, 1, 1, 1]
        assert other.execute("SELECT count(*) FROM reference_items").fetchone() == (2,)
        other.close()


@pytest.mark.row("S0-028", "BR-47")
async def test_two_objects_on_one_file_share_references_leases_and_collections(path: Path) -> None:
    async with opened(path) as (first, _), opened(path) as (second, _):
        reference = await first.store(b"shared", owner="a")
        assert await second.resolve(reference) == b"shared"
        await second.acquire(reference, "b")
        await first.release(reference, "a")
        await first.collect()
        assert await first.resolve(reference) == b"shared"
        await second.release(reference, "b")
        assert (await first.collect()).references == 1
        with pytest.raises(ReferenceNotFound):
            await second.resolve(reference)


async def test_stores_that_wait_at_once_share_a_commit(path: Path) -> None:
    async with opened(path) as (store, engine):
        before = engine.statistics().commits
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(store.store, f"payload {number}".encode())
        assert engine.statistics().commits - before <= 5
        assert (await store.stats()).references == 100


@pytest.mark.row("S0-045")
async def test_the_knobs_of_sqlite_reach_the_connections(path: Path) -> None:
    config = ReferenceConfig(sqlite=SQLiteConfig(path=str(path), cache_size=12_345, synchronous="NORMAL"))
    async with open_reference_store(config, environment=ENVIRONMENT) as store:
        reference = await store.store(b"data")
        assert await store.resolve(reference) == b"data"

    sizes: set[int] = set()

    def look(db: sqlite3.Connection) -> None:
        sizes.add(db.execute("PRAGMA cache_size").fetchone()[0])

    async with opened(path, cache_size=12_345) as (tuned, engine):
        await tuned.store(b"data")
        await engine.write(look)
        await tuned.resolve(reference)
        await engine.read(look)
    assert sizes == {-12_345}
    for wrong in (0, -1, True, 1.5, "1"):
        with pytest.raises(InvalidOption, match="cache_size: expected None or an int >= 1"):
            SQLiteReferenceStore(engine, ENVIRONMENT, cache_size=wrong)  # type: ignore[arg-type]


FLIP = "UPDATE reference_pieces SET data = CAST(substr(data, 1, length(data) - 1) || 'X' AS BLOB)"


@pytest.mark.row("S0-021")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (FLIP, "checksum|decompressed"),
        ("UPDATE reference_pieces SET crc = crc + 1", "checksum"),
        ("UPDATE reference_pieces SET encoding = 'lz4'", "encoding 'lz4' is unknown"),
        ("UPDATE reference_pieces SET encoding = 'zstd', data = x'28b52ffd' WHERE number = 0", "decompressed"),
        ("DELETE FROM reference_pieces WHERE number = 1", "missing"),
        ("DELETE FROM reference_pieces WHERE number = 0", "missing"),
        ("UPDATE reference_items SET kept_until = 9e999, id = '00000000' || substr(id, 9)", "hash"),
    ],
    ids=["flipped", "checksum", "encoding", "frame", "last piece", "first piece", "other id"],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_damage_is_found_and_kept_in_quarantine_until_the_bytes_are_stored_again(
    path: Path, *, damage: str, reason: str, streamed: bool
) -> None:
    async def read(store: ReferenceStore, reference: Reference) -> bytes:
        if not streamed:
            return await store.resolve(reference)
        async with store.resolve_stream(reference) as reader:
            return b"".join([chunk async for chunk in reader])

    data = b"compresses well " * 50_000 + noise(MIB)
    async with opened(path, ttl=0.001) as (store, engine):
        await store.store(data, owner="a")
        await engine.write(lambda db: db.execute(damage).rowcount)
        (damaged,) = await store.list()
        for _ in range(2):
            with pytest.raises(ReferenceCorrupt, match=reason) as caught:
                await read(store, damaged)
            assert caught.value.id == damaged.id
            await store.release(damaged, "a")
            assert (await store.collect()).references == 0, "it was deleted"
        assert (await store.describe(damaged)).quarantined is not None
        assert (await store.stats()).quarantined == 1

        again = await store.store(data, owner="b")
        assert await read(store, again) == data
        if damaged.id == again.id:
            assert (await store.stats()).quarantined == 0
        else:
            assert await store.delete(damaged) is True
            assert (await store.stats()).references == 1


async def test_what_was_kept_for_ever_still_is_when_its_damage_was_mended(path: Path) -> None:
    async with opened(path) as (store, engine):
        reference = await store.store(b"data", ttl=None)
        await engine.write(lambda db: db.execute(FLIP).rowcount)
        with pytest.raises(ReferenceCorrupt):
            await store.resolve(reference)
        await store.store(b"data", ttl=1)
        assert (await store.describe(reference)).kept_until is None
        assert await store.resolve(reference) == b"data"


async def test_a_frame_that_promises_more_than_a_piece_holds_is_not_decompressed(path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    bomb = zstandard.ZstdCompressor().compress(bytes(64 * MIB))
    async with opened(path) as (store, engine):
        reference = await store.store(b"x")
        statement = "UPDATE reference_pieces SET encoding = 'zstd', data = ?"
        await engine.write(lambda db: db.execute(statement, (bomb,)).rowcount)
        with pytest.raises(ReferenceCorrupt, match="more than a piece holds"):
            await store.resolve(reference)


@pytest.mark.row("S0-040")
async def test_only_what_is_above_100_kb_is_compressed_and_only_if_that_pays(path: Path) -> None:
    async with opened(path) as (store, engine):
        at_limit = await store.store(bytes(100 * 1024))
        above = await store.store(bytes(100 * 1024 + 1))
        dense = await store.store(noise(200_000))
        sizes = [(await store.describe(reference)).stored_size for reference in (at_limit, above, dense)]
        assert sizes[0] == 100 * 1024
        assert sizes[1] < 1000
        assert sizes[2] == 200_000
        query = "SELECT encoding, count(*) FROM reference_pieces GROUP BY 1 ORDER BY 1"
        assert await engine.read(lambda db: db.execute(query).fetchall()) == [("raw", 2), ("zstd", 1)]


async def test_without_the_package_everything_is_stored_as_it_is_and_the_statistics_say_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as (store, _):
        compressed = await store.store(bytes(200_000))
        assert (await store.stats()).compression == "zstd"
        monkeypatch.setitem(sys.modules, "zstandard", None)
        assert (await store.stats()).compression == "unavailable"
        plain = await store.store(b"1" * 200_000)
        assert (await store.describe(plain)).stored_size == 200_000
        assert await store.resolve(plain) == b"1" * 200_000
        with pytest.raises(ImportError, match=r"sapwood\[zstd\]"):
            await store.resolve(compressed)
        assert (await store.stats()).quarantined == 0


async def test_a_large_stream_is_stored_and_read_in_constant_memory(path: Path) -> None:
    size, digest = 64, sha256()

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(size):
            chunk = number.to_bytes(8) * (MIB // 8)
            digest.update(chunk)
            yield chunk

    async with opened(path) as (store, _):
        tracemalloc.start()
        try:
            reference = await store.store_stream(chunks())
            read = sha256()
            async with store.resolve_stream(reference) as reader:
                async for chunk in reader:
                    read.update(chunk)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (reference.size, reference.id) == (size * MIB, digest.hexdigest())
    assert read.hexdigest() == reference.id
    assert peak < 12 * MIB


async def test_a_store_that_cannot_answer_never_says_not_found(path: Path) -> None:
    async with opened(path) as (store, engine):
        reference = await store.store(b"data")
        absent = "0" * 64
        with pytest.raises(ReferenceNotFound):
            await store.resolve(absent)
    for call in (store.resolve(reference), store.resolve(absent), store.delete(absent), store.store(b"data")):
        with pytest.raises(ReferenceUnavailable, match="closed"):
            await call
    del engine


@pytest.mark.parametrize("place", ["a directory", "not a database"])
async def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path, place: str) -> None:
    path = tmp_path / "store.db"
    if place == "a directory":
        path.mkdir()
    else:
        path.write_bytes(b"text " * 1000)
    config = ReferenceConfig(sqlite=SQLiteConfig(path=str(path)))
    with pytest.raises(ReferenceUnavailable):
        async with open_reference_store(config, environment=ENVIRONMENT):
            pass


async def test_an_upload_that_was_dropped_leaves_no_pieces_when_it_goes_on(path: Path) -> None:
    environment = SteppedEnvironment()
    async with open_store(path, environment) as engine:
        store = SQLiteReferenceStore(engine, environment)
        await store.open()

        async def chunks() -> AsyncIterator[bytes]:
            yield noise(2 * MIB)
            environment.advance(3600)
            assert (await store.collect()).uploads == 1
            yield noise(2 * MIB, seed=1)

        with pytest.raises(ReferenceUnavailable, match="dropped"):
            await store.store_stream(chunks())
        query = "SELECT (SELECT count(*) FROM reference_pieces), (SELECT count(*) FROM reference_uploads)"
        assert await engine.read(lambda db: db.execute(query).fetchone()) == (0, 0)


@pytest.mark.row("S0-039")
async def test_what_one_process_uses_another_does_not_collect_as_idle(path: Path) -> None:
    environment = SteppedEnvironment()
    async with open_store(path, environment) as one, open_store(path, environment) as two:
        using = SQLiteReferenceStore(one, environment, ttl=None, max_idle=100)
        collecting = SQLiteReferenceStore(two, environment, ttl=None, max_idle=100)
        await using.open()
        reference = await using.store(b"data")
        for _ in range(10):
            environment.advance(30)
            assert await using.resolve(reference) == b"data"
            assert (await collecting.collect()).references == 0
        environment.advance(100)
        assert (await collecting.collect()).references == 1


async def test_use_is_written_when_the_store_closes(path: Path) -> None:
    async with opened(path) as (store, engine):
        reference = await store.store(b"data")
        for _ in range(3):
            await store.resolve(reference)
        await store.close()
        query = "SELECT resolves FROM reference_items"
        assert await engine.read(lambda db: db.execute(query).fetchone()) == (3,)
