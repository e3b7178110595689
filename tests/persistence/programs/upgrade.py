"""Opens a store with a ledger schema of so many steps.

With `killed`, dies before every statement in turn and prints, for each death, what the file holds: applied steps,
columns, rows, integrity. With `race`, four processes create one file at the same moment, again and again.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlite_utils
import trio

from sapwood.actors import RealEnvironment
from sapwood.persistence import MigrationSet, open_store

PATH, COUNT = Path(sys.argv[1]), int(sys.argv[2])
STEPS = "SELECT name FROM _sqlite_migrations WHERE migration_set = 'ledger' ORDER BY id"

connect = sqlite3.connect


def create_entries(db: sqlite_utils.Database) -> None:
    db.conn.execute("CREATE TABLE entries (id INTEGER PRIMARY KEY, cents INTEGER)")
    db.conn.execute("INSERT INTO entries (cents) VALUES (7), (8)")


def add_currency(db: sqlite_utils.Database) -> None:
    db.conn.execute("ALTER TABLE entries ADD COLUMN currency TEXT")
    db.conn.execute("UPDATE entries SET currency = 'EUR'")


def require_currency(db: sqlite_utils.Database) -> None:
    db.table("entries").transform(not_null={"currency"}, rename={"cents": "amount"})


def add_index(db: sqlite_utils.Database) -> None:
    db.table("entries").create_index(["currency"])


LEDGER = MigrationSet("ledger")
for step in (create_entries, add_currency, require_currency, add_index)[:COUNT]:
    LEDGER.step(step)


async def upgrade() -> None:
    async with open_store(PATH, RealEnvironment(), migrations=[LEDGER]):
        pass


def dying_before(number: int) -> Callable[..., sqlite3.Connection]:
    """Return a `connect` whose connections end the process before the statement of this number."""
    executed = 0

    def count(_: str) -> None:
        nonlocal executed
        executed += 1
        if executed == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect_and_count(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(count)
        return connection

    return connect_and_count


def dies_before(number: int, original: bytes) -> bool:
    """Upgrade the original file in a child; return whether it died."""
    for suffix in ("-wal", "-shm"):
        PATH.with_name(PATH.name + suffix).unlink(missing_ok=True)
    PATH.write_bytes(original)
    child = os.fork()
    if child == 0:
        setattr(sqlite3, "connect", dying_before(number))  # noqa: B010 - an overloaded function
        trio.run(upgrade)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or status == 0
    return os.WIFSIGNALED(status)


def found() -> list[Any]:
    connection = connect(PATH)
    try:
        return [
            [name for (name,) in connection.execute(STEPS)],
            [column[1] for column in connection.execute("PRAGMA table_info(entries)")],
            connection.execute("SELECT * FROM entries").fetchall(),
            connection.execute("PRAGMA integrity_check").fetchone()[0],
        ]
    finally:
        connection.close()


def race() -> None:
    for suffix in ("", "-wal", "-shm"):
        PATH.with_name(PATH.name + suffix).unlink(missing_ok=True)
    waiting, starting = os.pipe()
    children: list[int] = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            os.close(starting)
            os.read(waiting, 1)
            trio.run(upgrade)
            os._exit(0)
        children.append(child)
    os.close(waiting)
    os.close(starting)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4


def die_everywhere() -> None:
    original = PATH.read_bytes()
    number = 1
    while dies_before(number, original):
        found_then = found()
        trio.run(upgrade)  # the next start completes the upgrade
        sys.stdout.write(json.dumps([found_then, found()]) + "\n")
        number += 1


match sys.argv[3:]:
    case ["killed"]:
        die_everywhere()
    case ["race"]:
        for _ in range(40):
            race()
            sys.stdout.write(json.dumps(found()) + "\n")
    case _:
        trio.run(upgrade)
