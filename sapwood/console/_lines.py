"""Lines from standard input, read without holding up the loop."""

from __future__ import annotations

import os
from collections import deque
from typing import Final

import trio

from sapwood.actors import Environment

CHUNK: Final = 65536


class LineReader:
    """Reads lines from a file descriptor: a terminal, a pipe or a file.

    Reading happens in a thread, because a regular file cannot be waited for. A caller that is cancelled leaves the
    thread behind; it holds no lock that the end of the process would wait for, as a thread in `input()` would.

    For one task at a time.

    Args:
        descriptor: Where to read.
        environment: Threads.
    """

    def __init__(self, descriptor: int, environment: Environment) -> None:
        self._descriptor = descriptor
        self._environment = environment
        self._lines: deque[str] = deque()
        self._rest = b""
        self._ended = False

    async def next_line(self) -> str | None:
        """Return the next line without its end, or None at the end of the input; bytes that are no UTF-8 become U+FFFD.

        Raises:
            OSError: if it cannot be read.
        """
        await trio.lowlevel.checkpoint()
        while not self._lines:
            if self._ended:
                return None
            chunk = await self._environment.in_thread(os.read, self._descriptor, CHUNK, abandon_on_cancel=True)
            self._take(chunk)
        return self._lines.popleft()

    def _take(self, chunk: bytes) -> None:
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        if not chunk:
            self._ended = True
            whole, self._rest = [self._rest] if self._rest else [], b""
        self._lines.extend(line.removesuffix(b"\r").decode("utf-8", "replace") for line in whole)
