"""A runtime for every test of agents, on a virtual clock and a real file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood import Runtime
from tests.agents.kit import opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def runtime(path: Path, autojump_clock: MockClock) -> AsyncIterator[Runtime]:
    assert trio.lowlevel.current_clock() is autojump_clock, "the test must take autojump_clock too"
    async with opened(path) as runtime:
        yield runtime
