"""Where a copied conversation came from."""

from __future__ import annotations

from sapwood.actors import record


@record("conversation.origin")
class Origin:
    """Where a conversation was copied from.

    Attributes:
        agent_id: The conversation it is a copy of.
        message_id: Id of the last message that was copied; empty if it had none.
        how: `fork` within one store, `import` of an export.
        at: Wall-clock seconds since 1970 UTC of the copy.
    """

    agent_id: str
    message_id: str = ""
    how: str = "fork"
    at: float = 0.0
