"""The snapshot: a conversation as those see it who join, with the number of the event it goes up to."""

from __future__ import annotations

from typing import Any

from sapwood.actors import record
from sapwood.conversation._interrupts import Interrupt
from sapwood.conversation._messages import Message, Usage
from sapwood.conversation._state import QueuedMessage, StatusName
from sapwood.conversation._todos import Todo


@record("stream.snapshot")
class Snapshot:
    """What a client needs to show a conversation; the events after `seq` change it.

    Attributes:
        agent_id: The conversation.
        seq: Number of the last event that is in it.
        status: What the agent is doing.
        error: Why the last run failed; empty if it did not.
        run_id: The open run; empty if there is none.
        messages: What the model sees, in order.
        todos: Sorted by id.
        metadata: JSON-like values by key.
        interrupts: What people have to decide, in order.
        queue: Messages that wait, in order.
        usage: Tokens of the whole conversation.
    """

    agent_id: str
    seq: int
    status: StatusName
    error: str
    run_id: str
    messages: tuple[Message, ...]
    todos: tuple[Todo, ...]
    metadata: dict[str, Any]
    interrupts: tuple[Interrupt, ...]
    queue: tuple[QueuedMessage, ...]
    usage: Usage
