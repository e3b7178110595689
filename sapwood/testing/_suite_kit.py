"""What the suites for backends share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from hashlib import shake_128
from typing import TypeVar

import trio

from sapwood.actors import RealEnvironment

E = TypeVar("E", bound=Exception)


@contextmanager
def refusal(error: type[E]) -> Generator[list[E]]:
    """Fail unless the block raises this error, which is put into the list."""
    seen: list[E] = []
    try:
        yield seen
    except error as raised:
        seen.append(raised)
    else:
        raise AssertionError(f"expected {error.__name__}; nothing was raised")


class SteppedEnvironment(RealEnvironment):
    """The real world, with a wall clock that stands still until it is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000.0

    def wall(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the wall clock."""
        self.now += seconds


async def chunks_of(data: bytes, size: int) -> AsyncIterator[bytes]:
    """Yield data in chunks, and an empty chunk at the end."""
    for start in range(0, len(data), size):
        await trio.lowlevel.checkpoint()
        yield data[start : start + size]
    yield b""


def noise(size: int, seed: int = 0) -> bytes:
    """Return bytes that do not compress and are the same each time."""
    return shake_128(str(seed).encode()).digest(size)
