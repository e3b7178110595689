"""Couriers: how an agent sends and receives data of any size."""

from __future__ import annotations

from typing import Any, final

import trio

from sapwood.actors import Environment, record
from sapwood.references._payload import Payload, pack, pack_nowait, unpack, unpack_nowait
from sapwood.references._policies import PolicyManager
from sapwood.references._protocol import ReferenceStore
from sapwood.references._reference import checked_text
from sapwood.references._retention import STORE_DEFAULT, check_seconds


@record("reference.message")
class Message:
    """Data from one agent to another; small, whatever the size of the data.

    Attributes:
        id: Unique.
        sender: Name of the agent that sent it.
        recipient: Name of the agent it is for.
        type: Message type; it decided by which policy the payload travels.
        payload: The data, or a reference to it.
        at: When it was made, in seconds since 1970 UTC.
    """

    id: str
    sender: str
    recipient: str
    type: str
    payload: Payload
    at: float


@final
class Courier:
    """Packs what an agent sends and unpacks what it receives; carrying the messages is up to the caller (S0-028).

    Agents that exchange references share one store, or have stores on one file or server.

    Args:
        name: Name of the agent.
        store: Where large payloads are kept.
        environment: Door to time and ids.
        policies: What is large; by default the built-in policies.
        hold: Seconds for which a stored payload is held for its message, however short the store's `ttl` is, until
            `done` is called. By default it is kept for the store's `ttl` instead.
    """

    def __init__(
        self,
        name: str,
        store: ReferenceStore,
        environment: Environment,
        *,
        policies: PolicyManager | None = None,
        hold: float | None = None,
    ) -> None:
        check_seconds("hold", hold)
        self.name = checked_text("name", name)
        self.store = store
        self.policies = PolicyManager() if policies is None else policies
        self.hold = hold
        self._environment = environment

    def send_nowait(self, to: str, message_type: str, data: object) -> Message:
        """Make a message of data that stays in it.

        Raises:
            trio.WouldBlock: if the policy of its message type wants it stored; use `send`.
            CodecError: if the data cannot be encoded.
        """
        recipient, kind = checked_text("to", to), checked_text("message_type", message_type)
        payload = pack_nowait(data, kind, policies=self.policies)
        id = self._environment.new_id("message-")
        return Message(id, self.name, recipient, kind, payload, self._environment.wall())

    async def send(self, to: str, message_type: str, data: object) -> Message:
        """Make a message of data, which is stored before this returns if its policy says so (S0-026).

        Raises:
            CodecError: if the data cannot be encoded; nothing was stored.
            ReferenceUnavailable: if it is to be stored and the store cannot.
        """
        recipient, kind = checked_text("to", to), checked_text("message_type", message_type)
        id = self._environment.new_id("message-")
        payload = await pack(
            data,
            kind,
            store=self.store,
            policies=self.policies,
            ttl=STORE_DEFAULT,
            owner=None if self.hold is None else _holder(id),
            lease_for=self.hold,
        )
        return Message(id, self.name, recipient, kind, payload, self._environment.wall())

    def receive_nowait(self, message: Message) -> Any:
        """Return the data of a message that has it in it.

        Raises:
            trio.WouldBlock: if it has a reference; use `receive`.
            CodecError: if the bytes are not what they should be.
        """
        return unpack_nowait(message.payload)

    async def receive(self, message: Message) -> Any:
        """Return the data of a message, checked against its reference if it has one (S0-027).

        Raises:
            ReferenceNotFound: if the store does not have it, or not any more.
            ReferenceUnavailable: if the store cannot answer; receive the message again later.
            ReferenceCorrupt: if the stored bytes are damaged.
            CodecError: if the bytes are not what they should be.
        """
        return await unpack(message.payload, store=self.store)

    async def done(self, message: Message) -> bool:
        """End the hold of a message that nobody will receive any more (S0-044); return False if there was none."""
        reference = message.payload.reference
        if reference is None:
            await trio.lowlevel.checkpoint()
            return False
        return await self.store.release(reference, _holder(message.id))


def _holder(message_id: str) -> str:
    return f"message:{message_id}"
