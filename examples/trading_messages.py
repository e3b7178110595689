"""Pass structured messages between the agents of a trading desk: typed, versioned, traced and accounted for.

Shows: typed payloads with versions, direct delivery and broadcast with reports, the written forms, and dead letters.
"""

from __future__ import annotations

import trio

from sapwood import open_runtime
from sapwood.actors import RealEnvironment, record
from sapwood.errors import ContentRefused, InvalidEnvelope
from sapwood.messaging import BusOptions, Envelope
from sapwood.messaging.envelope import Schemas, checksum, from_json, to_json


@record("trading.signal")
class Signal:
    symbol: str
    side: str
    confidence: float
    entry_price: float


@record("trading.heartbeat")
class Heartbeat:
    status: str
    uptime_seconds: int


@record("trading.rumour")
class Rumour:
    text: str


async def main() -> None:
    environment = RealEnvironment()
    seen: list[tuple[str, str]] = []

    def execute(envelope: Envelope[Signal | Heartbeat]) -> None:
        if isinstance(envelope.payload, Signal):
            print(f"execution: {envelope.payload.side} {envelope.payload.symbol}, sent by {envelope.sender}")
        seen.append(("execution", envelope.kind))

    def watch_risk(envelope: Envelope[Signal | Heartbeat]) -> None:
        seen.append(("risk", envelope.kind))

    async with open_runtime(bus=BusOptions(schemas=Schemas(Signal, Heartbeat))) as runtime:
        bus = runtime.bus
        await bus.register("execution", execute)
        await bus.register("risk", watch_risk)
        strategy, monitor = bus.client("strategy"), bus.client("monitor")

        signal = strategy.make(
            Signal("BTC-PERP", "BUY", 0.82, 67_500.0), recipient="execution", kind="signal", priority="high"
        )
        report = await bus.send(signal, wait=True)
        assert (report.targets_contacted, report.status) == (1, "delivered")
        assert report.correlation_id == signal.message_id

        report = await monitor.broadcast(Heartbeat("healthy", 3_600), kind="system_heartbeat", wait=True)
        assert report.targets_contacted == 2
        assert sorted(seen) == [
            ("execution", "signal"), ("execution", "system_heartbeat"), ("risk", "system_heartbeat"),
        ]  # fmt: skip

        written = to_json(signal)
        assert from_json(written) == signal
        assert len(checksum(signal)) == 16
        print(f"written form: {len(written)} characters, checksum {checksum(signal)}")
        print(f"age: {signal.age_ms(environment):.1f} ms")

        report = await strategy.send("compliance", signal.payload, kind="signal")
        assert report.errors == ("No handler registered for agent 'compliance'",)
        assert len(bus.dead_letters) == 1

        for refused in (ContentRefused, InvalidEnvelope):
            try:
                if refused is ContentRefused:
                    await strategy.send("execution", Rumour("to the moon"))
                else:
                    await strategy.send("execution", {"symbol": "BTC-PERP"})
            except refused as error:
                print("refused:", str(error).splitlines()[0])
        assert bus.pairs()["strategy", "execution"].received == 1
        assert bus.pairs()["monitor", "risk"].received == 1


if __name__ == "__main__":
    trio.run(main)
