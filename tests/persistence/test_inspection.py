from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sapwood.actors import RealEnvironment, record
from sapwood.errors import FutureVersion, InvalidOption, StoreCorrupt, StoreUnavailable
from sapwood.persistence import Journal, MigrationSet, Store, StoreSummary, open_store, read_summary

ENVIRONMENT = RealEnvironment()


@record("test.seen")
class Seen:
    what: Any


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def fill(store: Store) -> None:
    journal = Journal(store, ENVIRONMENT)
    for name in ("b", "a"):
        claim = await journal.claim(name, owner="someone")
        await journal.append(name, epoch=1, expected_seq=claim.seq, events=[Seen((name, n)) for n in range(5)])
    await journal.save_snapshot("a", epoch=1, seq=3, state=Seen("state"))
    await journal.release("a", epoch=1)


@pytest.mark.parametrize("in_use", [True, False])
async def test_a_store_can_be_read_from_outside_whether_in_use_or_not(path: Path, *, in_use: bool) -> None:
    summaries: list[StoreSummary] = []
    async with open_store(path, ENVIRONMENT) as store:
        await fill(store)
        if in_use:
            summaries.append(read_summary(path, tail=2))
    if not in_use:
        before = [(file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in path.parent.iterdir()]
        summaries.append(read_summary(str(path), tail=2))
        assert [(f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in path.parent.iterdir()] == before
    (summary,) = summaries

    assert [(row.agent_id, row.seq, row.snapshot_seq, row.released) for row in summary.agents] == [
        ("a", 5, 3, True),
        ("b", 5, None, False),
    ]
    assert [entry.seq for entry in summary.tails["a"]] == [4, 5]
    assert summary.tails["b"][-1].content == {"@record": "test.seen/1", "what": ["b", 4]}
    assert summary.tails["b"][-1].kind == "test.seen"
    assert summary.quarantine == ()
    assert summary.migrations == {"journal": ("create_journal", "create_transcript")}


async def test_a_damaged_record_is_shown_with_its_problem(path: Path) -> None:
    async with open_store(path, ENVIRONMENT) as store:
        await fill(store)
        await store.write(lambda c: c.execute("UPDATE journal SET record = x'c1' WHERE seq = 5").rowcount)

    last = read_summary(path).tails["a"][-1]

    assert (last.seq, last.size, last.content) == (5, 1, None)
    assert last.problem is not None
    assert "checksum" in last.problem


async def test_what_is_no_store_gives_a_typed_error_and_no_file_appears(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello" * 200)
    for name, error, text in (
        ("missing", StoreUnavailable, "there is no such file"),
        ("missing/store.db", StoreUnavailable, "does not exist"),
        ("empty", StoreCorrupt, "is empty"),
        ("text", StoreCorrupt, "not an SQLite database"),
        (".", StoreUnavailable, "is a directory"),
    ):
        with pytest.raises(error, match=text):
            read_summary(tmp_path / name)
    with pytest.raises(InvalidOption, match="memory"):
        read_summary(":memory:")
    with pytest.raises(InvalidOption, match="tail"):
        read_summary(tmp_path / "text", tail=-1)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["empty", "text"]


async def test_a_store_of_a_newer_schema_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = MigrationSet("journal")

    @newer.step
    def create_journal(db: Any) -> None:
        db.conn.execute("CREATE TABLE agents (x)")

    @newer.step
    def widen_journal(db: Any) -> None:
        db.conn.execute("ALTER TABLE agents ADD COLUMN y")

    monkeypatch.setattr("sapwood.persistence._engine.JOURNAL_SCHEMA", newer)
    async with open_store(path, ENVIRONMENT):
        pass
    with pytest.raises(FutureVersion):
        read_summary(path)
