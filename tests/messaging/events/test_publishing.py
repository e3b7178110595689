"""Publishing: who gets an event, what the publisher is told, and what failures do."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from threading import Lock

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import SimulatedEnvironment
from sapwood.errors import AlreadySubscribed, EventBusClosed, InvalidOption
from sapwood.messaging.events import (
    AgentEvent,
    EventBus,
    EventBusOptions,
    EventPriority,
    HandlerResult,
    open_event_bus,
)
from sapwood.messaging.events._patterns import candidates, check_pattern, matches


@pytest.fixture
async def bus(autojump_clock: MockClock) -> AsyncIterator[EventBus]:
    assert trio.lowlevel.current_clock() is autojump_clock, "the test must take autojump_clock too"
    async with open_event_bus(SimulatedEnvironment()) as opened:
        yield opened


def trade(kind: str = "trade.filled", **payload: object) -> AgentEvent:
    return AgentEvent(kind, "execution", dict(payload))


class Recorder:
    """Notes the types of the events it is given."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def take(self, event: AgentEvent) -> None:
        self.seen.append(event.event_type)

    async def take_slowly(self, event: AgentEvent) -> None:
        await trio.sleep(1)
        self.seen.append(event.event_type)


# --- events ---------------------------------------------------------------------------------------


@pytest.mark.row("S1-022")
async def test_an_event_is_immutable_and_is_stamped_when_it_is_published(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    event = trade(order=1)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        event.event_type = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert event.priority is EventPriority.NORMAL
    first = bus.publish_nowait(event)
    second = bus.publish_nowait(event)
    stored = bus.get_history()
    assert [one.event_id for one in stored] == [first, second]
    assert first != second
    assert stored[0].timestamp_ns == 1_700_000_000 * 10**9
    autojump_clock.jump(2)
    assert stored[0].age_ms(SimulatedEnvironment()) == pytest.approx(2_000)
    assert event.event_id == ""


async def test_no_handler_and_no_publisher_can_change_what_another_one_sees(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    seen: list[dict[str, object]] = []

    def spoil(event: AgentEvent) -> None:
        event.payload["lots"].append(9)
        event.payload["added"] = True

    bus.subscribe("*", spoil)
    bus.subscribe("*", lambda event: seen.append(event.payload))
    payload: dict[str, object] = {"lots": [1]}
    bus.publish_nowait(AgentEvent("trade.filled", "x", payload))
    payload["lots"] = "changed by the publisher"
    await bus.wait_idle()
    assert seen == [{"lots": [1]}]
    assert bus.get_history()[0].payload == {"lots": [1]}


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"type": "trade"}, "expected AgentEvent"),
        (AgentEvent("", "x"), "event_type: expected a dotted name"),
        (AgentEvent("trade.*", "x"), r"without '\*'"),
        (AgentEvent("a", "x", priority=2), "expected an EventPriority"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (AgentEvent("a", "x", {"lock": Lock()}), "can be copied"),
        (AgentEvent("a", "x", ["list"]), "payload: expected a dict"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (AgentEvent("a", 7), "source_agent: expected a str"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
    ids=["dict", "empty", "wildcard", "priority", "lock", "payload", "agent"],
)
async def test_what_is_no_event_is_refused_and_changes_nothing(
    bus: EventBus, autojump_clock: MockClock, event: AgentEvent, said: str
) -> None:
    with pytest.raises(InvalidOption, match=said):
        bus.publish_nowait(event)
    assert bus.statistics().events_published == 0
    assert bus.get_history() == []


# --- patterns -------------------------------------------------------------------------------------


@pytest.mark.row("S1-023", "BR-40")
@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("trade.filled", ["trade.filled"], ["trade", "trade.filled.x", "trade.filled2"]),
        ("trade.*", ["trade.filled", "trade.a.b", "trade.", "trade..x"], ["trade", "trades.x", "market.trade.x"]),
        ("trade.a.*", ["trade.a.b", "trade.a.b.c"], ["trade.a", "trade.b.c"]),
        ("*", ["trade", "trade.filled", ".", ".x"], []),
        ("a+b", ["a+b"], ["aab", "ab"]),
    ],
)
def test_the_documented_patterns_match_what_they_say(pattern: str, matching: list[str], others: list[str]) -> None:
    for event_type in matching:
        assert matches(pattern, event_type), event_type
        assert pattern in set(candidates(event_type)), event_type
    for event_type in others:
        assert not matches(pattern, event_type), event_type
        assert pattern not in set(candidates(event_type)), event_type


