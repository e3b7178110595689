"""Publishing: the last snapshot of each monitor as a row of its runtime's store, for people in other processes."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Final

import attrs

from sapwood.messaging.monitoring._snapshot import Snapshot
from sapwood.persistence import MigrationSet, encode

if TYPE_CHECKING:
    from sqlite_utils import Database

FORGOTTEN_AFTER: Final = 60.0
"""Seconds of silence after which the next monitor removes the row of a process that has died."""

MONITORING_SCHEMA = MigrationSet("monitoring")
"""Schema history of what monitors keep in a store."""


@MONITORING_SCHEMA.step
def create_monitoring_snapshots(db: Database) -> None:
    # at: wall clock of the look. every: seconds between looks. snapshot: an encoded `Snapshot`.
    db.conn.execute("""
        CREATE TABLE monitoring_snapshots (
            monitor TEXT PRIMARY KEY,
            pid INTEGER NOT NULL,
            at REAL NOT NULL,
            every REAL NOT NULL,
            snapshot BLOB NOT NULL
        ) STRICT
    """)


@attrs.frozen
class Row:
    """The row of one monitor.

    Attributes:
        monitor: Its id.
        every: Seconds between two looks.
        snapshot: What the last one found.
    """

    monitor: str
    every: float
    snapshot: Snapshot

    def save(self, connection: sqlite3.Connection) -> None:
        """Write the row in place of the one before, and remove those of monitors that are long silent."""
        at = self.snapshot.at
        connection.execute("DELETE FROM monitoring_snapshots WHERE at < ? - max(?, 3 * every)", (at, FORGOTTEN_AFTER))
        connection.execute(
            "INSERT OR REPLACE INTO monitoring_snapshots (monitor, pid, at, every, snapshot) VALUES (?, ?, ?, ?, ?)",
            (self.monitor, os.getpid(), at, self.every, encode(self.snapshot)),
        )


def remove_row(connection: sqlite3.Connection, monitor: str) -> None:
    """Remove the row of a monitor that stops."""
    connection.execute("DELETE FROM monitoring_snapshots WHERE monitor = ?", (monitor,))
