"""What the actors of one MCP server say to each other, and what they may be asked."""

from __future__ import annotations

from typing import Any

from sapwood.actors import Ref, Request, message
from sapwood.mcp._listing import McpTool
from sapwood.mcp._results import McpResult


@message("mcp.connecting")
class Connecting:
    """A connection is being made."""

    connection: Ref


@message("mcp.connected")
class Connected(Request[bool]):
    """A connection stands; whoever knows of it does when this is answered."""

    connection: Ref
    tools: tuple[McpTool, ...]
    implementation: str


@message("mcp.listed")
class Listed:
    """The server's tools have changed."""

    connection: Ref
    tools: tuple[McpTool, ...]


@message("mcp.refresh")
class Refresh:
    """The server says that its tools have changed."""


@message("mcp.call_tool")
class CallTool(Request[McpResult]):
    """Carry out one call.

    Attributes:
        id: Names the call, to cancel it.
        tool: The tool.
        arguments: Its arguments.
        key: The same for every attempt of this call; the server gets it.
    """

    id: int
    tool: str
    arguments: dict[str, Any]
    key: str = ""


@message("mcp.cancel_call")
class CancelCall:
    """Tell the server that nobody waits for a call any more."""

    id: int
