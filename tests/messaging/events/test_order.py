"""The order of deliveries: priorities, concurrency, cancellation, and handlers that publish, subscribe, unsubscribe."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import SimulatedEnvironment
from sapwood.errors import EventCycle
from sapwood.messaging.events import AgentEvent, EventBus, EventBusOptions, EventPriority, open_event_bus
from sapwood.testing import simulate

LOW, NORMAL, HIGH, CRITICAL = (EventPriority[name] for name in ("LOW", "NORMAL", "HIGH", "CRITICAL"))


@pytest.fixture
async def bus(autojump_clock: MockClock) -> AsyncIterator[EventBus]:
    assert trio.lowlevel.current_clock() is autojump_clock, "the test must take autojump_clock too"
    async with open_event_bus(SimulatedEnvironment()) as opened:
        yield opened


def event(kind: str, priority: EventPriority = NORMAL, **payload: object) -> AgentEvent:
    return AgentEvent(kind, "tests", dict(payload), priority)


# --- priorities -----------------------------------------------------------------------------------


@pytest.mark.row("S1-021")
async def test_what_waits_for_a_handler_is_ordered_by_priority_and_then_by_age(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    seen: list[str] = []

    async def handler(event: AgentEvent) -> None:
        seen.append(event.event_type)
        await trio.sleep(1)

    bus.subscribe("*", handler)
    bus.publish_nowait(event("first"))
    await trio.sleep(0.5)
    for name, priority in [("l1", LOW), ("n1", NORMAL), ("h1", HIGH), ("c1", CRITICAL)]:
        bus.publish_nowait(event(name, priority))
        bus.publish_nowait(event(name.replace("1", "2"), priority))
    await bus.wait_idle()
    assert seen == ["first", "c1", "c2", "h1", "h2", "n1", "n2", "l1", "l2"]


@pytest.mark.row("S1-021")
async def test_a_critical_event_is_handled_at_once_though_all_places_are_taken(autojump_clock: MockClock) -> None:
    async with open_event_bus(options=EventBusOptions(max_concurrent_handlers=2)) as bus:
        begun: dict[str, float] = {}

        async def busy(name: str, event: AgentEvent) -> None:
            begun[name] = trio.current_time()
            await trio.sleep(10)

        for name in ("a", "b", "c"):
            bus.subscribe("work", partial(busy, name))
        bus.subscribe("alarm", partial(busy, "alarm"))
        bus.subscribe("later", partial(busy, "later"))
        bus.publish_nowait(event("work"))
        await trio.sleep(1)
        bus.publish_nowait(event("later", HIGH))
        report = await bus.publish(event("alarm", CRITICAL))
    assert report.results[0].status == "success"
    assert begun == {"a": 0, "b": 0, "alarm": 1, "later": 10, "c": 10}


@pytest.mark.row("S1-021")
async def test_a_low_event_waits_until_nothing_else_wants_a_place(autojump_clock: MockClock) -> None:
    async with open_event_bus(options=EventBusOptions(max_concurrent_handlers=1)) as bus:
        seen: list[str] = []

        async def work(name: str, event: AgentEvent) -> None:
            seen.append(f"{name}:{event.event_type}")
            await trio.sleep(1)

        bus.subscribe("*", partial(work, "a"))
        bus.subscribe("*", partial(work, "b"))
        bus.publish_nowait(event("low", LOW))
        bus.publish_nowait(event("one"))
        await trio.sleep(1.5)
        bus.publish_nowait(event("two"))
    assert seen == ["a:one", "b:one", "a:two", "b:two", "a:low", "b:low"]


# --- concurrency ----------------------------------------------------------------------------------


@pytest.mark.row("S1-025")
async def test_matching_handlers_run_at_the_same_time_but_never_more_than_the_bound(
    autojump_clock: MockClock,
) -> None:
    running: list[int] = []
    now = 0

    async def work(number: int, event: AgentEvent) -> None:
        nonlocal now
        now += 1
        running.append(now)
        await trio.sleep(1)
        now -= 1

    async with open_event_bus() as bus:
        for number in range(25):
            bus.subscribe("*", partial(work, number))
        report = await bus.publish(event("x"))
    assert report.dispatched_count == 25
    assert max(running) == 10
    assert trio.current_time() == pytest.approx(3)


async def test_one_handler_is_given_one_event_at_a_time_while_others_go_on(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    seen: list[str] = []

    async def slow(event: AgentEvent) -> None:
        await trio.sleep(10)
        seen.append(f"slow {event.event_type} at {trio.current_time():g}")

    bus.subscribe("*", slow)
    bus.subscribe("*", lambda event: seen.append(f"fast {event.event_type}"))
    bus.publish_nowait(event("1"))
    bus.publish_nowait(event("2"))
    await bus.wait_idle()
    assert seen == ["fast 1", "fast 2", "slow 1 at 10", "slow 2 at 20"]


# --- handlers that publish ------------------------------------------------------------------------


@pytest.mark.row("BR-43")
@pytest.mark.parametrize("slow", [False, True], ids=["plain", "async"])
async def test_every_handler_sees_a_re_entrant_event_after_the_one_that_led_to_it(
    bus: EventBus, autojump_clock: MockClock, *, slow: bool
) -> None:
    seen: dict[str, list[int]] = {"first": [], "last": []}

    def note(name: str, event: AgentEvent) -> None:
        seen[name].append(event.payload["version"])

    def react(event: AgentEvent) -> None:
        version = event.payload["version"]
        if version < 5:
            bus.publish_nowait(AgentEvent("state", "react", {"version": version + 1}))

    async def react_slowly(event: AgentEvent) -> None:
        react(event)
        await trio.sleep(1)

    bus.subscribe("state", partial(note, "first"))
    bus.subscribe("state", react_slowly if slow else react)
    bus.subscribe("state", partial(note, "last"))
    await bus.publish(event("state", version=1))
    await bus.wait_idle()
    assert seen == {"first": [1, 2, 3, 4, 5], "last": [1, 2, 3, 4, 5]}


@pytest.mark.row("BR-43")
async def test_a_chain_of_a_thousand_re_entrant_events_needs_no_deeper_stack(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    depths: set[int] = set()

    def follow(event: AgentEvent) -> None:
        frame = sys._getframe()
        depth = 0
        while frame.f_back is not None:
            frame, depth = frame.f_back, depth + 1
        depths.add(depth)
        if event.payload["left"]:
            bus.publish_nowait(AgentEvent("chain", "x", {"left": event.payload["left"] - 1}))

    bus.subscribe("chain", follow)
    bus.publish_nowait(event("chain", left=1_000))
    await bus.wait_idle()
    assert bus.statistics().events_handled == 1_001
    assert len(depths) == 1


async def test_no_handler_runs_inside_publish_nowait(bus: EventBus, autojump_clock: MockClock) -> None:
    seen: list[str] = []
    bus.subscribe("*", lambda event: seen.append(event.event_type))
    bus.publish_nowait(event("a"))
    assert seen == []
    await bus.wait_idle()
    assert seen == ["a"]


@pytest.mark.row("BR-43")
async def test_waiting_for_delivery_to_oneself_is_named_as_a_cycle_at_once(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    caught: list[EventCycle] = []

    async def selfish(event: AgentEvent) -> None:
        with pytest.raises(EventCycle, match=r"selfish.*use publish_nowait in the handler") as raised:
            await bus.publish(AgentEvent("a.2", "x"))
        caught.append(raised.value)

    bus.subscribe("a.*", selfish)
    await bus.publish(event("a.1"))
    name = selfish.__qualname__
    assert [(error.event_type, error.chain) for error in caught] == [("a.2", (name, name))]
    assert [one.event_type for one in bus.get_history()] == ["a.1"]
    assert trio.current_time() == 0


@pytest.mark.row("BR-43")
async def test_a_cycle_through_other_handlers_is_named_in_order(bus: EventBus, autojump_clock: MockClock) -> None:
    chains: list[tuple[str, ...]] = []

    def publisher(then: str) -> Callable[[AgentEvent], object]:
        async def handler(event: AgentEvent) -> None:
            await trio.sleep(1)
            try:
                await bus.publish(AgentEvent(then, "x"))
            except EventCycle as error:
                chains.append(error.chain)

        handler.__qualname__ = f"to_{then}"
        return handler

    for at, then in (("a", "b"), ("b", "c"), ("c", "a")):
        bus.subscribe(at, publisher(then))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    # All three wait before any of them is reached through the others.
    async with trio.open_nursery() as nursery:
        for kind in ("a", "b", "c"):
            nursery.start_soon(bus.publish, event(kind))
    assert len(chains) >= 1
    circle = ("to_a", "to_b", "to_c") * 2
    assert chains[0] in [circle[start : start + 4] for start in range(3)]


async def test_handlers_that_wait_for_each_others_events_do_not_use_up_the_places(autojump_clock: MockClock) -> None:
    async with open_event_bus(options=EventBusOptions(max_concurrent_handlers=1, handler_timeout=None)) as bus:
        most = 0
        running = 0

        async def link(number: int, event: AgentEvent) -> None:
            nonlocal running, most
            running, most = running + 1, max(most, running + 1)
            await trio.sleep(1)
            running -= 1
            if number < 20:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(bus.publish, AgentEvent(f"e{number + 1}", "x"))
                    nursery.start_soon(bus.publish, AgentEvent("other", "x"))
            running, most = running + 1, max(most, running + 1)
            await trio.sleep(1)
            running -= 1

        for number in range(1, 21):
            bus.subscribe(f"e{number}", partial(link, number))
        report = await bus.publish(event("e1"))
        assert report.results[0].status == "success"
        assert (most, running) == (1, 0)
        assert bus._runner.schedule._taken == 0


async def test_a_handler_cut_off_while_it_waits_for_its_event_has_a_place_again_for_its_next_attempt(
    autojump_clock: MockClock,
) -> None:
    async with open_event_bus(options=EventBusOptions(max_concurrent_handlers=1, handler_timeout=5)) as bus:
        log: list[str] = []

        async def outer(event: AgentEvent) -> None:
            log.append(f"outer at {trio.current_time():g}")
            if len(log) == 1:
                bus.publish_nowait(AgentEvent("inner", "x"))
                await bus.publish(AgentEvent("inner", "x"))

        async def inner(event: AgentEvent) -> None:
            log.append(f"inner at {trio.current_time():g}")
            await trio.sleep(3)

        bus.subscribe("outer", outer, attempts=2)
        bus.subscribe("inner", inner)
        report = await bus.publish(event("outer"))
    assert (report.results[0].status, report.results[0].attempts) == ("success", 2)
    assert log == ["outer at 0", "inner at 0", "inner at 3", "outer at 6"]


async def test_a_task_that_outlives_its_handler_may_wait_for_an_event_to_that_handler(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:

        async def later() -> None:
            await trio.sleep(5)
            assert (await bus.publish(AgentEvent("a", "later", {"again": False}))).dispatched_count == 1

        def handler(event: AgentEvent) -> None:
            if event.payload["again"]:
                nursery.start_soon(later)

        bus.subscribe("a", handler)
        await bus.publish(event("a", again=True))
    assert bus.statistics().events_handled == 2


# --- handlers that subscribe and unsubscribe ------------------------------------------------------


@pytest.mark.row("BR-41")
@pytest.mark.parametrize("slow", [False, True], ids=["plain", "async"])
async def test_once_only_handlers_that_remove_themselves_do_not_make_others_miss_the_event(
    bus: EventBus, autojump_clock: MockClock, *, slow: bool
) -> None:
    seen: list[str] = []

    def once(name: str) -> None:
        def plain(event: AgentEvent) -> None:
            seen.append(name)
            subscription.unsubscribe()

        async def slowly(event: AgentEvent) -> None:
            plain(event)
            await trio.sleep(1)

        subscription = bus.subscribe("*", slowly if slow else plain)

    for name in ("once1", "once2"):
        once(name)
    bus.subscribe("*", lambda event: seen.append("always"))
    once("once3")
    await bus.publish(event("a"))
    await bus.publish(event("b"))
    assert sorted(seen) == ["always", "always", "once1", "once2", "once3"]


@pytest.mark.row("BR-41")
async def test_one_removed_before_its_turn_is_not_called_and_one_added_meanwhile_gets_the_next_event(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    seen: list[str] = []

    def removed(event: AgentEvent) -> None:
        seen.append("removed")

    def added(event: AgentEvent) -> None:
        seen.append("added")

    def change(event: AgentEvent) -> None:
        seen.append("change")
        bus.unsubscribe("*", removed)
        if bus.statistics().subscriptions < 3:
            bus.subscribe("*", added)

    bus.subscribe("*", change)
    bus.subscribe("*", removed)
    bus.subscribe("*", lambda event: seen.append("other"))
    report = await bus.publish(event("a"))
    assert seen == ["change", "other"]
    assert [result.status for result in report.results] == ["success", "unsubscribed", "success"]
    assert report.dispatched_count == 2
    seen.clear()
    await bus.publish(event("b"))
    assert seen == ["change", "other", "added"]


@pytest.mark.row("BR-41")
async def test_after_unsubscribe_has_returned_no_call_starts_though_events_wait(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    seen: list[str] = []

    async def slow(event: AgentEvent) -> None:
        seen.append(event.event_type)
        await trio.sleep(1)

    subscription = bus.subscribe("*", slow)
    for name in ("a", "b", "c"):
        bus.publish_nowait(event(name))
    await trio.sleep(0.5)
    assert subscription.unsubscribe()
    await bus.wait_idle()
    assert seen == ["a"]
    assert bus.statistics().waiting == 0


# --- cancellation ---------------------------------------------------------------------------------


async def test_a_publisher_that_is_cancelled_has_published_all_the_same(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    seen: list[str] = []

    async def slow(event: AgentEvent) -> None:
        await trio.sleep(5)
        seen.append(event.event_type)

    bus.subscribe("*", slow)
    with trio.move_on_after(1) as scope:
        await bus.publish(event("a"))
    assert scope.cancelled_caught
    assert seen == []
    await bus.wait_idle()
    assert seen == ["a"]


# --- any schedule ---------------------------------------------------------------------------------


def test_under_any_schedule_each_handler_sees_each_event_once_and_in_one_order() -> None:
    async def scenario(seed: int) -> dict[str, list[str]]:
        environment = SimulatedEnvironment(seed)
        seen: dict[str, list[str]] = {f"h{number}": [] for number in range(6)}

        async def handler(name: str, event: AgentEvent) -> None:
            seen[name].append(event.event_type)
            await trio.sleep(environment.random.choice([0, 0.1, 1]))
            if event.payload.get("more"):
                opened.publish_nowait(AgentEvent(f"re.{name}.{event.event_type}", name))

        async def publish(agent: int) -> None:
            for number in range(5):
                await trio.sleep(environment.random.choice([0, 0.1]))
                await opened.publish(AgentEvent(f"e.{agent}.{number}", f"p{agent}", {"more": number == 2}))

        async with open_event_bus(environment, EventBusOptions(max_concurrent_handlers=3)) as opened:
            for name in seen:
                opened.subscribe("*", partial(handler, name))
            async with trio.open_nursery() as nursery:
                for agent in range(3):
                    nursery.start_soon(publish, agent)
        assert opened.statistics().running == 0
        return seen

    for seed in range(25):
        seen = simulate(seed, scenario, seed)
        orders = set(map(tuple, seen.values()))
        assert len(orders) == 1, seed
        [order] = orders
        assert len(order) == len(set(order)) == 3 * 5 + 3 * 6
