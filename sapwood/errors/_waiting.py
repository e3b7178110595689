"""Errors of conversations that would wait for each other."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.errors._actors import ActorError, AskCycle


class ConversationCycle(AskCycle):
    """A run would wait for a conversation that waits for it already, or for its own; no message was taken (UP-84).

    Attributes:
        chain: The ids of the conversations, each waiting for the next; the first is the last too.
    """

    def __init__(self, chain: Sequence[str]) -> None:
        first, *between, _ = chain
        if between:
            problem = f"conversations would wait for each other: {' -> '.join(map(repr, chain))}"
        else:
            problem = f"conversation {first!r} would wait for the end of its own run"
        ActorError.__init__(self, f"{problem}; send the message with post(), which does not wait")
        self.chain = tuple(chain)
