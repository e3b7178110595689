"""Telemetry: what is told, in which order, and what a crash report holds."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import (
    ActorSystem,
    Birth,
    Cell,
    Crashed,
    CrashReport,
    DeadLetter,
    Exited,
    ExitReason,
    Killed,
    ListenerFailed,
    LoopHeldUp,
    MailboxOptions,
    Normal,
    Shutdown,
    SimulatedEnvironment,
    Spawned,
    open_system,
    start,
    watch_loop,
)
from sapwood.actors._telemetry import NESTED
from sapwood.errors import ActorDown, InvalidOption
from tests.actors.kit import (
    Call,
    Do,
    Note,
    Probe,
    SlowCall,
    SlowDo,
    Stranger,
    TrappingProbe,
    Way,
    ask_by,
    cell_of,
    end_of,
    of_kind,
    raising,
    record,
    settle,
    sleeping,
    ways,
)


@pytest.mark.row("P07")
class TestCrashReports:
    @pytest.mark.parametrize("reason", [Normal(), Shutdown("x"), Killed()], ids=str)
    async def test_an_orderly_end_and_a_kill_are_no_crash(
        self, autojump_clock: MockClock, system: ActorSystem, reason: ExitReason
    ) -> None:
        events = record(system)
        ref = await system.spawn(Probe)
        if reason == Killed():
            ref.kill()
        else:
            await ref.stop(reason)
        await end_of(ref)
        assert of_kind(events, CrashReport) == []
        assert [event.reason for event in of_kind(events, Exited)] == [reason]

    async def test_a_report_says_who_crashed_why_and_what_falls_with_it(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        events = record(system)
        top, linked, trapping = await system.spawn(Probe), await system.spawn(Probe), await system.spawn(TrappingProbe)
        cell = Cell(system, Birth(TrappingProbe, key=("k", 1)), cell_of(top), 3)
        await start(cell, system.nursery)
        ref = cell.ref
        await ref.ask(Call(lambda actor: (actor.link(linked), actor.link(trapping))))
        error = ValueError("broken")
        ref.tell(Do(raising(error)))
        for message in (Note(1), Stranger()):
            ref.tell(message)
        assert await end_of(ref) == Crashed(error)
        [report] = of_kind(events, CrashReport)
        assert (report.actor, report.key, report.kind, report.incarnation) == (
            "TrappingProbe(('k', 1))",
            ("k", 1),
            "TrappingProbe",
            3,
        )
        assert (report.parent, report.ancestors) == ("Probe#1", ("Probe#1",))
        assert report.reason == Crashed(error)
        assert isinstance(report.reason, Crashed)
        assert report.reason.frames[-1][2] == "function"
        assert (report.mailbox, report.queued, report.last_message) == (2, ("Note", "Stranger"), "Do")
        assert (report.trap_exits, report.links, report.falling) == (
            True,
            ("Probe#2", "TrappingProbe#1"),
            ("Probe#2",),
        )
        # Who falls with it has not crashed itself.
        assert await end_of(linked) == Crashed(error)
        assert len(of_kind(events, CrashReport)) == 1

    @pytest.mark.row("P08")
    @ways
    async def test_a_report_names_the_request_its_client_and_the_state(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        events = record(system)
        target, client = await system.spawn(Probe), await system.spawn(Probe)

        def handler(actor: Any) -> None:
            actor.log.append("half done")
            raise ValueError("broken")

        async def ask(actor: Any) -> None:
            with pytest.raises(ActorDown):
                await ask_by(way, target, handler)

        await client.ask(SlowCall(ask))
        [report] = of_kind(events, CrashReport)
        assert report.client == "Probe#2"
        assert report.last_message == ("SlowCall" if way is Way.ASYNC else "Call")
        assert report.state == "log=['half done']"

    async def test_a_crash_in_a_hook_names_no_message(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        events = record(system)

        class Failing(Probe):
            def on_continue(self, token: Any) -> None:
                raise ValueError

        ref = await system.spawn(Failing)
        ref.tell(Do(lambda actor: actor.continue_with()))
        await end_of(ref)
        assert [report.last_message for report in of_kind(events, CrashReport)] == [None]

    @pytest.mark.parametrize("slow", [False, True])
    async def test_a_start_that_raises_is_reported_without_a_state(
        self, autojump_clock: MockClock, system: ActorSystem, slow: Any
    ) -> None:
        class Failing(Probe):
            def on_start(self) -> Any:
                raise ValueError("no start")

        class SlowlyFailing(Probe):
            async def on_start(self) -> None:
                await trio.lowlevel.checkpoint()
                raise ValueError("no start")

        events = record(system)
        with pytest.raises(ValueError, match="no start"):
            await system.spawn(SlowlyFailing if slow else Failing)
        [report] = of_kind(events, CrashReport)
        assert (report.state, report.last_message) == ("", None)
        assert "no start" in str(report.reason)

    @pytest.mark.row("P09")
    async def test_the_report_of_a_crash_comes_before_the_news_of_the_end(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        events = record(system)
        ref = await system.spawn(Probe)
        ref.tell(Do(raising(ValueError())))
        ref.tell(Note("waits"))
        await end_of(ref)
        assert [type(event) for event in events] == [Spawned, CrashReport, DeadLetter, Exited]

    @pytest.mark.row("P10")
    async def test_a_report_holds_the_exception_itself_for_programs_to_read(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        events = record(system)
        ref = await system.spawn(Probe)
        error = KeyError("machine", "readable")
        ref.tell(Do(raising(error)))
        await end_of(ref)
        [report] = of_kind(events, CrashReport)
        assert isinstance(report.reason, Crashed)
        assert report.reason.exception is error


class TestListeners:
    async def test_events_come_in_order_and_at_once(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        order: list[str] = []
        system.telemetry.subscribe(lambda event: order.append(f"first {type(event).__name__}"))
        system.telemetry.subscribe(lambda event: order.append(f"second {type(event).__name__}"))
        await system.spawn(Probe)
        assert order == ["first Spawned", "second Spawned"]

    async def test_a_listener_that_raises_is_removed_and_the_others_are_told(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        system.telemetry.subscribe(raising(ValueError("bad listener")))
        events = record(system)
        ref = await system.spawn(Probe)
        await ref.stop()
        assert [event.error for event in of_kind(events, ListenerFailed)] == ["ValueError: bad listener"]
        assert len(of_kind(events, Spawned)) == len(of_kind(events, Exited)) == 1

    async def test_an_unsubscribed_listener_hears_nothing_more(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        heard: list[Any] = []
        unsubscribe = system.telemetry.subscribe(heard.append)
        await system.spawn(Probe)
        unsubscribe()
        unsubscribe()
        await system.spawn(Probe)
        assert len(heard) == 1

    async def test_a_thousand_dead_letters_are_kept_and_all_are_counted(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await ref.stop()
        for number in range(1_500):
            ref.tell(Note(number))
        assert len(system.telemetry.dead_letters) == 1_000
        assert system.telemetry.dead_letters[0].message == Note(500)
        assert system.statistics().dead_letters == 1_500


class Stopwatch(SimulatedEnvironment):
    """A world whose stopwatch a test moves."""

    time = 0.0

    def stopwatch(self) -> float:
        return self.time


class TestWatchdog:
    async def test_whoever_holds_the_loop_up_is_named_when_it_lets_go(self, autojump_clock: MockClock) -> None:
        environment = Stopwatch()
        async with open_system(environment) as system:
            events = record(system)
            ref = await system.spawn(Probe)

            def compute(actor: Any) -> None:
                environment.time += 0.5

            async def compute_slowly() -> None:
                environment.time += 0.25
                await trio.lowlevel.checkpoint()
                environment.time += 0.05

            with watch_loop(system, 0.1):
                ref.tell(Do(compute))
                await settle()
                await ref.ask(Call(lambda actor: actor.start_task(compute_slowly)))
                await settle()
            ref.tell(Do(compute))
            await settle()
            assert of_kind(events, LoopHeldUp) == [
                LoopHeldUp("Probe#1", 0.5),
                LoopHeldUp("Probe#1: compute_slowly", 0.25),
            ]

    @pytest.mark.parametrize("limit", [0, -1, float("nan")])
    async def test_a_limit_that_is_no_time_is_refused(
        self, autojump_clock: MockClock, system: ActorSystem, limit: float
    ) -> None:
        with pytest.raises(InvalidOption, match="limit > 0"), watch_loop(system, limit):
            pass


class TestAccounting:
    async def test_actors_that_wait_do_not_count_as_busy_and_the_count_comes_back(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        refs = [await system.spawn(Probe) for _ in range(20)]
        await settle()
        assert system.busy == 1
        counts: list[int] = []

        async def slowly(actor: Any) -> None:
            await trio.sleep(1)
            counts.append(system.busy)

        for ref in refs:
            ref.tell(SlowDo(slowly))
        await trio.sleep(0.5)
        assert system.busy == 1
        await trio.sleep(1)
        assert set(counts) == {1}
        for ref in refs[:10]:
            ref.kill()
        await settle()
        assert system.busy == 1


@pytest.mark.row("BR-46")
async def test_listeners_that_pass_dead_letters_round_in_a_circle_end_and_lose_none(
    autojump_clock: MockClock, system: ActorSystem
) -> None:
    one, two = [await system.spawn(Probe, mailbox=MailboxOptions(capacity=1, overflow="drop_oldest")) for _ in "ab"]
    for ref in (one, two):
        ref.tell(SlowDo(sleeping(1)))
        await settle()
        ref.tell(Note("fills it"))
    other = {one.label: two, two.label: one}

    def forward(event: Any) -> None:
        other[event.target].tell(event.message)

    system.telemetry.subscribe(forward, DeadLetter)
    one.tell(Note("one too many"))
    assert system.telemetry.dead_letter_count == NESTED + 1
    assert DeadLetter in system.telemetry.wanted  # the listener is still there
