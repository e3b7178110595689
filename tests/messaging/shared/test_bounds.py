"""What a shared memory in a store keeps of its changes."""

from __future__ import annotations

from pathlib import Path

from trio.testing import MockClock

from sapwood.actors import SimulatedEnvironment
from sapwood.messaging.shared import DurableSharedMemory
from sapwood.persistence import open_store


async def test_spaces_that_are_written_in_turn_all_have_their_logs_cut(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    environment = SimulatedEnvironment()
    async with open_store(tmp_path / "shared.db", environment) as store:
        spaces = [DurableSharedMemory(store, environment, space=name, log_size=10) for name in ("a", "b")]
        await spaces[0].open()
        for number in range(300):
            for space in spaces:
                await space.write("key", number, agent_id="tests")
        kept = [len(await space.write_log(1_000)) for space in spaces]
        assert max(kept) <= 10 + 100, kept


async def test_a_space_that_is_opened_for_a_few_writes_at_a_time_has_its_log_cut(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    environment = SimulatedEnvironment()
    async with open_store(tmp_path / "shared.db", environment) as store:
        space = DurableSharedMemory(store, environment, log_size=10)
        await space.open()
        for number in range(200):
            space = DurableSharedMemory(store, environment, log_size=10)
            await space.write("key", number, agent_id="tests")
        assert len(await space.write_log(1_000)) <= 10 + 100
