"""Sends messages over a bus and handles them until it is killed: serve_until_killed.py FOLDER MODE LIFE.

Says each name once its message was accepted. Without a life it only handles what is left.
"""

from __future__ import annotations

import sqlite3
import sys
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import trio

from sapwood import Runtime, open_runtime
from sapwood.actors import record
from sapwood.messaging import BusOptions, Envelope, HandlerOptions
from sapwood.messaging.bus import current_delivery

FOLDER, MODE, LIFE = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


@record("test.bus.name")
class Name:
    text: str


def write(connection: sqlite3.Connection, name: str) -> None:
    connection.execute("INSERT INTO effects (name) VALUES (?)", (name,))


async def main() -> None:
    made: list[Runtime] = []
    options = BusOptions(queues=lambda: made[0].store)
    async with open_runtime(store=FOLDER / "bus.db", bus=options) as runtime:
        made.append(runtime)
        await runtime.store.write(
            lambda connection: connection.execute("CREATE TABLE IF NOT EXISTS effects (name TEXT)").close()
        )

        async def work(envelope: Envelope[Any]) -> None:
            operation = partial(write, name=envelope.payload.text)
            if MODE == "effectively_once":
                await current_delivery().ack_with(operation)
            else:
                await runtime.store.write(operation)

        await runtime.bus.register("worker", work, HandlerOptions(delivery=MODE, attempts=100))  # type: ignore[arg-type]
        client = runtime.bus.client("client")
        if not LIFE:
            await client.send("worker", Name("last"), wait=True, timeout=30)
            return
        for number in count():
            report = await client.send("worker", Name(f"{LIFE}.{number}"))
            assert report.status == "delivered"
            sys.stdout.write(f"{LIFE}.{number}\n")
            sys.stdout.flush()


trio.run(main)
