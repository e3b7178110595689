"""A system of actors on a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import ActorSystem, open_system


@pytest.fixture
async def system(autojump_clock: MockClock) -> AsyncIterator[ActorSystem]:
    assert trio.lowlevel.current_clock() is autojump_clock, "the test must take autojump_clock too"
    async with open_system() as system:
        yield system
        assert system.busy >= 1
