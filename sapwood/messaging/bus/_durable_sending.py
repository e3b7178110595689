"""Sending to participants with durable delivery: the message is in their queue before the sender goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import trio

from sapwood.errors import (
    AskTimeout,
    CodecError,
    DeadLetterMissing,
    InvalidMessage,
    MessageIdConflict,
    PersistenceError,
    QueueClosed,
    QueueFenced,
    QueueFull,
    ReferenceStoreError,
    Undeliverable,
)
from sapwood.messaging.bus._dead_letters import DeadReason
from sapwood.messaging.bus._desk import Desk
from sapwood.messaging.bus._directory import Consumer
from sapwood.messaging.bus._reports import Answered, Delivery
from sapwood.messaging.envelope import Envelope, Header
from sapwood.messaging.queues import Message
from sapwood.references import Payload, Reference, pack, unpack

PROMOTED: Final = "promoted_payload"
"""Header of a stored message whose payload was replaced by a reference."""

NANOSECONDS: Final = 1_000_000_000

NOT_STORED: Final = (PersistenceError, InvalidMessage, MessageIdConflict, QueueFull, ReferenceStoreError)


async def put(desk: Desk, envelope: Envelope[Any], consumer: Consumer, timeout: float | None) -> Delivery:
    """Store a message in a handler's queue; on return it is on the disk, or it has failed."""
    if envelope.expired(desk.environment):
        await trio.lowlevel.checkpoint()
        return fail(desk, envelope, consumer, "expired", "its time to live had passed before it was delivered")
    with trio.move_on_after(float("inf") if timeout is None else timeout):
        try:
            key = _key(envelope, consumer)
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            await trio.lowlevel.checkpoint()
            return fail(desk, envelope, consumer, "handler_failed", _bad_key(error))
        try:
            stored = await _promote(desk, envelope, consumer)
            if await _append(desk, stored, consumer, key):
                return Delivery(consumer.participant, consumer.number, "queued")
            reason: DeadReason = "recipient_down"
            detail = f"{consumer.participant!r} was unregistered, or another process serves it"
        except NOT_STORED as error:
            reason, detail = "not_stored", str(error)
        return fail(desk, envelope, consumer, reason, detail)
    detail = f"it was not stored within {timeout} s; if the store was only slow, it may be handled all the same"
    return fail(desk, envelope, consumer, "not_stored", detail)


async def _append(desk: Desk, envelope: Envelope[Any], consumer: Consumer, key: str | None) -> bool:
    """Append a message; False if its queue is not served here any more."""
    while (queue := await consumer.opened()) is not None:
        try:
            await queue.append(_message(desk, envelope, key))
        except (QueueClosed, QueueFenced):
            # Its host is being restarted. The next one opens the queue again; a repeat has the same id.
            consumer.close(queue)
        else:
            return True
    return False


def put_nowait(desk: Desk, envelope: Envelope[Any], consumer: Consumer) -> Delivery:
    """Have a message stored soon; what cannot be is a dead letter."""
    if envelope.expired(desk.environment):
        return fail(desk, envelope, consumer, "expired", "its time to live had passed before it was delivered")
    if consumer.queue is None:
        return fail(desk, envelope, consumer, "recipient_down", f"the queue of {consumer.participant!r} is not open")
    try:
        key = _key(envelope, consumer)
    except (MemoryError, trio.TrioInternalError):
        raise
    except Exception as error:
        return fail(desk, envelope, consumer, "handler_failed", _bad_key(error))
    try:
        consumer.queue.append_nowait(_message(desk, envelope, key))
    except (QueueClosed, QueueFenced, *NOT_STORED) as error:
        return fail(desk, envelope, consumer, "not_stored", str(error))
    return Delivery(consumer.participant, consumer.number, "queued")


async def put_and_wait(desk: Desk, envelope: Envelope[Any], consumer: Consumer, timeout: float | None) -> Answered:
    """Store a message, and wait until it was handled for good or became a dead letter."""
    deadline = trio.current_time() + (float("inf") if timeout is None else timeout)
    with consumer.awaiting(envelope.message_id) as waiter:
        delivery = await put(desk, envelope, consumer, timeout)
        if delivery.status == "failed":
            error = Undeliverable(envelope.message_id, delivery.reason or "", delivery.error or "")
            return Answered(delivery, error=error)
        with trio.move_on_at(deadline):
            return await waiter.wait()
    return unanswered(envelope, consumer, timeout)


