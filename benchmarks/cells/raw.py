"""The handler of the actors that are written by hand, and the directory that is their registry."""

from __future__ import annotations

from typing import Any


class Handler:
    """State and handler of a hand-written actor."""

    __slots__ = ("done", "next", "total")

    def __init__(self) -> None:
        self.total = 0
        self.next: Any = None
        self.done: Any = None

    async def handle(self, message: Any) -> Any:
        if message == "add":
            self.total += 1
            return None
        if type(message) is int:
            if message:
                self.next.tell(message - 1)
            else:
                self.done.set()
            return None
        if message == "crash":
            raise ValueError(message)
        return self.total


class Directory:
    """A dict behind a function, as every registry is."""

    def __init__(self, actors: list[Any]) -> None:
        self.names = [("bench", number) for number in range(len(actors))]
        self._actors = dict(zip(self.names, actors, strict=True))

    def find(self, name: Any) -> Any:
        return self._actors.get(name)
