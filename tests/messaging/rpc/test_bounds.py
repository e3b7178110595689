"""What a client keeps of targets that it will never call again."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from sapwood.actors import Actor, Ref, Request, SimulatedEnvironment, handle, message, open_system
from sapwood.errors import ActorDown, CircuitOpen
from sapwood.messaging.rpc import BreakerPolicy, RpcClient
from sapwood.messaging.rpc._client import KEPT
from sapwood.registry import Key, Lookup, NotRunning


@message("tests.rpc.bounds.ping")
class Ping(Request[int]):
    pass


class Answering(Actor):
    @handle
    def ping(self, request: Ping) -> int:
        return 1


class Nowhere:
    async def lookup(self, key: Key) -> Lookup[Ref]:
        return NotRunning()


async def test_targets_that_failed_and_are_never_called_again_do_not_pile_up(autojump_clock: MockClock) -> None:
    environment = SimulatedEnvironment()
    async with open_system(environment) as system:
        client = RpcClient(Nowhere(), environment)
        for _ in range(2 * KEPT):
            ref = await system.spawn(Answering)
            await ref.stop()
            with pytest.raises(ActorDown):
                await client.call(ref, Ping())
        assert len(client.statistics()) <= KEPT


async def test_an_open_breaker_is_not_forgotten_for_the_sake_of_many_new_targets(autojump_clock: MockClock) -> None:
    environment = SimulatedEnvironment()
    async with open_system(environment) as system:
        client = RpcClient(Nowhere(), environment, breaker=BreakerPolicy(failures=1, open_for=3600))
        first = await system.spawn(Answering)
        await first.stop()
        for _ in range(KEPT + 10):
            with pytest.raises((ActorDown, CircuitOpen)):
                await client.call(first, Ping())
            ref = await system.spawn(Answering)
            assert await client.call(ref, Ping()) == 1
            await ref.stop()
        with pytest.raises(CircuitOpen):
            await client.call(first, Ping())
