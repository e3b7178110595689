from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sapwood.actors import RealEnvironment
from sapwood.errors import DuplicateName, InvalidOption
from sapwood.persistence import MigrationSet, open_store

ENVIRONMENT = RealEnvironment()

UPGRADE = Path(__file__).parent / "programs" / "upgrade.py"


OLD = [["create_entries"], ["id", "cents"], [[1, 7], [2, 8]], "ok"]
NEW = [
    ["create_entries", "add_currency", "require_currency", "add_index"],
    ["id", "amount", "currency"],
    [[1, 7, "EUR"], [2, 8, "EUR"]],
    "ok",
]


def run(path: Path, *arguments: str) -> str:
    command = [sys.executable, str(UPGRADE), str(path), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def schema(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [
            sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        ]


def step(migrations: MigrationSet, name: str, *statements: str) -> None:
    def function(db: Any) -> None:
        for statement in statements:
            db.conn.execute(statement)

    function.__name__ = name
    migrations.step(function)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_steps_are_applied_in_order_and_once(path: Path) -> None:
    migrations = MigrationSet("things")
    step(migrations, "create", "CREATE TABLE things (a)", "INSERT INTO things VALUES (1)")
    step(migrations, "widen", "ALTER TABLE things ADD COLUMN b DEFAULT 2")

    for _ in range(2):
        async with open_store(path, ENVIRONMENT, migrations=[migrations]) as store:
            await store.migrate(migrations)
            assert await store.read(lambda c: c.execute("SELECT * FROM things").fetchall()) == [(1, 2)]

    step(migrations, "more", "INSERT INTO things VALUES (3, 4)")
    async with open_store(path, ENVIRONMENT, migrations=[migrations]) as store:
        assert await store.read(lambda c: c.execute("SELECT * FROM things").fetchall()) == [(1, 2), (3, 4)]


@pytest.mark.parametrize("at_opening", [True, False])
async def test_an_upgrade_that_fails_at_any_step_leaves_the_file_at_the_version_it_had(
    path: Path, *, at_opening: bool
) -> None:
    good = MigrationSet("things")
    step(good, "create", "CREATE TABLE things (a)")
    async with open_store(path, ENVIRONMENT, migrations=[good]):
        pass
    before = schema(path)
    bad = MigrationSet("things")
    step(bad, "create", "CREATE TABLE things (a)")
    step(bad, "widen", "ALTER TABLE things ADD COLUMN b")
    step(bad, "break", "CREATE TABLE more (a)", "SELECT * FROM nowhere")

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        async with open_store(path, ENVIRONMENT, migrations=[bad] if at_opening else []) as store:
            await store.migrate(bad)

    assert schema(path) == before
    async with open_store(path, ENVIRONMENT, migrations=[good]):
        pass


async def test_a_step_that_commits_is_refused(path: Path) -> None:
    migrations = MigrationSet("things")

    @migrations.step
    def meddle(db: Any) -> None:
        db.conn.executescript("CREATE TABLE things (a);")

    with pytest.raises((InvalidOption, sqlite3.OperationalError)):
        async with open_store(path, ENVIRONMENT, migrations=[migrations]):
            pass


def test_a_step_name_is_used_once() -> None:
    migrations = MigrationSet("things")
    step(migrations, "create")
    with pytest.raises(DuplicateName, match="create"):
        step(migrations, "create")


@pytest.mark.row("BR-34")
def test_a_process_killed_at_any_statement_of_an_upgrade_leaves_exactly_one_version(path: Path) -> None:
    run(path, "1")
    done = run(path, "4", "killed")
    deaths = [json.loads(line) for line in done.splitlines()]

    assert len(deaths) > 30
    assert all(left in (OLD, NEW) for left, _ in deaths)
    assert all(completed == NEW for _, completed in deaths)
    assert deaths[0][0] == OLD
    assert deaths[-1][0] == NEW


@pytest.mark.row("BR-34")
def test_of_many_processes_that_create_and_upgrade_one_file_at_once_all_but_one_wait(path: Path) -> None:
    done = run(path, "4", "race")

    assert [json.loads(line) for line in done.splitlines()] == [NEW] * 40