@pytest.mark.row("BR-40")
def test_the_indexed_matcher_equals_the_naive_one_on_ten_thousand_pairs() -> None:
    source = random.Random(1)

    def name() -> str:
        return ".".join(source.choices(["a", "b", "ab", "", "a+"], k=source.randint(1, 4))) or "a"

    matched = 0
    for _ in range(10_000):
        event_type, fixed = name(), name()
        pattern = check_pattern(source.choice([fixed, f"{fixed}.*", "*"]))
        assert (pattern in set(candidates(event_type))) == matches(pattern, event_type), (pattern, event_type)
        matched += matches(pattern, event_type)
    assert 1_000 < matched < 9_000


@pytest.mark.parametrize("pattern", ["", "a*", "*.a", "a.*.b", "**", ".*", "a.**", None])
async def test_a_pattern_of_another_form_is_refused_with_the_forms_there_are(
    bus: EventBus, autojump_clock: MockClock, pattern: str
) -> None:
    with pytest.raises(InvalidOption, match=r"expected an exact type .* or '\*' for everything"):
        bus.subscribe(pattern, Recorder().take)
    assert bus.statistics().subscriptions == 0


# --- subscriptions --------------------------------------------------------------------------------


@pytest.mark.row("S1-024")
async def test_subscribing_one_handler_twice_to_one_pattern_is_an_error(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    recorder = Recorder()
    bus.subscribe("trade.filled", recorder.take)
    with pytest.raises(AlreadySubscribed, match=r"^Handler already subscribed to 'trade\.filled'$") as caught:
        bus.subscribe("trade.filled", recorder.take)
    assert isinstance(caught.value, ValueError)
    bus.subscribe("trade.filled", Recorder().take)
    bus.subscribe("trade.*", recorder.take)
    assert bus.statistics().subscriptions == 3


@pytest.mark.row("S1-026", "BR-40")
async def test_a_handler_that_matches_by_several_patterns_runs_once_for_an_event(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    recorder = Recorder()
    for pattern in ("*", "trade.*", "trade.a.*", "trade.a.b"):
        bus.subscribe(pattern, recorder.take)
    report = await bus.publish(trade("trade.a.b"))
    assert recorder.seen == ["trade.a.b"]
    assert [result.topic for result in report.results] == ["trade.a.b"]
    assert bus.unsubscribe("trade.a.b", recorder.take)
    assert [result.topic for result in (await bus.publish(trade("trade.a.b"))).results] == ["trade.a.*"]


async def test_an_ended_subscription_leaves_nothing_behind(bus: EventBus, autojump_clock: MockClock) -> None:
    recorders = [Recorder() for _ in range(100)]
    subscriptions = [
        bus.subscribe(pattern, recorder.take) for recorder in recorders for pattern in ("*", "a.*", f"a.{id(recorder)}")
    ]
    assert all(subscription.unsubscribe() for subscription in subscriptions)
    assert not subscriptions[0].unsubscribe()
    assert not subscriptions[0].active
    assert not bus.unsubscribe("*", recorders[0].take)
    assert bus.statistics().subscriptions == 0
    assert (bus._table._by_pattern, bus._table._subscribers) == ({}, {})


# --- reports and failures -------------------------------------------------------------------------


@pytest.mark.row("S1-028", "S1-034")
async def test_a_report_says_what_each_plain_and_async_handler_made_of_the_event(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    recorder = Recorder()
    bus.subscribe("trade.*", recorder.take_slowly)
    bus.subscribe("*", recorder.take)
    bus.subscribe("market.*", recorder.take)
    report = await bus.publish(trade())
    assert recorder.seen == ["trade.filled", "trade.filled"]
    assert report.event_id == bus.get_history()[0].event_id
    assert (report.event_type, report.dispatched_count) == ("trade.filled", 2)
    assert report.results == (
        HandlerResult("Recorder.take_slowly", "trade.*", "success"),
        HandlerResult("Recorder.take", "*", "success"),
    )


@pytest.mark.row("S1-034")
async def test_objects_with_an_async_call_and_functions_that_return_awaitables_are_handlers(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    seen: list[str] = []

    class Callable:
        async def __call__(self, event: AgentEvent) -> None:
            await trio.sleep(1)
            seen.append("object")

    async def later() -> None:
        await trio.sleep(2)
        seen.append("lambda")

    bus.subscribe("*", Callable())
    bus.subscribe("*", lambda _event: later())
    report = await bus.publish(trade())
    assert seen == ["object", "lambda"]
    assert [(result.status, result.attempts) for result in report.results] == [("success", 1)] * 2


async def test_what_can_be_neither_called_nor_told_is_no_handler(bus: EventBus, autojump_clock: MockClock) -> None:
    with pytest.raises(InvalidOption, match="expected a function of one event, or a Ref"):
        bus.subscribe("*", "print")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidOption, match="attempts: expected a whole number from 1"):
        bus.subscribe("*", Recorder().take, attempts=0)


@pytest.mark.row("S1-027", "S1-033")
async def test_a_failing_handler_affects_neither_the_others_nor_the_publisher(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    recorder = Recorder()

    def fail(event: AgentEvent) -> None:
        raise ValueError("bad " + event.event_type)

    async def fail_slowly(event: AgentEvent) -> None:
        await trio.sleep(1)
        raise ExceptionGroup("two", [KeyError("a"), KeyError("b")])

    bus.subscribe("trade.*", fail)
    bus.subscribe("trade.*", recorder.take)
    bus.subscribe("trade.*", fail_slowly)
    bus.subscribe("trade.*", recorder.take_slowly)
    report = await bus.publish(trade())
    assert [result.status for result in report.results] == ["error", "success", "error", "success"]
    assert report.results[0].error == "ValueError: bad trade.filled"
    assert report.dispatched_count == 4
    assert recorder.seen == ["trade.filled"] * 2
    statistics = bus.statistics()
    assert (statistics.events_published, statistics.events_handled, statistics.events_failed) == (1, 2, 2)
    assert (statistics.dead_letter_count, statistics.waiting, statistics.running) == (0, 0, 0)


@pytest.mark.row("S1-029", "S1-033", "S1-056")
async def test_an_event_whose_handlers_fail_three_times_becomes_a_dead_letter(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    def fail(event: AgentEvent) -> None:
        raise ValueError(event.event_type)

    async def fail_too(event: AgentEvent) -> None:
        fail(event)

    for handler in (fail, fail_too):
        bus.subscribe("two.*", handler)
    bus.subscribe("three.*", fail, attempts=2)
    bus.subscribe("three.*", fail_too)
    await bus.publish(trade("two.x"))
    assert bus.dead_letters() == []
    report = await bus.publish(trade("three.x", order=7))
    assert [result.attempts for result in report.results] == [2, 1]
    [letter] = bus.dead_letters()
    assert (letter.event.payload, letter.reason, letter.results) == ({"order": 7}, "errors", report.results)
    assert letter.at == pytest.approx(1_700_000_000)
    assert bus.statistics().dead_letter_count == 1
    letter.event.payload.clear()
    assert bus.dead_letters()[0].event.payload == {"order": 7}


async def test_a_handler_with_attempts_left_is_called_again_for_the_same_event(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    async def flaky(event: AgentEvent) -> None:
        calls.append(event.event_id)
        await trio.sleep(1)
        if len(calls) < 3:
            raise ConnectionError("not yet")

    bus.subscribe("*", flaky, attempts=5)
    report = await bus.publish(trade())
    assert calls == [report.event_id] * 3
    assert report.results[0] == HandlerResult(flaky.__qualname__, "*", "success", attempts=3)


async def test_a_handler_that_takes_too_long_is_cancelled_and_counts_as_failed(autojump_clock: MockClock) -> None:
    async with open_event_bus(SimulatedEnvironment(), EventBusOptions(handler_timeout=5)) as bus:

        async def stuck(event: AgentEvent) -> None:
            await trio.sleep_forever()

        bus.subscribe("*", stuck)
        report = await bus.publish(trade())
    assert report.results[0].error == "TimeoutError: did not end within 5 s"
    assert trio.current_time() == pytest.approx(5)


async def test_an_observer_is_told_of_every_delivery_that_failed_and_a_bad_one_harms_nobody(
    autojump_clock: MockClock,
) -> None:
    told: list[tuple[str, str]] = []

    def observe(event: AgentEvent, result: HandlerResult) -> None:
        told.append((event.event_type, result.error))
        if len(told) == 2:
            raise RuntimeError("the observer itself")

    async with open_event_bus(observer=observe) as bus:

        def fail(event: AgentEvent) -> None:
            raise ValueError("no")

        bus.subscribe("*", fail)
        bus.subscribe("*", Recorder().take)
        for number in range(3):
            await bus.publish(trade(f"e{number}"))
    assert told == [("e0", "ValueError: no"), ("e1", "ValueError: no")]
    assert repr(bus.observer_error) == "RuntimeError('the observer itself')"


# --- history --------------------------------------------------------------------------------------


@pytest.mark.row("S1-030")
async def test_history_is_bounded_and_drops_the_oldest(autojump_clock: MockClock) -> None:
    async with open_event_bus(options=EventBusOptions(max_history=3)) as bus:
        for number in range(5):
            bus.publish_nowait(trade(f"e{number}"))
        assert [event.event_type for event in bus.get_history()] == ["e2", "e3", "e4"]
    assert EventBusOptions().max_history == 5_000
    assert EventBusOptions().max_concurrent_handlers == 10


@pytest.mark.row("S1-031")
async def test_history_answers_by_type_by_agent_and_by_number(bus: EventBus, autojump_clock: MockClock) -> None:
    for number in range(150):
        agent = "odd" if number % 2 else "even"
        bus.publish_nowait(AgentEvent(f"a.{number}" if number < 140 else f"b.{number}", agent))

    def numbers(event_type: str | None = None, agent: str | None = None, limit: int = 100) -> list[int]:
        found = bus.get_history(event_type, source_agent=agent, limit=limit)
        return [int(event.event_type[2:]) for event in found]

    assert numbers() == list(range(50, 150))
    assert numbers("a.7") == [7]
    assert numbers("b.*") == list(range(140, 150))
    assert numbers("*", "odd", 2) == [147, 149]
    assert numbers(limit=0) == []
    assert numbers("c.*") == []
    with pytest.raises(InvalidOption, match="limit: expected a whole number"):
        numbers(limit=-1)


@pytest.mark.row("S1-032")
async def test_a_replay_gives_retained_events_to_one_handler_and_changes_nothing_else(
    bus: EventBus, autojump_clock: MockClock
) -> None:
    live = Recorder()
    bus.subscribe("*", live.take)
    for kind in ("a.1", "b.1", "a.2"):
        await bus.publish(trade(kind))
    before = bus.statistics(), bus.get_history()
    seen: list[str] = []

    async def debug(event: AgentEvent) -> None:
        seen.append(event.event_id)
        if event.event_type == "a.1":
            raise ValueError("halfway")

    results = await bus.replay(debug, event_type="a.*")
    assert seen == [event.event_id for event in bus.get_history("a.*")]
    assert [(result.status, result.error) for result in results] == [("error", "ValueError: halfway"), ("success", "")]
    assert live.seen == ["a.1", "b.1", "a.2"]
    assert (bus.statistics(), bus.get_history()) == before


# --- life -----------------------------------------------------------------------------------------


async def test_a_bus_that_does_not_run_refuses_events_instead_of_losing_them(autojump_clock: MockClock) -> None:
    bus = EventBus()
    bus.subscribe("*", Recorder().take)
    with pytest.raises(EventBusClosed, match="does not run yet"):
        bus.publish_nowait(trade())
    async with open_event_bus() as opened:
        pass
    with pytest.raises(EventBusClosed, match="was closed"):
        await opened.publish(trade())
    with pytest.raises(EventBusClosed):
        opened.subscribe("*", Recorder().take)
    with pytest.raises(EventBusClosed):
        await opened.run()
    assert bus.statistics().events_published == 0


async def test_leaving_the_block_waits_for_all_that_was_published(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_event_bus() as bus:

        def follow(event: AgentEvent) -> None:
            if event.payload["left"]:
                bus.publish_nowait(trade("chain", left=event.payload["left"] - 1))

        bus.subscribe("chain", follow)
        bus.subscribe("chain", recorder.take_slowly)
        bus.publish_nowait(trade("chain", left=4))
    assert recorder.seen == ["chain"] * 5
    assert (bus.statistics().waiting, bus.statistics().running) == (0, 0)


async def test_leaving_the_block_by_an_exception_makes_what_waits_dead_letters(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    buses: list[EventBus] = []

    async def fail_in_the_block() -> None:
        async with open_event_bus() as bus:
            buses.append(bus)
            bus.subscribe("*", recorder.take_slowly)
            bus.publish_nowait(trade("one"))
            bus.publish_nowait(trade("two"))
            await trio.sleep(0.5)
            raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        await fail_in_the_block()
    [bus] = buses
    assert recorder.seen == []
    assert [(letter.event.event_type, letter.reason) for letter in bus.dead_letters()] == [
        ("one", "closed"),
        ("two", "closed"),
    ]
    assert [letter.results[0].status for letter in bus.dead_letters()] == ["closed", "closed"]
    assert bus.statistics().dead_letter_count == 2


@pytest.mark.parametrize(
    "options",
    [
        {"max_concurrent_handlers": 0},
        {"max_history": -1},
        {"error_threshold": 0},
        {"max_dead_letters": "many"},
        {"handler_timeout": 0},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, int]) -> None:
    with pytest.raises(InvalidOption, match=f"event bus {next(iter(options))}: expected"):
        EventBusOptions(**options)
