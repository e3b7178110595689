"""Tables of reference stores in SQLite, and the statements on them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from sapwood.persistence import MigrationSet
from sapwood.references._pieces import Piece
from sapwood.references._protocol import Collected
from sapwood.references._reference import Lease, Reference, ReferenceInfo
from sapwood.references._retention import Hold, Retention, finite
from sapwood.references._shelf import BATCH, UPLOAD_IDLE, Item, Totals

if TYPE_CHECKING:
    from sqlite_utils import Database

REFERENCES_SCHEMA = MigrationSet("references")
"""Schema history of reference stores; `SQLiteReferenceStore` applies it."""

Connection = sqlite3.Connection

ITEM: Final = "id, type, content_type, size, created, blob, pieces, stored_size, corrupt"
HELD: Final = "EXISTS (SELECT 1 FROM reference_leases AS l WHERE l.id = i.id AND l.expires > :now)"
ALIVE: Final = f"(corrupt IS NOT NULL OR (kept_until > :now AND accessed > :idle_before) OR {HELD})"


@REFERENCES_SCHEMA.step
def create_references(db: Database) -> None:
    # Moments are seconds since 1970 UTC, and infinity where they never come.
    db.conn.execute("""
        CREATE TABLE reference_items (
            id TEXT PRIMARY KEY,
            type TEXT NOT NULL,
            content_type TEXT NOT NULL,
            size INTEGER NOT NULL,
            created REAL NOT NULL,
            blob TEXT NOT NULL UNIQUE,
            pieces INTEGER NOT NULL,
            stored_size INTEGER NOT NULL,
            kept_until REAL NOT NULL,
            accessed REAL NOT NULL,
            resolves INTEGER NOT NULL DEFAULT 0,
            corrupt TEXT
        ) STRICT
    """)
    db.conn.execute("CREATE INDEX reference_items_by_access ON reference_items (accessed, id)")
    db.conn.execute("""
        CREATE TABLE reference_pieces (
            blob TEXT NOT NULL,
            number INTEGER NOT NULL,
            encoding TEXT NOT NULL,
            crc INTEGER NOT NULL,
            data BLOB NOT NULL,
            PRIMARY KEY (blob, number)
        ) STRICT
    """)
    db.conn.execute("""
        CREATE TABLE reference_leases (
            id TEXT NOT NULL,
            owner TEXT NOT NULL,
            expires REAL NOT NULL,
            PRIMARY KEY (id, owner)
        ) STRICT, WITHOUT ROWID
    """)
    db.conn.execute("CREATE INDEX reference_leases_by_owner ON reference_leases (owner)")
    db.conn.execute("CREATE INDEX reference_leases_by_end ON reference_leases (expires)")
    db.conn.execute("CREATE TABLE reference_uploads (blob TEXT PRIMARY KEY, touched REAL NOT NULL) STRICT")
    # One row, so that no statistics and no limit need to count.
    db.conn.execute("""
        CREATE TABLE reference_totals (
            one INTEGER PRIMARY KEY CHECK (one = 1), items INTEGER NOT NULL, bytes INTEGER NOT NULL,
            stored_bytes INTEGER NOT NULL
        ) STRICT
    """)
    db.conn.execute("INSERT INTO reference_totals VALUES (1, 0, 0, 0)")
    db.conn.execute("""
        CREATE TRIGGER reference_items_insert AFTER INSERT ON reference_items BEGIN
            UPDATE reference_totals SET items = items + 1, bytes = bytes + NEW.size,
                stored_bytes = stored_bytes + NEW.stored_size;
        END
    """)
    db.conn.execute("""
        CREATE TRIGGER reference_items_delete AFTER DELETE ON reference_items BEGIN
            UPDATE reference_totals SET items = items - 1, bytes = bytes - OLD.size,
                stored_bytes = stored_bytes - OLD.stored_size;
        END
    """)


@attrs.frozen
class Moment:
    """When something is done to the tables, and by which retention."""

    now: float
    retention: Retention

    def bound(self, **values: object) -> Mapping[str, Any]:
        """Return the values for a statement that asks what is alive."""
        return {"now": self.now, "idle_before": self.retention.idle_before(self.now), **values}


def find(db: Connection, id: str, at: Moment) -> Item | None:
    """Return an item that is alive."""
    query = f"SELECT {ITEM} FROM reference_items AS i WHERE id = :id AND {ALIVE}"  # noqa: S608  # constants only
    row = db.execute(query, at.bound(id=id)).fetchone()
    return None if row is None else item_of(row)


def item_of(row: Sequence[Any]) -> Item:
    """Make an item of the columns `ITEM`."""
    id, type_, content_type, size, created, blob, pieces, stored_size, corrupt = row
    return Item(Reference(id, type_, content_type, size, created), blob, pieces, stored_size, corrupt)


def _columns(reference: Reference) -> tuple[str | int | float, ...]:
    return reference.id, reference.type, reference.content_type, reference.size, reference.created


def put(db: Connection, item: Item, hold: Hold, at: Moment) -> Item:
    """Keep an item whose pieces are in the table, or add the hold to the one that is there and drop the pieces."""
    there = _merged(db, item, hold, at)
    if there is not item:
        drop_pieces(db, [item.blob])
    return there


def merge(db: Connection, item: Item, pieces: Iterable[Piece], hold: Hold, at: Moment) -> Item:
    """Keep an item and its pieces, or add the hold to the one that is there."""
    there = _merged(db, item, hold, at)
    if there is item:
        for number, piece in enumerate(pieces):
            add_piece(db, item.blob, number, piece)
    return there


def _merged(db: Connection, item: Item, hold: Hold, at: Moment) -> Item:
    reference = item.reference
    there = find(db, reference.id, at)
    if there is None or there.corrupt is not None:
        kept = hold.kept_until
        if there is not None:
            query = "SELECT kept_until FROM reference_items WHERE id = ?"
            kept = max(kept, *db.execute(query, (reference.id,)).fetchone())
        remove(db, [reference.id], leases=there is None)
        db.execute(
            f"INSERT INTO reference_items ({ITEM}, kept_until, accessed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)",  # noqa: S608  # constants only
            (*_columns(reference), item.blob, item.pieces, item.stored_size, kept, at.now),
        )
        there = item
    else:
        db.execute(
            "UPDATE reference_items SET kept_until = max(kept_until, ?), accessed = max(accessed, ?) WHERE id = ?",
            (hold.kept_until, at.now, reference.id),
        )
    if hold.owner is not None:
        set_lease(db, Lease(reference.id, hold.owner, hold.expires))
    evict(db, reference.id, at)
    return there


def add_piece(db: Connection, blob: str, number: int, piece: Piece) -> None:
    """Add one piece."""
    db.execute(
        "INSERT INTO reference_pieces VALUES (?, ?, ?, ?, ?)", (blob, number, piece.encoding, piece.crc, piece.data)
    )


def extend(db: Connection, blob: str, number: int, piece: Piece, now: float) -> bool:
    """Add a piece to an upload, if that is there."""
    if db.execute("UPDATE reference_uploads SET touched = ? WHERE blob = ?", (now, blob)).rowcount != 1:
        return False
    add_piece(db, blob, number, piece)
    return True


def pieces_of(db: Connection, blob: str) -> list[Piece]:
    """Return all pieces of an item that are there, up to the first gap."""
    rows = db.execute(
        "SELECT number, encoding, crc, data FROM reference_pieces WHERE blob = ? ORDER BY number", (blob,)
    )
    return [Piece(*row[1:]) for place, row in enumerate(rows) if row[0] == place]


def set_lease(db: Connection, lease: Lease) -> None:
    """Make or renew a lease."""
    db.execute(
        "INSERT INTO reference_leases VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET expires = excluded.expires",
        (lease.id, lease.owner, lease.expires),
    )


def leases_of(db: Connection, id: str, now: float) -> tuple[Lease, ...]:
    """Return who holds an item."""
    rows = db.execute(
        "SELECT id, owner, expires FROM reference_leases WHERE id = ? AND expires > ? ORDER BY owner", (id, now)
    )
    return tuple(Lease(found, owner, finite(expires)) for found, owner, expires in rows)


def describe(db: Connection, id: str, at: Moment) -> ReferenceInfo | None:
    """Return all that is known of an item that is alive."""
    item = find(db, id, at)
    if item is None:
        return None
    query = "SELECT kept_until, accessed, resolves FROM reference_items WHERE id = ?"
    kept_until, accessed, resolves = db.execute(query, (id,)).fetchone()
    leases = leases_of(db, id, at.now)
    return ReferenceInfo(item.reference, leases, finite(kept_until), accessed, resolves, item.stored_size, item.corrupt)


def totals(db: Connection) -> Totals:
    """Return how much is kept."""
    row = db.execute(
        "SELECT items, bytes, stored_bytes, (SELECT count(*) FROM reference_leases),"
        " (SELECT count(*) FROM reference_items WHERE corrupt IS NOT NULL) FROM reference_totals"
    ).fetchone()
    return Totals(*row)


def remove(db: Connection, ids: Sequence[str], *, leases: bool = True) -> int:
    """Remove items with their pieces; return how many stored bytes that frees."""
    freed = 0
    for id in ids:
        row = db.execute("DELETE FROM reference_items WHERE id = ? RETURNING blob, stored_size", (id,)).fetchone()
        if row is not None:
            drop_pieces(db, [row[0]])
            freed += row[1]
        if leases:
            db.execute("DELETE FROM reference_leases WHERE id = ?", (id,))
    return freed


def drop_pieces(db: Connection, blobs: Iterable[str]) -> None:
    """Remove all pieces of items or uploads."""
    db.executemany("DELETE FROM reference_pieces WHERE blob = ?", [(blob,) for blob in blobs])


def touch(db: Connection, used: Mapping[str, tuple[float, int]]) -> None:
    """Note when items were used last, and how often since."""
    db.executemany(
        "UPDATE reference_items SET accessed = max(accessed, ?), resolves = resolves + ? WHERE id = ?",
        [(accessed, times, id) for id, (accessed, times) in used.items()],
    )


def collect_batch(db: Connection, after: str, at: Moment) -> tuple[str | None, Collected]:
    """Remove what is not alive among the next items; return where to go on, or None at the end."""
    query = f"SELECT id, {ALIVE} FROM reference_items AS i WHERE id > :after ORDER BY id LIMIT {BATCH}"  # noqa: S608  # constants only
    rows: list[tuple[str, int]] = db.execute(query, at.bound(after=after)).fetchall()
    dead = [id for id, alive in rows if not alive]
    freed = remove(db, dead)
    return (rows[-1][0] if len(rows) == BATCH else None), Collected(len(dead), stored_bytes=freed)


def drop_ended(db: Connection, at: Moment) -> Collected:
    """Remove expired leases and idle uploads."""
    leases = db.execute("DELETE FROM reference_leases WHERE expires <= ?", (at.now,)).rowcount
    idle = db.execute("DELETE FROM reference_uploads WHERE touched <= ? RETURNING blob", (at.now - UPLOAD_IDLE,))
    blobs = [blob for (blob,) in idle.fetchall()]
    drop_pieces(db, blobs)
    return Collected(leases=leases, uploads=len(blobs))


def evict(db: Connection, stored: str | None, at: Moment) -> Collected:
    """Remove what was used least recently and is not held, until the limits hold; never what was just stored."""
    retention = at.retention
    if retention.max_bytes is None and retention.max_references is None:
        return Collected()
    evicted = freed = 0
    query = (
        f"SELECT id FROM reference_items AS i WHERE id IS NOT :stored AND corrupt IS NULL AND NOT {HELD}"  # noqa: S608  # constants only
        " ORDER BY accessed, id LIMIT 1"
    )
    while retention.exceeded(*db.execute("SELECT items, stored_bytes FROM reference_totals").fetchone()):
        victim = db.execute(query, {"now": at.now, "stored": stored}).fetchone()
        if victim is None:
            break
        freed += remove(db, victim)
        evicted += 1
    return Collected(evicted=evicted, stored_bytes=freed)
