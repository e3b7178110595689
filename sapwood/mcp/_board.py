"""Boards: what is known of one server, for everybody in the runtime to read without a task switch."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final
from weakref import WeakKeyDictionary

import attrs

from sapwood.actors import Ref
from sapwood.mcp._listing import McpTool
from sapwood.registry import Unavailable

LOST: Final = "the connection was lost"


@attrs.frozen
class McpStatus:
    """What is known of a server.

    Attributes:
        name: The name under which it is configured.
        connected: Whether there is a connection.
        reason: Why there is none; empty while there is one.
        tools: What it offers; while it is away, what it offered last.
        implementation: Its own name and version, as far as it told.
        connections: How often it was connected.
        since: When it was connected or lost, in seconds since 1970; 0 before the first connection.
    """

    name: str
    connected: bool
    reason: str
    tools: tuple[McpTool, ...] = attrs.field(repr=False)
    implementation: str = ""
    connections: int = 0
    since: float = 0.0


class Board:
    """What is known of one server; it outlives every connection.

    Its keeper writes it; only that a connection is lost is written by the connection, so that nobody who has lost a
    call to it is told afterwards that it stands.

    | `connection` | `connections` | answer                                |
    |--------------|---------------|---------------------------------------|
    | alive        | any           | running                               |
    | none, dead   | 0             | unavailable: starting                 |
    | none, dead   | 1 or more     | unavailable: unreachable; tools stay  |
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.keeper: Ref | None = None
        self.connection: Ref | None = None
        self.connections = 0
        self.reason = "it is being connected"
        self.tools: tuple[McpTool, ...] = ()
        self.implementation = ""
        self.since = 0.0

    @property
    def connected(self) -> bool:
        """Whether there is a connection at this moment."""
        return self.connection is not None and self.connection.alive

    def lose(self, connection: Ref, at: float) -> None:
        """Note that a connection is lost, if it is the present one."""
        if self.connection is connection:
            self.connection, self.reason, self.since = None, LOST, at

    @property
    def unavailable(self) -> Unavailable:
        """The answer while there is no connection."""
        return Unavailable("unreachable" if self.connections else "starting")

    def status(self) -> McpStatus:
        """Return what is known now."""
        reason = "" if self.connected else self.reason
        return McpStatus(
            self.name, self.connected, reason, self.tools, self.implementation, self.connections, self.since
        )

    def find(self, name: str) -> McpTool | None:
        """Return the tool with this name, as it was listed last; None if it is not listed."""
        return next((tool for tool in self.tools if tool.name == name), None)


BOARDS: Final[MutableMapping[Ref, Board]] = WeakKeyDictionary()
"""The board of each keeper, from its start on."""
