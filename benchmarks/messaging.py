"""Messaging beside what one would write by hand: events, calls, and shared memory.

Each figure is the processor time of one operation in microseconds, and its ratio to a raw one in the same round, both
medians over the rounds: an event beside calling the handlers in a loop, a call beside `ref.ask`, shared memory beside
a dict of deep copies.

    python benchmarks/messaging.py [--rounds 5] [--scale 1.0]
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import trio

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cells.common import clock  # noqa: E402  # found through the path above
from benchmarks.report import table  # noqa: E402  # as above
from sapwood import Actor, Request, handle, message, open_runtime  # noqa: E402  # as above
from sapwood.messaging.events import AgentEvent, open_event_bus  # noqa: E402  # as above
from sapwood.messaging.rpc import RpcClient  # noqa: E402  # as above
from sapwood.messaging.shared import DurableSharedMemory, SharedMemory  # noqa: E402  # as above

Pair = tuple[float, float]
"""Microseconds of one operation, and of the raw one."""

VALUE: Final = {"symbol": "BTC-PERP", "quantity": 2.5, "avg_entry": 67_000.0}
BURST: Final = 100


@message("bench.messaging.level")
class Level(Request[int]):
    pass


class Stock(Actor):
    @handle
    def level(self, message: Level) -> int:
        return 7


class AsyncStock(Actor):
    @handle
    async def level(self, message: Level) -> int:
        return 7


async def timed(count: int, operation: Callable[[], Awaitable[object]]) -> float:
    await operation()
    begin = clock()
    for _ in range(count):
        await operation()
    return (clock() - begin) / count * 1e6


def timed_plain(count: int, operation: Callable[[], object]) -> float:
    operation()
    begin = clock()
    for _ in range(count):
        operation()
    return (clock() - begin) / count * 1e6


def taker(is_async: bool) -> Callable[[AgentEvent], Any]:  # noqa: FBT001  # one of two kinds
    def plain(event: AgentEvent) -> None:
        pass

    async def slow(event: AgentEvent) -> None:
        await trio.lowlevel.checkpoint()

    return slow if is_async else plain


async def events(scale: float, subscribers: int, *, is_async: bool) -> Pair:
    """Publish and wait for the report, beside calling the handlers."""
    handlers = [taker(is_async) for _ in range(subscribers)]
    event = AgentEvent("trade.filled", "bench", VALUE)
    count = max(20, int(3_000 * scale / subscribers))

    async def raw() -> None:
        if not is_async:
            for handler in handlers:
                handler(event)
            await trio.lowlevel.checkpoint()
            return
        async with trio.open_nursery() as nursery:
            for handler in handlers:
                nursery.start_soon(handler, event)

    async with open_event_bus() as bus:
        for handler in handlers:
            bus.subscribe("trade.*", handler)
        return await timed(count, lambda: bus.publish(event)), await timed(count, raw)


async def bursts(scale: float) -> Pair:
    """Publish without waiting, a hundred at a time, beside calling the handler; per event."""
    handler = taker(is_async=False)
    event = AgentEvent("trade.filled", "bench", VALUE)
    async with open_event_bus() as bus:
        bus.subscribe("*", handler)

        async def burst() -> None:
            for _ in range(BURST):
                bus.publish_nowait(event)
            await bus.wait_idle()

        async def raw() -> None:
            for _ in range(BURST):
                handler(event)
            await trio.lowlevel.checkpoint()

        count = max(5, int(50 * scale))
        return await timed(count, burst) / BURST, await timed(count, raw) / BURST


async def calls(scale: float, factory: type[Actor]) -> Pair:
    """Call by key, beside asking the ref."""
    key = ("bench", "stock")
    async with open_runtime() as runtime:
        ref = await runtime.spawn(factory, key=key)
        client = RpcClient(runtime.registry, runtime.environment)
        count = int(5_000 * scale)
        return await timed(count, lambda: client.call(key, Level())), await timed(count, lambda: ref.ask(Level()))


async def memory(scale: float, kind: str) -> Pair:
    """Use shared memory, beside a dict of deep copies."""
    store = SharedMemory()
    store.write("k", VALUE, agent_id="bench")
    plain: dict[str, Any] = {"k": VALUE}

    def put() -> None:
        plain["k"] = copy.deepcopy(VALUE)

    def change() -> None:
        plain["k"] = copy.deepcopy({**copy.deepcopy(plain["k"]), "quantity": 3.0})

    operations: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "read": (lambda: store.read("k"), lambda: copy.deepcopy(plain["k"])),
        "write": (lambda: store.write("k", VALUE, agent_id="bench"), put),
        "update": (lambda: store.update("k", lambda value: {**value, "quantity": 3.0}, agent_id="bench"), change),
    }
    await trio.lowlevel.checkpoint()
    mine, raw = operations[kind]
    count = int(10_000 * scale)
    return timed_plain(count, mine), timed_plain(count, raw)


async def durable(scale: float) -> Pair:
    """Write to a store in memory, fifty writers at once, beside an empty write of the store; per write."""
    async with open_runtime() as runtime:
        shared = DurableSharedMemory(runtime.store, runtime.environment)
        await shared.open()

        async def together(write: Callable[[int], Awaitable[object]]) -> None:
            async with trio.open_nursery() as nursery:
                for number in range(50):
                    nursery.start_soon(write, number)

        def mine() -> Awaitable[None]:
            return together(lambda number: shared.write(f"k{number}", VALUE, agent_id="bench"))

        def raw() -> Awaitable[None]:
            return together(lambda number: runtime.store.write(lambda connection: connection.total_changes))

        count = max(3, int(20 * scale))
        return await timed(count, mine) / 50, await timed(count, raw) / 50


CASES: Final[dict[str, Callable[[float], Awaitable[Pair]]]] = {
    "publish to 1, plain": lambda scale: events(scale, 1, is_async=False),
    "publish to 10, plain": lambda scale: events(scale, 10, is_async=False),
    "publish to 1,000, plain": lambda scale: events(scale, 1_000, is_async=False),
    "publish to 10, async": lambda scale: events(scale, 10, is_async=True),
    "publish to 1,000, async": lambda scale: events(scale, 1_000, is_async=True),
    "publish_nowait, 1 plain": bursts,
    "call, plain handler": lambda scale: calls(scale, Stock),
    "call, async handler": lambda scale: calls(scale, AsyncStock),
    "shared read": lambda scale: memory(scale, "read"),
    "shared write": lambda scale: memory(scale, "write"),
    "shared update": lambda scale: memory(scale, "update"),
    "durable write, of 50": durable,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Events, calls and shared memory beside raw ones.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="how many operations are timed, times a usual number")
    chosen = parser.parse_args()
    rounds: dict[str, list[Pair]] = {case: [] for case in CASES}
    for number in range(chosen.rounds):
        for case, measure in CASES.items():
            rounds[case].append(trio.run(measure, chosen.scale))
        print(f"round {number + 1} of {chosen.rounds} done", file=sys.stderr)
    figures = {
        case: {
            "us": median(mine for mine, _ in pairs),
            "raw us": median(raw for _, raw in pairs),
            "ratio": median(mine / raw for mine, raw in pairs),
        }
        for case, pairs in rounds.items()
    }
    head = ("us", "raw us", "x raw")
    print(table.lay_out("one operation", head, {case: list(found.values()) for case, found in figures.items()}))
    results = ROOT / "benchmarks" / "results" / "messaging.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
