"""State operations: the only way in which tools and middleware change a conversation.

An operation is data. The server journals it and applies it once, so that nothing is merged, repeated or lost
(AR-22.7).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

from sapwood.actors import record
from sapwood.conversation._json import copy_json
from sapwood.conversation._messages import Message, UserMessage
from sapwood.conversation._todos import Todo
from sapwood.errors import InvalidOption


@record("operation.add_message")
class AddMessage:
    """Append a message; a `ToolResult` goes next to its call instead, and only if that has none yet."""

    message: Message


Delivery: TypeAlias = Literal["now", "next_turn", "next_run"]
"""When a queued message reaches the model: before its next call, after this turn, or in a run of its own."""


@record("operation.queue_message")
class QueueMessage:
    """Have something said to the agent later, as if a person had; an idle agent begins a run for it.

    Runs that an agent begins in this way are counted, and come to an end at `Limits.self_started` in a row.

    Attributes:
        message: What is said; the server gives it an id if it has none.
        delivery: `now`, `next_turn` or `next_run`.
    """

    message: UserMessage
    delivery: Delivery = "next_run"


@record("operation.set_todos")
class SetTodos:
    """Set the to-dos.

    Attributes:
        todos: To-dos; of two with one id the later counts.
        merge: Keep the current ones whose ids are not given, instead of replacing the list.
    """

    todos: tuple[Todo, ...]
    merge: bool = False


def _copy_values(values: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = copy_json(values, "metadata")
    return copied


def _check_removed(operation: PatchMetadata, _: attrs.Attribute[tuple[str, ...]], removed: tuple[str, ...]) -> None:
    both = sorted(set(removed) & set(operation.values))
    if both:
        raise InvalidOption(f"metadata key {both[0]!r}: expected a value or a removal; got both: drop one of them")


@record("operation.patch_metadata")
class PatchMetadata:
    """Set some top-level keys of the metadata and remove others; all the rest stays.

    Values are copied when the operation is made, so a later change of the original does nothing (UP-71).

    Attributes:
        values: New values by key, JSON-like; a value replaces the old one whole.
        remove: Keys to remove; absent ones are no error.

    Raises:
        CodecError: if a value is not JSON-like; its path says where.
        InvalidOption: if a key is both set and removed.
    """

    values: dict[str, Any] = attrs.field(factory=dict[str, Any], converter=_copy_values)
    remove: tuple[str, ...] = attrs.field(default=(), validator=_check_removed)


Operation: TypeAlias = AddMessage | QueueMessage | SetTodos | PatchMetadata
"""Everything that a tool or a middleware may do to a conversation."""
