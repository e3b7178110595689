"""A stage for every test of supervision, on a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import open_system
from tests.supervision.kit import Stage


@pytest.fixture
async def stage(autojump_clock: MockClock) -> AsyncIterator[Stage]:
    assert trio.lowlevel.current_clock() is autojump_clock, "the test must take autojump_clock too"
    async with open_system() as system:
        yield Stage(system)
