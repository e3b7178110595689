"""Both kinds of shared memory behind one awaited interface, and a checker of recorded histories."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import trio

from sapwood.messaging.shared import DurableSharedMemory, SharedMemory

State: TypeAlias = tuple[Any, int]
"""Value and last version of one key; the value is None while the key is absent."""


class Awaited:
    """Calls the methods of either memory and awaits what needs it."""

    def __init__(self, memory: SharedMemory | DurableSharedMemory) -> None:
        self.memory = memory

    async def _call(self, name: str, *args: Any, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        result = getattr(self.memory, name)(*args, **options)
        return await result if inspect.isawaitable(result) else result

    async def write(self, key: str, value: Any, agent: str = "a", **options: Any) -> Any:
        return await self._call("write", key, value, agent_id=agent, **options)

    async def write_batch(self, entries: Any, agent: str = "a", **options: Any) -> Any:
        return await self._call("write_batch", entries, agent_id=agent, **options)

    async def read(self, key: str) -> Any:
        return await self._call("read", key)

    async def read_many(self, keys: Any) -> Any:
        return await self._call("read_many", keys)

    async def delete(self, key: str, agent: str = "a", **options: Any) -> Any:
        return await self._call("delete", key, agent, **options)

    async def update(self, key: str, function: Any, agent: str = "a", **options: Any) -> Any:
        return await self._call("update", key, function, agent_id=agent, **options)

    async def get_keys(self, prefix: str = "") -> Any:
        return await self._call("get_keys", prefix)

    async def snapshot(self, prefix: str = "") -> Any:
        return await self._call("snapshot", prefix)

    async def watch(self, prefix: str = "") -> Any:
        return await self._call("watch", prefix)

    async def write_log(self, limit: int = 100) -> Any:
        return await self._call("write_log", limit)

    async def statistics(self) -> Any:
        return await self._call("statistics")


@attrs.frozen
class Operation:
    """One call on one key, with the moments of its begin and its end on a clock that counts both.

    Attributes:
        step: What a sequential store would do: new state and answer for the state before.
        answer: What the call really answered.
    """

    begin: int
    end: int
    step: Callable[[State], tuple[State, Any]]
    answer: Any


def is_linearizable(history: Sequence[Operation], start: State = (None, -1)) -> bool:
    """Say whether some order that respects what was over before what began explains every answer (Wing and Gong)."""
    seen: set[tuple[frozenset[int], str]] = set()
    stack = [(frozenset(range(len(history))), start)]
    while stack:
        left, state = stack.pop()
        if not left:
            return True
        if (left, repr(state)) in seen:
            continue
        seen.add((left, repr(state)))
        first_end = min(history[index].end for index in left)
        for index in left:
            operation = history[index]
            if operation.begin <= first_end:
                after, answer = operation.step(state)
                if answer == operation.answer:
                    stack.append((left - {index}, after))
    return False
