"""Opening the store that a configuration names."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from sapwood.actors import Environment, single_exceptions_bare
from sapwood.errors import PersistenceError, ReferenceUnavailable
from sapwood.persistence import open_store
from sapwood.references._collector import collect_regularly
from sapwood.references._config import MemoryConfig, RedisConfig, ReferenceConfig, SQLiteConfig
from sapwood.references._memory import MemoryReferenceStore
from sapwood.references._metrics import ReferenceListener
from sapwood.references._protocol import ReferenceStore
from sapwood.references._redis import open_redis_store
from sapwood.references._sqlite import SQLiteReferenceStore
from sapwood.references._sqlite_tables import REFERENCES_SCHEMA


@asynccontextmanager
async def open_reference_store(
    config: ReferenceConfig | None = None,
    *,
    environment: Environment,
    listener: ReferenceListener | None = None,
) -> AsyncGenerator[ReferenceStore]:
    """Open a reference store for the length of an `async with` block, and collect at its interval (S0-031).

    Leaving the block, however that happens, stops the collections and closes the store.

    Args:
        config: Which store; by default the one in the file `./data/references.db`.
        environment: Door to time, ids and threads.
        listener: Told of every call, at once; it must be quick and must not block.

    Raises:
        ReferenceUnavailable: if a file cannot be opened. A server that is down fails the calls, not the opening.
        InvalidOption: if an option is out of its range.
        MissingExtra: if the backend needs a package that is not installed.
    """
    chosen = ReferenceConfig() if config is None else config
    opening: AbstractAsyncContextManager[ReferenceStore]
    match chosen.backend:
        case "memory":
            opening, interval = _open_memory(chosen.memory, environment, listener), chosen.memory.gc_interval
        case "redis":
            opening, interval = _open_redis(chosen.redis, environment, listener), chosen.redis.gc_interval
        case _:
            opening, interval = _open_sqlite(chosen.sqlite, environment, listener), chosen.sqlite.gc_interval
    async with opening as store:
        with single_exceptions_bare():
            async with trio.open_nursery() as nursery:
                if interval is not None:
                    nursery.start_soon(collect_regularly, store, interval)
                try:
                    yield store
                finally:
                    nursery.cancel_scope.cancel()
                    with trio.move_on_after(5, shield=True):
                        await store.close()


@asynccontextmanager
async def _open_memory(
    config: MemoryConfig, environment: Environment, listener: ReferenceListener | None
) -> AsyncGenerator[ReferenceStore]:
    yield MemoryReferenceStore(environment, listener=listener, **_options(config, "gc_interval"))


@asynccontextmanager
async def _open_sqlite(
    config: SQLiteConfig, environment: Environment, listener: ReferenceListener | None
) -> AsyncGenerator[ReferenceStore]:
    engine = ("synchronous", "busy_timeout", "wal_limit", "readers")
    entered = False
    try:
        await environment.in_thread(_make_directory, config.path)
        async with open_store(
            config.path,
            environment,
            migrations=[REFERENCES_SCHEMA],
            synchronous=config.synchronous,
            busy_timeout=config.busy_timeout,
            wal_limit=config.wal_limit,
            readers=config.readers,
        ) as store:
            entered = True
            options = _options(config, "gc_interval", "path", *engine)
            yield SQLiteReferenceStore(store, environment, listener=listener, **options)
    except (PersistenceError, OSError) as error:
        if entered:
            raise
        raise ReferenceUnavailable(config.path, str(error)) from error


def _open_redis(
    config: RedisConfig, environment: Environment, listener: ReferenceListener | None
) -> AbstractAsyncContextManager[ReferenceStore]:
    return open_redis_store(environment=environment, listener=listener, **_options(config, "gc_interval"))


def _options(config: Any, *without: str) -> dict[str, Any]:
    return {name: value for name, value in attrs.asdict(config).items() if name not in without}


def _make_directory(path: str) -> None:
    if path != ":memory:":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
