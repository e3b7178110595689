"""Tables of queues and message logs."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from sapwood.persistence import MigrationSet

if TYPE_CHECKING:
    from sqlite_utils import Database


class State(IntEnum):
    """Where a message that is not settled stands. Statements contain the numbers: partial indexes ask for literals."""

    READY = 0
    """The next take may have it."""
    DELAYED = 1
    """Becomes ready when the queue's clock reaches `due`."""
    SCHEDULED = 2
    """Becomes ready when the wall clock reaches `due`."""
    LEASED = 3
    """A receiver works on it."""
    BLOCKED = 4
    """Another message of its key comes first."""


QUEUES_SCHEMA = MigrationSet("queues")
"""Schema history of queues and message logs; opening one applies it."""


@QUEUES_SCHEMA.step
def create_queues(db: Database) -> None:
    """Create the log, what is not settled of it, dead letters, and the memory of ids."""
    # epoch: raised by every opening. depth: rows of queue_entries, kept by triggers.
    db.conn.execute("""
        CREATE TABLE queues (
            queue_id INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            epoch INTEGER NOT NULL DEFAULT 0,
            owner TEXT NOT NULL DEFAULT '',
            last_seq INTEGER NOT NULL DEFAULT 0,
            depth INTEGER NOT NULL DEFAULT 0
        ) STRICT
    """)
    # at: wall clock. settled_at: queue's clock when retention began; NULL while the message is live or dead.
    db.conn.execute("""
        CREATE TABLE queue_log (
            queue_id INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            at REAL NOT NULL,
            id TEXT NOT NULL,
            sender TEXT,
            priority INTEGER NOT NULL,
            key TEXT,
            ttl REAL,
            headers TEXT NOT NULL,
            kind TEXT,
            checksum INTEGER NOT NULL,
            settled_at REAL,
            body BLOB NOT NULL,
            PRIMARY KEY (queue_id, seq)
        ) STRICT
    """)
    # seen: a handler may have had it in an earlier life.
    # due, expires, since, alert_at: queue's clock, except `due` of calendar rows. delay, ttl: what `due` and
    # `expires` were made of, so that a clock set back between two runs cannot postpone them. *_at: wall clock.
    db.conn.execute("""
        CREATE TABLE queue_entries (
            queue_id INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            state INTEGER NOT NULL,
            rank INTEGER NOT NULL,
            priority INTEGER NOT NULL,
            key TEXT,
            since REAL NOT NULL,
            due REAL NOT NULL,
            delay REAL NOT NULL,
            calendar INTEGER NOT NULL,
            expires REAL,
            ttl REAL,
            attempts INTEGER NOT NULL DEFAULT 0,
            requeues INTEGER NOT NULL DEFAULT 0,
            seen INTEGER NOT NULL DEFAULT 0,
            first_at REAL,
            last_at REAL,
            alert_at REAL,
            epoch INTEGER,
            lease INTEGER,
            PRIMARY KEY (queue_id, seq)
        ) STRICT, WITHOUT ROWID
    """)
    db.conn.execute("""
        CREATE TABLE queue_dead (
            queue_id INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            reason TEXT NOT NULL,
            detail TEXT NOT NULL,
            attempts INTEGER NOT NULL,
            requeues INTEGER NOT NULL,
            first_at REAL,
            last_at REAL,
            dead_at REAL NOT NULL,
            retry_at REAL,
            alert_at REAL,
            notify INTEGER NOT NULL,
            PRIMARY KEY (queue_id, seq)
        ) STRICT, WITHOUT ROWID
    """)
    db.conn.execute("""
        CREATE TABLE queue_ids (
            queue_id INTEGER NOT NULL,
            id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            content INTEGER NOT NULL,
            until REAL NOT NULL,
            PRIMARY KEY (queue_id, id)
        ) STRICT, WITHOUT ROWID
    """)
    # Messages whose effect was committed, by consumer.
    db.conn.execute("""
        CREATE TABLE queue_effects (
            queue_id INTEGER NOT NULL,
            consumer TEXT NOT NULL,
            id TEXT NOT NULL,
            until REAL NOT NULL,
            PRIMARY KEY (queue_id, consumer, id)
        ) STRICT, WITHOUT ROWID
    """)
    for statement in (
        "CREATE INDEX queue_ready ON queue_entries (queue_id, rank, seq) WHERE state = 0",
        "CREATE INDEX queue_delayed ON queue_entries (queue_id, due) WHERE state = 1",
        "CREATE INDEX queue_scheduled ON queue_entries (queue_id, due) WHERE state = 2",
        "CREATE INDEX queue_leased ON queue_entries (queue_id) WHERE state = 3",
        "CREATE INDEX queue_expiring ON queue_entries (queue_id, expires) WHERE expires IS NOT NULL",
        "CREATE INDEX queue_lines ON queue_entries (queue_id, key, seq) WHERE key IS NOT NULL",
        "CREATE INDEX queue_retries ON queue_dead (queue_id, retry_at) WHERE retry_at IS NOT NULL",
        "CREATE INDEX queue_alerts ON queue_dead (queue_id, alert_at) WHERE alert_at IS NOT NULL",
        "CREATE INDEX queue_notices ON queue_dead (queue_id) WHERE notify = 1",
        "CREATE INDEX queue_settled ON queue_log (queue_id, settled_at) WHERE settled_at IS NOT NULL",
        "CREATE INDEX queue_ids_until ON queue_ids (queue_id, until)",
        "CREATE INDEX queue_effects_until ON queue_effects (queue_id, until)",
        (
            "CREATE TRIGGER queue_entered AFTER INSERT ON queue_entries BEGIN"
            " UPDATE queues SET depth = depth + 1 WHERE queue_id = NEW.queue_id; END"
        ),
        (
            "CREATE TRIGGER queue_left AFTER DELETE ON queue_entries BEGIN"
            " UPDATE queues SET depth = depth - 1 WHERE queue_id = OLD.queue_id; END"
        ),
    ):
        db.conn.execute(statement)
