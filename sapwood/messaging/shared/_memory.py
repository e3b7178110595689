"""Shared memory of one process: versioned values that any thread may read and write."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from sapwood.actors import Environment, RealEnvironment
from sapwood.errors import ConflictError, InvalidOption
from sapwood.messaging.shared._changes import Deleted, ReadRecord, SharedStatistics, WriteRecord, Written
from sapwood.messaging.shared._strategies import MISSING, ConflictStrategy, check_version, resolve, strategy_named
from sapwood.messaging.shared._values import (
    ABSENT,
    ANY,
    VersionedValue,
    Write,
    check_agent,
    check_expected,
    check_key,
    check_write,
)
from sapwood.messaging.shared._watch import Feed, Feeds, Watch, check_watch, copied

ATTEMPTS: Final = 1_000


class SharedMemory:
    """Versioned values that agents of one process share; thread-safe, and never a task switch.

    Every call takes effect at one moment between its begin and its end, for all threads alike. The lock is reentrant
    and held for the bookkeeping alone: values are copied, and functions of the caller run, without it (S1-047).

    A deleted key goes on costing its name and a number, so that its versions never restart (S1-039).

    Args:
        strategy: What becomes of a write that is based on an older version, unless the write says otherwise.
        environment: Source of the wall clock; None for the real world.
        history: Older versions kept of each key, for merging.
        log_size: Entries kept of each log, the newest ones.

    Raises:
        InvalidOption: if an option is out of its range.
    """

    def __init__(
        self,
        strategy: ConflictStrategy | str = ConflictStrategy.LATEST_WINS,
        *,
        environment: Environment | None = None,
        history: int = 8,
        log_size: int = 1_000,
    ) -> None:
        for name, value in (("history", history), ("log_size", log_size)):
            if not isinstance(value, int) or value < 0:
                raise InvalidOption(f"SharedMemory {name}: expected a whole number from 0; got {value!r}")
        self.strategy: Final = strategy_named(strategy)
        self._environment = environment if environment is not None else RealEnvironment()
        self._history = history
        self._lock = threading.RLock()
        self._values: dict[str, VersionedValue] = {}
        self._last: dict[str, int] = {}
        self._older: dict[str, deque[VersionedValue]] = {}
        self._feeds = Feeds()
        self._reads: deque[ReadRecord] = deque(maxlen=log_size)
        self._writes: deque[WriteRecord] = deque(maxlen=log_size)
        self._seq = 0
        self._read_count = self._write_count = self._delete_count = self._conflicts = self._superseded = 0

    # --- reading ----------------------------------------------------------------------------------

    def read(self, key: str, *, agent_id: str = "") -> VersionedValue | None:
        """Return a copy of the current version of a key, or None if it is absent (S1-037).

        Args:
            key: The key.
            agent_id: Who reads, for the log.

        Raises:
            InvalidOption: if `key` is no key.
        """
        return self._read((key,), agent_id, batch=False)[key]

    def read_many(self, keys: Iterable[str], *, agent_id: str = "") -> dict[str, VersionedValue | None]:
        """Return copies of several keys as they were at one moment; None for absent ones (S1-042).

        Raises:
            InvalidOption: if one of them is no key.
        """
        return self._read(tuple(keys), agent_id, batch=True)

    def _read(self, keys: Sequence[str], agent_id: str, *, batch: bool) -> dict[str, VersionedValue | None]:
        for key in keys:
            check_key(key)
        now = self._now()
        with self._lock:
            found = {key: self._values.get(key) for key in keys}
            self._read_count += len(found)
            for key, value in found.items():
                self._reads.append(ReadRecord(key, agent_id, value.version if value else None, now, batch))
        return {key: value.copied() if value is not None else None for key, value in found.items()}

    def get_keys(self, prefix: str = "") -> list[str]:
        """Return the keys that have a value and begin with `prefix`, sorted (S1-045)."""
        with self._lock:
            return sorted(key for key in self._values if key.startswith(prefix))

    def snapshot(self, prefix: str = "") -> dict[str, VersionedValue]:
        """Return copies of all that is there at one moment, sorted by key (S1-045)."""
        with self._lock:
            _, values = self._take(prefix)
        return copied(values)

    def watch(self, prefix: str = "", *, capacity: int = 1_000) -> Watch:
        """Follow the changes of the keys that begin with `prefix`, from this moment on.

        Args:
            prefix: Beginning of the keys; empty for all.
            capacity: Changes that wait for a slow reader before it gets a `Missed` in place of more.

        Raises:
            InvalidOption: if the capacity is less than 1.
        """
        check_watch(prefix, capacity)
        feed = Feed(prefix, capacity)
        watch = Watch(feed, self._lock, self._take)
        with self._lock:
            self._feeds.add(feed)
            _, values = self._take(prefix)
        watch.snapshot = copied(values)
        return watch

    # --- writing ----------------------------------------------------------------------------------

    def write(
        self,
        key: str,
        value: Any,
        *,
        agent_id: str,
        expected_version: int = ANY,
        based_on: int | None = None,
        strategy: ConflictStrategy | str | None = None,
    ) -> VersionedValue:
        """Write a copy of a value and return the current version afterwards.

        That is the new version, one higher than the last (S1-038), or the one of somebody else where the strategy
        says that it wins.

        Args:
            key: The key.
            value: The value; anything that can be copied.
            agent_id: Who writes.
            expected_version: Version that must be there: -1 for any, -2 (`ABSENT`) for none (S1-040).
            based_on: Version that the value was made from; the strategy decides if another one is there.
            strategy: Which one; None for that of the store.

        Raises:
            ConflictError: if another version is there than expected, or the strategy finds a conflict.
            InvalidOption: if an argument cannot work, or the value cannot be copied.

        Nothing is written in each of these cases.
        """
        entry = Write(key, value, expected_version, based_on)
        return self._write((entry,), agent_id, strategy, batch=False)[0]

    def write_batch(
        self, entries: Iterable[Write], *, agent_id: str, strategy: ConflictStrategy | str | None = None
    ) -> tuple[VersionedValue, ...]:
        """Write several keys at one moment, or none of them (S1-043).

        Args:
            entries: One for each key, with the version that it expects.
            agent_id: Who writes.
            strategy: As in `write`.

        Raises:
            ConflictError: for the first entry that may not be written; nothing is.
            InvalidOption: if an entry cannot work, or two are about one key; nothing is written.
        """
        return self._write(tuple(entries), agent_id, strategy, batch=True)

    def _write(
        self, entries: Sequence[Write], agent_id: str, strategy: ConflictStrategy | str | None, *, batch: bool
    ) -> tuple[VersionedValue, ...]:
        check_agent(agent_id)
        chosen = self.strategy if strategy is None else strategy_named(strategy)
        entries = check_entries(entries)
        now = self._now()
        with self._lock:
            decided: list[tuple[VersionedValue, bool]] = []
            try:
                decided = [self._decide(entry, chosen, agent_id, now) for entry in entries]
            except ConflictError:
                self._conflicts += 1
                raise
            for value, new in decided:
                self._store(value, agent_id, now, new=new, batch=batch)
        return tuple(value.copied() for value, _ in decided)

    def _decide(self, entry: Write, strategy: ConflictStrategy, agent_id: str, now: int) -> tuple[VersionedValue, bool]:
        current = self._values.get(entry.key)
        value = resolve(strategy, entry, current, partial(self._base, entry.key), agent_id)
        if value is MISSING:
            assert current is not None
            return current, False
        return VersionedValue.make(entry.key, value, self._last.get(entry.key, -1) + 1, agent_id, now), True

    def _store(self, value: VersionedValue, agent_id: str, now: int, *, new: bool, batch: bool) -> None:
        outcome: Any = "written" if new else "superseded"
        self._writes.append(WriteRecord(value.key, agent_id, value.version, now, outcome, batch))
        if not new:
            self._superseded += 1
            return
        replaced = self._values.get(value.key)
        if replaced is not None and self._history:
            self._older.setdefault(value.key, deque(maxlen=self._history)).append(replaced)
        self._values[value.key] = value
        self._last[value.key] = value.version
        self._write_count += 1
        self._seq += 1
        self._feeds.offer(Written(self._seq, value))

    def delete(self, key: str, agent_id: str, *, expected_version: int = ANY) -> bool:
        """Delete a key; say whether it was there (S1-044).

        Raises:
            ConflictError: if another version is there than expected, or the key is absent and one was.
            InvalidOption: if an argument cannot work.
        """
        check_key(key)
        check_agent(agent_id)
        check_expected(expected_version)
        now = self._now()
        with self._lock:
            current = self._values.get(key)
            try:
                check_version(key, expected_version, current, agent_id)
            except ConflictError:
                self._conflicts += 1
                raise
            if current is None:
                return False
            del self._values[key]
            self._older.pop(key, None)
            self._delete_count += 1
            self._seq += 1
            self._writes.append(WriteRecord(key, agent_id, current.version, now, "deleted"))
            self._feeds.offer(Deleted(self._seq, key, current.version, agent_id))
            return True

    def update(self, key: str, function: Callable[[Any], Any], *, agent_id: str, default: Any = None) -> VersionedValue:
        """Replace a value by what a function makes of it; nobody's write in between is lost.

        The function gets a copy and runs without the lock, again each time that somebody else was faster, so it
        should have no other effect.

        Args:
            key: The key.
            function: Returns the new value for the current one.
            agent_id: Who writes.
            default: What the function gets if the key is absent.

        Raises:
            ConflictError: if others were faster 1,000 times.
            Exception: what the function raises; nothing is written.
        """
        attempt = 0
        while True:
            current = self.read(key, agent_id=agent_id)
            value = function(current.value if current is not None else default)
            expected = current.version if current is not None else ABSENT
            try:
                return self.write(
                    key, value, agent_id=agent_id, expected_version=expected, strategy=ConflictStrategy.LATEST_WINS
                )
            except ConflictError:
                attempt += 1
                if attempt == ATTEMPTS:
                    raise

    # --- logs -------------------------------------------------------------------------------------

    def write_log(self, limit: int = 100) -> list[WriteRecord]:
        """Return the newest entries of the write log, oldest first (S1-046)."""
        with self._lock:
            return newest(self._writes, limit)

    def read_log(self, limit: int = 100) -> list[ReadRecord]:
        """Return the newest entries of the read log, oldest first (S1-046)."""
        with self._lock:
            return newest(self._reads, limit)

    def statistics(self) -> SharedStatistics:
        """Return what the store holds and has done (S1-046)."""
        with self._lock:
            return SharedStatistics(
                keys_count=len(self._values),
                total_reads=self._read_count,
                total_writes=self._write_count,
                deletes=self._delete_count,
                conflicts=self._conflicts,
                superseded=self._superseded,
                watchers=len(self._feeds),
            )

    def _base(self, key: str, version: int) -> VersionedValue | None:
        current = self._values.get(key)
        if current is not None and current.version == version:
            return current
        return next((value for value in self._older.get(key, ()) if value.version == version), None)

    def _take(self, prefix: str) -> tuple[int, dict[str, VersionedValue]]:
        return self._seq, {key: self._values[key] for key in sorted(self._values) if key.startswith(prefix)}

    def _now(self) -> int:
        return int(self._environment.wall() * 1e9)


def check_entries(entries: Sequence[Write]) -> tuple[Write, ...]:
    """Return the entries of one batch, each with a copy of its value.

    Raises:
        InvalidOption: if one cannot work, or two are about one key.
    """
    seen: set[str] = set()
    for entry in entries:
        if not isinstance(entry, Write):
            raise InvalidOption(f"write_batch: expected entries such as Write('key', value); got {entry!r}")
        if entry.key in seen:
            raise InvalidOption(f"write_batch: expected one entry for each key; got two for {entry.key!r}")
        seen.add(entry.key)
    return tuple(check_write(entry) for entry in entries)


def newest(log: deque[Any], limit: int) -> list[Any]:
    """Return the last entries, oldest first."""
    if not isinstance(limit, int) or limit < 0:
        raise InvalidOption(f"limit: expected a whole number from 0; got {limit!r}")
    return list(log)[-limit:] if limit else []
