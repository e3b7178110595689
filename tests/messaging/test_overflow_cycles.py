"""Overflow becomes dead letters and goes nowhere else, so full mailboxes or queues can never push at each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, get_args

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood import Actor, handle, message, open_runtime
from sapwood.actors import DeadLetter, MailboxOptions, SimulatedEnvironment, record
from sapwood.errors import InvalidOption, QueueFull
from sapwood.messaging import BusOptions, Envelope
from sapwood.messaging.bus import BatchOptions, HandlerOptions
from sapwood.messaging.queues import Overflow, Queue, QueueOptions, QueueStatistics, open_memory_store, open_queue
from sapwood.persistence import StoreEngine

OPTIONS = (QueueOptions, MailboxOptions, HandlerOptions, BatchOptions, BusOptions)
SHEDDING = ("drop_newest", "drop_oldest", "drop_lowest")


@record("test.overflow.job")
class Job:
    text: str


@asynccontextmanager
async def two_full_queues(
    environment: SimulatedEnvironment, overflow: Any
) -> AsyncGenerator[tuple[StoreEngine, Queue, Queue]]:
    options = QueueOptions(capacity=2, overflow=overflow, dead_retries=0)
    async with (
        open_memory_store(environment) as store,
        open_queue(store, environment, "p", options) as p,
        open_queue(store, environment, "q", options) as q,
    ):
        for queue in (p, q):
            await queue.append_many([Job("1"), Job("2")])
        yield store, p, q


def moved(figures: QueueStatistics) -> dict[str, int]:
    return {name: number for name, number in figures.counts.items() if number}


@pytest.mark.row("BR-46")
@pytest.mark.parametrize("overflow", SHEDDING)
async def test_one_message_to_one_of_two_full_queues_is_one_dead_letter_and_leaves_the_other_alone(
    overflow: Overflow, autojump_clock: MockClock
) -> None:
    async with two_full_queues(SimulatedEnvironment(), overflow) as (store, p, q):
        writes = store.statistics().writes
        before = await q.statistics()
        await p.append(Job("3"))
        await trio.sleep(3_600)
        first, second = await p.statistics(), await q.statistics()
        assert (first.depth, first.dead, moved(first)) == (2, 1, {"appended": 3, "shed": 1, "dead": 1})
        assert attrs.evolve(second, rates={}, oldest_age=0.0) == attrs.evolve(before, rates={}, oldest_age=0.0)
        assert store.statistics().writes - writes <= 12, "one append, the looks of both dispatchers, and the alert"


@pytest.mark.row("BR-46")
async def test_a_queue_that_sheds_nothing_refuses_the_message_and_stores_nothing(autojump_clock: MockClock) -> None:
    async with two_full_queues(SimulatedEnvironment(), "reject") as (_, p, q):
        with pytest.raises(QueueFull):
            await p.append(Job("3"))
        assert (await p.statistics()).dead == (await q.statistics()).dead == 0


@pytest.mark.row("BR-46")
async def test_dead_letters_have_no_capacity_and_so_no_overflow_of_their_own(autojump_clock: MockClock) -> None:
    async with two_full_queues(SimulatedEnvironment(), "drop_oldest") as (_, p, q):
        for number in range(50):
            await p.append(Job(str(number)))
            await p.dead_letters.add(Job("nobody"), "recipient_unknown")
        first, second = await p.statistics(), await q.statistics()
        assert (first.depth, first.dead) == (2, 100)
        assert (second.depth, second.dead) == (2, 0)


@pytest.mark.row("BR-46")
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.__name__)
def test_no_option_names_another_place_for_what_overflows_or_dies(options: type[Any]) -> None:
    for name in ("overflow_to", "overflow_target", "dead_letter_to", "dead_letter_queue", "forward_to"):
        with pytest.raises(TypeError, match=name):
            options(**{name: "q"})
    if "overflow" in {field.name for field in attrs.fields(options)}:
        with pytest.raises(InvalidOption, match="overflow: expected"):
            options(capacity=2, overflow="q")
    assert set(get_args(Overflow)) == {"wait", "reject", *SHEDDING}


@pytest.mark.row("BR-46")
async def test_one_message_to_one_of_two_full_participants_is_one_dead_letter_and_no_more(
    autojump_clock: MockClock,
) -> None:
    async def hang(envelope: Envelope[Any]) -> None:
        await trio.sleep_forever()

    async with open_runtime(environment=SimulatedEnvironment(), signals=False, log=False) as runtime:
        bus = runtime.bus
        for name in ("p", "q"):
            await bus.register(name, hang, HandlerOptions(capacity=2))
            for _ in range(3):
                await bus.client("sender").send(name, Job("x"))
        assert bus.metrics().consumer_lag == {"p": 2, "q": 2}
        report = bus.client("q").send_nowait("p", Job("one more"))
        await trio.sleep(200)
        assert [(one.target, one.reason) for one in bus.dead_letters.inspect()] == [("p", "overflow")]
        assert (bus.dead_letters.total, bus.dead_letters.suppressed, report.status) == (1, 0, "failed")
        assert bus.metrics().consumer_lag == {"p": 2, "q": 2}
        # The alert about it goes to its sender, whose mailbox is full, too: that is counted, and no dead letter.
        await trio.sleep(200)
        assert (bus.dead_letters.total, bus.dead_letters.suppressed) == (1, 1)
        await trio.sleep(10_000)
        assert (bus.dead_letters.total, bus.dead_letters.suppressed) == (1, 1)


@message("test.overflow.hang")
class Hang:
    pass


class Full(Actor):
    mailbox = MailboxOptions(capacity=2, overflow="drop_oldest")

    @handle
    async def hang(self, message: Hang) -> None:
        await trio.sleep_forever()


@pytest.mark.row("BR-46")
async def test_one_message_to_one_of_two_full_actors_is_one_dead_letter_and_no_more(autojump_clock: MockClock) -> None:
    async with open_runtime(environment=SimulatedEnvironment(), signals=False, log=False) as runtime:
        p, q = await runtime.spawn(Full), await runtime.spawn(Full)
        for _ in range(3):
            for ref in (p, q):
                ref.tell(Hang())
            await trio.sleep(1)
        heard: list[DeadLetter] = []
        runtime.telemetry.subscribe(heard.append, DeadLetter)  # type: ignore[arg-type]  # no other kind is wanted
        p.tell(Hang())
        await trio.sleep(10)
        assert [(letter.target, letter.reason) for letter in heard] == [(p.statistics().label, "overflow")]
        assert (p.statistics().waiting, q.statistics().waiting) == (2, 2)
