"""Transports: from a description to a client that speaks with the server, and to the news that it has gone."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from sapwood.mcp._descriptions import Description, HttpServer, StdioServer

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.session import MessageHandlerFnT

CONNECT_WITHIN: Final = 30.0
"""Seconds to open one HTTP connection, and to send over it."""

READ_WITHIN: Final = 300.0
"""Seconds without a byte after which an HTTP answer counts as broken."""


@asynccontextmanager
async def open_client(
    description: Description, on_end: Callable[[], None], on_message: MessageHandlerFnT
) -> AsyncGenerator[Client]:
    """Connect to a server for the length of the block; a process that was started for it has ended after the block.

    The process gets its standard input closed, then SIGTERM 2 s later, then SIGKILL 2 s after that.

    Args:
        description: How the server is reached.
        on_end: Called when the server sends nothing any more, before any call learns of it.
        on_message: Gets what the server says of itself.
    """
    from mcp import Client

    async with AsyncExitStack() as stack:
        transport = await _transport(description, stack)
        client = Client(_watched(transport, on_end), cache=None, message_handler=on_message)
        yield await stack.enter_async_context(client)


async def _transport(description: Description, stack: AsyncExitStack) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    match description:
        case StdioServer(command, args, env, cwd):
            from mcp import StdioServerParameters, stdio_client

            parameters = StdioServerParameters(command=command, args=list(args), env=dict(env), cwd=cwd)
            return stdio_client(parameters, errlog=_error_output(stack))
        case HttpServer(url, headers):
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            limits = httpx2.Timeout(CONNECT_WITHIN, read=READ_WITHIN)
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=dict(headers), timeout=limits))
            return streamable_http_client(url, http_client=http)


def _error_output(stack: AsyncExitStack) -> TextIO:
    """Return where a process may write its standard error: a real file, which `sys.stderr` need not be."""
    try:
        sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123  # no path, a device
    return sys.stderr


@asynccontextmanager
async def _watched(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], on_end: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    async with transport as (read, write):
        yield WatchedStream(read, on_end), write


class WatchedStream:
    """What a transport receives, with the news of its end, which a client that waits for nothing would not see."""

    def __init__(self, inner: Any, on_end: Callable[[], None]) -> None:
        self._inner = inner
        self._on_end = on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __aiter__(self) -> WatchedStream:
        return self

    async def __anext__(self) -> Any:
        import anyio

        try:
            return await self._inner.__anext__()
        except (StopAsyncIteration, OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> bool | None:
        left: bool | None = await self._inner.__aexit__(*details)  # noqa: ASYNC102  # only passed on
        return left