async def put_again(
    desk: Desk, envelope: Envelope[Any], consumer: Consumer, seq: int, timeout: float | None
) -> Answered:
    """Bring a dead letter of the queue back, and wait as `put_and_wait` does."""
    with (
        consumer.awaiting(envelope.message_id) as waiter,
        trio.move_on_after(float("inf") if timeout is None else timeout),
    ):
        queue = await consumer.opened()
        if queue is None:
            raise DeadLetterMissing(consumer.participant, seq)
        await queue.dead_letters.requeue(seq)
        return await waiter.wait()
    return unanswered(envelope, consumer, timeout)


def unanswered(envelope: Envelope[Any], consumer: Consumer, timeout: float | None) -> Answered:
    """Say that the time is over; the message may still be handled."""
    error = AskTimeout(consumer.participant, type(envelope.payload).__name__, timeout or 0.0)
    return Answered(Delivery(consumer.participant, consumer.number, "unanswered", str(error)), error=error)


def fail(desk: Desk, envelope: Envelope[Any], consumer: Consumer, reason: DeadReason, detail: str) -> Delivery:
    """Make the dead letter of a message that was not stored."""
    desk.failed(envelope, consumer, reason, detail)
    return Delivery(consumer.participant, consumer.number, "failed", detail, reason)


def _key(envelope: Envelope[Any], consumer: Consumer) -> str | None:
    key = consumer.options.key
    return None if key is None else str(key(envelope))


def _bad_key(error: Exception) -> str:
    return f"the partition key of its handler raised {type(error).__name__}: {error}"


def _message(desk: Desk, envelope: Envelope[Any], key: str | None) -> Message:
    end = envelope.expires_at
    return Message(
        envelope,
        id=envelope.message_id,
        sender=envelope.sender,
        priority=envelope.lane,
        key=key,
        ttl=None if end is None else max(end / NANOSECONDS - desk.environment.wall(), 1e-6),
    )


# --- large payloads -------------------------------------------------------------------------------


async def _promote(desk: Desk, envelope: Envelope[Any], consumer: Consumer) -> Envelope[Any]:
    """Put a reference in place of a payload that the policy of its kind wants stored apart."""
    large = desk.options.large_payloads
    if large is None:
        return envelope
    payload = await pack(
        envelope.payload,
        envelope.kind,
        store=large.store,
        policies=large.policies,
        owner=_owner(envelope, consumer),
        lease_for=large.hold,
    )
    if payload.reference is None:
        return envelope
    # A message that is sent again must read the same, so it does not say when the store got the bytes.
    found: Any = payload.reference
    reference: Reference = attrs.evolve(found, created=envelope.created_at / NANOSECONDS)
    payload = Payload(reference=reference, content_type=payload.content_type)
    return _with(envelope, payload, {**envelope.headers, PROMOTED: True})


async def restore(desk: Desk, envelope: Envelope[Any]) -> Envelope[Any]:
    """Return a message with the payload that it was sent with.

    Raises:
        ReferenceStoreError: if the payload is not there, or not now.
        CodecError: if there is no reference store here.
    """
    if not envelope.headers.get(PROMOTED):
        return envelope
    if desk.options.large_payloads is None:
        raise CodecError("payload", "it is in a reference store, and this bus has none: give it large_payloads=")
    payload = await unpack(envelope.payload, store=desk.options.large_payloads.store)
    headers = {name: value for name, value in envelope.headers.items() if name != PROMOTED}
    return _with(envelope, payload, headers)


async def let_go(desk: Desk, stored: Envelope[Any], consumer: Consumer) -> None:
    """End the hold on the payload of a message that nobody will handle any more; after that it may be collected."""
    large, reference = desk.options.large_payloads, reference_of(stored)
    if large is not None and reference is not None:
        await large.store.release(reference, _owner(stored, consumer))


def reference_of(stored: Envelope[Any]) -> Reference | None:
    """Return what stands for the payload of a stored message, or None if it is there itself."""
    payload: object = stored.payload
    return payload.reference if stored.headers.get(PROMOTED) and isinstance(payload, Payload) else None


def _with(envelope: Envelope[Any], payload: object, headers: Mapping[str, Header]) -> Envelope[Any]:
    # Mypy does not see an attrs class behind `@message`.
    known: Any = envelope
    changed: Envelope[Any] = attrs.evolve(known, payload=payload, headers=headers)
    return changed


def _owner(envelope: Envelope[Any], consumer: Consumer) -> str:
    return f"bus:{consumer.participant}/{consumer.number}:{envelope.message_id}"
