"""Export and import of a conversation as JSON-safe data, for other programs and for copies."""

from __future__ import annotations

from typing import Any

import attrs

from sapwood.conversation._messages import Message
from sapwood.conversation._pairs import orphan_results
from sapwood.conversation._state import State
from sapwood.conversation._todos import Todo, settle
from sapwood.conversation._versioned import read_versioned, write_versioned
from sapwood.errors import CodecError

EXPORT_VERSION = 1
"""The version of an export, raised by one when its form changes."""


@attrs.frozen
class Export:
    """A conversation with its messages, to-dos and metadata; work in progress is no part of it."""

    messages: tuple[Message, ...]
    todos: tuple[Todo, ...]
    metadata: dict[str, Any]


def to_json(state: State) -> dict[str, Any]:
    """Return `{version, messages, todos, metadata}` of a conversation, JSON-safe and detached from it (S4-033).

    Work in progress (the open run, interrupts, pending calls, queued messages) is no part of it: it belongs to the
    agent that does the work, and its journal has it. Configuration is no part of a state at all (S4-034).

    Raises:
        CodecError: if a part is not what its annotation says or is no JSON; its path says which.
    """
    export = Export(messages=state.messages, todos=state.todos, metadata=state.metadata)
    return write_versioned(export, Export, "export", EXPORT_VERSION)


def from_json(data: object) -> State:
    """Return a new state with the messages, todos and metadata of an export. Strict: nothing is guessed or skipped.

    Calls without a result are accepted, since an export may be made at any moment; results without a call are not.

    Raises:
        CodecError: if a key is missing or unknown, a value has the wrong type, or a result has no call; its path says
            which.
        FutureVersion: if it was exported by a newer version.
    """
    export: Export = read_versioned(data, Export, "export", EXPORT_VERSION)
    todos = check_export(export.messages, export.todos)
    return State(messages=export.messages, todos=todos, metadata=export.metadata)


def check_export(messages: tuple[Message, ...], todos: tuple[Todo, ...]) -> tuple[Todo, ...]:
    """Return the to-dos in order, after a look at what the annotations do not say.

    Raises:
        CodecError: if a result has no call, or two to-dos have one id.
    """
    for orphan in orphan_results(messages):
        place = next(index for index, message in enumerate(messages) if message is orphan)
        raise CodecError(f"messages[{place}]", f"expected an unanswered call {orphan.call_id!r} before it; got none")
    for index, todo in enumerate(todos):
        if any(todo.id == other.id for other in todos[:index]):
            raise CodecError(f"todos[{index}]", f"expected every id once; got {todo.id} again")
    return settle(todos)
