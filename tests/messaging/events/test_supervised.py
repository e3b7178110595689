"""The event bus in a tree: restarts, actors as handlers, and actors as publishers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import (
    Actor,
    ActorSystem,
    MailboxOptions,
    Ref,
    Request,
    SimulatedEnvironment,
    handle,
    message,
    open_system,
)
from sapwood.errors import InvalidOption, SelfAsk, WrongThread
from sapwood.messaging.events import (
    AgentEvent,
    EventBus,
    EventBusOptions,
    EventPriority,
    HandlerResult,
    open_event_bus,
)
from sapwood.supervision import Supervisor, child, start_child, which_children

TRACE: ContextVar[str] = ContextVar("trace", default="none")


@message("tests.events.seen")
class Seen(Request[list[str]]):
    pass


@message("tests.events.publish")
class Publish(Request[str]):
    kind: str
    wait: bool


class Listener(Actor):
    """Notes the types of events it is told."""

    def __init__(self) -> None:
        self.types: list[str] = []

    @handle
    def note(self, message: AgentEvent) -> None:
        self.types.append(message.event_type)

    @handle
    def seen(self, message: Seen) -> list[str]:
        return list(self.types)


class Publisher(Actor):
    """Publishes from inside of its handler."""

    def __init__(self, bus: EventBus) -> None:
        self.bus = bus

    @handle
    async def publish(self, message: Publish) -> str:
        event = AgentEvent(message.kind, self.ref.label)
        if message.wait:
            return (await self.bus.publish(event)).results[0].error
        return self.bus.publish_nowait(event)

    @handle
    async def seen(self, message: Seen) -> list[str]:
        return ["answered"]


@pytest.fixture
async def system(autojump_clock: MockClock) -> AsyncIterator[ActorSystem]:
    assert trio.lowlevel.current_clock() is autojump_clock, "the test must take autojump_clock too"
    async with open_system(SimulatedEnvironment()) as opened:
        yield opened


async def spawn_bus(system: ActorSystem, bus: EventBus) -> Ref:
    supervisor = await system.spawn(Supervisor, [], strategy="one_for_one")
    await start_child(supervisor, child(bus.run, id="events"))
    return supervisor


async def bus_ref(supervisor: Ref) -> Ref:
    [info] = await which_children(supervisor)
    assert info.ref is not None
    return info.ref


@pytest.mark.row("S1-055")
async def test_a_restarted_bus_keeps_subscriptions_history_and_what_waits_and_calls_again_whom_it_interrupted(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    bus = EventBus(system.environment)
    supervisor = await spawn_bus(system, bus)
    calls: list[str] = []
    ends: list[str] = []

    async def slow(event: AgentEvent) -> None:
        calls.append(event.event_type)
        await trio.sleep(1)
        ends.append(event.event_type)

    bus.subscribe("*", slow)
    reports: list[str] = []

    async def publish(kind: str) -> None:
        reports.append((await bus.publish(AgentEvent(kind, "x"))).results[0].status)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish, "a")
        await trio.sleep(0.25)
        nursery.start_soon(publish, "b")
        await trio.sleep(0.25)
        (await bus_ref(supervisor)).kill()
    assert calls == ["a", "a", "b"]
    assert ends == ["a", "b"]
    assert reports == ["success", "success"]
    assert [event.event_type for event in bus.get_history()] == ["a", "b"]


async def test_a_failing_handler_does_not_restart_the_bus(system: ActorSystem, autojump_clock: MockClock) -> None:
    bus = EventBus(system.environment)
    supervisor = await spawn_bus(system, bus)
    ref = await bus_ref(supervisor)

    async def fail(event: AgentEvent) -> None:
        raise ValueError("no")

    bus.subscribe("*", fail)
    await bus.publish(AgentEvent("a", "x"))
    assert (await bus_ref(supervisor)) is ref
    assert ref.alive


async def test_a_running_bus_cannot_be_run_or_closed_a_second_time(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    async with open_event_bus(system.environment) as bus:
        with pytest.raises(InvalidOption, match="this one does"):
            await bus.run()
        with pytest.raises(InvalidOption, match=r"cancel bus\.run first"):
            bus.close()
        assert (await bus.publish(AgentEvent("a", "x"))).dispatched_count == 0
    assert bus.statistics().events_unmatched == 1


@pytest.mark.row("BR-80")
async def test_subscriptions_of_an_actor_end_with_it_however_it_ends(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    async with open_event_bus(system.environment) as bus:
        for way in ("stop", "kill", "early"):
            ref = await system.spawn(Listener)
            if way == "early":
                ref.kill()
                await ref.wait_stopped()
            bus.subscribe("a.*", ref)
            bus.subscribe("*", ref)
            bus.publish_nowait(AgentEvent("a.b", "x", {}, EventPriority.HIGH))
            await bus.wait_idle()
            if way == "stop":
                assert await ref.ask(Seen()) == ["a.b"]
                await ref.stop()
            elif way == "kill":
                ref.kill()
            await trio.sleep(1)
            assert bus.statistics().subscriptions == 0
        assert bus._table._by_pattern == {}
        ref = await system.spawn(Listener)
        assert bus.subscribe("*", ref).unsubscribe()
        await trio.sleep(1)
        nursery = bus._runner._nursery
        assert nursery is not None
        assert not nursery.child_tasks


async def test_an_actor_that_ends_before_its_turn_is_told_nothing(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    async with open_event_bus(system.environment, EventBusOptions(max_concurrent_handlers=1)) as bus:
        ref = await system.spawn(Listener)

        async def busy(event: AgentEvent) -> None:
            await trio.sleep(5)
            ref.kill()
            await trio.sleep(1)

        bus.subscribe("*", busy)
        bus.subscribe("*", ref)
        report = await bus.publish(AgentEvent("a", "x"))
    assert [result.status for result in report.results] == ["success", "unsubscribed"]
    assert system.telemetry.dead_letter_count == 0


async def test_an_actor_whose_mailbox_refuses_an_event_is_an_error_in_the_report(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    results: list[HandlerResult] = []
    async with open_event_bus(system.environment, observer=lambda _event, result: results.append(result)) as bus:
        ref = await system.spawn(Listener, mailbox=MailboxOptions(capacity=1, overflow="reject"))
        bus.subscribe("*", ref)
        for kind in ("a", "b"):
            bus.publish_nowait(AgentEvent(kind, "x"))
        await trio.sleep(1)
        assert await ref.ask(Seen()) == ["a"]
    assert [(result.status, result.error.partition(":")[0]) for result in results] == [("error", "MailboxFull")]


@pytest.mark.parametrize("wait", [True, False], ids=["publish", "publish_nowait"])
async def test_a_handler_may_ask_the_publishing_actor_only_if_that_does_not_wait_for_it(
    system: ActorSystem, autojump_clock: MockClock, *, wait: bool
) -> None:
    answers: list[object] = []
    async with open_event_bus(system.environment) as bus:
        publisher = await system.spawn(Publisher, bus)

        async def ask_back(event: AgentEvent) -> None:
            try:
                answers.append(await publisher.ask(Seen()))
            except SelfAsk as error:
                answers.append(error)
                raise

        bus.subscribe("*", ask_back)
        said = await publisher.ask(Publish("a", wait))
        await bus.wait_idle()
        assert trio.current_time() == 0, "a circle must be named at once, not at the time-out"
    if wait:
        assert isinstance(answers[0], SelfAsk)
        assert said.startswith("SelfAsk")
    else:
        assert answers == [["answered"]]


async def test_context_variables_of_the_publisher_travel_into_handlers_and_not_back(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    seen: list[str] = []

    async def slow(event: AgentEvent) -> None:
        seen.append(TRACE.get())
        TRACE.set("changed by a handler")

    def plain(event: AgentEvent) -> None:
        seen.append(TRACE.get())
        TRACE.set("changed by a handler")

    async with open_event_bus(system.environment) as bus:
        bus.subscribe("*", slow)
        bus.subscribe("*", plain)
        TRACE.set("trace-1")
        await bus.publish(AgentEvent("a", "x"))
        TRACE.set("trace-2")
        bus.publish_nowait(AgentEvent("a", "x"))
        TRACE.set("trace-3")
    assert sorted(seen) == ["trace-1", "trace-1", "trace-2", "trace-2"]
    assert TRACE.get() == "trace-3"


async def test_a_bus_used_from_another_thread_says_what_to_write_instead(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    async with open_event_bus(system.environment) as bus:
        with pytest.raises(WrongThread, match=r"portal\.call\(bus\.publish_nowait"):
            await trio.to_thread.run_sync(bus.publish_nowait, AgentEvent("a", "x"))
