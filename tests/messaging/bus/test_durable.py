"""Participants whose messages are stored until they are handled."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from sapwood import Runtime, open_runtime
from sapwood.actors import RealEnvironment, Ref, SimulatedEnvironment
from sapwood.errors import AskTimeout, InvalidOption, RejectMessage
from sapwood.messaging import Bus, BusOptions, Envelope, HandlerOptions, bus_child
from sapwood.messaging.bus import BatchOptions, LargePayloads, current_delivery
from sapwood.messaging.queues import DeliveryMode, LogReader, open_queue
from sapwood.persistence import StoreEngine, open_store
from sapwood.references import AutoPromote, MemoryReferenceStore, PolicyManager
from sapwood.supervision import Backoff
from tests.messaging.bus.kit import Member, Note, Number, Recorder

PROGRAM = Path(__file__).parent / "programs" / "serve_until_killed.py"
QUICK = Backoff(initial=0.1, factor=2.0, maximum=1.0, jitter=0.0)


@asynccontextmanager
async def open_durable(path: Path, seed: int = 0, **options: Any) -> AsyncGenerator[tuple[Bus, Runtime]]:
    """A runtime whose bus has durable queues in its store."""
    made: list[Runtime] = []
    bus_options = BusOptions(queues=lambda: made[0].store, **options)
    environment = SimulatedEnvironment(seed)
    async with open_runtime(store=path, bus=bus_options, environment=environment, signals=False) as runtime:
        made.append(runtime)
        yield runtime.bus, runtime


def durable(**options: Any) -> HandlerOptions:
    given: dict[str, Any] = {"delivery": "at_least_once", "retry": QUICK, **options}
    return HandlerOptions(**given)


def host_of(runtime: Runtime, name: str) -> Ref:
    (host,) = [cell.ref for cell in runtime.system.actors if cell.label == f"bus/{name}/1"]
    return host


async def depth(store: StoreEngine, name: str) -> int:
    def select(connection: sqlite3.Connection) -> int:
        row = connection.execute("SELECT depth FROM queues WHERE name = ?", (f"bus/{name}/1",)).fetchone()
        return int(row[0])

    return await store.read(select)


async def hang(envelope: Envelope[Any]) -> None:
    await trio.sleep_forever()


@pytest.mark.row("S2-026", "S2-030")
async def test_a_message_is_stored_when_send_returns_and_handled_in_a_later_life(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_durable(tmp_path / "bus.db") as (bus, runtime):
        await bus.register("bob", hang, durable())
        report = await bus.client("alice").send("bob", Note("first"))
        assert (report.status, report.deliveries[0].status) == ("delivered", "queued")
        log = LogReader(runtime.store, runtime.environment, "bus/bob/1")
        (stored,) = await log.read()
        assert (stored.message.payload.payload, stored.message.id) == (Note("first"), report.message_id)
        host_of(runtime, "bob").kill()

    got = Recorder()
    async with open_durable(tmp_path / "bus.db", 1) as (bus, runtime):
        await bus.register("bob", got, durable())
        await bus.client("alice").send("bob", Note("second"), wait=True)
        assert got.texts == ["first", "second"]
        assert await depth(runtime.store, "bob") == 0
        assert bus.metrics().received == 2


@pytest.mark.row("S2-027", "S2-028", "S2-029", "S3-110")
async def test_a_message_that_fails_is_delivered_again_and_then_one_dead_letter_of_the_bus_that_outlives_the_process(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    times: list[float] = []
    healthy = [False]

    def moody(envelope: Envelope[Any]) -> str:
        times.append(round(trio.current_time() - begun, 2))
        if not healthy[0]:
            raise ConnectionError("down")
        return "done"

    async with open_durable(tmp_path / "bus.db") as (bus, runtime):
        await bus.register("bob", moody, durable())
        begun = trio.current_time()
        report = await bus.client("alice").send("bob", Note("x"), wait=True)
        assert times == [0.0, 0.1, 0.3]
        assert (report.status, report.errors) == ("failed", ("ConnectionError: down",))
        (letter,) = bus.dead_letters.inspect()
        assert (letter.reason, letter.target, letter.original.payload) == ("handler_failed", "bob", Note("x"))
        assert letter.detail == "ConnectionError: down"
        assert await depth(runtime.store, "bob") == 0
        assert bus.metrics().dead_letters == 1
        with pytest.raises(ConnectionError):
            await bus.client("alice").request("bob", Note("y"))

    async with open_durable(tmp_path / "bus.db", 1) as (bus, runtime):
        await bus.register("bob", moody, durable())
        again, other = bus.dead_letters.inspect()
        assert again.id == letter.id
        report = await bus.requeue(letter.id)
        assert report.status == "failed"
        assert bus.dead_letters.get(letter.id) is not None
        assert bus.dead_letters.inspect()[-1].retry_count == 1
        healthy[0] = True
        assert (await bus.requeue(letter.id)).status == "delivered"
        assert bus.dead_letters.inspect() == [other]
        assert bus.dead_letters.discard(other.id)
        await wait_all_tasks_blocked()

    async with open_durable(tmp_path / "bus.db", 2) as (bus, runtime):
        await bus.register("bob", moody, durable())
        assert bus.dead_letters.inspect() == []
        assert await bus.client("alice").request("bob", Note("z")) == "done"


async def test_what_a_handler_rejects_or_does_not_accept_is_a_dead_letter_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    def reject(envelope: Envelope[Any]) -> None:
        raise RejectMessage("never")

    async with open_durable(tmp_path / "bus.db") as (bus, _):
        await bus.register("bob", reject, durable(accepts=(Note,)))
        await bus.client("alice").send("bob", Note("x"), wait=True)
        report = await bus.client("alice").send("bob", Number(1), wait=True)
        assert report.errors == ("RejectMessage: expected Note; got Number",)
        assert [letter.reason for letter in bus.dead_letters.inspect()] == ["unhandled", "unhandled"]


@pytest.mark.row("S2-026", "S2-031", "S2-032")
async def test_effectively_once_takes_a_repeated_message_once_and_commits_its_effect_with_its_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    crashes = [True]

    def credit(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE test_account SET cents = cents + 5")

    async def pay(envelope: Envelope[Any]) -> None:
        delivery = current_delivery()
        if crashes and crashes.pop():
            host_of(runtime, "bank").kill()
            await trio.sleep(1)
        assert delivery.idempotency_key == f"bus/bank/1:{envelope.message_id}"
        await delivery.ack_with(credit)

    async with open_durable(tmp_path / "bus.db") as (bus, runtime):
        await runtime.store.write(lambda db: db.execute("CREATE TABLE test_account AS SELECT 0 AS cents").close())
        await bus.register("bank", pay, durable(delivery="effectively_once"))
        envelope = bus.client("alice").make(Number(5), recipient="bank")
        for _ in range(3):
            await bus.send(envelope)
        await trio.sleep(5)
        assert await runtime.store.read(lambda db: db.execute("SELECT cents FROM test_account").fetchone()) == (5,)
        assert len(bus.dead_letters) == 0
    with pytest.raises(LookupError, match="delivery="):
        current_delivery()


@pytest.mark.row("S2-027", "S2-039")
async def test_a_host_that_is_killed_loses_nothing_and_senders_wait_until_it_is_there_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    done: Counter[int] = Counter()

    async def work(envelope: Envelope[Any]) -> None:
        await trio.sleep(0.05)
        done[envelope.payload.value] += 1

    async with open_durable(tmp_path / "bus.db") as (bus, runtime):
        await bus.register("bob", work, durable(order="none", workers=3, attempts=100))
        alice = bus.client("alice")
        for number in range(30):
            if number % 10 == 5:
                host_of(runtime, "bob").kill()
            assert (await alice.send("bob", Number(number))).status == "delivered"
        await trio.sleep(10)
        assert set(done) == set(range(30))
        assert sum(done.values()) <= 30 + 3 * 3, "only what was in hand is delivered again"
        assert await depth(runtime.store, "bob") == 0
        assert len(bus.dead_letters) == 0


async def test_a_handler_may_run_for_much_longer_than_the_time_after_which_a_dead_one_is_given_up(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    calls: list[float] = []

    async def slowly(envelope: Envelope[Any]) -> str:
        calls.append(trio.current_time())
        await trio.sleep(500)
        return "done"

    async with open_durable(tmp_path / "bus.db") as (bus, _):
        await bus.register("bob", slowly, durable())
        with pytest.raises(AskTimeout):
            await bus.client("alice").request("bob", Note("x"), timeout=60)
        assert await bus.client("alice").request("bob", Note("y"), timeout=2000) == "done"
        assert len(calls) == 2


@pytest.mark.parametrize("order", ["fifo", "priority", "partitioned"])
async def test_stored_messages_are_handled_in_the_order_that_the_handler_asked_for(
    tmp_path: Path, autojump_clock: MockClock, order: str
) -> None:
    got: list[int] = []

    async def work(envelope: Envelope[Any]) -> None:
        await trio.sleep(0.01)
        got.append(envelope.payload.value)

    def is_even(envelope: Envelope[Any]) -> bool:
        return bool(envelope.payload.value % 2 == 0)

    async with open_durable(tmp_path / "bus.db") as (bus, runtime):
        options: dict[str, Any] = {"workers": 4, "key": is_even} if order == "partitioned" else {}
        await bus.register("bob", hang, durable(order=order, **options))
        host_of(runtime, "bob").kill()
        await wait_all_tasks_blocked()
        bus.unregister("bob")
        await wait_all_tasks_blocked()
        await bus.register("bob", work, durable(order=order, **options))
        alice = bus.client("alice")
        await alice.send_many(
            [alice.make(Number(n), recipient="bob", priority="urgent" if n == 9 else "low") for n in range(10)]
        )
        await trio.sleep(5)
        match order:
            case "partitioned":
                assert [n for n in got if n % 2 == 0] == [0, 2, 4, 6, 8]
                assert [n for n in got if n % 2 == 1] == [9, 1, 3, 5, 7], "send_many sends the urgent one first"
            case _:
                assert sorted(got) == list(range(10))
                assert got.index(9) <= 1


@pytest.mark.row("S2-010", "S2-026")
async def test_a_publication_is_stored_for_those_who_want_that_and_told_to_the_others(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    stored, told = Recorder(), Recorder()
    async with open_durable(tmp_path / "bus.db") as (bus, runtime):
        await bus.register("bob", stored, durable(), topics=["news.*"])
        await bus.register("eve", told, topics=["news.*"])
        report = await bus.client("alice").publish("news.local", Note("rain"), wait=True)
        assert [delivery.status for delivery in report.deliveries] == ["handled", "handled"]
        report = bus.client("alice").send_nowait("bob", Note("soon"))
        assert report.status == "delivered"
        await trio.sleep(1)
        assert (stored.texts, told.texts) == (["rain", "soon"], ["rain"])
        host_of(runtime, "bob").kill()
        await host_of_stopped(runtime)
        report = bus.client("alice").send_nowait("bob", Note("now"))
        assert report.deliveries[0].reason in ("recipient_down", "not_stored")


async def host_of_stopped(runtime: Runtime) -> None:
    for cell in list(runtime.system.actors):
        if cell.label == "bus/bob/1":
            await cell.ref.wait_stopped()


async def test_a_message_that_expires_before_it_is_handled_is_a_dead_letter(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def slowly(envelope: Envelope[Any]) -> None:
        await trio.sleep(5)

    async with open_durable(tmp_path / "bus.db") as (bus, _):
        await bus.register("bob", slowly, durable())
        await bus.client("alice").send("bob", Note("first"))
        await bus.client("alice").send("bob", Note("second"), ttl=2.0)
        old = bus.client("alice").make(Note("third"), recipient="bob", ttl=1.0)
        await trio.sleep(10)
        report = await bus.send(old)
        assert report.deliveries[0].reason == "expired"
        assert [(one.reason, one.original.payload.text) for one in bus.dead_letters.inspect()] == [
            ("expired", "second"),
            ("expired", "third"),
        ]


async def test_whoever_waits_for_a_participant_that_leaves_or_is_served_elsewhere_hears_so(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_durable(tmp_path / "bus.db") as (bus, runtime):
        await bus.register("bob", Recorder(), durable())
        async with open_queue(runtime.store, runtime.environment, "bus/bob/1") as stolen:
            report = await bus.client("alice").send("bob", Note("x"))
            assert report.deliveries[0].reason == "recipient_down"
            assert await stolen.depth() == 0
        assert bus.unregister("bob")
        await bus.register("bob", got := Recorder(), durable())
        assert (await bus.client("alice").send("bob", Note("y"), wait=True)).status == "delivered"
        assert got.texts == ["y"]


async def test_a_store_that_does_not_take_a_message_makes_it_a_dead_letter_and_the_sender_hears_so(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_durable(tmp_path / "bus.db") as (bus, runtime):
        await bus.register("bob", hang, durable(capacity=1))
        alice = bus.client("alice")
        await alice.send("bob", Note("one"))
        report = await alice.send("bob", Note("two"), timeout=1)
        assert report.deliveries[0].reason == "not_stored"
        (letter,) = bus.dead_letters.inspect()
        assert "not stored within 1 s" in letter.detail
        assert await depth(runtime.store, "bob") == 1


# --- large payloads -------------------------------------------------------------------------------


async def test_a_large_payload_is_stored_once_as_a_reference_and_held_until_its_message_is_handled(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    references = MemoryReferenceStore(SimulatedEnvironment(7))
    large = LargePayloads(store=references, policies=PolicyManager(AutoPromote(1000)))
    healthy = [False]
    got: list[Envelope[Any]] = []

    def moody(envelope: Envelope[Any]) -> None:
        got.append(envelope)
        if not healthy[0]:
            raise ConnectionError("down")

    async with open_durable(tmp_path / "bus.db", large_payloads=large) as (bus, runtime):
        await bus.register("bob", moody, durable(attempts=1))
        alice = bus.client("alice")
        await alice.send("bob", Note("small"), wait=True)
        assert (await references.stats()).references == 0
        await alice.send("bob", Note("x" * 5000), wait=True, headers={"colour": "blue"})
        assert got[-1].payload == Note("x" * 5000)
        assert dict(got[-1].headers) == {"colour": "blue"}
        rows = await runtime.store.read(lambda db: db.execute("SELECT length(body) FROM queue_log").fetchall())
        assert all(length < 1500 for (length,) in rows)

        await trio.sleep(10_000)
        await references.collect()
        assert (await references.stats()).leases == 1, "its dead letter holds it"
        letter = bus.dead_letters.inspect()[-1]
        healthy[0] = True
        assert (await bus.requeue(letter.id)).status == "delivered"
        assert got[-1].payload == Note("x" * 5000)
        await references.collect()
        assert (await references.stats()).references == 0, "and its end lets it go"

        healthy[0] = False
        await alice.send("bob", Note("y" * 5000), wait=True)
        letter = bus.dead_letters.inspect()[-1]
        assert bus.dead_letters.discard(letter.id)
        await wait_all_tasks_blocked()
        await references.collect()
        assert (await references.stats()).references == 0


async def test_a_large_message_that_is_sent_again_after_its_payload_was_collected_is_told_as_a_repeat(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    references = MemoryReferenceStore(SimulatedEnvironment(7))
    large = LargePayloads(store=references, policies=PolicyManager(AutoPromote(1000)))
    got = Recorder()
    async with open_durable(tmp_path / "bus.db", large_payloads=large) as (bus, _):
        await bus.register("bob", got, durable(delivery="effectively_once"))
        envelope = bus.client("alice").make(Note("x" * 5000), recipient="bob")
        await bus.send(envelope, wait=True)
        await references.collect()
        await trio.sleep(10)
        assert (await bus.send(envelope)).status == "delivered"
        await trio.sleep(10)
        assert len(got.envelopes) == 1


async def test_a_handler_that_trips_over_another_queue_or_a_key_that_raises_harms_its_own_message_alone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def forward(envelope: Envelope[Any]) -> None:
        if envelope.payload.text == "broken":
            await closed.append(b"x")

    def key_of(envelope: Envelope[Any]) -> str:
        return str(envelope.payload.text)

    async with open_durable(tmp_path / "bus.db") as (bus, runtime):
        async with open_queue(runtime.store, runtime.environment, "other") as closed:
            pass
        await bus.register("bob", forward, durable(order="partitioned", key=key_of))
        alice = bus.client("alice")
        report = await alice.send("bob", Note("broken"), wait=True)
        assert report.deliveries[0].reason == "handler_failed"
        assert "is closed" in report.errors[0]
        assert (await alice.send("bob", Note("fine"), wait=True)).status == "delivered"
        for report in (await alice.send("bob", Number(1)), alice.send_nowait("bob", Number(1))):
            assert report.errors[0].startswith("the partition key of its handler raised AttributeError")


async def test_whoever_waits_for_a_message_that_was_not_even_stored_in_time_hears_so(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_durable(tmp_path / "bus.db") as (bus, _):
        await bus.register("bob", hang, durable(capacity=1))
        await bus.client("alice").send("bob", Note("one"))
        begun = trio.current_time()
        report = await bus.client("alice").send("bob", Note("two"), wait=True, timeout=3)
        assert (report.deliveries[0].reason, trio.current_time() - begun) == ("not_stored", 3)


# --- options --------------------------------------------------------------------------------------


async def test_durable_delivery_is_refused_where_it_cannot_be_and_says_what_to_write(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    plain = Bus(BusOptions(name="plain"))
    async with open_runtime(children=[bus_child(plain)], environment=SimulatedEnvironment(), signals=False):
        with pytest.raises(InvalidOption, match="queues=lambda"):
            await plain.register("bob", Recorder(), durable())
    async with open_durable(tmp_path / "bus.db") as (bus, runtime):
        with pytest.raises(InvalidOption, match="an actor has its own mailbox"):
            await bus.register("bob", await runtime.spawn(Member), durable())
    with pytest.raises(InvalidOption, match="for a batch"):
        BatchOptions(delivery="at_least_once")
    with pytest.raises(InvalidOption, match="handler delivery"):
        HandlerOptions(delivery="exactly_once")  # type: ignore[arg-type]  # it is refused
    with pytest.raises(InvalidOption, match="attempts"):
        HandlerOptions(attempts=0)
    with pytest.raises(InvalidOption, match="hold"):
        LargePayloads(store=MemoryReferenceStore(SimulatedEnvironment()), hold=0)


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.row("S2-026", "S2-030")
@pytest.mark.parametrize("mode", ["at_least_once", "effectively_once"])
def test_a_process_killed_again_and_again_loses_no_message_of_its_bus(tmp_path: Path, mode: DeliveryMode) -> None:
    sent: set[str] = set()
    for life in range(2):
        command = [sys.executable, str(PROGRAM), str(tmp_path), mode, str(life)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(15):
                sent.add(process.stdout.readline().strip())
            process.send_signal(signal.SIGKILL)
            sent.update(line.strip() for line in process.stdout if line.endswith("\n"))
    done = subprocess.run([sys.executable, str(PROGRAM), str(tmp_path), mode, ""], check=False, timeout=60)
    assert done.returncode == 0

    async def look() -> Counter[str]:
        async with open_store(tmp_path / "bus.db", RealEnvironment()) as store:
            rows = await store.read(lambda db: db.execute("SELECT name FROM effects").fetchall())
            return Counter(name for (name,) in rows)

    effects = trio.run(look)
    assert sent <= set(effects)
    if mode == "effectively_once":
        assert set(effects.values()) == {1}
