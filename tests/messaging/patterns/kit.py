"""Records, actors and helpers that the tests of the patterns share."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sapwood import Actor, Request, handle
from sapwood.actors import ActorSystem, Failure, SimulatedEnvironment, message, open_system, record
from sapwood.messaging.patterns import EventSourced, Projection
from sapwood.messaging.queues import StoredMessage
from sapwood.persistence import Store, open_store


@record("test.patterns.deposited")
class Deposited:
    cents: int


@record("test.patterns.withdrawn")
class Withdrawn:
    cents: int


@record("test.patterns.balance")
class Account:
    cents: int = 0
    changes: int = 0


@message("test.patterns.deposit")
class Deposit(Request[int]):
    cents: int


@message("test.patterns.withdraw")
class Withdraw(Request[int]):
    cents: int


@message("test.patterns.cents")
class Cents(Request[int]):
    at_least: int = 0


class Bank(EventSourced[Account]):
    """The write side: commands in, events out."""

    def initial(self) -> Account:
        return Account()

    def evolve(self, state: Account, event: Any) -> Account:
        match event:
            case Deposited(cents=cents):
                return Account(state.cents + cents, state.changes + 1)
            case Withdrawn(cents=cents) if cents <= state.cents:
                return Account(state.cents - cents, state.changes + 1)
            case _:
                raise ValueError(f"{event!r} cannot follow {state!r}")

    @handle
    async def deposit(self, command: Deposit) -> int:
        return await self.emit(Deposited(command.cents))

    @handle
    async def withdraw(self, command: Withdraw) -> int | Failure:
        if command.cents > self.state.cents:
            return Failure(ValueError("not that much there"))
        return await self.emit(Withdrawn(command.cents))

    @handle
    def cents(self, query: Cents) -> int:
        return self.state.cents


class Balances(Projection):
    """The read side."""

    def reset(self, connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE IF EXISTS test_balance")
        connection.execute("CREATE TABLE test_balance AS SELECT 0 AS cents, 0 AS changes")

    def project(self, connection: sqlite3.Connection, stored: StoredMessage) -> None:
        event = stored.message.payload
        sign = 1 if isinstance(event, Deposited) else -1
        connection.execute("UPDATE test_balance SET cents = cents + ?, changes = changes + 1", (sign * event.cents,))

    @handle
    def cents(self, query: Cents) -> None:
        self.answer(read_cents, at_least=query.at_least)


def read_cents(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT cents FROM test_balance").fetchone()[0])


class Silent(Actor):
    """Has a handler that never answers, whatever it is asked."""

    @handle
    def cents(self, query: Cents) -> None:
        self.kept = self.reply_later()


@asynccontextmanager
async def open_world(path: Path, seed: int = 0) -> AsyncGenerator[tuple[Store, ActorSystem]]:
    """A store in a file and a system of actors, both in simulated time."""
    environment = SimulatedEnvironment(seed)
    async with open_store(path / "patterns.db", environment) as store, open_system(environment=environment) as system:
        yield store, system
