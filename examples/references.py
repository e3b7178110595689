"""Two agents send each other small and large data through one store; only references travel with the large ones.

Shows: the three tiers, content addressing, leases, collections, and a store in a file that a later session opens again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import trio

from sapwood.actors import RealEnvironment
from sapwood.errors import ReferenceInUse, ReferenceNotFound
from sapwood.references import (
    Courier,
    MemoryReferenceStore,
    Message,
    PolicyManager,
    ReferenceConfig,
    SQLiteConfig,
    ToolResult,
    open_reference_store,
)

environment = RealEnvironment()


async def tiers() -> None:
    """Send what is always a value, always a reference, and one or the other by its size."""
    store = MemoryReferenceStore(environment, ttl=600)
    first, second = (Courier(name, store, environment) for name in ("agent1", "agent2"))

    control = await first.send("agent2", "control", {"command": "start_processing", "priority": "high"})
    assert control.payload.value is not None
    assert await second.receive(control) == {"command": "start_processing", "priority": "high"}

    small = await first.send("agent2", "tool_result", {"status": "ok", "count": 42})
    large = await first.send("agent2", "tool_result", {"data": "x" * 15 * 1024})
    assert small.payload.reference is None
    assert large.payload.reference is not None
    print(f"{large.payload.size:,} bytes travel as {large.payload.reference.id[:16]}...")
    assert await second.receive(large) == {"data": "x" * 15 * 1024}

    again = await second.send("agent1", "tool_result", {"data": "x" * 15 * 1024})
    assert again.payload.reference is not None
    assert again.payload.reference.id == large.payload.reference.id
    statistics = await store.stats()
    print(f"stored {statistics.stores} times, kept {statistics.references} time")
    assert (statistics.stores, statistics.references) == (2, 1)
    await store.close()


async def first_session(config: ReferenceConfig) -> Message:
    async with open_reference_store(config, environment=environment) as store:
        sender = Courier("agent1", store, environment, hold=3600)
        state = {"session_id": "session-123", "conversation": ["hello"] * 100, "metadata": {"turn": 7}}
        message = await sender.send("agent2", "session_state", state)
        assert message.payload.reference is not None
        print(f"session state is a {message.payload.reference.type} of {message.payload.size} bytes")
        return message


async def later_session(config: ReferenceConfig, message: Message) -> None:
    policies = PolicyManager()
    policies.register_policy("report", ToolResult(1024))
    async with open_reference_store(config, environment=environment) as store:
        receiver = Courier("agent2", store, environment, policies=policies)
        state = await receiver.receive(message)
        assert state["metadata"] == {"turn": 7}

        reference = message.payload.reference
        assert reference is not None
        try:
            await store.delete(reference)
        except ReferenceInUse as refused:
            print(f"kept, for {refused.owners[0]} holds it")
        await receiver.done(message)
        freed = await store.collect()
        assert freed.references == 1
        try:
            await receiver.receive(message)
        except ReferenceNotFound as gone:
            print(f"gone: {gone.causes[0]}")
        else:
            raise AssertionError("a reference that nobody holds was still there")

        report = await receiver.send("agent1", "report", "y" * 1500)
        assert report.payload.reference is not None


async def main() -> None:
    await tiers()
    with tempfile.TemporaryDirectory() as folder:
        config = ReferenceConfig(backend="sqlite", sqlite=SQLiteConfig(path=str(Path(folder) / "data" / "refs.db")))
        message = await first_session(config)
        await later_session(config, message)


if __name__ == "__main__":
    trio.run(main)
