"""Everything at once, in many seeded interleavings: nothing that is held or kept is ever lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import attrs
import pytest
import trio

from sapwood.actors import Actor, SimulatedEnvironment, open_system
from sapwood.errors import ReferenceInUse, ReferenceNotFound
from sapwood.persistence import open_store
from sapwood.references import Courier, MemoryReferenceStore, Message, ReferenceStore, SQLiteReferenceStore
from sapwood.testing import simulate

Opening: TypeAlias = Callable[[SimulatedEnvironment], AbstractAsyncContextManager[ReferenceStore]]

PAYLOADS = [bytes([65 + number]) * (10 + number) for number in range(5)]
DELETABLE = PAYLOADS[3:]
TTL = 3.0
TURNS = 30


@asynccontextmanager
async def in_memory(environment: SimulatedEnvironment) -> AsyncGenerator[ReferenceStore]:
    await trio.lowlevel.checkpoint()
    yield MemoryReferenceStore(environment, ttl=TTL)


@asynccontextmanager
async def in_sqlite(environment: SimulatedEnvironment) -> AsyncGenerator[ReferenceStore]:
    async with open_store(":memory:", environment) as engine:
        store = SQLiteReferenceStore(engine, environment, ttl=TTL)
        await store.open()
        yield store


@attrs.define(eq=False)
class Worker:
    """Does things at random, and knows what must hold because of what it did itself."""

    name: str
    store: ReferenceStore
    environment: SimulatedEnvironment
    held: dict[bytes, tuple[str, str]] = attrs.field(factory=dict[bytes, tuple[str, str]])
    kept: dict[bytes, tuple[str, float]] = attrs.field(factory=dict[bytes, tuple[str, float]])
    resolved: int = 0
    missed: int = 0

    async def run(self) -> None:
        for turn in range(TURNS):
            data = self.environment.random.choice(PAYLOADS)
            action = self.environment.random.choice(
                [self.keep, self.hold, self.keep_streamed, self.acquire, self.release, self.delete, self.rest]
            )
            await action(data, turn)
            await self.check(data)
        for data in list(self.held):
            await self.release(data, 0)

    async def keep(self, data: bytes, turn: int) -> None:
        before = self.environment.wall()
        reference = await self.store.store(data)
        self.kept[data] = (reference.id, before + TTL)

    async def keep_streamed(self, data: bytes, turn: int) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            for byte in data:
                yield bytes([byte])

        before = self.environment.wall()
        reference = await self.store.store_stream(chunks())
        self.kept[data] = (reference.id, before + TTL)

    async def hold(self, data: bytes, turn: int) -> None:
        owner = f"{self.name}/{turn}"
        await self.release(data, turn)
        reference = await self.store.store(data, owner=owner)
        self.held[data] = (reference.id, owner)

    async def acquire(self, data: bytes, turn: int) -> None:
        known = self.kept.get(data)
        if known is None or data in self.held:
            return
        owner = f"{self.name}/{turn}"
        try:
            await self.store.acquire(known[0], owner)
        except ReferenceNotFound:
            assert not self.must_be_there(data)
        else:
            self.held[data] = (known[0], owner)

    async def release(self, data: bytes, turn: int) -> None:
        if data in self.held:
            id, owner = self.held.pop(data)
            assert await self.store.release(id, owner)

    async def delete(self, data: bytes, turn: int) -> None:
        known = self.held.get(data) or self.kept.get(data)
        if data in DELETABLE and known is not None:
            try:
                await self.store.delete(known[0])
            except ReferenceInUse:
                return
            assert data not in self.held, "a held reference was deleted"

    async def rest(self, data: bytes, turn: int) -> None:
        await trio.sleep(self.environment.random.choice([0, 0.5, 2]))

    def must_be_there(self, data: bytes) -> bool:
        """Whether the payload is held by this worker, or kept for it and nobody deletes it."""
        if data in self.held:
            return True
        known = self.kept.get(data)
        return known is not None and data not in DELETABLE and self.environment.wall() < known[1]

    async def check(self, data: bytes) -> None:
        known = self.held.get(data) or self.kept.get(data)
        if known is None:
            return
        try:
            found = await self.store.resolve(known[0])
        except ReferenceNotFound:
            self.missed += 1
            assert not self.must_be_there(data), f"{self.name} lost {data!r}"
        else:
            self.resolved += 1
            assert found == data


async def collect_for_ever(store: ReferenceStore, environment: SimulatedEnvironment) -> None:
    while True:
        await store.collect()
        await trio.sleep(environment.random.choice([0, 0, 0.1, 1]))


async def live(seed: int, opening: Opening) -> tuple[int, int]:
    environment = SimulatedEnvironment(seed)
    async with opening(environment) as store:
        workers = [Worker(f"w{number}", store, environment) for number in range(4)]
        async with trio.open_nursery() as collecting:
            collecting.start_soon(collect_for_ever, store, environment)
            async with trio.open_nursery() as working:
                for worker in workers:
                    working.start_soon(worker.run)
            collecting.cancel_scope.cancel()
        await trio.sleep(TTL)
        await store.collect()
        statistics = await store.stats()
        left = statistics.references, statistics.stored_bytes, statistics.leases
        assert left == (0, 0, 0), "something dead is left"
        return sum(worker.resolved for worker in workers), sum(worker.missed for worker in workers)


@pytest.mark.row("S0-014", "S0-032", "BR-47")
@pytest.mark.parametrize(("opening", "share"), [(in_memory, 4), (in_sqlite, 20)], ids=["memory", "sqlite"])
def test_no_interleaving_with_collections_loses_what_is_held_or_kept_or_leaves_what_is_dead(
    opening: Opening, share: int, interleavings: int
) -> None:
    outcomes = [simulate(seed, live, seed, opening) for seed in range(interleavings // share)]

    resolved, missed = (sum(column) for column in zip(*outcomes, strict=True))
    assert resolved > 10 * len(outcomes)
    assert missed > len(outcomes), "collections never took anything"


class Creator(Actor):
    """Stores data, sends a message about it, and does what its end asks."""

    def __init__(self, courier: Courier, sent: trio.MemorySendChannel[Message]) -> None:
        self.courier = courier
        self.sent = sent

    async def on_start(self) -> None:
        self.sent.send_nowait(await self.courier.send("parent", "dataset", ["a", "result"]))


@pytest.mark.row("BR-50")
@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_reference_outlives_its_creator_until_it_is_received_and_done(
    end: str, autojump_clock: trio.testing.MockClock
) -> None:
    environment = SimulatedEnvironment()
    store = MemoryReferenceStore(environment, ttl=1)
    sending, receiving = trio.open_memory_channel[Message](1)
    async with open_system(environment=environment) as system:
        creator = await system.spawn(lambda: Creator(Courier("child", store, environment, hold=3600), sending))
        with trio.fail_after(60):
            message = await receiving.receive()
        if end == "kill":
            creator.kill()
        else:
            await creator.stop()
        await creator.wait_stopped()
    await trio.sleep(1800)
    await store.collect()
    parent = Courier("parent", store, environment)
    assert await parent.receive(message) == ["a", "result"]
    assert await parent.done(message)
    assert (await store.collect()).references == 1

    unread = await Courier("child", store, environment, hold=3600).send("nobody", "dataset", ["never read"])
    await trio.sleep(3600)
    assert (await store.collect()).references == 1
    with pytest.raises(ReferenceNotFound):
        await parent.receive(unread)


async def grow_a_history(seed: int, opening: Opening) -> int:
    """Append references to a history, and store what nobody keeps, while collections run back to back."""
    environment = SimulatedEnvironment(seed)
    history: list[str] = []
    async with opening(environment) as store, trio.open_nursery() as nursery:
        nursery.start_soon(collect_for_ever, store, environment)
        for number in range(60):
            reference = await store.store(f"entry {number}".encode(), owner="history")
            history.append(reference.id)
            await store.store(f"scrap {number}".encode(), ttl=0.5)
            await trio.sleep(environment.random.choice([0, 0.01, 0.2]))
        freed = (await store.stats()).collected
        for number, id in enumerate(history):
            assert await store.resolve(id) == f"entry {number}".encode()
        nursery.cancel_scope.cancel()
    return freed


@pytest.mark.row("BR-49")
@pytest.mark.parametrize("opening", [in_memory, in_sqlite], ids=["memory", "sqlite"])
def test_a_history_that_grows_during_collections_loses_nothing_and_they_get_on(opening: Opening) -> None:
    freed = [simulate(seed, grow_a_history, seed, opening) for seed in range(20)]

    assert min(freed) > 0
