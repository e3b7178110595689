"""Handles one message of a queue and kills itself at a given point: die_at.py FOLDER MODE POINT."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path

import trio

from sapwood.actors import RealEnvironment
from sapwood.messaging.queues import Delivery, Message, Queue, QueueOptions, open_queue
from sapwood.persistence import Store, open_store

FOLDER, MODE, POINT = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
OPTIONS = QueueOptions(mode=MODE)  # type: ignore[arg-type]


def die(here: str) -> None:
    if here == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


def effect(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO effects DEFAULT VALUES")


def effect_that_dies(connection: sqlite3.Connection) -> None:
    effect(connection)
    die("after_effect")


async def work(store: Store, delivery: Delivery) -> None:
    with (FOLDER / "deliveries").open("a") as file:
        file.write("x")
    die("before_effect")
    if MODE == "effectively_once":
        await delivery.ack_with(effect_that_dies)
    else:
        await store.write(effect)
        die("after_effect")
        await delivery.ack()
    die("after_settled")


async def append_and_die(queue: Queue) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.append, Message(b"work", id="one"))
        for _ in range(4):
            await trio.lowlevel.checkpoint()
        die("before_append_returns")


async def main() -> None:
    environment = RealEnvironment()
    async with open_store(FOLDER / "queue.db", environment) as store:
        await store.write(lambda connection: connection.execute("CREATE TABLE effects (x)").close())
        async with open_queue(store, environment, "q", OPTIONS) as queue:
            if POINT == "before_append_returns":
                await append_and_die(queue)
            await queue.append(Message(b"work", id="one"))
            die("before_delivery")
            await work(store, await queue.receive())


trio.run(main)
