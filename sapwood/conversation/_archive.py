"""Archives: whole conversations as JSON-safe data, with what people saw of them, for another store."""

from __future__ import annotations

from typing import Any

import attrs

from sapwood.conversation._export import check_export
from sapwood.conversation._messages import Message
from sapwood.conversation._todos import Todo
from sapwood.conversation._transcript import TranscriptEntry
from sapwood.conversation._versioned import read_versioned, write_versioned

ARCHIVE_VERSION = 1
"""The version of an archive, raised by one when its form changes."""


@attrs.frozen
class Archive:
    """A conversation to take elsewhere; work in progress is no part of it, and neither is any configuration.

    Attributes:
        agent_id: Its id where it came from.
        agent: Name of the agent it was created with.
        definition: Hash of that agent's definition.
        routing: What a factory builds its agent from; empty if none does.
        messages: What the model sees.
        todos: Sorted by id.
        metadata: JSON-like values by key.
        transcript: What people see.
    """

    agent_id: str
    agent: str
    definition: str
    routing: dict[str, Any]
    messages: tuple[Message, ...]
    todos: tuple[Todo, ...]
    metadata: dict[str, Any]
    transcript: tuple[TranscriptEntry, ...]


def archive_to_json(archive: Archive) -> dict[str, Any]:
    """Return `{version, …}` with all fields of an archive, JSON-safe and detached from it.

    Raises:
        CodecError: if a part is not what its annotation says or is no JSON; its path says which.
    """
    return write_versioned(archive, Archive, "archive", ARCHIVE_VERSION)


def archive_from_json(data: object) -> Archive:
    """Return the archive that `archive_to_json` wrote. Strict: nothing is guessed or skipped.

    Raises:
        CodecError: if a key is missing or unknown, a value has the wrong type, a result has no call or two to-dos have
            one id; its path says which.
        FutureVersion: if it was written by a newer version.
    """
    archive: Archive = read_versioned(data, Archive, "archive", ARCHIVE_VERSION)
    return attrs.evolve(archive, todos=check_export(archive.messages, archive.todos))
