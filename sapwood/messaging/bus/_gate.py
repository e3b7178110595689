"""The gate: everything that is checked before a message is accepted; whoever fails hears why, and nothing was sent."""

from __future__ import annotations

from typing import Any, cast

import trio

from sapwood.errors import ContentRefused, NotAuthorized, RateLimitExceeded, SendRefused
from sapwood.messaging.bus._desk import Desk
from sapwood.messaging.bus._reports import Operation
from sapwood.messaging.bus._topics import check_topic
from sapwood.messaging.envelope import Envelope, check_size


def check_message(desk: Desk, envelope: Envelope[Any], operation: Operation, to: str, *, trusted: bool) -> int:
    """Check a message in this order: who, whether they may, how often, what (S2-049 to S2-053).

    Args:
        desk: The desk of the bus.
        envelope: The message.
        operation: What its sender wants.
        to: Recipient or topic, for hook and audit.
        trusted: Whether it comes from a participant or was signed.

    Returns:
        Its size in bytes.

    Raises:
        BusUnavailable: if the bus does not run.
        NotAuthorized: if its sender is not authenticated, or the hook says no.
        RateLimitExceeded: if its sender sends too fast.
        ContentRefused: if its payload is of no known schema, or a validator refuses it.
        CodecError: if its payload does not fit its schema.
        MessageTooLarge: if it is too large.
    """
    desk.check_running()
    sender = envelope.sender
    try:
        _check_source(desk, sender, operation, trusted=trusted)
        ask_hook(desk, sender, operation, to)
        _check_rate(desk, sender, operation)
        return check_content(desk, envelope, operation)
    except (MemoryError, trio.TrioInternalError):
        raise
    except Exception as error:
        desk.note(sender, operation, to, refused=error.reason if isinstance(error, SendRefused) else str(error))
        raise


def check_operation(desk: Desk, actor: str, operation: Operation, subject: str) -> None:
    """Check an operation that sends nothing.

    Raises:
        BusUnavailable: if the bus does not run.
        NotAuthorized: if the hook says no.
    """
    desk.check_running()
    try:
        ask_hook(desk, actor, operation, subject)
    except NotAuthorized as error:
        desk.note(actor, operation, subject, refused=error.reason)
        raise
    desk.note(actor, operation, subject)


def ask_hook(desk: Desk, actor: str, operation: Operation, subject: str) -> None:
    """Ask the authorisation hook.

    Raises:
        NotAuthorized: if it answers anything but True, or raises.
    """
    if desk.options.authorize is None:
        return
    try:
        answer = desk.options.authorize(actor, operation, subject)
    except (MemoryError, trio.TrioInternalError):
        raise
    except Exception as error:
        raise NotAuthorized(actor, operation, f"the authorisation hook raised {error!r}") from error
    if answer is not True:
        reason = answer if isinstance(answer, str) and answer else f"{actor!r} may not {operation} {subject!r}"
        raise NotAuthorized(actor, operation, reason)


def _check_source(desk: Desk, sender: str, operation: Operation, *, trusted: bool) -> None:
    if desk.options.verifiers and not trusted:
        reason = "this bus takes messages from its participants and in signed form only; see Bus.receive"
        raise NotAuthorized(sender, operation, reason)


def _check_rate(desk: Desk, sender: str, operation: Operation) -> None:
    wait = desk.limiter.take(sender, desk.environment)
    if wait > 0:
        raise RateLimitExceeded(sender, operation, wait)


def check_content(desk: Desk, envelope: Envelope[Any], operation: Operation) -> int:
    """Check what a message holds; return its size in bytes.

    Raises:
        InvalidEnvelope: if its topic is none.
        ContentRefused, CodecError, MessageTooLarge: see `check_message`.
    """
    if envelope.topic is not None:
        check_topic(envelope.topic)
    if desk.options.schemas is not None:
        desk.options.schemas.check(envelope, operation)
    validate = desk.options.validators.get(cast("type[Any]", type(envelope.payload)))
    problem = validate(envelope.payload) if validate is not None else None
    if problem is not None:
        raise ContentRefused(envelope.sender, operation, f"payload {envelope.schema.name!r}: {problem}")
    return check_size(envelope, desk.options.max_bytes)
