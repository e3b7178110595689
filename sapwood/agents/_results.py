"""The results that a runtime keeps in its own store, and the tool that reads them."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from sapwood.errors import ToolError
from sapwood.persistence import MigrationSet
from sapwood.tools import ToolContext, tool

if TYPE_CHECKING:
    from sqlite_utils import Database

    from sapwood.persistence import StoreEngine

RESULTS_SCHEMA = MigrationSet("results")
"""Table of `StoredResults`."""


@RESULTS_SCHEMA.step
def create_results(db: Database) -> None:
    """Create the table of whole results."""
    db.conn.execute(
        "CREATE TABLE results (agent_id TEXT NOT NULL, reference TEXT NOT NULL, text TEXT NOT NULL,"
        " PRIMARY KEY (agent_id, reference)) STRICT"
    )


class StoredResults:
    """Keeps whole results in the store of a runtime; see `ResultStore`.

    Args:
        store: Returns the present store.
    """

    def __init__(self, store: Callable[[], StoreEngine]) -> None:
        self._store = store
        self._migrated: StoreEngine | None = None

    async def put(self, agent_id: str, key: str, text: str) -> str:
        """Keep a text; its reference follows from the conversation and the idempotency key of the call."""
        reference = f"res_{hashlib.sha256(f'{agent_id}:{key}'.encode(errors='backslashreplace')).hexdigest()[:24]}"

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", (agent_id, reference, text))

        store = await self._ready()
        await store.write(insert)
        return reference

    async def get(self, agent_id: str, reference: str) -> str | None:
        """Return a text, or None if this conversation has none of this reference."""

        def select(connection: sqlite3.Connection) -> str | None:
            query = "SELECT text FROM results WHERE agent_id = ? AND reference = ?"
            row = connection.execute(query, (agent_id, reference)).fetchone()
            return None if row is None else str(row[0])

        store = await self._ready()
        return await store.read(select)

    async def _ready(self) -> StoreEngine:
        store = self._store()
        if self._migrated is not store:
            await store.migrate(RESULTS_SCHEMA)
            self._migrated = store
        return store


MOST = 50_000
"""Characters that `read_result` returns at most."""


@tool(idempotent=True)
async def read_result(
    context: ToolContext,
    reference: Annotated[str, "What the result is kept as, such as res_1a2b."],
    offset: Annotated[int, "Number of characters to skip."] = 0,
    length: Annotated[int, "Number of characters to read, up to 50000."] = 20_000,
) -> str:
    """Read more of a result of which only the beginning was shown."""
    if context.results is None:
        raise ToolError("whole results are not kept here")
    if offset < 0 or length < 1:
        raise ToolError(f"expected an offset from 0 and a length from 1; got {offset} and {length}")
    text = await context.results.get(context.agent_id, reference)
    if text is None:
        raise ToolError(f"this conversation has no result {reference!r}; look for the reference in its beginning")
    part = text[offset : offset + min(length, MOST)]
    end = offset + len(part)
    left = f"{len(text) - end} characters follow: read from offset {end}" if end < len(text) else "this is the end"
    return f"{part}\n[{left}]"
