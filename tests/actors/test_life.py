"""The life of an actor: start, callbacks one at a time, continuations, stop, kill."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import (
    Actor,
    ActorSystem,
    Birth,
    Cell,
    Continue,
    Crashed,
    CrashReport,
    Exited,
    ExitReason,
    Ignore,
    Killed,
    Normal,
    Ref,
    Refuse,
    Shutdown,
    SimulatedEnvironment,
    Spawned,
    Started,
    handle,
    open_system,
    start,
    start_nowait,
)
from sapwood.errors import (
    ActorDown,
    AlreadyRegistered,
    AskTimeout,
    InvalidMessage,
    InvalidOption,
    NotRunningInside,
    RuntimeClosed,
    StartError,
    StartTimeout,
)
from sapwood.testing import simulate
from tests.actors.kit import (
    Call,
    Do,
    Note,
    Probe,
    SlowCall,
    SlowDo,
    StopNotes,
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
    ways,
)


class Starting(Probe):
    """Starts as it is told to."""

    def __init__(self, result: Any = None, error: Exception | None = None) -> None:
        super().__init__()
        self.result = result
        self.error = error

    def on_start(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result

    def on_stop(self, reason: ExitReason) -> None:
        raise AssertionError("an actor that has not started is not stopped")


class SlowStarting(Starting):
    """The same, taking a second."""

    async def on_start(self) -> Any:
        await trio.sleep(1)
        return Starting.on_start(self)


starting = pytest.mark.parametrize("kind", [Starting, SlowStarting])


class TestStart:
    @pytest.mark.row("I02")
    @starting
    async def test_start_returns_when_on_start_has_finished(
        self, autojump_clock: MockClock, system: ActorSystem, kind: type[Starting]
    ) -> None:
        class Ready(kind):  # type: ignore[valid-type, misc]  # a class that the test chooses
            def on_stop(self, reason: ExitReason) -> None:
                """Ends well."""

        events = record(system)
        began = trio.current_time()
        ref = await system.spawn(Ready)
        assert trio.current_time() - began == (1 if kind is SlowStarting else 0)
        assert ref.statistics().phase == "running"
        assert of_kind(events, Spawned) == [Spawned(ref.label, None, None)]
        assert await ref.ask(Call(lambda actor: "up")) == "up"

    @pytest.mark.row("I02", "I04", "J17")
    @starting
    async def test_an_exception_in_on_start_fails_the_start_and_leaves_nothing(
        self, autojump_clock: MockClock, system: ActorSystem, kind: type[Starting]
    ) -> None:
        events = record(system)
        error = ValueError("no start")
        with pytest.raises(ValueError, match="no start"):
            await system.spawn(kind, None, error, key=("probe", 1))
        assert system.statistics().actors == 0
        [ended] = of_kind(events, Exited)
        assert ended.reason == Crashed(error)
        assert (await system.spawn(Probe, key=("probe", 1))).alive

    @pytest.mark.row("I04")
    @pytest.mark.parametrize("bad", [42, "ok", True, {"state": 1}, Normal()])
    @starting
    async def test_a_malformed_result_of_on_start_fails_the_start_naming_it(
        self, autojump_clock: MockClock, system: ActorSystem, kind: type[Starting], bad: Any
    ) -> None:
        with pytest.raises(InvalidMessage, match=r"expected None, Continue\(token\), Ignore\(\)") as caught:
            await system.spawn(kind, bad)
        assert repr(bad) in str(caught.value)
        assert system.statistics().actors == 0

    async def test_a_plain_on_start_that_returns_a_coroutine_is_refused(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        async def forgotten() -> None: ...

        with pytest.raises(InvalidMessage, match="on_start"):
            await system.spawn(Starting, forgotten())

    @pytest.mark.row("I04")
    @starting
    async def test_ignore_is_no_error_of_the_actor_and_there_is_nothing_to_refer_to(
        self, autojump_clock: MockClock, system: ActorSystem, kind: type[Starting]
    ) -> None:
        events = record(system)
        with pytest.raises(StartError, match=r"Ignore\(\)"):
            await system.spawn(kind, Ignore(), key=("probe", 1))
        cell = Cell(system, Birth(kind, (Ignore(),)), None)
        await start(cell, system.nursery)
        assert cell.ignored
        assert [event.reason for event in of_kind(events, Exited)] == [Normal()] * 2
        assert of_kind(events, CrashReport) == []
        assert of_kind(events, Spawned) == []
        assert system.statistics().actors == 0

    @pytest.mark.row("I03")
    @starting
    async def test_a_refused_start_tells_the_starter_why_and_reports_no_crash(
        self, autojump_clock: MockClock, system: ActorSystem, kind: type[Starting]
    ) -> None:
        events = record(system)
        with pytest.raises(ActorDown, match="not today"):
            await system.spawn(kind, Refuse("not today"))
        assert [event.reason for event in of_kind(events, Exited)] == [Normal()]
        assert of_kind(events, CrashReport) == []

    @pytest.mark.row("I03")
    async def test_an_actor_that_stops_itself_in_on_start_fails_with_that_reason_which_links_feel(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        other = await system.spawn(Probe)

        class Stopping(StopNotes):
            def on_start(self) -> None:
                self.link(other)
                self.stop(Shutdown("changed my mind"))

        ends: list[ExitReason] = []
        with pytest.raises(ActorDown) as caught:
            await system.spawn(Stopping, ends)
        assert caught.value.reason == Shutdown("changed my mind")
        assert await end_of(other) == Shutdown("changed my mind")
        assert ends == []

    @pytest.mark.row("I05")
    async def test_a_start_that_takes_too_long_is_killed_and_its_key_is_free(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        cell = Cell(system, Birth(SlowStarting, key=("probe", 1)), None)
        with pytest.raises(StartTimeout, match=r"within 0\.5 s"):
            await start(cell, system.nursery, 0.5)
        assert cell.ref.exit_reason == Killed()
        assert (await system.spawn(Probe, key=("probe", 1))).alive

    @pytest.mark.row("I05")
    @pytest.mark.parametrize("seed", range(40))
    def test_a_start_that_ends_as_its_time_runs_out_has_either_started_or_is_gone(self, seed: int) -> None:
        class Close(Probe):
            async def on_start(self) -> None:
                await trio.sleep(1)

        async def main() -> None:
            async with open_system() as system:
                cell = Cell(system, Birth(Close, key=("probe", 1)), None)
                try:
                    await start(cell, system.nursery, 1)
                except StartTimeout:
                    assert not cell.ref.alive
                    assert (await system.spawn(Probe, key=("probe", 1))).alive
                else:
                    assert cell.ran
                    assert cell.ref.alive
                    assert await cell.ref.ask(Call(lambda actor: 1)) == 1

        simulate(seed, main)

    async def test_a_killed_start_fails(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        cell = Cell(system, Birth(SlowStarting, key=("probe", 1)), None)
        async with trio.open_nursery() as nursery:

            async def begin() -> None:
                with pytest.raises(ActorDown) as caught:
                    await start(cell, system.nursery)
                assert caught.value.reason == Killed()

            nursery.start_soon(begin)
            await settle()
            cell.ref.kill()
        assert system.statistics().actors == 0

    async def test_a_cancelled_start_leaves_no_actor_behind(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        with trio.move_on_after(0.5):
            await system.spawn(SlowStarting, key=("probe", 1))
        await settle()
        assert system.statistics().actors == 0
        assert (await system.spawn(Probe, key=("probe", 1))).alive

    async def test_tasks_begun_by_a_start_that_fails_end_before_the_failure_is_announced(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ended: list[float] = []

        async def task() -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)
                ended.append(trio.current_time())

        class Failing(Probe):
            def __init__(self) -> None:
                super().__init__()
                self.start_task(task)

            def on_start(self) -> None:
                raise ValueError("after the task began")

        with pytest.raises(ValueError, match="after the task began"):
            await system.spawn(Failing)
        # It was cancelled before its first step, or has ended.
        assert len(ended) in {0, 1}
        assert system.statistics().actors == 0
        await settle()
        assert len(system.nursery.child_tasks) == 1

    async def test_a_class_and_a_function_and_a_partial_can_all_make_actors(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Named(Actor):
            def __init__(self, name: str, *, loud: bool = False) -> None:
                assert self.ref.alive or made_by_function
                self.name = name.upper() if loud else name

        made_by_function = False
        refs = [
            await system.spawn(Named, "a"),
            await system.spawn(Named, "a", loud=True),
            await system.spawn(partial(Named, loud=True), "b"),
            await system.spawn(partial(partial(Named, "c"), loud=True)),
        ]
        assert [(await ref.get_state())["name"] for ref in refs] == ["a", "A", "B", "C"]
        ref = await system.spawn(lambda: Probe())  # noqa: PLW0108  # a function, not the class itself
        assert await ref.ask(Call(lambda actor: type(actor).__name__)) == "Probe"

    async def test_a_factory_that_makes_no_new_actor_is_refused(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        old = Probe()
        with pytest.raises(InvalidOption, match="returns an Actor; it returned 5"):
            await system.spawn(lambda: 5)  # type: ignore[arg-type, return-value]  # the mistake under test
        await system.spawn(lambda: old)
        with pytest.raises(InvalidOption, match="a new Actor at every start"):
            await system.spawn(lambda: old)

    async def test_what_only_a_started_actor_has_is_refused_outside_of_a_runtime(self) -> None:
        probe = Probe()
        for use in (lambda: probe.ref, probe.stop, lambda: probe.send_after(1, Note(1))):
            with pytest.raises(NotRunningInside, match="expected an actor started by a runtime"):
                use()

    async def test_an_actor_object_that_outlives_its_actor_can_start_nothing(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        actor = await ref.ask(Call(lambda actor: actor))
        await ref.stop()
        assert actor.ref is ref
        for use in (actor.stop, lambda: actor.start_task(sleeping(1)), lambda: actor.monitor(ref)):
            with pytest.raises(NotRunningInside, match="has ended"):
                use()
        assert len(system.nursery.child_tasks) == 1

    async def test_a_closed_system_starts_nothing(self, autojump_clock: MockClock) -> None:
        async with open_system() as system:
            pass
        with pytest.raises(RuntimeClosed):
            await system.spawn(Probe)

    @pytest.mark.row("K01")
    async def test_a_second_start_under_a_taken_key_makes_no_actor(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        made: list[int] = []

        class Counted(Probe):
            def __init__(self) -> None:
                super().__init__()
                made.append(1)

        first = await system.spawn(Counted, key="only")
        with pytest.raises(AlreadyRegistered) as caught:
            await system.spawn(Counted, key="only")
        assert caught.value.holder is first
        assert made == [1]

    async def test_extra_information_of_a_start_is_kept_for_the_starter(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Informed(Probe):
            def on_start(self) -> Started:
                return Started({"port": 80}, then=Continue("go"))

            def on_continue(self, token: Any) -> None:
                self.log.append(token)

        cell = Cell(system, Birth(Informed), None)
        await start(cell, system.nursery)
        assert cell.info == {"port": 80}
        assert await log_of(cell.ref) == ["go"]

    async def test_a_start_can_be_begun_without_waiting(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        quick = Cell(system, Birth(Probe), None)
        assert start_nowait(quick, system.nursery) is True
        slow = Cell(system, Birth(SlowStarting), None)
        assert start_nowait(slow, system.nursery) is False
        failed = Cell(system, Birth(Starting, (None, ValueError("no"))), None)
        assert start_nowait(failed, system.nursery) is True
        assert isinstance(failed.start_error, ValueError)
        await slow.wait_started()
        assert slow.ran


class TestContinuations:
    @pytest.mark.row("I22", "I23")
    async def test_a_continuation_of_the_start_runs_before_any_message_and_after_the_starter_is_released(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        order: list[str] = []

        class Going(Probe):
            def on_start(self) -> Continue:
                self.ref.tell(Do(lambda actor: order.append("message")))
                return Continue("token")

            async def on_continue(self, token: Any) -> None:
                await trio.sleep(1)
                order.append(f"continued {token}")

        ref = await system.spawn(Going)
        order.append("started")
        await ref.ask(Call(lambda actor: None))
        assert order == ["started", "continued token", "message"]

    @pytest.mark.row("I23")
    async def test_a_crash_in_the_continuation_of_the_start_is_a_crash_and_no_failure_to_start(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        events = record(system)

        class Failing(StopNotes):
            def on_start(self) -> Continue:
                return Continue()

            def on_continue(self, token: Any) -> None:
                raise ValueError("later")

        ends: list[ExitReason] = []
        ref = await system.spawn(Failing, ends)
        assert isinstance(await end_of(ref), Crashed)
        assert len(ends) == len(of_kind(events, CrashReport)) == 1

    @pytest.mark.row("I22")
    @pytest.mark.parametrize("slow", [False, True])
    async def test_continuations_go_before_queued_messages_from_wherever_and_chain(
        self, autojump_clock: MockClock, system: ActorSystem, slow: Any
    ) -> None:
        class Plain(Probe):
            def on_continue(self, token: Any) -> None:
                self.log.append(token)
                if token > 1:
                    self.continue_with(token - 1)

        class Slow(Plain):
            async def on_continue(self, token: Any) -> None:  # type: ignore[override]  # hooks may be either
                await trio.lowlevel.checkpoint()
                Plain.on_continue(self, token)

        ref = await system.spawn(Slow if slow else Plain)
        for way in Way:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask_by, way, ref, lambda actor: actor.continue_with(3))
                await settle()
            ref.tell(Note("queued"))
        ref.tell(Do(lambda actor: actor.continue_with(2)))
        ref.tell(Note("queued"))
        assert await log_of(ref) == [3, 2, 1, "queued", 3, 2, 1, "queued", 3, 2, 1, "queued", 2, 1, "queued"]

    async def test_a_task_beside_an_idle_actor_can_have_it_go_on_or_stop(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Going(Probe):
            def on_continue(self, token: Any) -> None:
                self.log.append(token)

        async def beside(actor: Any) -> None:
            await settle()
            actor.continue_with("from a task")
            await settle()
            assert actor.log == ["from a task"]
            actor.stop(Shutdown("from a task"))

        ref = await system.spawn(Going)
        await ref.ask(Call(lambda actor: actor.start_task(beside, actor)))
        assert await end_of(ref) == Shutdown("from a task")


class TestCallbacks:
    @pytest.mark.row("I01")
    async def test_callbacks_run_one_at_a_time_even_while_they_wait(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Counting(Probe):
            inside = 0
            most = 0

            async def slowly(self) -> None:
                self.inside += 1
                self.most = max(self.most, self.inside)
                await trio.sleep(1)
                self.inside -= 1

            async def on_start(self) -> Continue:
                await self.slowly()
                return Continue()

            async def on_continue(self, token: Any) -> None:
                await self.slowly()

            async def on_stop(self, reason: ExitReason) -> None:
                await self.slowly()
                most.append(self.most)

        most: list[int] = []
        ref = await system.spawn(Counting)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                ref.tell(SlowDo(lambda actor: actor.slowly()))
                nursery.start_soon(partial(ref.ask, SlowCall(lambda actor: actor.slowly()), timeout=None))
                nursery.start_soon(partial(ref.get_state, timeout=None))
            await settle()
            nursery.start_soon(ref.stop)
        assert most == [1]

    async def test_handlers_are_inherited_and_may_be_overridden(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Louder(Probe):
            def note(self, message: Note) -> None:
                self.log.append(f"{message.value}!")

            @handle
            async def call(self, message: Call) -> Any:
                return await slowly(message.function(self))

        async def slowly(value: Any) -> Any:
            await trio.lowlevel.checkpoint()
            return ("slowly", value)

        ref = await system.spawn(Louder)
        ref.tell(Note("hi"))
        assert await log_of(ref) == ["hi!"]
        assert await ref.ask(Call(lambda actor: 1)) == ("slowly", 1)


class TestStop:
    @pytest.mark.row("I16", "I20")
    @pytest.mark.parametrize("slow", [False, True])
    async def test_stop_waits_for_on_stop_and_succeeds_if_the_reason_is_the_one_asked_for(
        self, autojump_clock: MockClock, system: ActorSystem, slow: Any
    ) -> None:
        ends: list[ExitReason] = []

        class Slow(StopNotes):
            async def on_stop(self, reason: ExitReason) -> None:  # type: ignore[override]  # hooks may be either
                await trio.sleep(1)
                self.ends.append(reason)

        ref = await system.spawn(Slow if slow else StopNotes, ends, key="held")
        await ref.stop(Shutdown("please"))
        assert ends == [Shutdown("please")]
        assert ref.exit_reason == Shutdown("please")
        assert (await system.spawn(Probe, key="held")).alive

    @pytest.mark.row("I20")
    async def test_stop_fails_with_the_real_reason_if_the_actor_ends_otherwise(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(Do(raising(ValueError("first"))))
        with pytest.raises(ActorDown, match="ValueError: first"):
            await ref.stop()
        with pytest.raises(ActorDown, match="ValueError: first"):
            await ref.stop()

    @pytest.mark.row("I20")
    async def test_a_stop_that_timed_out_was_ordered_all_the_same(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(SlowDo(sleeping(10)))
        with pytest.raises(AskTimeout, match="did not answer stop within 1 s"):
            await ref.stop(timeout=1)
        assert ref.alive
        assert await end_of(ref) == Normal()

    @pytest.mark.row("I16")
    @ways
    async def test_on_stop_runs_after_a_stop_and_after_a_crash_of_any_handler(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ends: list[ExitReason] = []
        error = ValueError("broken")
        for function in (lambda actor: actor.stop(Shutdown("own")), raising(error)):
            ref = await system.spawn(StopNotes, ends)
            with suppress(ActorDown):
                await ask_by(way, ref, function)
            await end_of(ref)
        assert ends == [Shutdown("own"), Crashed(error)]

    @pytest.mark.row("I16")
    @pytest.mark.parametrize("hook", ["on_continue", "on_idle"])
    async def test_on_stop_runs_after_a_crash_of_a_hook(
        self, autojump_clock: MockClock, system: ActorSystem, hook: str
    ) -> None:
        class Failing(StopNotes):
            def on_continue(self, token: Any) -> None:
                raise ValueError(hook)

            def on_idle(self) -> None:
                raise ValueError(hook)

        ends: list[ExitReason] = []
        ref = await system.spawn(Failing, ends)
        ref.tell(Do(lambda actor: actor.continue_with() if hook == "on_continue" else actor.set_idle_timeout(1)))
        assert isinstance(await end_of(ref), Crashed)
        assert len(ends) == 1

    @pytest.mark.row("I17", "E03", "E04")
    async def test_on_stop_does_not_run_after_a_kill_or_an_exit_that_is_not_trapped(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ends: list[ExitReason] = []
        for end in (Ref.kill, lambda ref: ref.exit(Shutdown("signal"))):
            for busy in (False, True):
                ref = await system.spawn(StopNotes, ends)
                if busy:
                    ref.tell(SlowDo(sleeping(1_000)))
                await settle()
                end(ref)
                await end_of(ref)
        assert ends == []

    @pytest.mark.row("I18")
    @ways
    async def test_on_stop_and_the_report_see_the_state_as_it_was_when_the_exception_was_raised(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        # What the handler did before it raised has been done: the state is the object, not a value.
        events = record(system)
        seen: list[Any] = []

        class Seeing(Probe):
            def on_stop(self, reason: ExitReason) -> None:
                seen.append(list(self.log))

        def handler(actor: Any) -> None:
            actor.log.append("before")
            raise ValueError("here")

        ref = await system.spawn(Seeing)
        with pytest.raises(ActorDown):
            await ask_by(way, ref, handler)
        assert seen == [["before"]]
        [report] = of_kind(events, CrashReport)
        assert report.state == "log=['before']"

    @pytest.mark.row("I19")
    @pytest.mark.parametrize("slow", [False, True])
    async def test_an_on_stop_that_raises_gives_the_exit_reason(
        self, autojump_clock: MockClock, system: ActorSystem, slow: Any
    ) -> None:
        events = record(system)

        class Plain(Probe):
            def on_stop(self, reason: ExitReason) -> None:
                raise ValueError("in on_stop")

        class Slow(Probe):
            async def on_stop(self, reason: ExitReason) -> None:
                await trio.lowlevel.checkpoint()
                raise ValueError("in on_stop")

        ref = await system.spawn(Slow if slow else Plain)
        with pytest.raises(ActorDown, match="in on_stop"):
            await ref.stop()
        [report] = of_kind(events, CrashReport)
        assert "in on_stop" in str(report.reason)

    async def test_a_plain_on_stop_that_returns_a_coroutine_is_a_crash_with_a_lesson(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        async def forgotten() -> None: ...

        class Wrong(Probe):
            def on_stop(self, reason: ExitReason) -> Any:
                return forgotten()

        ref = await system.spawn(Wrong)
        with pytest.raises(ActorDown, match="on_stop of Wrong#1: expected a plain method"):
            await ref.stop()

    @pytest.mark.row("I14")
    async def test_a_stop_by_itself_takes_effect_after_the_callback(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)

        async def handler(actor: Any) -> str:
            actor.stop()
            await trio.sleep(1)
            return "done"

        assert await ref.ask(SlowCall(handler)) == "done"
        assert await end_of(ref) == Normal()


class TestSupervisorsOrders:
    @pytest.mark.row("E02", "E03")
    @pytest.mark.parametrize(
        ("trap_exits", "has_on_stop", "in_turn"),
        [(None, False, False), (None, True, True), (True, False, True), (False, True, False)],
    )
    async def test_a_shutdown_comes_in_turn_to_those_that_trap_exits_or_clean_up_and_at_once_to_others(
        self, autojump_clock: MockClock, system: ActorSystem, trap_exits: Any, has_on_stop: Any, in_turn: Any
    ) -> None:
        ends: list[ExitReason] = []
        ref = await (system.spawn(StopNotes, ends) if has_on_stop else system.spawn(Probe))
        await ref.ask(Call(lambda actor: setattr(actor, "trap_exits", trap_exits)))
        handled: list[str] = []
        ref.tell(SlowDo(sleeping(1)))
        ref.tell(Do(lambda actor: handled.append("before")))
        await settle()
        cell_of(ref).shut_down(Shutdown())
        assert await end_of(ref) == Shutdown()
        assert bool(handled) is in_turn
        assert bool(ends) is (in_turn and has_on_stop)

    @pytest.mark.row("E02")
    async def test_a_kill_ends_an_actor_that_takes_too_long_to_stop(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Stuck(Probe):
            async def on_stop(self, reason: ExitReason) -> None:
                await trio.sleep_forever()

        ref = await system.spawn(Stuck)
        cell_of(ref).shut_down(Shutdown())
        await trio.sleep(5)
        assert ref.statistics().phase == "stopping"
        ref.kill()
        assert await end_of(ref) == Killed()

    async def test_a_shutdown_during_the_start_ends_it(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        cell = Cell(system, Birth(SlowStarting), None)
        start_nowait(cell, system.nursery)
        await settle()
        cell.shut_down(Shutdown())
        assert await end_of(cell.ref) == Shutdown()


class TestKill:
    @pytest.mark.row("J05", "E04")
    async def test_a_kill_interrupts_whatever_the_actor_waits_for(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        idle, parked, waiting = [await system.spawn(Probe) for _ in range(3)]
        await parked.suspend()
        waiting.tell(SlowDo(sleeping(10**6)))
        await settle()
        began = trio.current_time()
        for ref in (idle, parked, waiting):
            ref.kill()
            assert await end_of(ref) == Killed()
        assert trio.current_time() == began
        assert system.busy == 1

    async def test_finally_blocks_of_a_killed_handler_run(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ran: list[str] = []

        async def handler(actor: Any) -> None:
            try:
                await trio.sleep_forever()
            finally:
                ran.append("finally")

        ref = await system.spawn(Probe)
        ref.tell(SlowDo(handler))
        await settle()
        ref.kill()
        assert await end_of(ref) == Killed()
        assert ran == ["finally"]

    async def test_a_handler_that_swallows_its_cancellation_changes_no_reason_and_on_stop_does_not_run(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ends: list[ExitReason] = []

        async def stubborn(actor: Any) -> None:
            for _ in range(3):
                with suppress(BaseException):  # what no actor should do
                    await trio.sleep_forever()

        ref = await system.spawn(StopNotes, ends)
        ref.tell(SlowDo(stubborn))
        await settle()
        ref.kill()
        assert await end_of(ref) == Killed()
        assert ends == []

    async def test_a_handler_that_raises_when_it_is_killed_was_killed(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        async def handler(actor: Any) -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("instead")

        ref = await system.spawn(Probe)
        ref.tell(SlowDo(handler))
        await settle()
        ref.kill()
        assert await end_of(ref) == Killed()

    async def test_a_kill_after_the_end_changes_nothing(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref = await system.spawn(Probe)
        await ref.stop()
        ref.kill()
        ref.exit(Killed())
        await settle()
        assert ref.exit_reason == Normal()
        assert system.busy == 1

    @pytest.mark.row("B10")
    async def test_a_ref_stays_down_for_ever_whatever_holds_its_key_later(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        old = await system.spawn(Probe, key="name")
        await old.stop()
        new = await system.spawn(Probe, key="name")
        assert new is not old
        with pytest.raises(ActorDown):
            await old.ask(Call(lambda actor: 1))
        assert await new.ask(Call(lambda actor: 1)) == 1


class TestDetachment:
    @pytest.mark.parametrize("seed", range(5))
    def test_a_detached_actor_is_down_at_once_and_handles_nothing_more_when_its_code_gives_in(self, seed: int) -> None:
        async def main() -> None:
            handled: list[str] = []
            ended: list[str] = []

            async def task() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    ended.append("task")

            async def stubborn(actor: Any) -> None:
                with trio.CancelScope(shield=True):
                    await trio.sleep(10)
                handled.append("stubborn")

            async with open_system() as system:
                ref = await system.spawn(Probe, key="held")
                await ref.ask(Call(lambda actor: actor.start_task(task)))
                await settle()
                ref.tell(SlowDo(stubborn))
                for _ in range(3):
                    ref.tell(Do(lambda actor: handled.append("after the end")))
                await settle()
                cell_of(ref).detach()
                assert ref.exit_reason == Killed()
                await system.spawn(Probe, key="held")
                await trio.sleep(5)
                assert ended == ["task"]
                await trio.sleep(10)
                assert handled == ["stubborn"]
                assert [letter.reason for letter in system.telemetry.dead_letters] == ["unread"] * 3
                await settle()
                assert system.busy == 1

        simulate(seed, main)


class TestClosing:
    async def test_leaving_the_block_kills_what_still_runs_in_whatever_state(self, autojump_clock: MockClock) -> None:
        refs: list[Ref] = []
        async with open_system() as system:
            refs = [await system.spawn(Probe) for _ in range(5)]
            refs[1].tell(SlowDo(sleeping(10**6)))
            await refs[2].suspend()
            await refs[3].ask(Call(lambda actor: actor.start_task(trio.sleep_forever)))
            slow = Cell(system, Birth(SlowStarting), None)
            start_nowait(slow, system.nursery)
            refs.append(slow.ref)
            await settle()
            refs[4].tell(Note("not handled any more"))
        assert [ref.exit_reason for ref in refs] == [Killed()] * 6
        assert system.statistics().actors == 0
        assert system.busy == 1

    async def test_an_exception_in_the_block_comes_out_as_it_is(self, autojump_clock: MockClock) -> None:
        async def fail() -> None:
            async with open_system() as system:
                await system.spawn(Probe)
                raise ValueError("bare")

        with pytest.raises(ValueError, match="bare") as caught:
            await fail()
        assert type(caught.value) is ValueError
        assert caught.value.__context__ is None

    async def test_a_group_that_the_block_raises_stays_a_group(self, autojump_clock: MockClock) -> None:
        async def fail() -> None:
            async with open_system():
                raise ExceptionGroup("own", [ValueError("inside")])

        with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="inside"), match="own"):
            await fail()

    @pytest.mark.parametrize("seed", range(40))
    def test_closing_at_any_moment_ends_every_actor_once_and_leaves_no_task(self, seed: int) -> None:
        async def main() -> None:
            ended: list[str] = []
            refs: list[Ref] = []
            systems: list[ActorSystem] = []

            async def bother(system: ActorSystem) -> None:
                random = system.environment.random
                while True:
                    await disturb(random, random.choice(refs), random.choice(refs))
                    await trio.sleep(random.random() / 5)

            async def run(scope: trio.CancelScope, started: trio.Event) -> None:
                with scope:
                    async with open_system(SimulatedEnvironment(seed)) as system:
                        systems.append(system)
                        system.telemetry.subscribe(
                            lambda event: ended.append(event.actor) if isinstance(event, Exited) else None
                        )
                        refs.extend([await system.spawn(Probe) for _ in range(6)])
                        started.set()
                        await trio.sleep(system.environment.random.random() * 3)
                        scope.cancel()

            async with trio.open_nursery() as nursery:
                started = trio.Event()
                nursery.start_soon(run, trio.CancelScope(), started)
                await started.wait()
                for _ in range(3):
                    nursery.start_soon(bother, systems[0])
                await trio.sleep(10)
                nursery.cancel_scope.cancel()
            assert sorted(ended) == sorted(ref.label for ref in refs)
            assert systems[0].busy == 1
            assert systems[0].statistics().actors == systems[0].statistics().deadlines == 0

        simulate(seed, main)


async def disturb(random: Random, one: Ref, other: Ref) -> None:
    """Do something at random to an actor."""
    match random.randrange(6):
        case 0:
            one.tell(SlowDo(sleeping(random.random())))
        case 1:
            one.tell(Do(lambda actor: actor.link(other)))
        case 2:
            one.tell(Do(lambda actor: actor.start_task(trio.sleep, 1)))
        case 3:
            one.tell(Do(lambda actor: actor.send_every(0.1, Note(1), other)))
        case 4 if random.random() < 0.2:
            one.kill()
        case _:
            with trio.move_on_after(random.random()), suppress(ActorDown):
                await one.ask(SlowCall(pause))
