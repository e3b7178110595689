"""Appends and handles messages until it is killed; notes in a file what it was promised and what it did."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

from sapwood.actors import RealEnvironment
from sapwood.messaging.queues import Message, Queue, QueueOptions, open_queue
from sapwood.persistence import open_store

FOLDER, LIFE = Path(sys.argv[1]), int(sys.argv[2])
NOTES = os.open(FOLDER / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(what: str, number: str) -> None:
    os.write(NOTES, f"{what} {number}\n".encode())


async def produce(queue: Queue, producer: int) -> None:
    for number in range(100_000):
        name = f"{LIFE}.{producer}.{number}"
        await queue.append(Message(name.encode(), id=name))
        note("accepted", name)


async def consume(queue: Queue) -> None:
    while True:
        for delivery in await queue.receive_batch(3):
            name = delivery.payload.decode()
            note("begun", name)
            await trio.lowlevel.checkpoint()
            note("acking", name)
            await delivery.ack()
            note("acked", name)


async def main() -> None:
    environment = RealEnvironment()
    options = QueueOptions(max_attempts=1000, capacity=200)
    async with (
        open_store(FOLDER / "queue.db", environment) as store,
        open_queue(store, environment, "q", options) as queue,
        trio.open_nursery() as nursery,
    ):
        note("opened", str(LIFE))
        for producer in range(5):
            nursery.start_soon(produce, queue, producer)
        for _ in range(3):
            nursery.start_soon(consume, queue)


trio.run(main)
