"""Watches on shared memory: a bounded buffer between writers in any thread and one reader in a trio run."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from threading import get_ident
from types import TracebackType
from typing import Any, Self, TypeAlias

import attrs
import trio

from sapwood.errors import InvalidOption
from sapwood.messaging.shared._changes import Change, Deleted, Missed, Written
from sapwood.messaging.shared._values import VersionedValue

Snapshot: TypeAlias = Callable[[str], tuple[int, dict[str, VersionedValue]]]
"""Returns the number of the last change and the values under a prefix; called with the lock held."""


class Feed:
    """The store's end of a watch; guarded by the lock of the store."""

    def __init__(self, prefix: str, capacity: int) -> None:
        self.prefix = prefix
        self.capacity = capacity
        self.buffer: deque[Written | Deleted] = deque()
        self.missed = 0
        self.closed = False
        self.wake: Callable[[], None] | None = None

    def offer(self, change: Written | Deleted) -> None:
        """Take a change that may be of interest; never blocks."""
        if not change.key.startswith(self.prefix):
            return
        if self.missed or len(self.buffer) >= self.capacity:
            self.missed += 1
        else:
            self.buffer.append(change)
        self.notify()

    def notify(self) -> None:
        """Wake the reader, if it waits."""
        if self.wake is not None:
            self.wake()
            self.wake = None


class Feeds:
    """The feeds of a store, in the order of their watches; guarded by its lock.

    A feed lives as long as its watch, so a watch that was dropped without being closed leaves nothing behind.
    """

    def __init__(self) -> None:
        self._feeds: list[weakref.ref[Feed]] = []

    def add(self, feed: Feed) -> None:
        """Add a feed."""
        self._feeds.append(weakref.ref(feed))

    def offer(self, change: Written | Deleted) -> None:
        """Pass a change on to all."""
        for feed in self._open():
            feed.offer(change)

    def __len__(self) -> int:
        return len(self._open())

    def _open(self) -> list[Feed]:
        found = [feed for reference in self._feeds if (feed := reference()) is not None and not feed.closed]
        if len(found) < len(self._feeds):
            self._feeds = [weakref.ref(feed) for feed in found]
        return found


class Watch:
    """Changes of the keys with a prefix, in order, from the moment of `watch` on: `async for change in watch`.

    No change falls between `snapshot` and the first one that is delivered. A watcher that is too slow for its buffer
    gets one `Missed` with a new snapshot in place of what was dropped, and goes on from there. One task reads.

    It ends when it is closed (`with store.watch(...) as changes:` does that); one that nobody holds any more is
    forgotten by the store.

    Attributes:
        snapshot: What was there at the moment of `watch`, of the keys that are watched.
    """

    def __init__(self, feed: Feed, lock: AbstractContextManager[Any], take: Snapshot) -> None:
        self._feed = feed
        self._lock = lock
        self._take = take
        self._reading = False
        self.snapshot: Mapping[str, VersionedValue] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the watch; a reader that waits, or reads on, gets what is left in the buffer, and then the end."""
        with self._lock:
            self._feed.closed = True
            self._feed.notify()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Change:
        """Wait for the next change.

        Raises:
            trio.BusyResourceError: if another task waits for it already.
        """
        if self._reading:
            raise trio.BusyResourceError("expected one task that reads a watch; another one waits for it already")
        self._reading = True
        try:
            await trio.lowlevel.checkpoint()
            while True:
                event = trio.Event()
                with self._lock:
                    change = self._take_next()
                    if change is None:
                        if self._feed.closed:
                            raise StopAsyncIteration
                        self._feed.wake = _waker(event)
                if change is not None:
                    return _copied(change)
                await event.wait()
        finally:
            self._reading = False

    def receive_nowait(self) -> Change:
        """Return the next change.

        Raises:
            trio.WouldBlock: if there is none yet.
            trio.EndOfChannel: if the watch is closed and its buffer empty.
        """
        with self._lock:
            change = self._take_next()
            if change is None:
                raise trio.EndOfChannel if self._feed.closed else trio.WouldBlock
        return _copied(change)

    def _take_next(self) -> Change | None:
        feed = self._feed
        if feed.buffer:
            return feed.buffer.popleft()
        if not feed.missed:
            return None
        seq, values = self._take(feed.prefix)
        missed = Missed(seq, feed.missed, values)
        feed.missed = 0
        return missed


def check_watch(prefix: object, capacity: object) -> None:
    """Refuse a watch that cannot work.

    Raises:
        InvalidOption: naming what was got.
    """
    if not isinstance(prefix, str):
        raise InvalidOption(f"watch: expected a prefix of keys as a text, empty for all; got {prefix!r}")
    if not isinstance(capacity, int) or capacity < 1:
        raise InvalidOption(f"watch: expected a capacity of at least 1 change; got {capacity!r}")


def copied(values: Mapping[str, VersionedValue]) -> dict[str, VersionedValue]:
    """Copy a snapshot."""
    return {key: value.copied() for key, value in values.items()}


def _copied(change: Change) -> Change:
    match change:
        case Written():
            return attrs.evolve(change, value=change.value.copied())
        case Missed():
            return attrs.evolve(change, snapshot=copied(change.snapshot))
        case Deleted():
            return change


def _waker(event: trio.Event) -> Callable[[], None]:
    """Return a function that sets the event from any thread."""
    token = trio.lowlevel.current_trio_token()
    thread = get_ident()

    def wake() -> None:
        if get_ident() == thread:
            event.set()
        else:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(event.set)

    return wake
