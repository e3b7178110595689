"""Changes: what middleware wants done to a conversation, as journal events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sapwood.conversation import (
    AddMessage,
    Message,
    Operation,
    PatchMetadata,
    QueueMessage,
    SetTodos,
    State,
    evolve,
    journal,
)
from sapwood.errors import InvalidOption
from sapwood.middleware import Change, ReplaceMessages

M = TypeVar("M", bound=Message)


def change_events(source: str, changes: Sequence[Change], new_id: Callable[[str], str]) -> list[journal.JournalEvent]:
    """Turn what a middleware wants changed into journal events.

    Args:
        source: Name of the middleware.
        changes: What its hook returned.
        new_id: Makes ids for messages that have none.

    Raises:
        InvalidOption: if it is none of the changes there are.
    """
    events: list[journal.JournalEvent] = []
    for change in changes:
        match change:
            case ReplaceMessages(removed, inserted, before):
                named = tuple(named_message(each, new_id) for each in inserted)
                events.append(journal.MessagesReplaced(removed, named, before, source))
            case AddMessage() | QueueMessage() | SetTodos() | PatchMetadata():
                events.append(journal.OperationsApplied(named_operations((change,), new_id), source))
            case _:
                raise InvalidOption(
                    f"middleware {source}: expected AddMessage, QueueMessage, SetTodos, PatchMetadata or "
                    f"ReplaceMessages; got {change!r}"
                )
    return events


def named_operations(operations: Sequence[Operation], new_id: Callable[[str], str]) -> tuple[Operation, ...]:
    """Return operations in which every message has an id."""
    return tuple(
        evolve(each, message=named_message(each.message, new_id))
        if isinstance(each, AddMessage | QueueMessage)
        else each
        for each in operations
    )


def named_message(message: M, new_id: Callable[[str], str]) -> M:
    """Return the message with an id: its own, or a new one."""
    return message if message.id else evolve(message, id=new_id("msg_"))


class Draft:
    """Changes that are to be journaled together, and the state as it will be: later layers see what earlier ones did.

    Attributes:
        state: The state with the changes.
        events: The changes.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.events: list[journal.JournalEvent] = []

    def add(self, events: Sequence[journal.JournalEvent]) -> None:
        """Take up further changes."""
        self.events += events
        self.state = journal.fold(self.state, events)
