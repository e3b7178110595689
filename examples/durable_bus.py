"""Pay over a bus so that no payment is lost and none is made twice, whatever dies.

Shows: durable delivery, a sender that repeats itself, a handler that is killed in the middle of a payment, a second
life of the program, and a dead letter that is sent again once its cause is mended.
"""

from __future__ import annotations

import sqlite3
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import trio

from sapwood import Runtime, open_runtime
from sapwood.actors import record
from sapwood.messaging import Envelope, HandlerOptions
from sapwood.messaging.bus import current_delivery
from sapwood.supervision import Backoff

PAYMENTS = 20
AT_ONCE = Backoff(initial=0.001, factor=1.0, maximum=0.001, jitter=0.0)


@record("example.pay")
class Pay:
    number: int
    cents: int


def book(connection: sqlite3.Connection, pay: Pay) -> None:
    connection.execute("INSERT INTO example_payments VALUES (?, ?)", (pay.number, pay.cents))


async def balance(runtime: Runtime) -> tuple[int, int]:
    def select(connection: sqlite3.Connection) -> tuple[int, int]:
        count, cents = connection.execute("SELECT count(*), coalesce(sum(cents), 0) FROM example_payments").fetchone()
        return count, cents

    return await runtime.store.read(select)


class Bank:
    """The handler; it refuses large payments as long as its limit is low."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    async def __call__(self, envelope: Envelope[Any]) -> None:
        if envelope.payload.cents > self.limit:
            raise ValueError(f"more than {self.limit} cents")
        await trio.sleep(0.002)
        await current_delivery().ack_with(partial(book, pay=envelope.payload))


async def live(path: Path, bank: Bank, *, pays: bool) -> None:
    async with open_runtime(store=path) as runtime:
        bus = runtime.bus
        await runtime.store.write(
            lambda db: db.execute("CREATE TABLE IF NOT EXISTS example_payments (number, cents)").close()
        )
        options = HandlerOptions(delivery="effectively_once", attempts=5, retry=AT_ONCE)
        await bus.register("bank", bank, options)
        if pays:
            await send_all(runtime)
        else:
            await look_after(runtime)


async def send_all(runtime: Runtime) -> None:
    bus, shop = runtime.bus, runtime.bus.client("shop")
    for number in range(PAYMENTS):
        envelope = shop.make(Pay(number, 100 if number else 5_000), recipient="bank")
        for _ in range(2):  # it is not sure, and says it again
            report = await bus.send(envelope, timeout=30)
            assert report.status == "delivered"
        if number % 8 == 4:
            for cell in list(runtime.system.actors):
                if cell.label == "bus/bank/1":
                    cell.ref.kill()


async def look_after(runtime: Runtime) -> None:
    bus, (count, _) = runtime.bus, await balance(runtime)
    with trio.fail_after(30):
        while count + len(bus.dead_letters) < PAYMENTS:
            await trio.sleep(0.01)
            count, _ = await balance(runtime)
    print(f"paid {count}, dead letters {[letter.detail for letter in bus.dead_letters.inspect()]}")
    for letter in bus.dead_letters.inspect():
        report = await bus.requeue(letter.id)
        assert report.status == "delivered"
    assert len(bus.dead_letters) == 0


async def main(path: Path) -> None:
    await live(path, Bank(limit=1_000), pays=True)
    await live(path, Bank(limit=10_000), pays=False)
    async with open_runtime(store=path) as runtime:
        assert await balance(runtime) == (PAYMENTS, 100 * (PAYMENTS - 1) + 5_000)
        print(f"{PAYMENTS} payments, each made once")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trio.run(main, Path(folder) / "bank.db")
