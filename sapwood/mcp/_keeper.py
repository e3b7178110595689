"""The keeper of an MCP server: the actor that has its name, and knows of it while it is away."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

from sapwood.actors import Actor, Crashed, Down, Monitor, handle
from sapwood.errors import InvalidOption, McpUnavailable
from sapwood.mcp._board import BOARDS, Board
from sapwood.mcp._connection import McpConnection
from sapwood.mcp._descriptions import Description, HttpServer, StdioServer
from sapwood.mcp._extra import check_installed
from sapwood.mcp._messages import Connected, Connecting, Listed
from sapwood.supervision import Backoff, ChildSpec, Supervisor, child

KIND: Final = "mcp"
"""Kind of the key under which a server is registered: `("mcp", name)`."""

START_WITHIN: Final = 30.0
BACKOFF: Final = Backoff(initial=0.5, maximum=30.0)

_STOP_WITHIN: Final = 15.0
"""Above the 6.5 s within which a process is ended for certain."""


class McpKeeper(Actor):
    """Knows what a server offers and whether it is there; lives on while connections come and go.

    Args:
        board: Where it writes that down.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._monitor: Monitor | None = None

    def format_state(self) -> str:
        status = self._board.status()
        return f"server={status.name!r}, connected={status.connected}, tools={len(status.tools)}"

    def on_start(self) -> None:
        self._board.keeper = self.ref
        BOARDS[self.ref] = self._board

    @handle
    def connecting(self, message: Connecting) -> None:
        self._monitor = self.monitor(message.connection)

    @handle
    def connected(self, message: Connected) -> bool:
        board = self._board
        board.connection, board.tools, board.implementation = message.connection, message.tools, message.implementation
        board.connections += 1
        board.since = self.environment.wall()
        return True

    @handle
    def listed(self, message: Listed) -> None:
        if message.connection is self._board.connection:
            self._board.tools = message.tools

    @handle
    def connection_lost(self, message: Down) -> None:
        if message.monitor is not self._monitor:
            return
        board = self._board
        board.lose(message.ref, self.environment.wall())
        error = message.reason.exception if isinstance(message.reason, Crashed) else None
        board.reason = error.reason if isinstance(error, McpUnavailable) else f"the connection ended: {message.reason}"


class McpServer(Supervisor):
    """The tree of one server; see `mcp_server`."""

    def __init__(
        self, name: str, description: Description, *, start_timeout: float, backoff: Backoff, wait: bool
    ) -> None:
        board = Board(name)
        connect = partial(McpConnection, board, description, start_timeout, wait=wait)
        specs = (
            child(McpKeeper, board, id="keeper", key=(KIND, name)),
            child(connect, id="connection", backoff=backoff, shutdown=_STOP_WITHIN),
        )
        # The delays bound how often a connection is restarted; a server that stays away must take nothing else down.
        super().__init__(specs, strategy="rest_for_one", restarts=10_000, period=1.0)


def mcp_server(
    name: str,
    description: Description,
    *,
    start_timeout: float = START_WITHIN,
    backoff: Backoff | None = None,
    wait: bool = True,
) -> ChildSpec:
    """Describe an MCP server as a child of the runtime: `open_runtime(children=[mcp_server("files", ...)])`.

    It is a small tree: a keeper with the key `("mcp", name)`, and the connection, which is restarted with growing
    delays for as long as the server is away. Other children are not touched by that. Put it before whatever starts
    agents that use it. A process that was started for it is gone before the runtime has stopped, at the latest 6.5 s
    after it was asked to.

    Args:
        name: What `McpTools` and `McpClient` call it.
        description: A `StdioServer` or an `HttpServer`.
        start_timeout: Seconds until it must have told its tools, at every start.
        backoff: Delays between attempts to connect again; by default 0.5 s, doubled up to 30 s.
        wait: Whether the start of the runtime waits for the first connection, and fails without it. Without, agents
            that use it cannot start before it was there once.

    Raises:
        InvalidOption: if an option is out of its range.
        MissingExtra: if the extra `mcp` is not installed.
    """
    if not isinstance(name, str) or not name:
        raise InvalidOption(f"mcp_server name: expected a text that is not empty; got {name!r}")
    if not isinstance(description, StdioServer | HttpServer):
        got = type(description).__name__
        raise InvalidOption(f"mcp_server {name!r}: expected a StdioServer or an HttpServer; got {got}")
    if not (math.isfinite(start_timeout) and start_timeout > 0):
        raise InvalidOption(f"mcp_server {name!r}: expected a start_timeout above 0 seconds; got {start_timeout!r}")
    check_installed(f"mcp_server {name!r}")
    options: dict[str, Any] = {"start_timeout": start_timeout, "backoff": backoff or BACKOFF, "wait": wait}
    return child(partial(McpServer, name, description, **options), id=f"mcp {name}")
