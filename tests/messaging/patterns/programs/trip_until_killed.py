"""Books a trip as a saga and kills itself at a given point: trip_until_killed.py FOLDER POINT. Prints the outcome."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from pathlib import Path

import trio

from sapwood.actors import RealEnvironment, open_system
from sapwood.errors import StepRefused
from sapwood.messaging.patterns import Begin, Outcome, Saga, SagaRunner, Step, StepContext
from sapwood.persistence import Store, open_store

FOLDER, POINT = Path(sys.argv[1]), sys.argv[2]
TURNS = FOLDER / "turns"


def die(here: str) -> None:
    if here == POINT:
        if here.startswith("undo"):
            TURNS.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Agency:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def book(self, context: StepContext) -> str:
        die(context.step)
        if context.step == "hotel" and (POINT.startswith("undo") or TURNS.exists()):
            raise StepRefused("no room")

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR IGNORE INTO bookings (key, name) VALUES (?, ?)", (context.key, context.step))

        await self.store.write(write)
        die(f"{context.step}:done")
        return context.step

    async def cancel(self, context: StepContext) -> None:
        die(f"undo {context.step}")
        key = context.key.removesuffix(":undo")
        await self.store.write(
            lambda connection: connection.execute("DELETE FROM bookings WHERE key = ?", (key,)).close()
        )


async def main() -> None:
    environment = RealEnvironment()
    async with open_store(FOLDER / "trips.db", environment) as store, open_system(environment) as system:
        await store.write(
            lambda connection: connection.execute(
                "CREATE TABLE IF NOT EXISTS bookings (key TEXT UNIQUE, name TEXT)"
            ).close()
        )
        agency = Agency(store)
        saga = Saga("trip", [Step(name, agency.book, agency.cancel) for name in ("flight", "hotel")])
        runner = await system.spawn(SagaRunner, store, [saga])
        await runner.ask(Begin("trip", "1", "ann"))
        report = await runner.ask(Outcome("trip", "1"), timeout=30)
        sys.stdout.write(json.dumps([report.phase]))


trio.run(main)
