"""Payloads: data in a message, or a reference to it."""

from __future__ import annotations

from typing import Any

import trio

from sapwood.actors import record
from sapwood.errors import InvalidOption
from sapwood.references._data import decode_data, encode_data
from sapwood.references._policies import PolicyManager
from sapwood.references._protocol import ReferenceStore
from sapwood.references._reference import Reference
from sapwood.references._retention import STORE_DEFAULT


@record("reference.payload")
class Payload:
    """Data on its way: exactly one of `value` and `reference` is there (S0-026).

    Attributes:
        value: The encoded data, or None if it is stored.
        reference: What stands for the stored data, or None.
        content_type: How the encoded data is to be read.

    Raises:
        InvalidOption: if both or neither is given.
    """

    value: bytes | None = None
    reference: Reference | None = None
    content_type: str = "application/json"

    def __attrs_post_init__(self) -> None:
        if (self.value is None) == (self.reference is None):
            raise InvalidOption("payload: expected exactly one of value and reference")

    @property
    def size(self) -> int:
        """Bytes of the encoded data."""
        if self.reference is not None:
            return self.reference.size
        assert self.value is not None
        return len(self.value)


def pack_nowait(data: object, message_type: str, *, policies: PolicyManager) -> Payload:
    """Encode data that stays in its message; the form of `pack` for whoever may not wait.

    Raises:
        trio.WouldBlock: if the policy of its message type wants it stored; use `pack`.
        CodecError: if the data cannot be encoded.
    """
    value, content_type = encode_data(data)
    if policies.should_use_reference(message_type, len(value)):
        raise trio.WouldBlock
    return Payload(value=value, content_type=content_type)


async def pack(
    data: object,
    message_type: str,
    *,
    store: ReferenceStore,
    policies: PolicyManager,
    ttl: float | None = STORE_DEFAULT,
    owner: str | None = None,
    lease_for: float | None = None,
) -> Payload:
    """Encode data, and store it if the policy of its message type says so.

    Args:
        data: JSON, a `@record` or bytes; see `encode_data`.
        message_type: Decides by which policy.
        store: Where it is stored.
        policies: Which policy that is.
        ttl: See `ReferenceStore.store`.
        owner: See `ReferenceStore.store`.
        lease_for: See `ReferenceStore.store`.

    Raises:
        CodecError: if the data cannot be encoded; nothing was stored.
        ReferenceUnavailable: if it is to be stored and the store cannot. Nothing is sent inline instead, for what a
            policy keeps out of messages must not get into one because a store is down.
    """
    value, content_type = encode_data(data)
    if not policies.should_use_reference(message_type, len(value)):
        await trio.lowlevel.checkpoint()
        return Payload(value=value, content_type=content_type)
    reference = await store.store(
        value,
        type=policies.get_policy(message_type).reference_type,
        content_type=content_type,
        ttl=ttl,
        owner=owner,
        lease_for=lease_for,
    )
    return Payload(reference=reference, content_type=content_type)


def unpack_nowait(payload: Payload) -> Any:
    """Return the data of a payload that has it; the form of `unpack` for whoever may not wait.

    Raises:
        trio.WouldBlock: if it has a reference; use `unpack`.
        CodecError: if the bytes are not what the content type says.
    """
    if payload.value is None:
        raise trio.WouldBlock
    return decode_data(payload.value, payload.content_type)


async def unpack(payload: Payload, *, store: ReferenceStore) -> Any:
    """Return the data of a payload, resolving its reference if it has one.

    Raises:
        ReferenceNotFound: if the store does not have it, or not any more.
        ReferenceUnavailable: if the store cannot answer.
        ReferenceCorrupt: if it is damaged.
        CodecError: if the bytes are not what the content type says.
    """
    if payload.reference is None:
        await trio.lowlevel.checkpoint()
        return unpack_nowait(payload)
    return decode_data(await store.resolve(payload.reference), payload.content_type)
