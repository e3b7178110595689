"""A coordinator and workers: tasks go through one durable queue, results come back through another.

Shows: competing workers that share a queue, replies matched to requests by message id, a worker that is killed in the
middle of a task, and a task that can never succeed: a dead letter that somebody looks at and lets go.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import attrs
import trio

from sapwood import Runtime, open_runtime
from sapwood.actors import record
from sapwood.errors import RejectMessage
from sapwood.messaging.queues import Delivery, Message, PoolOptions, Queue, QueueOptions, WorkerPool, open_queue
from sapwood.supervision import DynamicSupervisor, start_child

TASKS = 30


@record("example.square")
class Square:
    number: int


@record("example.squared")
class Squared:
    number: int
    result: int


@attrs.define
class Coordinator:
    """Hands out tasks, and keeps what is pending by the id of its request."""

    tasks: Queue
    results: Queue
    pending: dict[str, int] = attrs.field(factory=dict[str, int])
    found: dict[int, int] = attrs.field(factory=dict[int, int])

    async def request(self, numbers: list[int]) -> None:
        requests = [Message(Square(number), sender="coordinator") for number in numbers]
        for appended, number in zip(await self.tasks.append_many(requests), numbers, strict=True):
            self.pending[appended.id] = number

    async def collect(self, count: int) -> None:
        while len(self.found) < count:
            reply = await self.results.receive()
            # A reply may come twice; its request is pending only once.
            number = self.pending.pop(reply.message.headers["reply_to"], None)
            if number is not None:
                assert reply.payload.number == number
                self.found[number] = reply.payload.result
            await reply.ack()


async def serve(runtime: Runtime, tasks: Queue, results: Queue) -> None:
    done_by: Counter[int] = Counter()

    async def square(delivery: Delivery) -> None:
        number = delivery.payload.number
        if number < 0:
            raise RejectMessage("expected a number of at least 0")
        await trio.sleep(0.01)
        done_by[number] += 1
        reply = Squared(number, number * number)
        # The id is made of the request's, so a worker that repeats a task repeats its reply and adds none.
        await results.append(
            Message(reply, id=f"{delivery.message.id}.reply", headers={"reply_to": delivery.message.id})
        )

    pool = WorkerPool(tasks, square, PoolOptions(minimum=1, maximum=4, per_consumer=5, interval=0.05))
    home = await runtime.spawn(DynamicSupervisor)
    await start_child(home, pool.spec(id="workers"))

    coordinator = Coordinator(tasks, results)
    await coordinator.request([*range(TASKS), -1])
    await trio.sleep(0.12)
    assert pool.size > 1, "the pool has grown with the queue"
    pool.consumers()[0].kill()
    with trio.fail_after(30):
        await coordinator.collect(TASKS)
    assert coordinator.found == {number: number * number for number in range(TASKS)}
    assert set(done_by) == set(range(TASKS))
    assert list(coordinator.pending.values()) == [-1]

    await look_at_dead_letters(tasks)
    await home.stop()
    print(f"{TASKS} tasks done, {sum(done_by.values())} times in all, by up to 4 workers")


async def look_at_dead_letters(tasks: Queue) -> None:
    (letter,) = await tasks.dead_letters.list()
    assert letter.message is not None
    print(f"dead letter {letter.seq}: {letter.message.message.payload}, {letter.reason}: {letter.detail}")
    await tasks.dead_letters.discard(letter.seq)
    assert await tasks.depth() == 0


async def main(path: Path) -> None:
    async with (
        open_runtime(store=path) as runtime,
        open_queue(runtime.store, runtime.environment, "tasks") as tasks,
        open_queue(runtime.store, runtime.environment, "results", QueueOptions(mode="effectively_once")) as results,
    ):
        await serve(runtime, tasks, results)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trio.run(main, Path(folder) / "tasks.db")
