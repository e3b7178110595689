"""Migrations: named steps that bring a store's schema up to date, all in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import attrs

from sapwood.errors import DuplicateName, FutureVersion, InvalidOption

if TYPE_CHECKING:
    from sqlite_utils import Database

Step: TypeAlias = "Callable[[Database], None]"
"""Changes the schema through the `sqlite_utils.Database` it is given; may neither commit nor roll back."""


@attrs.define(eq=False)
class MigrationSet:
    """The schema history of one part of the store, under a name of its own.

    ```python
    files = MigrationSet("files")

    @files.step
    def create_files(db):
        db.conn.execute("CREATE TABLE files (path TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT")
    ```

    Steps are only ever appended; a step that was released is never changed, renamed or removed. Which steps a file has
    seen is recorded in one place, the table `_sqlite_migrations` that sqlite-utils and its command line use too.

    Attributes:
        name: Unique among the sets of a store.
        steps: Name and function of each step, in order.
    """

    name: str
    steps: dict[str, Step] = attrs.field(factory=dict[str, Step], init=False)

    def step(self, function: Step) -> Step:
        """Append a step, named after its function.

        Raises:
            DuplicateName: if the set has a step of this name.
        """
        name: str = getattr(function, "__name__", repr(function))
        if name in self.steps:
            raise DuplicateName(f"migration step of {self.name!r}", name, self.steps[name])
        self.steps[name] = function
        return function


def pending_steps(connection: sqlite3.Connection, migrations: MigrationSet) -> tuple[str, ...]:
    """Return the names of the steps that the file has not seen; changes nothing.

    Raises:
        FutureVersion: if the file has seen steps that the set does not have.
    """
    applied = applied_steps(connection).get(migrations.name, ())
    unknown = set(applied) - set(migrations.steps)
    if unknown:
        known = len(migrations.steps)
        raise FutureVersion(f"schema {migrations.name!r} of the store", known + len(unknown), known)
    return tuple(name for name in migrations.steps if name not in applied)


def applied_steps(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Return the names of the steps that the file has seen, by set, in the order they were applied."""
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '_sqlite_migrations'")
    if known.fetchone() is None:
        return {}
    applied: dict[str, tuple[str, ...]] = {}
    for name, step in connection.execute("SELECT migration_set, name FROM _sqlite_migrations ORDER BY rowid"):
        applied[name] = (*applied.get(name, ()), step)
    return applied


def apply_steps(connection: sqlite3.Connection, sets: Iterable[MigrationSet]) -> int:
    """Apply what is pending of all sets inside the transaction that the connection has open; return how many steps.

    The caller took the write lock with BEGIN IMMEDIATE, so of two upgraders one waits and then finds nothing to
    do; and a crash at any statement leaves the file as it was before (BR-34).
    """
    assert connection.in_transaction
    count = 0
    for migrations in sets:
        pending = pending_steps(connection, migrations)
        if pending:
            _apply(connection, migrations)
            if not connection.in_transaction:
                raise InvalidOption(
                    f"a migration step of {migrations.name!r} ended the transaction; leave that to the store"
                )
            count += len(pending)
    return count


def _apply(connection: sqlite3.Connection, migrations: MigrationSet) -> None:
    # Costs 70 ms to import, and an up-to-date store never needs it.
    from sqlite_utils import Database, Migrations

    runner = Migrations(migrations.name)
    for name, function in migrations.steps.items():
        runner(name=name)(function)
    # Inside an open transaction sqlite-utils works with savepoints and commits nothing.
    runner.apply(Database(connection, recursive_triggers=False, execute_plugins=False))
