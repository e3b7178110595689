"""Trading agents that react to each other's events without knowing each other.

Shows: prefixes and the catch-all, priorities, the publish report, a handler that fails alone, history and counters.
"""

from __future__ import annotations

import trio

from sapwood.messaging.events import AgentEvent, EventBusOptions, EventPriority, open_event_bus

alerts: list[str] = []
logged: list[str] = []


async def risk_monitor(event: AgentEvent) -> None:
    if event.payload.get("position_value", 0) > 100_000:
        alerts.append(f"{event.payload['symbol']} from {event.source_agent}")


async def strategy_reevaluator(event: AgentEvent) -> None:
    print(f"re-evaluating positions for regime {event.payload['new_regime']!r}")


def event_logger(event: AgentEvent) -> None:
    logged.append(event.event_type)


async def broken(event: AgentEvent) -> None:
    raise ConnectionError("the ledger does not answer")


async def main() -> None:
    options = EventBusOptions(max_history=1_000, max_concurrent_handlers=5)
    async with open_event_bus(options=options) as bus:
        bus.subscribe("trade.*", risk_monitor)
        bus.subscribe("market.regime_changed", strategy_reevaluator)
        bus.subscribe("*", event_logger)

        opened = AgentEvent(
            event_type="trade.position_opened",
            source_agent="execution_agent",
            payload={"symbol": "ETH-PERP", "position_value": 150_000.0},
            priority=EventPriority.HIGH,
        )
        report = await bus.publish(opened)
        assert report.dispatched_count == 2, report
        assert [result.topic for result in report.results] == ["trade.*", "*"]

        regime = AgentEvent(
            event_type="market.regime_changed",
            source_agent="regime_detector",
            payload={"new_regime": "trending_high_volatility", "confidence": 0.91},
            priority=EventPriority.CRITICAL,
        )
        report = await bus.publish(regime)
        assert report.dispatched_count == 2, report
        assert alerts == ["ETH-PERP from execution_agent"], "the risk agent sees trades and nothing else"

        # A handler that fails harms neither the publisher nor the others; after three errors the event is kept.
        bus.subscribe("trade.closed", broken, attempts=3)
        report = await bus.publish(AgentEvent("trade.closed", "execution_agent"))
        print([(result.handler, result.status, result.attempts) for result in report.results])
        assert [letter.event.event_type for letter in bus.dead_letters()] == ["trade.closed"]

        assert len(bus.get_history("trade.*", limit=50)) >= 1
        assert logged == ["trade.position_opened", "market.regime_changed", "trade.closed"]
        print(bus.statistics())


if __name__ == "__main__":
    trio.run(main)
