"""Clients: how hosts and middleware reach an MCP server of their runtime."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from itertools import count
from typing import Any

import trio

from sapwood.actors import current_actor
from sapwood.conversation import copy_json
from sapwood.errors import ActorDown, InvalidOption, McpCallLost, McpCallTimeout, McpUnavailable, RegistryUnavailable
from sapwood.mcp._board import BOARDS, Board, McpStatus
from sapwood.mcp._keeper import KIND
from sapwood.mcp._listing import McpTool
from sapwood.mcp._messages import CallTool, CancelCall
from sapwood.mcp._results import McpResult
from sapwood.registry import Lookup, NotRunning, Registry, Running, Unavailable

_call_ids = count(1)

CALL_WITHIN = 60.0
"""Seconds that one call may take, unless somebody says otherwise."""


def registry_here(who: str) -> Registry:
    """Return the registry of the runtime whose actor runs this code.

    Raises:
        InvalidOption: if no actor of a runtime does.
    """
    actor = current_actor()
    registrar = actor._cell.system.registrar if actor is not None else None
    if not isinstance(registrar, Registry):
        raise InvalidOption(f"{who}: expected to be used by an agent of a runtime opened with open_runtime")
    return registrar


class McpClient:
    """Reaches one MCP server of a runtime, wherever its connection is in its life: `McpClient(runtime.registry, name)`.

    Args:
        registry: The runtime's registry.
        name: The name given to `mcp_server`.
    """

    def __init__(self, registry: Registry, name: str) -> None:
        self._registry = registry
        self.name = name

    def lookup(self) -> Lookup[McpStatus]:
        """Say how the server is: `Running(status)` if it is connected, `NotRunning` if none of this name is configured.

        `Unavailable` if it is configured but not connected now (`starting` before the first connection, else
        `unreachable`), or if the registry cannot tell.
        """
        found = self._board()
        if not isinstance(found, Running):
            return found
        board = found.ref
        return Running(board.status()) if board.connected else board.unavailable

    def status(self) -> McpStatus:
        """Return what is known of the server, connected or not.

        Raises:
            InvalidOption: if no server of this name is configured; the nearest names are told.
            RegistryUnavailable: if the registry cannot tell.
        """
        return self._known().status()

    def tools(self) -> tuple[McpTool, ...]:
        """Return what the server offers; while it is away, what it offered last.

        Raises:
            McpUnavailable: if it was never connected, so that nobody knows.
            InvalidOption, RegistryUnavailable: as `status`.
        """
        board = self._known()
        if not board.connections:
            raise McpUnavailable(self.name, board.reason)
        return board.tools

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, timeout: float | None = CALL_WITHIN, key: str = ""
    ) -> McpResult:
        """Call a tool; calls run at the same time. If the caller is cancelled, the server is told.

        Args:
            tool: Its name on the server.
            arguments: Its arguments, JSON values.
            timeout: Seconds until the call is given up, and the server told; None for no limit.
            key: Sent with the call, as `sapwood/idempotency-key` in its `_meta`; the same for every attempt.

        Raises:
            McpUnavailable: if there is no connection; nothing was sent.
            McpCallLost: if the connection ended meanwhile.
            McpCallTimeout: if the time is over.
            McpCallRefused: if the server answers with an error of the protocol.
            CodecError: if the arguments are no JSON values.
            InvalidOption, RegistryUnavailable: as `status`; also if the time-out is not above 0.
        """
        if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
            raise InvalidOption(f"call of {tool!r}: expected a timeout above 0 seconds, or None; got {timeout!r}")
        given = copy_json(dict(arguments), f"arguments of {tool}")
        await trio.lowlevel.checkpoint()
        board = self._known()
        connection = board.connection
        if connection is None or not connection.alive:
            raise McpUnavailable(self.name, board.status().reason, board.unavailable.retry_after)
        request = CallTool(next(_call_ids), tool, given, key)
        with trio.move_on_after(math.inf if timeout is None else timeout):
            try:
                return await connection.ask(request, timeout=None)
            except trio.Cancelled:
                connection.tell(CancelCall(request.id))
                raise
            except ActorDown:
                raise McpCallLost(self.name, tool) from None
        raise McpCallTimeout(self.name, tool, timeout or 0.0)

    def _board(self) -> Lookup[Board]:
        found = self._registry.lookup_nowait((KIND, self.name))
        if not isinstance(found, Running):
            return found
        board = BOARDS.get(found.ref)
        return Unavailable("starting") if board is None else Running(board)

    def _known(self) -> Board:
        match self._board():
            case Running(board):
                return board
            case NotRunning():
                raise InvalidOption(self._not_configured())
            case Unavailable(reason, retry_after):
                raise RegistryUnavailable(f"find MCP server {self.name!r}", reason, retry_after)

    def _not_configured(self) -> str:
        names = sorted(str(key[1]) for key in self._registry.running(KIND))
        near = difflib.get_close_matches(self.name, names, n=3)
        if near:
            return f"this runtime has no MCP server {self.name!r}; did you mean {' or '.join(map(repr, near))}?"
        return (
            f"this runtime has no MCP server {self.name!r}; there are: {', '.join(names) or 'none'}. Give open_runtime "
            f"children=[mcp_server({self.name!r}, ...)], before what starts agents"
        )
