"""Shared memory in a store: the same rules, durable before visible, for several processes."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

import trio

from sapwood.actors import Environment
from sapwood.errors import ConflictError, InvalidOption
from sapwood.messaging.shared._changes import Change, SharedStatistics, WriteRecord
from sapwood.messaging.shared._memory import ATTEMPTS, check_entries
from sapwood.messaging.shared._rows import SHARED_SCHEMA, Outcome, Rows
from sapwood.messaging.shared._strategies import ConflictStrategy, strategy_named
from sapwood.messaging.shared._values import (
    ABSENT,
    ANY,
    VersionedValue,
    Write,
    check_agent,
    check_expected,
    check_key,
)
from sapwood.messaging.shared._watch import check_watch
from sapwood.persistence import StoreEngine

READ_AHEAD: Final = 100


class DurableSharedMemory:
    """Versioned values in a store; the methods of `SharedMemory`, each awaited.

    Values and versions survive restarts. A write is on the disk when it returns, and nobody sees it before. Versions
    are checked inside the transaction, so several processes may share one file. Values are what the codec can store.

    A write that is cancelled may still happen; read the key to know.

    Args:
        store: An open store.
        environment: Source of the wall clock.
        space: Name of this memory in the store; others see nothing of it.
        strategy: As in `SharedMemory`.
        log_size: Changes kept, for the write log, for merging and for slow watchers.
        poll: Seconds after which a watcher looks for changes that other processes made.

    Raises:
        InvalidOption: if an option is out of its range.
    """

    def __init__(
        self,
        store: StoreEngine,
        environment: Environment,
        *,
        space: str = "default",
        strategy: ConflictStrategy | str = ConflictStrategy.LATEST_WINS,
        log_size: int = 1_000,
        poll: float = 1.0,
    ) -> None:
        if not isinstance(space, str) or not space:
            raise InvalidOption(f"DurableSharedMemory space: expected a name; got {space!r}")
        if not isinstance(log_size, int) or log_size < 1:
            raise InvalidOption(f"DurableSharedMemory log_size: expected a whole number from 1; got {log_size!r}")
        if not poll > 0:
            raise InvalidOption(f"DurableSharedMemory poll: expected seconds > 0; got {poll!r}")
        self.strategy: Final = strategy_named(strategy)
        self._store = store
        self._environment = environment
        self._poll = poll
        self._rows = Rows(space, log_size)
        self._waiting: dict[trio.Event, None] = {}
        self._watches: weakref.WeakSet[DurableWatch] = weakref.WeakSet()
        self._reads = self._writes = self._deletes = self._conflicts = self._superseded = 0

    async def open(self) -> None:
        """Create or upgrade the tables; call it before anything else.

        Raises:
            StoreUnavailable, FutureVersion: as `Store.migrate`.
        """
        await self._store.migrate(SHARED_SCHEMA)

    # --- reading ----------------------------------------------------------------------------------

    async def read(self, key: str) -> VersionedValue | None:
        """Return the current version of a key, or None if it is absent.

        Raises:
            InvalidOption: if `key` is no key.
            StoreUnavailable: if the store cannot answer, which never means absent.
        """
        return (await self.read_many((key,)))[key]

    async def read_many(self, keys: Iterable[str]) -> dict[str, VersionedValue | None]:
        """Return several keys as they were at one moment; None for absent ones.

        Raises:
            InvalidOption, StoreUnavailable: as `read`.
        """
        wanted = tuple(keys)
        for key in wanted:
            check_key(key)
        found = await self._store.read(lambda connection: self._rows.read(connection, wanted))
        self._reads += len(found)
        return found

    async def get_keys(self, prefix: str = "") -> list[str]:
        """Return the keys that have a value and begin with `prefix`, sorted."""
        return await self._store.read(lambda connection: self._rows.keys(connection, prefix))

    async def snapshot(self, prefix: str = "") -> dict[str, VersionedValue]:
        """Return all that is there at one moment, sorted by key."""
        return await self._store.read(lambda connection: self._rows.values(connection, prefix))

    async def watch(self, prefix: str = "") -> DurableWatch:
        """Follow the changes of the keys that begin with `prefix`, from this moment on.

        Changes made through this object are seen at once, those of other processes after `poll` seconds at the latest.

        Raises:
            StoreUnavailable: if the store cannot answer.
        """
        check_watch(prefix, 1)
        rows = self._rows
        seq, values = await self._store.read(
            lambda connection: (rows.last_seq(connection), rows.values(connection, prefix))
        )
        watch = DurableWatch(self, prefix, seq, values)
        self._watches.add(watch)
        return watch

    # --- writing ----------------------------------------------------------------------------------

    async def write(
        self,
        key: str,
        value: Any,
        *,
        agent_id: str,
        expected_version: int = ANY,
        based_on: int | None = None,
        strategy: ConflictStrategy | str | None = None,
    ) -> VersionedValue:
        """Write a value and return the current version afterwards, once that is durable; see `SharedMemory.write`.

        Raises:
            ConflictError: if another version is there than expected, or the strategy finds a conflict.
            CodecError: if the value cannot be stored.
            InvalidOption: if an argument cannot work.
            StoreUnavailable: if the store cannot answer.

        Nothing is written in each of these cases.
        """
        entry = Write(key, value, expected_version, based_on)
        return (await self._write((entry,), agent_id, strategy, batch=False))[0]

    async def write_batch(
        self, entries: Iterable[Write], *, agent_id: str, strategy: ConflictStrategy | str | None = None
    ) -> tuple[VersionedValue, ...]:
        """Write several keys at one moment, or none of them; see `SharedMemory.write_batch`.

        Raises:
            ConflictError, CodecError, InvalidOption, StoreUnavailable: as `write`; nothing is written.
        """
        return await self._write(tuple(entries), agent_id, strategy, batch=True)

    async def _write(
        self, entries: Sequence[Write], agent_id: str, strategy: ConflictStrategy | str | None, *, batch: bool
    ) -> tuple[VersionedValue, ...]:
        check_agent(agent_id)
        chosen = self.strategy if strategy is None else strategy_named(strategy)
        checked = check_entries(entries)
        at = self._now()
        outcomes: list[Outcome] = await self._change(
            lambda connection: self._rows.write(connection, checked, chosen, agent_id, at, batch=batch)
        )
        new = sum(outcome.new for outcome in outcomes)
        self._writes += new
        self._superseded += len(outcomes) - new
        return tuple(outcome.value for outcome in outcomes)

    async def delete(self, key: str, agent_id: str, *, expected_version: int = ANY) -> bool:
        """Delete a key; say whether it was there.

        Raises:
            ConflictError: if another version is there than expected.
            InvalidOption: if an argument cannot work.
            StoreUnavailable: if the store cannot answer.
        """
        check_key(key)
        check_agent(agent_id)
        check_expected(expected_version)
        at = self._now()
        deleted: bool = await self._change(
            lambda connection: self._rows.delete(connection, key, agent_id, expected_version, at)
        )
        self._deletes += deleted
        return deleted

    async def update(
        self, key: str, function: Callable[[Any], Any], *, agent_id: str, default: Any = None
    ) -> VersionedValue:
        """Replace a value by what a function makes of it; see `SharedMemory.update`.

        Raises:
            ConflictError: if others were faster 1,000 times.
            Exception: what the function raises; nothing is written.
        """
        attempt = 0
        while True:
            current = await self.read(key)
            value = function(current.value if current is not None else default)
            expected = current.version if current is not None else ABSENT
            try:
                return await self.write(
                    key, value, agent_id=agent_id, expected_version=expected, strategy=ConflictStrategy.LATEST_WINS
                )
            except ConflictError:
                attempt += 1
                if attempt == ATTEMPTS:
                    raise

    async def _change(self, operation: Callable[[Any], Any]) -> Any:
        try:
            return await self._store.write(operation)
        except ConflictError:
            self._conflicts += 1
            raise
        finally:
            waiting, self._waiting = self._waiting, {}
            for event in waiting:
                event.set()

    # --- logs -------------------------------------------------------------------------------------

    async def write_log(self, limit: int = 100) -> list[WriteRecord]:
        """Return the newest entries of the write log, oldest first."""
        if not isinstance(limit, int) or limit < 0:
            raise InvalidOption(f"limit: expected a whole number from 0; got {limit!r}")
        return await self._store.read(lambda connection: self._rows.log(connection, limit))

    async def statistics(self) -> SharedStatistics:
        """Return what the store holds, and what was done through this object."""
        keys = await self._store.read(self._rows.count)
        return SharedStatistics(
            keys_count=keys,
            total_reads=self._reads,
            total_writes=self._writes,
            deletes=self._deletes,
            conflicts=self._conflicts,
            superseded=self._superseded,
            watchers=sum(not watch._closed for watch in self._watches),
        )

    async def _changes(self, prefix: str, after: int) -> list[Change]:
        return await self._store.read(lambda connection: self._rows.changes(connection, prefix, after, READ_AHEAD))

    async def _wait_for_change(self, event: trio.Event) -> None:
        with trio.move_on_after(self._poll):
            await event.wait()
        self._waiting.pop(event, None)

    def _now(self) -> int:
        return int(self._environment.wall() * 1e9)


class DurableWatch:
    """Changes of the keys with a prefix, in order, read from the log of the store: `async for change in watch`.

    No change falls between `snapshot` and the first one that is delivered. A watcher so slow that the log has been cut
    meanwhile gets one `Missed` with a new snapshot, and goes on from there.

    Attributes:
        snapshot: What was there at the moment of `watch`, of the keys that are watched.
    """

    def __init__(
        self, memory: DurableSharedMemory, prefix: str, after: int, snapshot: dict[str, VersionedValue]
    ) -> None:
        self.snapshot: Final = snapshot
        self._memory = memory
        self._prefix = prefix
        self._after = after
        self._buffer: deque[Change] = deque()
        self._event: trio.Event | None = None
        self._closed = False
        self._reading = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the watch; a reader that waits gets the end."""
        self._closed = True
        if self._event is not None:
            self._event.set()

    def __aiter__(self) -> DurableWatch:
        return self

    async def __anext__(self) -> Change:
        """Wait for the next change.

        Raises:
            trio.BusyResourceError: if another task waits for it already.
            StoreUnavailable: if the store cannot answer; asking again goes on where it was.
        """
        if self._reading:
            raise trio.BusyResourceError("expected one task that reads a watch; another one waits for it already")
        self._reading = True
        try:
            await trio.lowlevel.checkpoint()
            while not self._buffer:
                if self._closed:
                    raise StopAsyncIteration
                # Armed before the log is read, so that no change falls between reading and waiting.
                self._event = event = trio.Event()
                self._memory._waiting[event] = None
                try:
                    self._buffer.extend(await self._memory._changes(self._prefix, self._after))
                    if not self._buffer and not self._closed:
                        await self._memory._wait_for_change(event)
                finally:
                    self._memory._waiting.pop(event, None)
        finally:
            self._reading = False
        change = self._buffer.popleft()
        self._after = change.seq
        return change
