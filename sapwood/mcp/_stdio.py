"""Standard input and output as the two ends of an MCP connection, which nothing else in the process may touch."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, cast

from sapwood.actors import Environment
from sapwood.errors import InvalidOption

CHUNK: Final = 65_536

_taken: Final = threading.Lock()


class LineReader:
    """Lines of text from a file descriptor. A cancelled reader leaves at once; its thread ends with the next input.

    Args:
        descriptor: Where to read.
        environment: Door to threads.
    """

    def __init__(self, descriptor: int, environment: Environment) -> None:
        self._descriptor = descriptor
        self._environment = environment
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []

    def __aiter__(self) -> LineReader:
        return self

    async def __anext__(self) -> str:
        while not self._lines:
            chunk = await self._environment.in_thread(os.read, self._descriptor, CHUNK, abandon_on_cancel=True)
            if not chunk:
                # What the other side had begun to say when it ended is no message.
                raise StopAsyncIteration
            *complete, rest = chunk.split(b"\n")
            for piece in complete:
                self._lines.append(b"".join((*self._begun, piece)))
                self._begun.clear()
            self._begun.append(rest)
        return self._lines.popleft().decode("utf-8", "replace")


class Writer:
    """Writes text to a file descriptor, all of it; a cancelled writer leaves at once.

    Args:
        descriptor: Where to write.
        environment: Door to threads.
    """

    def __init__(self, descriptor: int, environment: Environment) -> None:
        self._descriptor = descriptor
        self._environment = environment

    async def write(self, text: str) -> None:
        """Write a text; to a client that is gone it writes nothing, and the connection ends."""
        import anyio

        try:
            await self._environment.in_thread(_write_all, self._descriptor, text.encode(), abandon_on_cancel=True)
        except BrokenPipeError:
            raise anyio.ClosedResourceError from None

    async def flush(self) -> None:
        """Do nothing: what is written is on its way."""


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextmanager
def claimed() -> Generator[tuple[int, int]]:
    """Take standard input and output for the length of the block.

    Meanwhile whatever else reads gets the end of input, and whatever else prints prints to standard error, child
    processes included. The two descriptors stay open after the block, since an abandoned thread may still use them.

    Raises:
        InvalidOption: if they are taken already.
    """
    if not _taken.acquire(blocking=False):
        raise InvalidOption(
            "run_stdio: expected standard input and output to be free; this process serves them already"
        )
    try:
        with _diverted() as descriptors:
            yield descriptors
    finally:
        _taken.release()


@contextmanager
def _diverted() -> Generator[tuple[int, int]]:
    sys.stdout.flush()
    wire_in, wire_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield wire_in, wire_out
    finally:
        os.close(nothing)
        sys.stdout.flush()
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)


@asynccontextmanager
async def open_stdio(environment: Environment) -> AsyncGenerator[tuple[Any, Any]]:
    """Open a transport over standard input and output; both belong to it until the block ends."""
    from mcp.server.stdio import stdio_server

    with claimed() as (wire_in, wire_out):
        # The library's own streams read in threads that cannot be left, so that a stop would wait for the client.
        lines, writer = LineReader(wire_in, environment), Writer(wire_out, environment)
        async with stdio_server(stdin=cast("Any", lines), stdout=cast("Any", writer)) as streams:
            yield streams
