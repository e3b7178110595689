"""Both kinds of shared memory."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sapwood.actors import RealEnvironment
from sapwood.messaging.shared import ConflictStrategy, DurableSharedMemory, SharedMemory
from sapwood.persistence import open_store
from tests.messaging.shared.kit import Awaited


@pytest.fixture(params=["memory", "durable"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def strategy() -> ConflictStrategy:
    return ConflictStrategy.LATEST_WINS


@pytest.fixture
async def memory(kind: str, strategy: ConflictStrategy, tmp_path: Path) -> AsyncIterator[Awaited]:
    if kind == "memory":
        yield Awaited(SharedMemory(strategy))
        return
    environment = RealEnvironment()
    async with open_store(tmp_path / "store.db", environment) as store:
        durable = DurableSharedMemory(store, environment, strategy=strategy, poll=1_000)
        await durable.open()
        yield Awaited(durable)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns so often that two of them meet within one call."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
