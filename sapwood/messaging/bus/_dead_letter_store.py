"""Dead letters in the runtime's store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from sapwood.errors import CodecError, PersistenceError
from sapwood.messaging.bus._dead_letters import DeadLetter
from sapwood.messaging.bus._log import log_warning
from sapwood.persistence import MigrationSet, decode, encode

if TYPE_CHECKING:
    from sqlite_utils import Database

    from sapwood.persistence import StoreEngine

DEAD_LETTERS_SCHEMA = MigrationSet("bus_dead_letters")
"""Table of `StoredDeadLetters`; its `open` applies it."""


@DEAD_LETTERS_SCHEMA.step
def create_dead_letters(db: Database) -> None:
    """Create the table; what people look for when they inspect a store has columns of its own."""
    db.conn.execute(
        "CREATE TABLE bus_dead_letters (number INTEGER PRIMARY KEY, bus TEXT NOT NULL, id TEXT NOT NULL, "
        "reason TEXT NOT NULL, target TEXT NOT NULL, first_seen REAL NOT NULL, record BLOB NOT NULL, "
        "UNIQUE (bus, id)) STRICT"
    )


class StoredDeadLetters:
    """Keeps the dead letters of one bus in a store that may be closed and opened again, as that of a runtime is.

    Args:
        store: Returns the open store, or raises `StoreUnavailable`.
        bus: Name of the bus.
    """

    def __init__(self, store: Callable[[], StoreEngine], bus: str) -> None:
        self._open_store = store
        self._bus = bus

    @property
    def _store(self) -> StoreEngine:
        return self._open_store()

    async def open(self) -> None:
        """Create or upgrade the table.

        Raises:
            StoreUnavailable: if the store cannot answer now.
        """
        await self._store.migrate(DEAD_LETTERS_SCHEMA)

    async def save(self, letter: DeadLetter) -> None:
        """Keep a letter, in place of an older one with its id.

        Raises:
            StoreUnavailable: if the store cannot answer now.
            CodecError: if the payload cannot be stored.
        """
        row = (self._bus, letter.id, letter.reason, letter.target, letter.first_seen, encode(letter))

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO bus_dead_letters (bus, id, reason, target, first_seen, record) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (bus, id) DO UPDATE SET reason = excluded.reason, record = excluded.record",
                row,
            )

        await self._store.write(insert)

    async def remove(self, letter_id: str) -> None:
        """Forget a letter.

        Raises:
            StoreUnavailable: if the store cannot answer now.
        """

        def delete(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM bus_dead_letters WHERE bus = ? AND id = ?", (self._bus, letter_id))

        await self._store.write(delete)

    async def load(self) -> list[DeadLetter]:
        """Return all letters that can be read, oldest first; one that cannot is logged, and stays in the table.

        Raises:
            StoreUnavailable: if the store cannot answer now.
        """

        def select(connection: sqlite3.Connection) -> list[tuple[str, bytes]]:
            return connection.execute(
                "SELECT id, record FROM bus_dead_letters WHERE bus = ? ORDER BY number", (self._bus,)
            ).fetchall()

        letters: list[DeadLetter] = []
        for id, record in await self._store.read(select):
            try:
                letters.append(_read(record))
            except PersistenceError as error:
                log_warning("a dead letter cannot be read, and stays in its store", letter=id, error=str(error))
        return letters


def _read(record: bytes) -> DeadLetter:
    letter: object = decode(record)
    if not isinstance(letter, DeadLetter):
        raise CodecError("bus_dead_letters.record", f"expected a dead letter; got {type(letter).__name__}")
    return letter
