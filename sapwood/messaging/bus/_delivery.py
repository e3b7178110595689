"""Delivery: from an accepted message to the mailboxes of its handlers, and back with what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from sapwood.actors import Ref
from sapwood.errors import ActorDown, AskCycle, AskTimeout, MailboxFull, SelfAsk, Undeliverable
from sapwood.messaging.bus._dead_letters import DeadReason
from sapwood.messaging.bus._desk import Desk
from sapwood.messaging.bus._directory import Consumer
from sapwood.messaging.bus._durable_sending import put, put_and_wait, put_nowait
from sapwood.messaging.bus._options import SHED_ABOVE
from sapwood.messaging.bus._reports import Answered, Delivery
from sapwood.messaging.bus._workers import Handled, NotHandled
from sapwood.messaging.envelope import Envelope

BY_ERROR: Final[Mapping[type[Exception], DeadReason]] = {
    ActorDown: "recipient_down",
    MailboxFull: "overflow",
    SelfAsk: "cycle",
    AskCycle: "cycle",
}
"""What the kernel said: the reason of the dead letter. After a time-out the message may still be handled."""


def post(desk: Desk, envelope: Envelope[Any], consumer: Consumer) -> Delivery | None:
    """Put a message into a handler's mailbox, without waiting; None if it is full, or the message must be stored."""
    if consumer.durable:
        return None
    worker = find_worker(desk, envelope, consumer)
    if isinstance(worker, Delivery):
        return worker
    try:
        worker.tell(envelope, priority=consumer.lane(envelope))
    except MailboxFull:
        return None
    return Delivery(consumer.participant, consumer.number, "queued")


def post_all_nowait(desk: Desk, envelope: Envelope[Any], consumers: Sequence[Consumer]) -> list[Delivery]:
    """Put a message into all mailboxes; where one is full it is a dead letter."""
    deliveries: list[Delivery] = []
    for consumer in consumers:
        if consumer.durable:
            deliveries.append(put_nowait(desk, envelope, consumer))
            continue
        delivery = post(desk, envelope, consumer)
        deliveries.append(delivery or _fail(desk, envelope, consumer, "overflow", "its mailbox is full"))
    return deliveries


async def post_all(
    desk: Desk, envelope: Envelope[Any], consumers: Sequence[Consumer], timeout: float | None
) -> list[Delivery]:
    """Put a message into all mailboxes, those with room first, at once; wait for room in the others."""
    posted = [post(desk, envelope, consumer) for consumer in consumers]

    async def post_later(index: int) -> None:
        posted[index] = await _post_slowly(desk, envelope, consumers[index], timeout)

    if all(posted):
        # A checkpoint, so that a sender in a loop lets the handlers run.
        await trio.lowlevel.checkpoint()
    else:
        async with trio.open_nursery() as nursery:
            for index in range(len(consumers)):
                if posted[index] is None:
                    nursery.start_soon(post_later, index)
    return [delivery for delivery in posted if delivery is not None]


async def _post_slowly(desk: Desk, envelope: Envelope[Any], consumer: Consumer, timeout: float | None) -> Delivery:
    """Wait for room in a full mailbox, or until the message is stored."""
    if consumer.durable:
        return await put(desk, envelope, consumer, timeout)
    worker = find_worker(desk, envelope, consumer)
    if isinstance(worker, Delivery):
        await trio.lowlevel.checkpoint()
        return worker
    try:
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            try:
                await worker.send(envelope, priority=consumer.lane(envelope))
            except (SelfAsk, AskCycle) as error:
                return _fail(desk, envelope, consumer, "cycle", str(error))
            return Delivery(consumer.participant, consumer.number, "queued")
    except trio.Cancelled:
        _fail(desk, envelope, consumer, "overflow", "its sender was cancelled while it waited for room")
        raise
    return _fail(desk, envelope, consumer, "overflow", f"there was no room within {timeout} s")


