"""Ask a risk agent before each trade: typed calls that retry, keep to a deadline, and leave a sick agent alone.

Shows: calls by key that survive a restart of the target, failures by name, a circuit breaker, what an observer sees.
"""

from __future__ import annotations

import trio

from sapwood import Actor, Request, child, handle, message, open_runtime
from sapwood.actors import Failure
from sapwood.errors import AskTimeout, CircuitOpen, RemoteFailure
from sapwood.messaging.rpc import AttemptFailed, BreakerPolicy, CallEvent, RpcClient, failure, idempotent
from sapwood.registry import Key

RISK: Key = ("agent", "risk")
LIMIT = 100_000.0


@failure("risk.limit_exceeded")
class LimitExceeded(Exception):
    """The trade is too large; asking again cannot help."""


@idempotent
@message("risk.check")
class Check(Request[bool]):
    symbol: str
    value: float


starts = 0


class RiskAgent(Actor):
    def __init__(self) -> None:
        global starts  # noqa: PLW0603  # only the first life of the agent is short
        starts += 1
        self.life = starts

    @handle
    async def check(self, message: Check) -> bool | Failure:
        if message.symbol == "SLOW":
            await trio.sleep(60)
        if self.life == 1:
            raise RuntimeError("lost its market data")
        if message.value > LIMIT:
            return Failure(LimitExceeded(f"{message.value:,.0f} is above {LIMIT:,.0f}"))
        return True


async def main() -> None:
    events: list[CallEvent] = []
    async with open_runtime(children=[child(RiskAgent, key=RISK)]) as runtime:
        client = RpcClient(
            runtime.registry,
            runtime.environment,
            attempt_timeout=0.2,
            breaker=BreakerPolicy(failures=3, open_for=60),
            wait_for_start=True,
            observer=events.append,
        )

        # The agent crashes over the first attempt; its supervisor restarts it, and the key leads to the new one.
        assert await client.call(RISK, Check("BTC-PERP", 50_000), timeout=5)
        assert [type(event.error).__name__ for event in events if isinstance(event, AttemptFailed)] == ["ActorDown"]

        kind = ""
        try:
            await client.call(RISK, Check("ETH-PERP", 150_000))
        except RemoteFailure as refused:
            print(refused)
            kind = refused.kind
        assert kind == "risk.limit_exceeded"

        try:
            await client.call(RISK, Check("SLOW", 1), idempotent=False)
        except AskTimeout as late:
            print(late)

        # Another two failures in a row, and the agent is left alone.
        try:
            await client.call(RISK, Check("SLOW", 1), timeout=5)
        except CircuitOpen as refused:
            print(refused)
        [statistics] = client.statistics()
        assert statistics.breaker.opened == 1
        print(statistics)


if __name__ == "__main__":
    trio.run(main)
