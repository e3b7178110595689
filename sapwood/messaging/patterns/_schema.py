"""Tables of the patterns: snapshots of folded logs, positions of projections, and the list of sagas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapwood.persistence import MigrationSet

if TYPE_CHECKING:
    from sqlite_utils import Database

PATTERNS_SCHEMA = MigrationSet("patterns")
"""Schema history of the patterns; their actors apply it when they start."""


@PATTERNS_SCHEMA.step
def create_patterns(db: Database) -> None:
    """Create all tables. What happened stands in message logs; these say how far somebody has read them."""
    db.conn.execute("""
        CREATE TABLE pattern_snapshots (
            log TEXT PRIMARY KEY,
            seq INTEGER NOT NULL,
            version INTEGER NOT NULL,
            checksum INTEGER NOT NULL,
            state BLOB NOT NULL
        ) STRICT
    """)
    db.conn.execute("""
        CREATE TABLE pattern_projections (
            name TEXT PRIMARY KEY,
            log TEXT NOT NULL,
            version INTEGER NOT NULL,
            position INTEGER NOT NULL
        ) STRICT
    """)
    # told: whether somebody was told that it is stuck.
    db.conn.execute("""
        CREATE TABLE pattern_sagas (
            saga TEXT NOT NULL,
            id TEXT NOT NULL,
            begun_at REAL NOT NULL,
            phase TEXT NOT NULL,
            told INTEGER NOT NULL DEFAULT 0,
            input BLOB NOT NULL,
            PRIMARY KEY (saga, id)
        ) STRICT
    """)
    db.conn.execute(
        "CREATE INDEX pattern_sagas_open ON pattern_sagas (saga) WHERE phase NOT IN ('completed', 'compensated')"
    )
