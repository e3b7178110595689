"""The tree reporter: lets other processes see the tree of a running runtime, through its store."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Final

import attrs
import trio

from sapwood._runtime import Runtime
from sapwood.errors import InvalidOption, PersistenceError
from sapwood.persistence import MigrationSet
from sapwood.supervision import ChildSpec, child

if TYPE_CHECKING:
    from sqlite_utils import Database

FORGOTTEN_AFTER: Final = 60.0
"""Seconds of silence after which the next reporter removes the tree of a process that has died."""

CONSOLE_SCHEMA = MigrationSet("console")
"""Schema history of what the command line keeps in a store."""


@CONSOLE_SCHEMA.step
def create_running_trees(db: Database) -> None:
    # at: wall clock of the last report. every: seconds between reports. tree: as `TreeNode.render` draws it.
    db.conn.execute("""
        CREATE TABLE running_trees (
            runtime TEXT PRIMARY KEY,
            pid INTEGER NOT NULL,
            at REAL NOT NULL,
            every REAL NOT NULL,
            tree TEXT NOT NULL
        ) STRICT
    """)


class TreeReporter:
    """Publishes the supervision tree of a runtime in its store, for `sapwood tree FILE` in another process.

    A runtime listens on nothing, and this opens no door either: it writes one row, every few seconds, and removes it
    at an orderly stop. After a crash the row stays; its age tells. A store that cannot be written to is tried again at
    the next turn; the reporter never brings its runtime down.

    ```python
    reporter = TreeReporter()
    async with open_runtime(store="support.db", children=[reporter.spec()]) as runtime:
        reporter.watch(runtime)
    ```

    Args:
        every: Seconds between two reports.

    Raises:
        InvalidOption: if they are not above 0.
    """

    def __init__(self, *, every: float = 1.0) -> None:
        if not every > 0:
            raise InvalidOption(f"TreeReporter: expected every > 0 seconds; got {every!r}")
        self.every = every
        self._runtime: Runtime | None = None
        self._given = trio.Event()
        self._name = ""

    def spec(self) -> ChildSpec:
        """Return the child to start in the runtime's tree."""
        return child(self._report, id="tree-reporter")

    def watch(self, runtime: Runtime) -> None:
        """Say which runtime it is; reports begin now."""
        self._runtime = runtime
        self._name = runtime.environment.new_id("runtime_")
        self._given.set()

    async def _report(self) -> None:
        await self._given.wait()
        runtime = self._runtime
        assert runtime is not None
        prepared = False
        try:
            while True:
                prepared = await self._publish(runtime, prepared=prepared)
                await trio.sleep(self.every)
        finally:
            with trio.move_on_after(1.0, shield=True):
                await self._withdraw(runtime)

    async def _publish(self, runtime: Runtime, *, prepared: bool) -> bool:
        row = _Row(self._name, os.getpid(), runtime.environment.wall(), self.every, runtime.tree().render())
        try:
            if not prepared:
                await runtime.store.migrate(CONSOLE_SCHEMA)
            await runtime.store.write(row.save)
        except PersistenceError:
            # Readers see by its age that the report is old.
            return False
        return True

    async def _withdraw(self, runtime: Runtime) -> None:
        def remove(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM running_trees WHERE runtime = ?", (self._name,))

        try:
            await runtime.store.write(remove)
        except (PersistenceError, sqlite3.Error):
            # The row stays, and the next reporter on this file removes it.
            return


@attrs.frozen
class _Row:
    runtime: str
    pid: int
    at: float
    every: float
    tree: str

    def save(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM running_trees WHERE at < ? - max(?, 3 * every)", (self.at, FORGOTTEN_AFTER))
        connection.execute(
            "INSERT OR REPLACE INTO running_trees (runtime, pid, at, every, tree) VALUES (?, ?, ?, ?, ?)",
            (self.runtime, self.pid, self.at, self.every, self.tree),
        )
