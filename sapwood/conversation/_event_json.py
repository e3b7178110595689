"""Stream events as JSON-safe data: what a client in another process or language reads."""

from __future__ import annotations

from typing import Any

from sapwood.conversation._stream import StreamEvent
from sapwood.conversation._versioned import read_versioned, write_versioned

EVENT_VERSION = 1
"""The version of the JSON form of all stream events, raised by one when the form of any of them changes."""


def event_to_json(event: StreamEvent) -> dict[str, Any]:
    """Return `{version, type, …}` with all fields of a stream event, JSON-safe and detached from it.

    `type` is the wire name of its class, such as `stream.text_streamed`; a message inside it has a `role`.

    Raises:
        CodecError: if it is no stream event, or a field is not what its annotation says or is no JSON; its path says
            which.
    """
    return write_versioned(event, StreamEvent, "event", EVENT_VERSION)


def event_from_json(data: object) -> StreamEvent:
    """Return the event that `event_to_json` wrote. Strict: nothing is guessed or skipped.

    Raises:
        CodecError: if the type is unknown, a key is missing or unknown, or a value has the wrong type; its path says
            which.
        FutureVersion: if it was written by a newer version.
    """
    event: StreamEvent = read_versioned(data, StreamEvent, "event", EVENT_VERSION)
    return event
