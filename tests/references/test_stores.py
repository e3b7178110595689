"""The suite that every store must pass, on those of this package."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
import trio

from sapwood.actors import Environment
from sapwood.persistence import open_store
from sapwood.references import MemoryReferenceStore, ReferenceStore, SQLiteReferenceStore, open_redis_store
from sapwood.testing import ReferenceStoreSuite

ROWS = (
    *("S0-005", "S0-006", "S0-007", "S0-013", "S0-014", "S0-015", "S0-016", "S0-017", "S0-018", "S0-019", "S0-020"),
    *("S0-032", "S0-033", "S0-039", "S0-040", "S0-041", "S0-043"),
)


class Server(Protocol):
    @property
    def url(self) -> str: ...


@pytest.mark.row(*ROWS, "S0-009")
class TestMemoryReferenceStore(ReferenceStoreSuite):
    @asynccontextmanager
    async def opened(self, environment: Environment, **options: Any) -> AsyncGenerator[ReferenceStore]:
        await trio.lowlevel.checkpoint()
        yield MemoryReferenceStore(environment, **options)


@pytest.mark.row(*ROWS)
class TestSQLiteReferenceStore(ReferenceStoreSuite):
    @pytest.fixture(autouse=True)
    def path(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.count = 0

    @asynccontextmanager
    async def opened(self, environment: Environment, **options: Any) -> AsyncGenerator[ReferenceStore]:
        self.count += 1
        async with open_store(self.folder / f"{self.count}.db", environment) as engine:
            store = SQLiteReferenceStore(engine, environment, **options)
            await store.open()
            yield store


class TestSQLiteReferenceStoreInMemory(ReferenceStoreSuite):
    @asynccontextmanager
    async def opened(self, environment: Environment, **options: Any) -> AsyncGenerator[ReferenceStore]:
        async with open_store(":memory:", environment) as engine:
            store = SQLiteReferenceStore(engine, environment, **options)
            await store.open()
            yield store


@pytest.mark.row(*ROWS, "S0-038")
@pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")  # coredis leaves its buffers open
class TestRedisReferenceStore(ReferenceStoreSuite):
    @pytest.fixture(autouse=True)
    def server(self, redis_server: Server) -> None:
        self.url = redis_server.url
        self.count = 0

    def opened(self, environment: Environment, **options: Any) -> AbstractAsyncContextManager[ReferenceStore]:
        self.count += 1
        return open_redis_store(self.url, environment, prefix=f"test-{self.count}:", **options)


async def test_a_suite_without_a_store_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"opened\(environment"):
        async with ReferenceStoreSuite().opened(None):  # type: ignore[arg-type]  # never looked at
            pass