async def ask_all(
    desk: Desk, envelope: Envelope[Any], consumers: Sequence[Consumer], timeout: float | None
) -> list[Answered]:
    """Have a message handled everywhere, all at the same time, and wait for it.

    The sender is known to wait for each handler, so a circle of waiting actors is named at once (BR-14).
    """
    if len(consumers) == 1:
        return [await ask(desk, envelope, consumers[0], timeout)]
    answers: list[Answered | None] = [None] * len(consumers)

    async def ask_one(index: int) -> None:
        answers[index] = await ask(desk, envelope, consumers[index], timeout)

    async with trio.open_nursery() as nursery:
        for index in range(len(consumers)):
            nursery.start_soon(ask_one, index)
    return [answer for answer in answers if answer is not None]


async def ask(desk: Desk, envelope: Envelope[Any], consumer: Consumer, timeout: float | None) -> Answered:
    """Have a message handled by one handler, and wait for what comes back."""
    if consumer.durable:
        return await put_and_wait(desk, envelope, consumer, timeout)
    worker = find_worker(desk, envelope, consumer)
    if isinstance(worker, Delivery):
        await trio.lowlevel.checkpoint()
        return Answered(worker, error=Undeliverable(envelope.message_id, worker.reason or "", worker.error or ""))
    begun = desk.environment.monotonic()
    waited = envelope.age_ms(desk.environment)
    try:
        # The lane of a usual message is left out, for an ask without one may run the handler at once.
        lane = consumer.lane(envelope)
        value = await worker.ask(envelope, timeout=timeout, priority=lane if lane is not lane.NORMAL else None)
    except AskTimeout as error:
        return Answered(Delivery(consumer.participant, consumer.number, "unanswered", str(error)), error=error)
    except tuple(BY_ERROR) as error:
        reason: DeadReason = next(reason for kind, reason in BY_ERROR.items() if isinstance(error, kind))
        if envelope.message_id in consumer.lettered:
            # Its worker, or the mailbox that dropped it, has made the dead letter already.
            return Answered(Delivery(consumer.participant, consumer.number, "failed", str(error), reason), error=error)
        return Answered(_fail(desk, envelope, consumer, reason, str(error)), error=error)
    except (MemoryError, trio.TrioInternalError):
        raise
    except Exception as error:
        who = f"Handler {consumer.number} on {consumer.participant!r}"
        detail = f"{who} raised {type(error).__name__}: {error}"
        return Answered(_fail(desk, envelope, consumer, "handler_failed", detail), error=error)
    done = Delivery(consumer.participant, consumer.number, "handled")
    if isinstance(value, Handled):
        return Answered(done, value.value)
    if isinstance(value, NotHandled):
        failed = Delivery(consumer.participant, consumer.number, "failed", value.text, value.reason)
        return Answered(failed, error=value.error or Undeliverable(envelope.message_id, value.reason, value.text))
    # An actor that took the envelope itself; a worker counts by itself.
    desk.handled(envelope, consumer, waited, (desk.environment.monotonic() - begun) * 1000)
    return Answered(done, value)


def find_worker(desk: Desk, envelope: Envelope[Any], consumer: Consumer) -> Ref | Delivery:
    """Return the actor that is to take a message, or the failed delivery if none may."""
    if envelope.expired(desk.environment):
        return _fail(desk, envelope, consumer, "expired", "its time to live had passed before it was delivered")
    try:
        worker = consumer.worker_for(envelope)
    except (MemoryError, trio.TrioInternalError):
        raise
    except Exception as error:
        detail = f"the partition key of its handler raised {type(error).__name__}: {error}"
        return _fail(desk, envelope, consumer, "handler_failed", detail)
    if worker is None:
        return _fail(desk, envelope, consumer, "recipient_down", f"no actor of {consumer.participant!r} is alive")
    if desk.options.shed_above is not None and envelope.priority in SHED_ABOVE:
        waiting = worker.statistics().waiting
        if waiting >= desk.options.shed_above * SHED_ABOVE[envelope.priority]:
            detail = f"{waiting} messages wait, too many for one of priority {envelope.priority}"
            return _fail(desk, envelope, consumer, "shed", detail)
    return worker


def _fail(desk: Desk, envelope: Envelope[Any], consumer: Consumer, reason: DeadReason, detail: str) -> Delivery:
    desk.failed(envelope, consumer, reason, detail)
    return Delivery(consumer.participant, consumer.number, "failed", detail, reason)
