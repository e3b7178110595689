"""What the store in a server does beyond the suite: the server dies, comes back, and is shared."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest
import trio

from sapwood.actors import RealEnvironment
from sapwood.errors import InvalidOption, MissingExtra, ReferenceCorrupt, ReferenceNotFound, ReferenceUnavailable
from sapwood.references import (
    RedisConfig,
    RedisReferenceStore,
    Reference,
    ReferenceConfig,
    ReferenceStore,
    open_redis_store,
    open_reference_store,
)
from sapwood.testing._suite_kit import SteppedEnvironment, noise

pytestmark = [
    pytest.mark.usefixtures("forgotten_buffers"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),  # coredis leaves its buffers open
]
ENVIRONMENT = RealEnvironment()
MIB = 1024 * 1024


class Server(Protocol):
    port: int

    @property
    def url(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


@pytest.mark.row("S0-010", "S0-012", "S0-038")
async def test_a_killed_server_is_unavailable_and_has_everything_when_it_is_back(redis_server: Server) -> None:
    async with open_redis_store(redis_server.url, ENVIRONMENT) as store:
        small = await store.store(b"small", owner="a")
        large = await store.store(noise(3 * MIB))
        absent = "0" * 64
        with pytest.raises(ReferenceNotFound):
            await store.resolve(absent)

        redis_server.kill()
        for _ in range(2):
            for call in (store.resolve(small), store.resolve(absent), store.store(b"more"), store.collect()):
                with pytest.raises(ReferenceUnavailable, match="redis://127"):
                    await call

        redis_server.start()
        assert await store.resolve(small) == b"small"
        assert await store.resolve(large) == noise(3 * MIB)
        assert [lease.owner for lease in (await store.describe(small)).leases] == ["a"]
        assert len(await store.list()) == 2
        with pytest.raises(ReferenceNotFound):
            await store.resolve(absent)


@pytest.mark.row("S0-012")
async def test_a_server_killed_in_the_middle_of_a_stream_has_nothing_half_written(redis_server: Server) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield noise(2 * MIB)
        redis_server.kill()
        yield noise(2 * MIB)

    environment = SteppedEnvironment()
    async with open_redis_store(redis_server.url, environment) as store:
        with pytest.raises(ReferenceUnavailable):
            await store.store_stream(chunks())
        redis_server.start()
        assert await store.list() == ()
        environment.advance(3600)
        assert (await store.collect()).uploads == 1


@pytest.mark.row("S0-028", "S0-038")
async def test_two_clients_share_references_and_leases_but_not_those_of_another_prefix(redis_server: Server) -> None:
    url = redis_server.url
    async with (
        open_redis_store(url, ENVIRONMENT) as one,
        open_redis_store(url, ENVIRONMENT) as two,
        open_redis_store(url, ENVIRONMENT, prefix="other:") as other,
    ):
        reference = await one.store(b"shared", owner="a")
        assert await two.resolve(reference) == b"shared"
        assert await two.release_all("a") == 1
        assert (await one.collect()).references == 1
        again = await one.store(b"shared")
        with pytest.raises(ReferenceNotFound, match="another store"):
            await other.resolve(again)
        assert await other.list() == ()


@pytest.mark.row("S0-021")
@pytest.mark.parametrize("streamed", [False, True])
async def test_damage_in_the_server_is_found_and_kept(redis_server: Server, *, streamed: bool) -> None:
    from coredis import Redis

    async def read(store: ReferenceStore, reference: Reference) -> bytes:
        if not streamed:
            return await store.resolve(reference)
        async with store.resolve_stream(reference) as reader:
            return b"".join([chunk async for chunk in reader])

    async with open_redis_store(redis_server.url, ENVIRONMENT) as store, Redis(port=redis_server.port) as raw:
        reference = await store.store(noise(2 * MIB), owner="a")
        (key,) = await raw.keys("*blob:*")
        piece = await raw.hget(key, "1")
        assert piece is not None
        await raw.hset(key, {"1": bytes(piece)[:-1] + b"X"})
        for _ in range(2):
            with pytest.raises(ReferenceCorrupt, match="checksum"):
                await read(store, reference)
            await store.release(reference, "a")
            await store.collect()
        assert (await store.stats()).quarantined == 1
        await store.store(noise(2 * MIB))
        assert await store.resolve(reference) == noise(2 * MIB)
        assert (await store.stats()).quarantined == 0


async def test_opening_needs_no_server_and_exceptions_come_out_as_they_are(unused_port: int) -> None:
    config = ReferenceConfig(backend="redis", redis=RedisConfig(url=f"redis://user:secret@127.0.0.1:{unused_port}/0"))

    async def use() -> None:
        async with open_reference_store(config, environment=ENVIRONMENT) as store:
            with pytest.raises(ReferenceUnavailable) as caught:
                await store.store(b"data")
            assert "secret" not in str(caught.value)
            raise KeyError("from the block")

    with pytest.raises(KeyError, match="from the block"):
        await use()


async def test_a_cancelled_block_ends_and_leaves_the_store_closed(redis_server: Server) -> None:
    opened: list[ReferenceStore] = []
    with trio.CancelScope() as scope:
        async with open_redis_store(redis_server.url, ENVIRONMENT) as store:
            opened.append(store)
            await store.store(b"data")
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    with pytest.raises(ReferenceUnavailable, match="closed"):
        await opened[0].list()


@pytest.mark.parametrize("options", [{"ttl": 0}, {"max_bytes": 1.5}, {"max_references": 0}, {"max_idle": True}])
async def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(options))):
        async with open_redis_store("redis://localhost", ENVIRONMENT, **options):
            pass


async def test_a_client_that_decodes_is_refused_because_payloads_are_bytes() -> None:
    from coredis import Redis

    client: Any = Redis(decode_responses=True)
    with pytest.raises(InvalidOption, match="decode_responses"):
        RedisReferenceStore(client, ENVIRONMENT)


async def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coredis", None)
    with pytest.raises(MissingExtra, match=r"sapwood\[redis\]"):
        async with open_redis_store("redis://localhost", ENVIRONMENT):
            pass


@pytest.fixture
def unused_port() -> int:
    return 1
