"""Errors of MCP servers and the calls of their tools."""

from __future__ import annotations

from sapwood.errors._root import SapwoodError


class McpError(SapwoodError):
    """A call of an MCP server brought no result.

    Attributes:
        server: The name under which the server is configured.
    """

    def __init__(self, server: str, problem: str) -> None:
        super().__init__(f"MCP server {server!r}: {problem}")
        self.server = server


class McpUnavailable(McpError):
    """The server cannot be reached now; nothing was sent to it, or it refused to look at it. Try again later.

    Attributes:
        reason: Why.
        retry_after: Seconds after which trying again makes sense.
    """

    def __init__(self, server: str, reason: str, retry_after: float = 1.0) -> None:
        super().__init__(server, f"unavailable ({reason}); nothing was done; try again in {retry_after:g} s")
        self.reason = reason
        self.retry_after = retry_after


class McpCallLost(McpError):
    """The connection ended while a tool ran; nobody knows whether the call had its effect.

    Attributes:
        tool: The tool.
    """

    def __init__(self, server: str, tool: str) -> None:
        super().__init__(server, f"the connection ended while {tool!r} ran; nobody knows whether it had its effect")
        self.tool = tool


class McpCallTimeout(McpError):
    """A tool did not answer in time; the server was told to stop, and may have done a part.

    Attributes:
        tool: The tool.
        seconds: How long was waited.
    """

    def __init__(self, server: str, tool: str, seconds: float) -> None:
        super().__init__(
            server, f"{tool!r} did not answer within {seconds:g} s; it was told to stop, and may have done a part"
        )
        self.tool = tool
        self.seconds = seconds


class McpCallRefused(McpError):
    """The server answered a call with an error of the protocol, or with something that is none of its results.

    Attributes:
        tool: The tool.
        problem: What it said.
        code: Its error code; 0 if there is none.
    """

    def __init__(self, server: str, tool: str, problem: str, code: int = 0) -> None:
        super().__init__(server, f"{tool!r} was refused: {problem}" + (f" (code {code})" if code else ""))
        self.tool = tool
        self.problem = problem
        self.code = code
