"""Messages that a store cannot take, handlers that settle for themselves, and senders without number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import open_runtime
from sapwood.actors import SimulatedEnvironment
from sapwood.errors import StoreUnavailable
from sapwood.messaging import BusOptions, Envelope, HandlerOptions
from sapwood.messaging.bus import DeadLetter, LargePayloads, RateLimit, Route, StoredDeadLetters, current_delivery
from sapwood.messaging.bus._rates import RateLimiter
from sapwood.persistence import open_store
from sapwood.references import AutoPromote, MemoryReferenceStore, PolicyManager
from tests.messaging.bus.kit import Note, Number, Recorder, open_bus
from tests.messaging.bus.test_durable import durable, open_durable
from tests.messaging.bus.test_failures import BrokenStore
from tests.messaging.queues.test_outages import Flaky


async def test_a_dead_letter_that_the_store_cannot_take_holds_back_no_other(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    environment = SimulatedEnvironment()

    async def spoil(envelope: Envelope[Any]) -> None:
        await trio.lowlevel.checkpoint()
        object.__setattr__(envelope.payload, "text", object())
        raise ValueError("spoilt")

    async with open_store(tmp_path / "letters.db", environment) as store:
        options = BusOptions(store=StoredDeadLetters(lambda: store, "bus"))
        async with open_runtime(bus=options, environment=environment, signals=False) as runtime:
            bus = runtime.bus
            await bus.register("bob", spoil)
            await bus.client("alice").send("bob", Note("fine"), wait=True)
            await bus.client("alice").send("nobody", Number(1))
            await trio.sleep(1)
            assert len(bus.dead_letters) == 2, "the one that cannot be stored stays in memory"
            assert bus.state == "running"
        stored = await StoredDeadLetters(lambda: store, "bus").load()
        assert [letter.target for letter in stored] == ["nobody"]


async def test_a_dead_letter_that_cannot_be_read_any_more_stays_and_keeps_no_other_from_being_read_or_written(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    environment = SimulatedEnvironment()

    async def run(number: int) -> list[int]:
        async with open_store(tmp_path / "letters.db", environment) as store:
            options = BusOptions(store=StoredDeadLetters(lambda: store, "bus"))
            async with open_runtime(bus=options, environment=environment, signals=False) as runtime:
                await runtime.bus.client("alice").send("nobody", Number(number))
                await trio.sleep(1)
                found = [letter.original.payload.value for letter in runtime.bus.dead_letters.inspect()]
            damage = "UPDATE bus_dead_letters SET record = x'00' WHERE number = 1"
            await store.write(lambda db: db.execute(damage).close())
            (rows,) = await store.read(lambda db: db.execute("SELECT count(*) FROM bus_dead_letters").fetchone())
            assert rows == number
            return found

    assert await run(1) == [1]
    assert await run(2) == [2]
    assert await run(3) == [2, 3]


@pytest.mark.parametrize("settle", ["nack", "reject"])
async def test_a_message_that_its_handler_gives_back_itself_is_not_told_as_handled_and_keeps_its_payload(
    tmp_path: Path, autojump_clock: MockClock, settle: str
) -> None:
    references = MemoryReferenceStore(SimulatedEnvironment(7))
    large = LargePayloads(store=references, policies=PolicyManager(AutoPromote(1000)))
    attempts: list[int] = []

    async def later(envelope: Envelope[Any]) -> None:
        delivery = current_delivery()
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            await (delivery.nack("not yet", delay=100) if settle == "nack" else delivery.reject("never"))

    async with open_durable(tmp_path / "bus.db", large_payloads=large) as (bus, _):
        await bus.register("bob", later, durable())
        report = await bus.client("alice").send("bob", Note("x" * 5000), wait=True, timeout=10)
        assert report.deliveries[0].status != "handled"
        assert bus.metrics().received == 0
        await references.collect()
        assert (await references.stats()).references == 1, "whoever handles it next needs its payload"
        await trio.sleep(200)
        assert attempts == ([1, 2] if settle == "nack" else [1])
        assert bus.metrics().received == len(attempts) - 1
        assert len(bus.dead_letters) == (settle == "reject")


async def test_a_handler_that_raises_after_it_acknowledged_has_handled_its_message(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def ack_and_raise(envelope: Envelope[Any]) -> None:
        await current_delivery().ack()
        raise ValueError("too late")

    async with open_durable(tmp_path / "bus.db") as (bus, _):
        await bus.register("bob", ack_and_raise, durable())
        report = await bus.client("alice").send("bob", Note("x"), wait=True, timeout=10)
        assert report.status == "delivered"
        assert bus.metrics().received == 1
        (consumer,) = bus._desk.directory.consumers("bob")
        assert consumer.errors == {}


async def test_many_senders_that_are_all_limited_are_not_gone_through_for_each_new_one() -> None:
    looks = 0

    class Limits(dict[str, RateLimit]):
        def get(self, *args: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().get(*args)

    environment = SimulatedEnvironment()
    await trio.lowlevel.checkpoint()
    limiter = RateLimiter(RateLimit(0.001), {})
    limiter._by_sender = Limits()
    for number in range(8_000):
        limiter.take(f"sender {number}", environment)
    assert looks < 8_000 * 5


async def test_many_durable_participants_ride_out_a_store_that_cannot_answer_for_a_minute(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    environment = SimulatedEnvironment()
    done: list[str] = []

    async def slowly(envelope: Envelope[Any]) -> None:
        await trio.sleep(2)
        done.append(envelope.payload.text)

    async with open_store(tmp_path / "bus.db", environment) as store:
        flaky = Flaky(store)
        options = BusOptions(queues=lambda: flaky)
        async with open_runtime(bus=options, environment=environment, signals=False) as runtime:
            bus = runtime.bus
            names = [f"bob{number}" for number in range(15)]
            for name in names:
                await bus.register(name, slowly, durable(attempts=20))
                await bus.client("alice").send(name, Note(name))
            await trio.sleep(1)
            hosts = {cell.ref for cell in runtime.system.actors if cell.label.startswith("bus/bob")}
            flaky.broken = True
            await trio.sleep(60)
            flaky.broken = False
            await trio.sleep(30)
            assert bus.state == "running"
            assert set(done) == set(names)
            assert bus.metrics().received == len(names)
            assert {cell.ref for cell in runtime.system.actors if cell.label.startswith("bus/bob")} == hosts


async def test_a_message_whose_sender_is_cancelled_while_it_waits_for_room_is_a_dead_letter(
    autojump_clock: MockClock,
) -> None:
    async def hang(envelope: Envelope[Any]) -> None:
        await trio.sleep(100)

    got = Recorder()
    async with open_bus() as (bus, _):
        await bus.register("full", hang, HandlerOptions(capacity=1), topics=["news"])
        await bus.register("free", got, topics=["news"])
        alice = bus.client("alice")
        await alice.send("full", Note("in hand"))
        await trio.sleep(1)
        await alice.send("full", Note("waits"))
        with trio.move_on_after(1) as scope:
            await alice.publish("news", Note("late"), timeout=None)
        assert scope.cancelled_caught
        assert got.texts == ["late"]
        (letter,) = bus.dead_letters.inspect()
        assert (letter.target, letter.reason, letter.original.payload) == ("full", "overflow", Note("late"))
        await bus.stop(timeout=0)


async def test_a_message_without_a_route_that_is_sent_again_is_routed_and_never_broadcast(
    autojump_clock: MockClock,
) -> None:
    got = Recorder()
    routes = [Route(when=lambda envelope: envelope.payload.text == "orders", to=("clerk",))]
    async with open_bus(routes=routes) as (bus, _):
        await bus.register("bystander", got)
        await bus.route(bus.client("alice").make(Note("lost")))
        (letter,) = bus.dead_letters.inspect()
        report = await bus.requeue(letter.id)
        assert got.texts == []
        assert report.status == "failed"
        (again,) = bus.dead_letters.inspect()
        assert (again.id, again.reason, again.retry_count) == (letter.id, "no_route", 1)


async def test_letters_of_a_former_life_that_are_read_late_are_the_oldest_and_take_no_more_room(
    autojump_clock: MockClock,
) -> None:
    store = LateStore()
    async with open_bus(store=store) as (bus, _):
        for number in range(3):
            await bus.client("alice").send("nobody", Number(number))
        await trio.sleep(1)
    store.broken = True
    async with open_bus(seed=1, store=store, dead_letters=4, alert_after=10.0) as (bus, _):
        for number in (3, 4):
            await bus.client("alice").send("nobody", Number(number))
        store.broken = False
        await trio.sleep(5)
        assert [letter.original.payload.value for letter in bus.dead_letters.inspect()] == [1, 2, 3, 4]
        assert len(store.letters) == 5


class LateStore(BrokenStore):
    """A store that cannot be read for a while."""

    async def load(self) -> list[DeadLetter]:
        if self.broken:
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("letters.db", "is locked")
        return await super().load()
