"""Every kind of store, open and empty."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import SimulatedEnvironment
from sapwood.messaging.queues import open_memory_store
from sapwood.persistence import StoreEngine, open_store


@pytest.fixture
def environment() -> SimulatedEnvironment:
    return SimulatedEnvironment()


@pytest.fixture(params=["memory", "file"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> AsyncIterator[StoreEngine]:
    """A store in memory, and one in a file that runs inline; both on the virtual clock, which the test takes too."""
    assert trio.lowlevel.current_clock() is autojump_clock, "the test must take autojump_clock too"
    if request.param == "memory":
        async with open_memory_store(environment) as made:
            yield made
    else:
        async with open_store(tmp_path / "queues.db", environment) as made:
            yield made
