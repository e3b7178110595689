"""What an event bus may not keep, and whom it may not keep waiting."""

from __future__ import annotations

import gc

import trio
from trio.testing import MockClock

from sapwood.actors import SimulatedEnvironment
from sapwood.messaging.events import AgentEvent, EventBus, EventBusOptions, open_event_bus
from sapwood.messaging.events._delivery import Publication


def event(kind: str) -> AgentEvent:
    return AgentEvent(kind, "tests")


async def test_events_that_handlers_publish_one_after_another_do_not_keep_each_other_alive(
    autojump_clock: MockClock,
) -> None:
    left = [300]
    done = trio.Event()
    async with open_event_bus(SimulatedEnvironment(), EventBusOptions(max_history=10)) as bus:

        async def next_one(seen: AgentEvent) -> None:
            await trio.lowlevel.checkpoint()
            left[0] -= 1
            if left[0]:
                bus.publish_nowait(event("tick"))
                return
            gc.collect()
            alive = sum(isinstance(one, Publication) for one in gc.get_objects())
            left[0] = -alive
            done.set()

        bus.subscribe("tick", next_one)
        bus.publish_nowait(event("tick"))
        await done.wait()
    assert -left[0] < 20


async def test_who_waits_for_an_idle_bus_goes_on_when_the_bus_is_closed(autojump_clock: MockClock) -> None:
    bus = EventBus(SimulatedEnvironment())
    async with trio.open_nursery() as nursery:
        await nursery.start(bus.run)

        async def never(seen: AgentEvent) -> None:
            await trio.sleep_forever()

        bus.subscribe("a", never)
        bus.publish_nowait(event("a"))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    ended = trio.Event()

    async def wait() -> None:
        await bus.wait_idle()
        ended.set()

    with trio.move_on_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            bus.close()
    assert ended.is_set()


async def test_a_handler_that_takes_its_place_back_while_another_task_of_it_begins_to_wait_gives_it_up_again(
    autojump_clock: MockClock,
) -> None:
    # Who gets the free place is open, so each order must do.
    for _ in range(20):
        with trio.fail_after(30):
            await _run_two_waits()


async def _run_two_waits() -> None:
    options = EventBusOptions(max_concurrent_handlers=1, handler_timeout=None)
    seen: list[str] = []
    async with open_event_bus(SimulatedEnvironment(), options) as bus:

        async def outer(_: AgentEvent) -> None:
            async def second() -> None:
                await trio.sleep(1.5)
                await bus.publish(event("second"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(second)
                await bus.publish(event("first"))

        async def first(_: AgentEvent) -> None:
            await trio.sleep(1)
            seen.append("first")

        async def other(_: AgentEvent) -> None:
            await trio.sleep(1)
            seen.append("other")

        async def last(_: AgentEvent) -> None:
            await trio.lowlevel.checkpoint()
            seen.append("second")

        for kind, handler in (("outer", outer), ("first", first), ("other", other), ("second", last)):
            bus.subscribe(kind, handler)
        bus.publish_nowait(event("outer"))
        await trio.sleep(0.5)
        bus.publish_nowait(event("other"))
        await bus.wait_idle()
    assert sorted(seen) == ["first", "other", "second"]
