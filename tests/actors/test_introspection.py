"""Looking at actors, and holding them still, while they run."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import (
    DONE,
    ActorSystem,
    Birth,
    Cell,
    Continue,
    Crashed,
    CrashReport,
    DebugEvent,
    ExitReason,
    MailboxOptions,
    Normal,
    Priority,
    Ref,
    Shutdown,
    start,
)
from sapwood.actors._asks import Ask
from sapwood.actors._messages import SystemCall
from sapwood.errors import ActorDown, AskTimeout, InvalidOption, SelfAsk
from tests.actors.kit import (
    Call,
    Do,
    Note,
    Probe,
    SlowCall,
    SlowDo,
    StopNotes,
    TrappingProbe,
    Way,
    ask_by,
    cell_of,
    end_of,
    log_of,
    of_kind,
    pause,
    raising,
    record,
    settle,
    sleeping,
)


def all_calls(ref: Ref) -> list[Any]:
    """Return every introspection call that waits its turn."""
    return [
        ref.get_state,
        ref.get_status,
        ref.suspend,
        ref.resume,
        ref.start_log,
        ref.get_log,
        ref.stop_log,
        lambda **options: ref.trace(print, **options),
        lambda **options: ref.untrace(print, **options),
        lambda **options: ref.replace_state(dict, **options),
    ]


class TestState:
    @pytest.mark.row("O01")
    @pytest.mark.parametrize("suspended", [False, True])
    async def test_get_state_returns_a_copy_of_the_attributes_also_while_suspended(
        self, autojump_clock: MockClock, system: ActorSystem, suspended: Any
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(Note(1))
        await settle()
        if suspended:
            await ref.suspend()
        state = await ref.get_state()
        assert state == {"log": [1]}
        state["log"] = "changed"
        assert (await ref.get_state())["log"] == [1]

    @pytest.mark.row("O02")
    @pytest.mark.parametrize("suspended", [False, True])
    async def test_replace_state_applies_a_function_and_returns_the_new_state(
        self, autojump_clock: MockClock, system: ActorSystem, suspended: Any
    ) -> None:
        ref = await system.spawn(Probe)
        if suspended:
            await ref.suspend()
        assert await ref.replace_state(lambda state: {**state, "log": ["new"]}) == {"log": ["new"]}
        assert await ref.get_state() == {"log": ["new"]}

    @pytest.mark.row("O02")
    async def test_a_function_that_raises_or_returns_no_dict_changes_nothing(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        with pytest.raises(ZeroDivisionError):
            await ref.replace_state(lambda state: 1 / 0)  # type: ignore[arg-type, return-value]  # the mistake
        with pytest.raises(InvalidOption, match="to return a dict"):
            await ref.replace_state(lambda state: None)  # type: ignore[arg-type, return-value]  # the mistake
        assert await ref.get_state() == {"log": []}

    @pytest.mark.row("O05")
    async def test_introspection_waits_its_turn_and_times_out_after_5_seconds(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        for call in all_calls(ref):
            ref.tell(SlowDo(sleeping(8)))
            began = trio.current_time()
            with pytest.raises(AskTimeout):
                await call()
            assert trio.current_time() - began == pytest.approx(5)
            await call(timeout=None)
            await ref.resume()
        assert system.statistics().deadlines == 0

    @pytest.mark.row("O05")
    async def test_introspection_of_a_dead_actor_fails_at_once(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await ref.stop(Shutdown("gone"))
        for call in all_calls(ref):
            with pytest.raises(ActorDown) as caught:
                await call()
            assert caught.value.reason == Shutdown("gone")

    @pytest.mark.row("O05")
    async def test_introspection_of_an_actor_that_ends_first_fails_with_its_reason(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await ref.suspend()
        async with trio.open_nursery() as nursery:

            async def look() -> None:
                with pytest.raises(ActorDown):
                    await ref.get_state(timeout=None)

            ref.tell(SlowDo(sleeping(100)))
            nursery.start_soon(ref.resume)
            await settle()
            nursery.start_soon(look)
            await settle()
            ref.kill()

    async def test_an_actor_cannot_look_into_itself_through_its_ref(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)

        async def handler(actor: Any) -> None:
            with pytest.raises(SelfAsk):
                await actor.ref.get_state()

        await ref.ask(SlowCall(handler))

    @pytest.mark.row("O01")
    async def test_an_actor_chooses_what_its_state_shows(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        class Secretive(Probe):
            pet = "hunter2"

            def get_state(self) -> dict[str, Any]:
                return {"log": len(self.log)}

        ref = await system.spawn(Secretive)
        assert await ref.get_state() == {"log": 0}


class TestSuspension:
    @pytest.mark.row("O03")
    @pytest.mark.parametrize("bounded", [False, True])
    async def test_messages_wait_in_order_and_are_handled_after_the_resumption(
        self, autojump_clock: MockClock, system: ActorSystem, bounded: Any
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=100) if bounded else None)
        ref.tell(Note("before"))
        await ref.suspend()
        assert ref.statistics().suspended
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await ref.ask(Call(lambda actor: list(actor.log)), timeout=None))

        async with trio.open_nursery() as nursery:
            for number in range(3):
                ref.tell(Note(number))
            nursery.start_soon(ask)
            await settle()
            ref.tell(Note("urgent"), priority=Priority.URGENT)
            ref.tell(Note("last"))
            await trio.sleep(100)
            assert (await ref.get_state())["log"] == ["before"]
            assert answers == []
            await ref.resume()
        assert answers == [["before", "urgent", 0, 1, 2]]
        assert await log_of(ref) == ["before", "urgent", 0, 1, 2, "last"]

    @pytest.mark.row("O03")
    async def test_an_idle_suspended_actor_runs_no_handler_in_an_asking_caller(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await ref.suspend()
        await settle()
        with pytest.raises(AskTimeout):
            await ref.ask(Call(lambda actor: actor.log.append("handled")), timeout=1)
        assert (await ref.get_state())["log"] == []

    @pytest.mark.row("O03")
    async def test_a_continuation_waits_for_the_resumption(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Going(Probe):
            def on_start(self) -> Continue:
                self.ref._cell.suspend()
                return Continue("went on")

            def on_continue(self, token: Any) -> None:
                self.log.append(token)

        ref = await system.spawn(Going)
        assert (await ref.get_state())["log"] == []
        await ref.resume()
        assert (await ref.get_state())["log"] == ["went on"]

    @pytest.mark.row("O04")
    @pytest.mark.parametrize("order", ["stop", "shutdown"])
    async def test_a_suspended_actor_obeys_a_stop_and_cleans_up_without_a_resumption(
        self, autojump_clock: MockClock, system: ActorSystem, order: str
    ) -> None:
        ends: list[ExitReason] = []
        ref = await system.spawn(StopNotes, ends)
        await ref.suspend()
        ref.tell(Note("waits"))
        if order == "stop":
            await ref.stop()
        else:
            cell_of(ref).shut_down(Shutdown())
            await end_of(ref)
        assert ends == [Normal() if order == "stop" else Shutdown()]
        assert [letter.reason for letter in system.telemetry.dead_letters] == ["unread"]

    @pytest.mark.row("O04", "I21")
    @pytest.mark.parametrize("bounded", [False, True])
    async def test_what_comes_after_a_stop_is_not_handled_though_a_resumption_comes_before_it(
        self, autojump_clock: MockClock, system: ActorSystem, bounded: Any
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=100) if bounded else None)
        handled: list[str] = []
        await ref.suspend()
        ref.tell(Do(lambda actor: handled.append("before")))
        # All of this waits when the actor takes the resumption.
        cell = cell_of(ref)
        cell.put_entry(SystemCall(lambda cell: cell.resume(), Ask("resume", cell)))
        cell.put_stop(Normal())
        ref.tell(Do(lambda actor: handled.append("after")))
        await end_of(ref)
        assert handled == ["before"]

    async def test_suspending_and_resuming_twice_is_harmless(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await ref.resume()
        await ref.suspend()
        await ref.suspend()
        ref.tell(Note(1))
        await ref.resume()
        await ref.resume()
        assert await log_of(ref) == [1]
        await settle()
        assert cell_of(ref).queue is not None
        assert await ask_by(Way.INLINE, ref, lambda actor: trio.lowlevel.current_task()) is trio.lowlevel.current_task()

    async def test_a_suspended_actor_can_be_killed(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref = await system.spawn(Probe)
        await ref.suspend()
        ref.kill()
        await end_of(ref)

    async def test_an_actor_that_is_suspended_by_a_task_of_its_own_stays_so_until_it_is_resumed(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await ref.ask(Call(lambda actor: actor.start_task(actor.ref.suspend)))
        await settle()
        assert (await ref.get_state())["log"] == []
        await ref.resume()
        [done] = await log_of(ref)
        assert done.reason == Normal()


class TestStatus:
    @pytest.mark.row("O06")
    async def test_get_status_says_what_the_actor_is_and_what_is_switched_on(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        parent = await system.spawn(Probe)
        cell = Cell(system, Birth(Probe), cell_of(parent))
        await start(cell, system.nursery)
        ref = cell.ref
        await ref.suspend()
        await ref.start_log(3)
        await ref.trace(print)
        status = await ref.get_status()
        assert (status.label, status.parent, status.suspended) == ("Probe#2", "Probe#1", True)
        assert status.kind == f"{Probe.__module__}.Probe"
        assert status.debug == ("log=3", "function print")
        assert status.state == "log=[]"

    @pytest.mark.row("O06")
    async def test_the_formatting_hook_hides_parts_in_the_status_and_in_crash_reports(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        events = record(system)

        class Secretive(Probe):
            def __init__(self) -> None:
                super().__init__()
                self.pet = "hunter2"

            def format_state(self) -> str:
                return f"{len(self.log)} notes"

        ref = await system.spawn(Secretive)
        assert (await ref.get_status()).state == "0 notes"
        ref.tell(Do(raising(ValueError())))
        await end_of(ref)
        [report] = of_kind(events, CrashReport)
        assert report.state == "0 notes"

    @pytest.mark.row("O07")
    async def test_a_formatting_hook_that_fails_shows_nothing_but_that_and_the_actor_goes_on(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        events = record(system)

        class Broken(Probe):
            def __init__(self) -> None:
                super().__init__()
                self.pet = "hunter2"

            def format_state(self) -> str:
                raise LookupError(self.pet)

        ref = await system.spawn(Broken)
        assert (await ref.get_status()).state == "<format_state failed: LookupError>"
        assert await ref.ask(Call(lambda actor: 1)) == 1
        ref.tell(Do(raising(ValueError("the real error"))))
        assert "the real error" in str(await end_of(ref))
        [report] = of_kind(events, CrashReport)
        assert report.state == "<format_state failed: LookupError>"

    @pytest.mark.row("O07")
    async def test_an_attribute_whose_repr_fails_is_named_and_the_others_are_shown(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Unspeakable:
            def __repr__(self) -> str:
                raise ValueError("no")

        ref = await system.spawn(Probe)
        await ref.replace_state(lambda state: {"bad": Unspeakable(), "good": 1, "long": "x" * 500})
        state = (await ref.get_status()).state
        assert state.startswith("bad=<repr failed: ValueError>, good=1, long='xxx")
        assert len(state) < 200

    @pytest.mark.row("O09")
    async def test_info_gives_the_ties_of_a_live_actor_and_none_for_a_dead_one(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        top, linked, watched = [await system.spawn(Probe) for _ in range(3)]
        middle = Cell(system, Birth(Probe), cell_of(top))
        await start(middle, system.nursery)
        cell = Cell(system, Birth(TrappingProbe, key=("k", 1)), middle)
        await start(cell, system.nursery)
        ref = cell.ref
        await ref.ask(Call(lambda actor: (actor.link(linked), actor.monitor(watched))))
        await watched.ask(Call(lambda actor: actor.monitor(ref)))
        await ref.suspend()
        ref.tell(Note(1))
        info = ref.info()
        assert info is not None
        assert (info.label, info.key, info.kind) == ("TrappingProbe(('k', 1))", ("k", 1), "TrappingProbe")
        assert info.ancestors == ("Probe#4", "Probe#1")
        assert (info.links, info.monitoring, info.monitored_by) == ((linked,), (watched,), (watched,))
        assert (info.waiting, info.trap_exits) == (1, True)
        ref.kill()
        await end_of(ref)
        assert ref.info() is None

    @pytest.mark.row("O08", "O09")
    async def test_statistics_count_what_the_actor_has_and_does(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref, other = await system.spawn(Probe), await system.spawn(Probe)
        for _ in range(5):
            ref.tell(Note(1))
        ref.tell(SlowDo(pause))
        await ref.ask(Call(lambda actor: None))
        await settle()
        await ref.ask(Call(lambda actor: None))
        await ref.ask(SlowCall(pause))
        await ref.get_state()
        await trio.sleep(2)
        await ref.ask(
            Call(
                lambda actor: (
                    actor.start_task(trio.sleep_forever),
                    actor.send_after(100, Note(2)),
                    actor.monitor(other),
                    actor.link(other),
                )
            )
        )
        statistics = ref.statistics()
        assert statistics.handled == 10
        assert (statistics.tasks, statistics.timers, statistics.monitoring, statistics.links) == (1, 1, 1, 1)
        assert other.statistics().monitors == 1
        assert statistics.uptime == pytest.approx(2)
        assert (statistics.alive, statistics.phase, statistics.incarnation) == (True, "running", 1)
        ref.kill()
        await end_of(ref)
        statistics = ref.statistics()
        assert (statistics.alive, statistics.phase, statistics.uptime) == (False, "dead", 0)
        assert statistics.tasks == statistics.timers == statistics.monitoring == statistics.links == 0

    @pytest.mark.row("O09")
    async def test_statistics_and_info_work_while_the_actor_is_stuck(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(SlowDo(sleeping(10**6)))
        await settle()
        ref.tell(Note(1))
        assert ref.statistics().waiting == 1
        assert ref.info() is not None


class TestDebugging:
    @pytest.mark.row("O08")
    async def test_the_log_keeps_the_last_events_and_can_be_switched_on_and_off(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        assert await ref.get_log() == ()
        await ref.start_log(4)
        ref.tell(Note(1))
        ref.tell(Note(2))
        request = Call(lambda actor: "answer")
        slow = SlowCall(pause)
        await ref.ask(request)
        await ref.ask(slow)
        now = trio.current_time()
        assert await ref.get_log() == (
            DebugEvent("received", request, now),
            DebugEvent("replied", "answer", now),
            DebugEvent("received", slow, now),
            DebugEvent("replied", None, now),
        )
        await ref.stop_log()
        ref.tell(Note(3))
        assert await ref.get_log() == ()
        assert (await ref.get_status()).debug == ()

    @pytest.mark.row("O08")
    async def test_ten_events_are_kept_unless_told_otherwise(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await ref.start_log()
        for number in range(20):
            ref.tell(Note(number))
        assert [event.value.value for event in await ref.get_log()] == list(range(10, 20))
        with pytest.raises(InvalidOption, match="size >= 1"):
            await ref.start_log(0)

    @pytest.mark.row("O08")
    @pytest.mark.parametrize("end", ["raises", "done", "untrace"])
    async def test_a_debug_function_sees_events_until_it_is_removed_raises_or_says_done(
        self, autojump_clock: MockClock, system: ActorSystem, end: str
    ) -> None:
        seen: list[Any] = []

        def trace(event: DebugEvent) -> object:
            seen.append(event.value)
            if len(seen) < 2:
                return None
            if end == "raises":
                raise ValueError("a bad debug function")
            return DONE if end == "done" else None

        ref = await system.spawn(Probe)
        await ref.trace(trace)
        ref.tell(Note(1))
        ref.tell(Note(2))
        if end == "untrace":
            await ref.untrace(trace)
            await ref.untrace(trace)
        for number in range(3, 5):
            ref.tell(Note(number))
        assert await log_of(ref) == [1, 2, 3, 4]
        assert seen == [Note(1), Note(2)]
        assert (await ref.get_status()).debug == ()

    @pytest.mark.row("O08")
    async def test_debugging_sees_what_an_asking_caller_would_have_run_itself(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await ref.start_log()
        await settle()
        here = trio.lowlevel.current_task()
        assert await ref.ask(Call(lambda actor: trio.lowlevel.current_task())) is not here
        assert len(await ref.get_log()) == 2
        await ref.stop_log()
        await settle()
        assert await ref.ask(Call(lambda actor: trio.lowlevel.current_task())) is here

    @pytest.mark.row("P08")
    async def test_a_crash_report_holds_the_logged_events(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        events = record(system)
        ref = await system.spawn(Probe)
        await ref.start_log()
        ref.tell(Note(1))
        bad = Do(raising(ValueError("crash")))
        ref.tell(bad)
        assert isinstance(await end_of(ref), Crashed)
        [report] = of_kind(events, CrashReport)
        assert [event.value for event in report.log] == [Note(1), bad]
