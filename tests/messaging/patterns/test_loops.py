"""What a full queue sheds becomes a dead letter, and dead letters become nothing else."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import MailboxOptions, SimulatedEnvironment
from sapwood.errors import InvalidOption
from sapwood.messaging.queues import Queue, QueueOptions, open_memory_store, open_queue


@pytest.mark.row("BR-46")
@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "drop_lowest"])
async def test_overflow_of_two_full_queues_is_one_dead_letter_and_goes_to_no_other_queue(
    autojump_clock: MockClock, overflow: str
) -> None:
    environment = SimulatedEnvironment()
    options = QueueOptions(capacity=2, overflow=overflow, dead_retries=0)  # type: ignore[arg-type]  # from a list
    async with (
        open_memory_store(environment) as store,
        open_queue(store, environment, "p", options) as p,
        open_queue(store, environment, "q", options) as q,
    ):
        for queue in (p, q):
            await queue.append_many([b"1", b"2"])
        writes = store.statistics().writes
        await p.append(b"3")
        assert store.statistics().writes == writes + 1, "the work is that of one append"
        await trio.sleep(10_000)

        async def standing(queue: Queue) -> tuple[int, int]:
            return await queue.depth(), len(await queue.dead_letters.list())

        assert (await standing(p), await standing(q)) == ((2, 1), (2, 0))


@pytest.mark.row("BR-46")
def test_no_circle_of_overflow_can_be_configured_for_there_is_no_target_to_name() -> None:
    with pytest.raises(InvalidOption, match="overflow"):
        QueueOptions(capacity=2, overflow="q")  # type: ignore[arg-type]  # it is refused
    with pytest.raises(InvalidOption, match="overflow"):
        MailboxOptions(capacity=2, overflow="q")  # type: ignore[arg-type]  # it is refused
