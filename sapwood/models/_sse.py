"""Server-sent events: a push parser that takes bytes as they come and gives whole events."""

from __future__ import annotations

import re

import attrs

_LINE = re.compile(rb"(.*?)(\r\n|\n|\r)", re.DOTALL)


class BrokenStream(ValueError):
    """The bytes are no event stream; a model turns this into `ModelProtocolError`."""


@attrs.frozen
class ServerEvent:
    """One event: its type (`message` if the server gave none) and its data."""

    event: str
    data: str


class ServerEventParser:
    """Takes an event stream apart; how the bytes are cut into chunks makes no difference.

    Comments, ids and retry hints are skipped. An event that is not closed by an empty line is not an event: the
    stream broke off within it.

    Args:
        max_event: Bytes that one event may hold.
    """

    def __init__(self, max_event: int = 16 * 1024 * 1024) -> None:
        self._max_event = max_event
        self._buffer = b""
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that `chunk` completes, in order.

        Raises:
            BrokenStream: if an event is not UTF-8 or larger than `max_event`.
        """
        buffer, events, done = self._buffer + chunk, list[ServerEvent](), 0
        for found in _LINE.finditer(buffer):
            # A carriage return at the very end may be the first half of CR LF.
            if found.group(2) == b"\r" and found.end() == len(buffer):
                break
            done = found.end()
            event = self._take_line(found.group(1))
            if event is not None:
                events.append(event)
        self._buffer = buffer[done:]
        if self._size + len(self._buffer) > self._max_event:
            raise BrokenStream(f"an event of more than {self._max_event} bytes")
        return events

    def _take_line(self, line: bytes) -> ServerEvent | None:
        if not line:
            event = ServerEvent(self._event or "message", "\n".join(self._data)) if self._data else None
            self._event, self._data, self._size = "", [], 0
            return event
        try:
            field, _, value = line.decode("utf-8").removeprefix("\ufeff").partition(":")
        except UnicodeDecodeError:
            raise BrokenStream("an event that is not UTF-8") from None
        value = value.removeprefix(" ")
        self._size += len(line)
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._event = value
        return None
