"""What the tests of MCP share: real server processes, real loopback servers, runtimes in the real world."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve  # pyright: ignore[reportUnknownVariableType]  # parts of its signature are bare

from sapwood import Runtime, open_runtime
from sapwood.mcp import McpClient, StdioServer, mcp_server
from sapwood.supervision import Backoff, ChildSpec

PROGRAM = Path(__file__).with_name("tiny_server.py")
QUICK = Backoff(initial=0.01, factor=1.0, maximum=0.01, jitter=0.0)
WITHIN = 30.0
"""Seconds after which a test gives up; nothing that it waits for takes as long."""


def tiny(folder: Path, *mode: str, **options: Any) -> StdioServer:
    """Describe a tiny server that writes what it does to a folder."""
    return StdioServer(sys.executable, (str(PROGRAM), str(folder), *mode), **options)


def script(code: str) -> StdioServer:
    """Describe a server that is a line of Python."""
    return StdioServer(sys.executable, ("-c", code))


@asynccontextmanager
async def opened(*children: ChildSpec, **options: Any) -> AsyncGenerator[Runtime]:
    """Open a runtime in the real world, for a limited time."""
    with trio.fail_after(WITHIN):
        async with open_runtime(children=children, signals=False, **options) as runtime:
            yield runtime


@asynccontextmanager
async def connected(folder: Path, *mode: str, **options: Any) -> AsyncGenerator[McpClient]:
    """Open a runtime with a tiny server, and return a client of it."""
    async with opened(mcp_server("tiny", tiny(folder, *mode, **options), backoff=QUICK)) as runtime:
        yield McpClient(runtime.registry, "tiny")


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process brings about."""
    with trio.fail_after(WITHIN):
        while not condition():  # noqa: ASYNC110  # no event of this process tells of it
            await trio.sleep(0.005)


def notes(folder: Path) -> list[str]:
    """Return what a tiny server has written down."""
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def exists(pid: int) -> bool:
    """Say whether there is a process with this id, a zombie included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@asynccontextmanager
async def http_server(app: Any, port: int = 0) -> AsyncGenerator[int]:
    """Serve an ASGI application on the loopback for the length of the block, and return its port."""
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.graceful_timeout = 0.1
    config.errorlog = None
    shutdown = trio.Event()
    async with trio.open_nursery() as nursery:
        started: Any = await nursery.start(partial(serve, app, config, shutdown_trigger=shutdown.wait))
        try:
            yield int(started[0].rpartition(":")[2])
        finally:
            shutdown.set()
