"""Result stores: where the whole of a large result is kept, of which the model sees only the beginning."""

from __future__ import annotations

from typing import Protocol


class ResultStore(Protocol):
    """Keeps the texts of large results for as long as their conversation.

    Implementations raise `PersistenceError` when they cannot answer; that a reference is unknown is an answer.
    """

    async def put(self, agent_id: str, key: str, text: str, /) -> str:
        """Keep a text and return its reference; for one key, that of the call, the last text counts.

        Durable when it returns. A text without a reference in the journal does no harm.
        """
        ...

    async def get(self, agent_id: str, reference: str, /) -> str | None:
        """Return the text of a reference of this conversation, or None if there is none."""
        ...
