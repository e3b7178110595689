"""Opening what is no store, or cannot be opened: a typed error, and not one byte changed."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from sapwood.actors import RealEnvironment, record
from sapwood.errors import FutureVersion, StoreCorrupt, StoreUnavailable
from sapwood.persistence import Journal, MigrationSet, open_store

ENVIRONMENT = RealEnvironment()

PROGRAM = Path(__file__).parent / "programs" / "open_as_nobody.py"


@record("test.opening")
class Noted:
    text: str


def picture(folder: Path) -> dict[str, tuple[int, str]]:
    """Name, modification time and content of every file in a folder."""
    return {
        file.name: (file.stat().st_mtime_ns, hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "")
        for file in folder.iterdir()
    }


async def opened(path: str | Path, *migrations: MigrationSet) -> None:
    async with open_store(path, ENVIRONMENT, migrations=migrations):
        pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def open_folder() -> Generator[Path]:
    """A folder that other users may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_a_directory_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    before = picture(tmp_path)
    with pytest.raises(StoreUnavailable, match="is a directory; name a file inside it"):
        await opened(tmp_path / "folder")
    assert picture(tmp_path) == before


async def test_a_pipe_is_no_store(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(StoreUnavailable, match="is not a regular file"):
        await opened(path)


async def test_a_missing_directory_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="missing does not exist; create it first"):
        await opened(tmp_path / "missing" / "store.db")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable, match="cannot be read: Not a directory"):
        await opened(tmp_path / "file" / "store.db")
    assert picture(tmp_path).keys() == {"file"}


@pytest.mark.parametrize("content", [b"x", b"hello, this is a text file\n" * 100, b"\x00" * 8192], ids=len)
async def test_a_file_that_is_no_database_is_refused_untouched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    before = picture(path.parent)
    with pytest.raises(StoreCorrupt, match=r"not an SQLite database; choose another path"):
        await opened(path)
    assert picture(path.parent) == before


@pytest.mark.parametrize("damage", ["header", "pages", "half"])
async def test_a_damaged_store_is_refused_untouched(path: Path, damage: str) -> None:
    await opened(path)
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[16:40] = b"\xff" * 24
    elif damage == "pages":
        content[100:4096] = b"\xff" * 3996
    else:
        del content[len(content) // 2 :]
    path.write_bytes(content)
    before = picture(path.parent)

    with pytest.raises(StoreCorrupt):
        await opened(path)

    assert picture(path.parent) == before


@pytest.mark.parametrize("application_id", [0, 0x0F055112])
@pytest.mark.parametrize("hot", [False, True], ids=["closed", "with a hot log"])
async def test_the_database_of_another_application_is_refused_with_advice_and_untouched(
    path: Path, tmp_path: Path, application_id: int, *, hot: bool
) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE customers (name TEXT)")
        connection.execute(f"PRAGMA application_id = {application_id}")
        if hot:  # as a crashed application leaves it
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).write_bytes(other.with_name(other.name + suffix).read_bytes())
    if not hot:
        path.write_bytes(other.read_bytes())
    before = picture(path.parent)

    with pytest.raises(StoreCorrupt, match=r"another application made it .*customers.*a file of its own"):
        await opened(path)

    after = picture(path.parent)
    for changing in ("store.db-shm",):  # SQLite's own index of the log, not data
        before.pop(changing, None)
        after.pop(changing, None)
    assert after == before


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    await opened(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (0x53415057,)


def as_nobody(action: str, path: Path) -> str:
    done = subprocess.run([sys.executable, PROGRAM, action, path], check=True, capture_output=True, text=True)
    return done.stdout


async def test_a_file_without_permissions_is_unavailable_and_stays_as_it_is(open_folder: Path) -> None:
    path = open_folder / "store.db"
    await opened(path)
    for action, mode, expected in (
        ("open", 0o444, "is read-only; make the file writable"),
        ("inspect", 0o444, "opened"),
        ("open", 0o000, "may not be read by this user"),
        ("inspect", 0o000, "may not be read by this user"),
    ):
        path.chmod(mode)
        before = picture(open_folder)

        assert as_nobody(action, path).startswith(expected)
        assert picture(open_folder) == before


def test_a_directory_without_permissions_is_unavailable(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    assert as_nobody("open", open_folder / "store.db").startswith("cannot be opened; check that its directory exists")


# --- newer files ------------------------------------------------------------------------------------------


def with_steps(name: str, count: int) -> MigrationSet:
    migrations = MigrationSet(name)
    for number in range(1, count + 1):

        def step(db: Any, number: int = number) -> None:
            db.conn.execute(f"CREATE TABLE {name}_{number} (x)")

        step.__name__ = f"step_{number}"
        migrations.step(step)
    return migrations


@pytest.mark.row("BR-34", "UP-68")
async def test_a_newer_schema_is_refused_and_not_one_byte_is_changed(path: Path) -> None:
    await opened(path, with_steps("files", 5))
    before = picture(path.parent)

    for _ in range(2):
        with pytest.raises(FutureVersion) as caught:
            await opened(path, with_steps("files", 4))
        assert (caught.value.found, caught.value.known) == (5, 4)
        assert "files" in caught.value.name

    assert picture(path.parent) == before
    await opened(path, with_steps("files", 5))


@pytest.mark.row("BR-34")
async def test_a_newer_schema_that_is_migrated_later_is_refused_too(path: Path) -> None:
    await opened(path, with_steps("files", 5))
    async with open_store(path, ENVIRONMENT) as store:
        with pytest.raises(FutureVersion):
            await store.migrate(with_steps("files", 4))
        await store.migrate(with_steps("files", 6))
    assert "files_6" in Database(path).table_names()


@pytest.mark.row("BR-34")
async def test_a_schema_that_this_program_does_not_use_is_left_alone(path: Path) -> None:
    await opened(path, with_steps("files", 2))
    await opened(path)
    assert {"files_1", "files_2"} <= set(Database(path).table_names())


async def test_the_file_can_be_read_with_sqlite_utils(path: Path) -> None:
    async with open_store(path, ENVIRONMENT) as store:
        journal = Journal(store, ENVIRONMENT)
        claim = await journal.claim("a", owner="one")
        await journal.append("a", epoch=claim.epoch, expected_seq=0, events=[Noted("x")])

    database = Database(path)
    assert [row["kind"] for row in database["journal"].rows] == ["test.opening"]
    assert [row["agent_id"] for row in database["agents"].rows] == ["a"]
    assert {row["migration_set"] for row in database["_sqlite_migrations"].rows} == {"journal"}
    database.close()


async def test_two_stores_of_one_process_may_share_a_file(path: Path) -> None:
    async with open_store(path, ENVIRONMENT) as one, open_store(path, ENVIRONMENT) as two:
        first, second = Journal(one, ENVIRONMENT), Journal(two, ENVIRONMENT)
        await first.claim("a", owner="one")
        claim = await second.claim("a", owner="two")
        await second.append("a", epoch=claim.epoch, expected_seq=0, events=[Noted("x")])
        assert [entry.event for entry in await first.read("a")] == [Noted("x")]
