"""Messages of queues: what a sender gives, and what is stored of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast
from zlib import crc32

import attrs

from sapwood.actors import Environment, Priority, wire_of
from sapwood.errors import CodecError, InvalidMessage
from sapwood.messaging.queues._options import is_seconds
from sapwood.persistence import decode, encode

MAX_NAME = 512
"""Most characters of ids, keys, senders and names."""


def _no_headers() -> dict[str, str]:
    return {}


@attrs.frozen
class Message:
    """What a sender puts into a queue. It is taken down when it is appended; later changes of its parts do nothing.

    Attributes:
        payload: Bytes, or an instance of a class made with `@record`.
        id: Unique id, by which repeats are told; empty for a new one.
        sender: Who is notified when it cannot be delivered; None for nobody.
        priority: Its place where the queue goes by priority.
        key: Messages with the same key keep their order where the queue is partitioned; None for none.
        headers: Texts that travel with it.
        ttl: Seconds after which, undelivered, it becomes a dead letter; None for the queue's own.
        delay: Seconds before it is delivered.
        deliver_at: Wall-clock time of its delivery, in seconds since 1970 UTC, instead of `delay`.

    Raises:
        InvalidMessage: naming the part that is wrong.
    """

    payload: Any
    id: str = attrs.field(default="", kw_only=True)
    sender: str | None = attrs.field(default=None, kw_only=True)
    priority: Priority = attrs.field(default=Priority.NORMAL, kw_only=True)
    key: str | None = attrs.field(default=None, kw_only=True)
    headers: Mapping[str, str] = attrs.field(factory=_no_headers, kw_only=True)
    ttl: float | None = attrs.field(default=None, kw_only=True)
    delay: float = attrs.field(default=0.0, kw_only=True)
    deliver_at: float | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        for name, fine, expected in (
            ("id", isinstance(self.id, str) and len(self.id) <= MAX_NAME, f"at most {MAX_NAME} characters"),
            ("sender", self.sender is None or _is_name(self.sender), f"None or 1 to {MAX_NAME} characters"),
            ("priority", isinstance(self.priority, Priority), "Priority.URGENT, HIGH, NORMAL or LOW"),
            ("key", self.key is None or _is_name(self.key), f"None or 1 to {MAX_NAME} characters"),
            ("headers", _are_texts(self.headers), "a mapping of texts to texts"),
            ("ttl", self.ttl is None or is_seconds(self.ttl), "None or seconds > 0"),
            ("delay", is_seconds(self.delay, zero=True), "seconds >= 0"),
            ("deliver_at", self.deliver_at is None or _is_time(self.deliver_at), "None or seconds since 1970 UTC"),
            ("deliver_at", self.deliver_at is None or not self.delay, "only one of delay and deliver_at"),
        ):
            if not fine:
                raise InvalidMessage(f"message of a queue, {name}: expected {expected}; got {getattr(self, name)!r}")


@attrs.frozen
class StoredMessage:
    """A message as the log has it.

    Attributes:
        seq: Its place in the log of its queue: 1, 2, 3 … without gaps.
        at: Wall clock when it was appended; for display, order is by `seq` alone (BR-77).
        message: What the sender gave, with its id; `delay` and `deliver_at` are not kept.
    """

    seq: int
    at: float
    message: Message


@attrs.frozen
class Outgoing:
    """A message ready to be stored: checked, encoded, with an id."""

    message: Message
    id: str
    kind: str | None
    body: bytes
    headers: str

    @property
    def content(self) -> int:
        """Checksum of what the message says, by which a repeated id is told from one used twice."""
        return crc32(self.body, crc32(f"{self.kind}\x00{self.message.key}\x00{self.headers}".encode()))


def prepare(given: object, environment: Environment) -> Outgoing:
    """Make a message ready to be stored; a bare payload becomes a message of its own.

    Raises:
        InvalidMessage: if it is neither a message, nor bytes, nor a record.
        CodecError: if the payload cannot be stored.
    """
    message = given if isinstance(given, Message) else Message(given)
    payload: object = message.payload
    kind: str | None = None
    if isinstance(payload, bytes):
        body = payload
    else:
        wire = wire_of(type(payload))
        if wire is None:
            raise InvalidMessage(
                f"message of a queue: expected bytes, or an instance of a class made with @record; got {payload!r}"
            )
        kind, body = wire.name, encode(payload)
    headers = json.dumps(dict(message.headers), sort_keys=True)
    return Outgoing(message, message.id or environment.new_id("msg_"), kind, body, headers)


def checksum(seq: int, message_id: str, key: str | None, headers: str, body: bytes) -> int:
    """Return the CRC-32 of what belongs together in a row of the log."""
    return crc32(body, crc32(f"{seq}\x00{message_id}\x00{key}\x00{headers}".encode()))


LogRow = tuple[int, float, str, str | None, int, str | None, float | None, str, str | None, bytes, int]


def restore(row: LogRow) -> StoredMessage:
    """Make a message of a row of the log.

    Raises:
        CodecError: if it cannot be read.
        FutureVersion: if newer code wrote its payload.
    """
    seq, at, message_id, sender, priority, key, ttl, headers, kind, body, found = row
    if checksum(seq, message_id, key, headers, body) != found:
        raise CodecError(f"message {seq}", "the checksum does not match: the bytes were changed")
    payload = body if kind is None else decode(body)
    message = Message(
        payload,
        id=message_id,
        sender=sender,
        priority=Priority(priority),
        key=key,
        headers=json.loads(headers),
        ttl=ttl,
    )
    return StoredMessage(seq, at, message)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MAX_NAME


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _are_texts(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    pairs = cast("Mapping[object, object]", value).items()
    return all(isinstance(name, str) and isinstance(text, str) for name, text in pairs)
