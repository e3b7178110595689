"""Agents that share positions: versions, snapshots, conflicts, and many threads at once.

Shows: copies on the way in and out, optimistic concurrency, merging, batches, a watch, and updates that lose nothing.
"""

from __future__ import annotations

import threading

import trio

from sapwood.errors import ConflictError
from sapwood.messaging.shared import SharedMemory, Write, Written


def show_versions(store: SharedMemory) -> None:
    position = {"symbol": "BTC-PERP", "quantity": 2.5, "avg_entry": 67000.0}
    entry = store.write("positions:BTC-PERP", position, agent_id="portfolio_agent")
    assert entry.version == 0

    snapshot = store.read("positions:BTC-PERP")
    assert snapshot is not None
    assert snapshot.agent_id == "portfolio_agent"
    assert snapshot.version == 0
    snapshot.value["quantity"] = 999
    again = store.read("positions:BTC-PERP")
    assert again is not None
    assert again.value["quantity"] == 2.5, "what was read is a copy"

    changed = {**position, "quantity": 3.0}
    entry = store.write("positions:BTC-PERP", changed, agent_id="execution_agent", expected_version=0)
    assert entry.version == 1
    actual = -1
    try:
        store.write("positions:BTC-PERP", position, agent_id="late_agent", expected_version=0)
    except ConflictError as error:
        print(error)
        actual = error.actual_version
    assert actual == 1

    # Made from version 0 as well, but of another field: both changes are kept.
    marked = {**position, "stop": 60_000.0}
    merged = store.write("positions:BTC-PERP", marked, agent_id="risk_agent", based_on=0, strategy="merge_fields")
    assert merged.value == {**position, "quantity": 3.0, "stop": 60_000.0}


def show_batches(store: SharedMemory) -> None:
    store.write_batch([Write("cash:a", 100), Write("cash:b", 0)], agent_id="treasury")
    try:
        store.write_batch(
            [Write("cash:a", 0, expected_version=0), Write("cash:b", 1, expected_version=7)], agent_id="x"
        )
    except ConflictError:
        both = store.read_many(["cash:a", "cash:b"])
        assert [value.value for value in both.values() if value is not None] == [100, 0], "all or nothing"


def show_threads(store: SharedMemory) -> None:
    def count() -> None:
        for _ in range(100):
            store.update("fills", lambda value: value + 1, agent_id=threading.current_thread().name, default=0)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fills = store.read("fills")
    assert fills is not None
    assert (fills.value, fills.version) == (400, 399), "no update is lost"


async def show_watch(store: SharedMemory) -> None:
    with store.watch("positions:") as changes:
        assert list(changes.snapshot) == ["positions:BTC-PERP"]
        store.write("positions:ETH-PERP", {"quantity": 1.0}, agent_id="portfolio_agent")
        async for change in changes:
            assert isinstance(change, Written)
            print(f"{change.value.agent_id} wrote {change.key} version {change.value.version}")
            break


def main() -> None:
    store = SharedMemory()
    show_versions(store)
    show_batches(store)
    show_threads(store)
    trio.run(show_watch, store)
    print(store.statistics())


if __name__ == "__main__":
    main()
