"""The idempotent consumer: the receiver's own writes and the settlement in one commit."""

from __future__ import annotations

import sqlite3

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import SimulatedEnvironment
from sapwood.errors import LeaseLost
from sapwood.messaging.queues import Message, QueueOptions, open_queue
from sapwood.persistence import StoreEngine
from tests.messaging.queues.kit import drain

OPTIONS = QueueOptions(mode="effectively_once", visibility=10)


async def accounts(store: StoreEngine) -> None:
    await store.write(lambda connection: connection.execute("CREATE TABLE account (cents INTEGER)").close())


def deposit(connection: sqlite3.Connection) -> int:
    connection.execute("INSERT INTO account VALUES (5)")
    return balance(connection)


def balance(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(sum(cents), 0) FROM account").fetchone()[0])


@pytest.mark.row("S2-032")
async def test_an_effect_and_its_settlement_are_one_commit(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    await accounts(store)
    async with open_queue(store, environment, "q", OPTIONS) as queue:
        await queue.append(b"deposit")
        effect = await (await queue.receive()).ack_with(deposit)
        assert (effect.done, effect.value) == (True, 5)
        assert await queue.depth() == 0


@pytest.mark.row("S2-032", "S2-044")
async def test_an_effect_happens_once_for_an_id_though_the_message_is_replayed_or_sent_again_after_its_window(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    await accounts(store)
    async with open_queue(store, environment, "q", OPTIONS) as queue:
        await queue.append(Message(b"deposit", id="d1"))
        await (await queue.receive()).ack_with(deposit)
        assert await queue.replay() == 1
        effect = await (await queue.receive()).ack_with(deposit)
        assert (effect.done, effect.value) == (False, None)
        await trio.sleep(301)
        assert not (await queue.append(Message(b"deposit", id="d1"))).duplicate
        assert not (await (await queue.receive()).ack_with(deposit)).done
        await queue.append(Message(b"deposit", id="d2"))
        other = await (await queue.receive()).ack_with(deposit, consumer="other")
        assert other.value == 10


@pytest.mark.row("S2-032")
async def test_a_receiver_that_lost_its_delivery_has_no_effect(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    await accounts(store)
    async with open_queue(store, environment, "q", OPTIONS) as queue:
        await queue.append(b"deposit")
        slow = await queue.receive()
        await trio.sleep(11)
        with pytest.raises(LeaseLost):
            await slow.ack_with(deposit)
        assert await store.read(balance) == 0
        assert (await (await queue.receive()).ack_with(deposit)).value == 5


@pytest.mark.row("S2-032")
async def test_an_operation_that_fails_leaves_neither_effect_nor_settlement_nor_mark(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    def overdraw(connection: sqlite3.Connection) -> None:
        deposit(connection)
        raise ValueError("overdrawn")

    await accounts(store)
    async with open_queue(store, environment, "q", OPTIONS) as queue:
        await queue.append(b"deposit")
        delivery = await queue.receive()
        with pytest.raises(ValueError, match="overdrawn"):
            await delivery.ack_with(overdraw)
        assert await store.read(balance) == 0
        assert not delivery.settled
        assert (await delivery.ack_with(deposit)).value == 5


async def test_the_idempotency_key_is_the_same_for_every_delivery_of_a_message(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "payments", OPTIONS) as queue:
        await queue.append(Message(b"x", id="m1"))
        first = await queue.receive()
        await first.nack(delay=0)
        second = await queue.receive()
        assert first.idempotency_key == second.idempotency_key == "payments:m1"


@pytest.mark.row("S2-026")
async def test_at_most_once_a_failed_delivery_is_a_dead_letter_that_is_not_tried_again_by_itself(
    store: StoreEngine, environment: SimulatedEnvironment, autojump_clock: MockClock
) -> None:
    async with open_queue(store, environment, "q", QueueOptions(mode="at_most_once", visibility=10)) as queue:
        await queue.append_many([b"fails", b"hangs"])
        fails, hangs = await queue.poll(2)
        await fails.nack("no")
        await trio.sleep(11)
        with pytest.raises(LeaseLost):
            await hangs.ack()
        await trio.sleep(10_000)
        assert await drain(queue) == []
        letters = await queue.dead_letters.list()
        assert [(letter.detail, letter.attempts, letter.retries_by_itself) for letter in letters] == [
            ("no", 1, False),
            ("the visibility time-out passed", 1, False),
        ]
