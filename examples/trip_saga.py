"""Book a trip in three systems, all of it or nothing, while the process that does it is killed again and again.

Shows: an event-sourced hotel, a read model that follows it, a saga that goes on after each crash, compensation in
reverse order, and a vote on the bill.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import trio

from sapwood import Actor, Request, Runtime, handle, open_runtime
from sapwood.actors import Ref, message, record
from sapwood.errors import StepRefused
from sapwood.messaging.patterns import (
    Begin,
    EventSourced,
    Outcome,
    Projection,
    Saga,
    SagaRunner,
    Step,
    StepContext,
    majority,
)
from sapwood.messaging.queues import StoredMessage

ROOMS = 2


@record("example.hotel.booked")
class Booked:
    key: str


@record("example.hotel.cancelled")
class Cancelled:
    key: str


@record("example.hotel.rooms")
class Rooms:
    keys: frozenset[str] = frozenset()


@message("example.hotel.book")
class Book(Request[bool]):
    key: str


@message("example.hotel.cancel")
class Cancel(Request[int]):
    key: str


@message("example.hotel.bookings")
class Bookings(Request[int]):
    at_least: int = 0


@message("example.bill")
class Bill(Request[int]):
    trips: int


class Hotel(EventSourced[Rooms]):
    """The write side: it has two rooms, and tells a repeated booking by its key."""

    def initial(self) -> Rooms:
        return Rooms()

    def evolve(self, state: Rooms, event: Any) -> Rooms:
        match event:
            case Booked(key=key):
                return Rooms(state.keys | {key})
            case _:
                return Rooms(state.keys - {event.key})

    @handle
    async def book(self, command: Book) -> bool:
        if command.key in self.state.keys:
            return True
        if len(self.state.keys) == ROOMS:
            return False
        await self.emit(Booked(command.key))
        return True

    @handle
    async def cancel(self, command: Cancel) -> int:
        if command.key in self.state.keys:
            await self.emit(Cancelled(command.key))
        return self.seq


class Register(Projection):
    """The read side."""

    def reset(self, connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE IF EXISTS example_register")
        connection.execute("CREATE TABLE example_register (key TEXT PRIMARY KEY)")

    def project(self, connection: sqlite3.Connection, stored: StoredMessage) -> None:
        match stored.message.payload:
            case Booked(key=key):
                connection.execute("INSERT INTO example_register VALUES (?)", (key,))
            case event:
                connection.execute("DELETE FROM example_register WHERE key = ?", (event.key,))

    @handle
    def bookings(self, query: Bookings) -> None:
        self.answer(
            lambda db: db.execute("SELECT count(*) FROM example_register").fetchone()[0], at_least=query.at_least
        )


class Clerk(Actor):
    def __init__(self, price: int) -> None:
        self.price = price

    @handle
    def bill(self, request: Bill) -> int:
        return request.trips * self.price


class Agency:
    """The steps of a trip, in one life of the process."""

    def __init__(self, hotel: Ref, flights: set[str]) -> None:
        self.hotel = hotel
        self.flights = flights

    async def fly(self, context: StepContext) -> str:
        await trio.sleep(0.001)
        self.flights.add(context.key)
        return context.key

    async def stay_home(self, context: StepContext) -> None:
        await trio.sleep(0.001)
        self.flights.discard(context.key.removesuffix(":undo"))

    async def sleep(self, context: StepContext) -> None:
        if not await self.hotel.ask(Book(context.key)):
            raise StepRefused("no room left")

    async def leave(self, context: StepContext) -> None:
        await self.hotel.ask(Cancel(context.key.removesuffix(":undo")))

    async def pay(self, context: StepContext) -> int:
        await trio.sleep(0.001)
        if context.input == "bob":
            raise StepRefused("the card was declined")
        return 100

    def trip(self) -> Saga:
        return Saga(
            "trip",
            [
                Step("flight", self.fly, self.stay_home, attempts=100),
                Step("hotel", self.sleep, self.leave, attempts=100),
                Step("payment", self.pay, attempts=100),
            ],
        )


async def live(runtime: Runtime, flights: set[str], seconds: float) -> dict[str, str] | None:
    """Work on the trips; None if time was up before they had ended, and all was killed."""
    hotel = await runtime.spawn(Hotel, runtime.store, "hotel")
    runner = await runtime.spawn(SagaRunner, runtime.store, [Agency(hotel, flights).trip()])
    outcomes: dict[str, str] = {}
    with trio.move_on_after(seconds):
        for name in ("ann", "bob", "cid", "dan"):
            await runner.ask(Begin("trip", name, name), timeout=None)
            report = await runner.ask(Outcome("trip", name), timeout=None)
            outcomes[name] = report.phase
    for ref in (runner, hotel):
        ref.kill()
        await ref.wait_stopped()
    return outcomes if len(outcomes) == 4 else None


async def main(path: Path) -> None:
    flights: set[str] = set()
    lives, outcomes = 0, None
    while outcomes is None:
        lives += 1
        async with open_runtime(store=path) as runtime:
            outcomes = await live(runtime, flights, 0.01 * lives)
    assert outcomes == {"ann": "completed", "bob": "compensated", "cid": "completed", "dan": "compensated"}
    assert flights == {"trip:ann:flight", "trip:cid:flight"}, "each booked once, and what was undone is gone"

    async with open_runtime(store=path) as runtime:
        hotel = await runtime.spawn(Hotel, runtime.store, "hotel")
        seq = await hotel.ask(Cancel("nothing"))
        register = await runtime.spawn(Register, runtime.store, "register", "hotel")
        trips = await register.ask(Bookings(at_least=seq))
        assert trips == ROOMS
        clerks = {name: await runtime.spawn(Clerk, price) for name, price in (("a", 100), ("b", 100), ("c", 1))}
        bill = await majority(clerks, Bill(trips))
        assert bill == 200
    print(f"after {lives} lives: {outcomes}; {trips} rooms, and a bill of {bill}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trio.run(main, Path(folder) / "trips.db")
