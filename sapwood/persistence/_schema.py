"""Tables of the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapwood.persistence._migrations import MigrationSet

if TYPE_CHECKING:
    from sqlite_utils import Database

JOURNAL_SCHEMA = MigrationSet("journal")
"""Schema history of the journal; every store has it."""


@JOURNAL_SCHEMA.step
def create_journal(db: Database) -> None:
    # base_seq: the journal begins after it; 0, or where an earlier life of the agent ended.
    # deleted: a tombstone, which keeps epoch and last_seq for the next life.
    db.conn.execute("""
        CREATE TABLE agents (
            agent_id TEXT PRIMARY KEY,
            epoch INTEGER NOT NULL,
            owner TEXT NOT NULL,
            base_seq INTEGER NOT NULL DEFAULT 0,
            last_seq INTEGER NOT NULL DEFAULT 0,
            at REAL NOT NULL,
            released INTEGER NOT NULL DEFAULT 0,
            deleted INTEGER NOT NULL DEFAULT 0,
            CHECK (epoch > 0 AND base_seq <= last_seq)
        ) STRICT
    """)
    # kind: wire name of the record. checksum: CRC-32 of what belongs together in the row.
    db.conn.execute("""
        CREATE TABLE journal (
            agent_id TEXT NOT NULL REFERENCES agents,
            seq INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            at REAL NOT NULL,
            kind TEXT NOT NULL,
            record BLOB NOT NULL,
            checksum INTEGER NOT NULL,
            PRIMARY KEY (agent_id, seq)
        ) STRICT
    """)
    db.conn.execute("""
        CREATE TABLE snapshots (
            agent_id TEXT NOT NULL REFERENCES agents,
            seq INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            at REAL NOT NULL,
            kind TEXT NOT NULL,
            record BLOB NOT NULL,
            checksum INTEGER NOT NULL,
            PRIMARY KEY (agent_id, seq)
        ) STRICT
    """)
    # found: CRC-32 of the bytes, so that the same unreadable bytes are kept once.
    db.conn.execute("""
        CREATE TABLE quarantine (
            id INTEGER PRIMARY KEY,
            source TEXT NOT NULL,
            agent_id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            at REAL NOT NULL,
            reason TEXT NOT NULL,
            kind TEXT NOT NULL,
            record BLOB NOT NULL,
            found INTEGER NOT NULL,
            UNIQUE (source, agent_id, seq, found)
        ) STRICT
    """)


@JOURNAL_SCHEMA.step
def create_transcript(db: Database) -> None:
    # What people see of an agent, line by line; compaction of the journal leaves it alone.
    db.conn.execute("""
        CREATE TABLE transcript (
            agent_id TEXT NOT NULL REFERENCES agents,
            number INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            at REAL NOT NULL,
            kind TEXT NOT NULL,
            record BLOB NOT NULL,
            checksum INTEGER NOT NULL,
            PRIMARY KEY (agent_id, number)
        ) STRICT
    """)
