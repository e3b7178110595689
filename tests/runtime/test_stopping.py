"""Leaving a runtime: by return, exception and cancellation; in order, within budgets, with nothing left."""

# ruff: noqa: PT012  # that a block is left is what is tested

from __future__ import annotations

import logging
import signal
import threading
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

from sapwood import Runtime, open_runtime
from sapwood.actors import (
    Actor,
    ChildStuck,
    Exited,
    ExitReason,
    Killed,
    SimulatedEnvironment,
    TelemetryEvent,
    handle,
    message,
)
from sapwood.errors import RegistryUnavailable, RuntimeClosed, RuntimeFailed, StoreUnavailable
from sapwood.registry import Unavailable
from sapwood.supervision import ChildSpec, child, supervisor


@message("stopping.crash")
class Crash:
    pass


class Note(Actor):
    """Notes its start and its stop; needs `seconds` to stop."""

    def __init__(self, events: list[str], name: str, seconds: float = 0.0) -> None:
        self.events = events
        self.name = name
        self.seconds = seconds

    def on_start(self) -> None:
        self.events.append(f"+{self.name}")

    async def on_stop(self, reason: ExitReason) -> None:
        await trio.sleep(self.seconds)
        self.events.append(f"-{self.name}")

    @handle
    def crash(self, message: Crash) -> None:
        raise ValueError("crashes")


def note(events: list[str], name: str, seconds: float = 0.0, **options: Any) -> ChildSpec:
    return child(Note, events, name, seconds, id=name, **options)


def open_simulated(**options: Any) -> AbstractAsyncContextManager[Runtime]:
    """Open a runtime whose store needs no thread, for a virtual clock would not wait for one."""
    options.setdefault("environment", SimulatedEnvironment())
    return open_runtime(**options)


def three(events: list[str]) -> list[ChildSpec]:
    inner = supervisor([note(events, "b1"), note(events, "b2", 1.0)], strategy="one_for_one", id="b")
    return [note(events, "a", 1.0), inner, note(events, "c")]


IN_ORDER = ["+a", "+b1", "+b2", "+c", "-c", "-b2", "-b1", "-a"]


def nothing_left() -> bool:
    return threading.active_count() == 1 or all(
        thread is threading.main_thread() or thread.daemon for thread in threading.enumerate()
    )


@pytest.mark.row("N05", "S4-055", "UP-50")
class TestChildrenStopInReverseStartOrder:
    async def test_after_the_block_has_returned(self, events: list[str], autojump_clock: object) -> None:
        async with open_simulated(children=three(events)) as runtime:
            assert events == IN_ORDER[:4]

        assert events == IN_ORDER
        assert runtime.system.actors == {}
        assert nothing_left()

    async def test_after_the_block_has_raised_and_its_exception_comes_out_as_it_was(
        self, events: list[str], autojump_clock: object
    ) -> None:
        error = ValueError("of the block")
        cause = error.__cause__ = KeyError("cause")
        with pytest.raises(ValueError, match="of the block") as caught:
            async with open_simulated(children=three(events)):
                raise error

        assert caught.value is error
        assert error.__cause__ is cause
        assert error.__context__ is None
        assert events == IN_ORDER

    async def test_after_an_outer_cancellation_though_that_cancels_everything_at_once(
        self, events: list[str], autojump_clock: object
    ) -> None:
        with trio.move_on_after(10) as scope:
            async with open_simulated(children=three(events)):
                await trio.sleep_forever()

        assert scope.cancelled_caught
        assert events == IN_ORDER
        assert trio.current_time() == pytest.approx(12)

    async def test_after_a_deadline_around_it_that_passes_while_it_stops(
        self, events: list[str], autojump_clock: object
    ) -> None:
        with trio.move_on_after(0.5):
            async with open_simulated(children=three(events)):
                pass

        assert events == IN_ORDER

    async def test_when_the_opening_task_fails_beside_it(self, events: list[str], autojump_clock: object) -> None:
        async def fail() -> None:
            await trio.sleep(1)
            raise ValueError("beside")

        with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="beside")):
            async with trio.open_nursery() as nursery, open_simulated(children=three(events)):
                nursery.start_soon(fail)
                await trio.sleep_forever()

        assert events == IN_ORDER


class TestWhatTheBlockRaises:
    @pytest.mark.parametrize(
        "error",
        [
            KeyboardInterrupt(),
            SystemExit(3),
            ExceptionGroup("one", [ValueError("x")]),
            ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("x")])]),
            BaseExceptionGroup("base", [KeyboardInterrupt(), ValueError("x")]),
        ],
        ids=lambda error: type(error).__name__,
    )
    async def test_it_comes_out_as_the_same_object(self, error: BaseException) -> None:
        members = list(error.exceptions) if isinstance(error, BaseExceptionGroup) else []
        with pytest.raises(BaseException) as caught:
            async with open_simulated():
                raise error

        assert caught.value is error
        assert members == (list(error.exceptions) if isinstance(error, BaseExceptionGroup) else [])

    async def test_a_group_that_mixes_cancellation_with_errors_keeps_its_errors(self, autojump_clock: object) -> None:
        async def fail_when_cancelled() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("on the way out")

        expected = pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="on the way out"))
        with expected, trio.move_on_after(1):
            async with open_simulated(), trio.open_nursery() as nursery:
                nursery.start_soon(fail_when_cancelled)
                nursery.start_soon(trio.sleep_forever)

    async def test_an_error_of_the_block_wins_over_the_failure_of_the_root(self, autojump_clock: object) -> None:
        with pytest.raises(ValueError, match="mine"):
            async with open_simulated() as runtime:
                runtime.root.kill()
                try:
                    await trio.sleep_forever()
                finally:
                    raise ValueError("mine")


class Fatal(Actor):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    @handle
    def crash(self, message: Crash) -> None:
        raise self.error


class TestWhatEndsTheRun:
    @pytest.mark.parametrize(
        "error", [KeyboardInterrupt(), SystemExit(3), MemoryError("none left")], ids=lambda error: type(error).__name__
    )
    async def test_raised_in_an_actor_it_is_no_crash_but_comes_out_plain(
        self, error: BaseException, events: list[str], autojump_clock: object
    ) -> None:
        with pytest.raises(type(error)) as caught:
            async with open_simulated(children=[note(events, "a"), child(Fatal, error, id="fatal")]) as runtime:
                runtime.tree().children[-1].ref.tell(Crash())
                await trio.sleep_forever()

        assert caught.value is error
        assert events == ["+a"]  # nothing runs any more, not even cleanup


class TestBudgets:
    async def test_a_child_gets_its_own_time_and_is_killed_after_it(
        self, events: list[str], autojump_clock: object
    ) -> None:
        ends: list[ExitReason] = []
        async with open_simulated(
            children=[note(events, "slow", 100.0, shutdown=2.0), note(events, "quick")]
        ) as runtime:

            def hear(event: TelemetryEvent) -> None:
                if isinstance(event, Exited) and event.actor == "slow":
                    ends.append(event.reason)

            runtime.telemetry.subscribe(hear)

        assert events == ["+slow", "+quick", "-quick"]
        assert ends == [Killed()]
        assert trio.current_time() == pytest.approx(2)

    async def test_what_is_left_is_cancelled_when_the_total_time_is_spent(
        self, events: list[str], autojump_clock: object, caplog: pytest.LogCaptureFixture
    ) -> None:
        children = [note(events, name, 4.0) for name in "abcdef"]
        async with open_simulated(children=children, shutdown_timeout=10.0) as runtime:
            pass

        assert events[6:] == ["-f", "-e"]
        with pytest.raises(StoreUnavailable, match="the runtime has stopped"):
            _ = runtime.store
        assert trio.current_time() == pytest.approx(10)
        assert runtime.system.actors == {}
        assert caplog.records == []

    @pytest.mark.row("BR-74")
    async def test_a_shielded_cleanup_that_hangs_is_named_and_waited_for(
        self, autojump_clock: object, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Hang(Actor):
            async def on_stop(self, reason: ExitReason) -> None:
                with trio.CancelScope(shield=True):
                    await trio.sleep(60)

        stuck: list[TelemetryEvent] = []
        async with open_simulated(children=[child(Hang, id="hang")], shutdown_timeout=1.0) as runtime:
            runtime.telemetry.subscribe(lambda event: stuck.append(event) if isinstance(event, ChildStuck) else None)

        assert trio.current_time() == pytest.approx(60)
        assert stuck == [ChildStuck("runtime", "hang", 5.0)]
        assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
            (logging.CRITICAL, "hang hangs in its cleanup and cannot be ended")
        ]

    @pytest.mark.parametrize("seconds", [0, -1, float("nan"), "soon", None])
    async def test_a_total_time_that_is_no_time_is_refused(self, seconds: Any) -> None:
        with pytest.raises(ValueError, match="shutdown_timeout: expected seconds > 0"):
            async with open_simulated(shutdown_timeout=seconds):
                pass


class TestTheRootGivesUp:
    @pytest.mark.row("D08")
    async def test_the_block_is_cancelled_everything_is_stopped_and_the_runtime_has_failed(
        self, events: list[str], autojump_clock: object
    ) -> None:
        opened: list[Runtime] = []
        with pytest.raises(RuntimeFailed, match="reached max restart intensity"):
            async with open_simulated(children=[note(events, "a"), note(events, "b")], restarts=1) as runtime:
                opened.append(runtime)
                for _ in range(3):
                    runtime.tree().children[-1].ref.tell(Crash())
                    await trio.sleep(0.1)
                    events.append("went on")
                await trio.sleep_forever()

        assert events.count("went on") == 1
        assert events[-1] == "-a"
        assert not opened[0].ready()
        assert opened[0].system.actors == {}

    async def test_a_killed_root_is_a_failure_too(self, autojump_clock: object) -> None:
        with pytest.raises(RuntimeFailed, match="killed"):
            async with open_simulated() as runtime:
                runtime.root.kill()
                await trio.sleep_forever()


@pytest.mark.row("BR-07", "S4-049", "S4-056", "AR-24.40")
class TestWhileItStops:
    async def test_nothing_new_is_taken_and_every_answer_is_that_it_stops(self, autojump_clock: object) -> None:
        seen: list[object] = []
        starts: list[str] = []

        class Late(Actor):
            async def on_stop(self, reason: ExitReason) -> None:
                seen.append(runtime.ready())
                seen.append(runtime.registry.lookup_nowait(("late", 1)))
                seen.append(await runtime.get_or_start(("new", 1), note(starts, "new")))
                with pytest.raises(RuntimeClosed, match="stopping"):
                    await runtime.spawn(Note, starts, "spawned")
                with pytest.raises(RegistryUnavailable, match="draining"):
                    runtime.registry.whereis(("late", 1))
                with pytest.raises(RegistryUnavailable, match="draining"):
                    runtime.registry.running()

        async with open_simulated(children=[child(Late, key=("late", 1))]) as runtime:
            assert runtime.ready()

        assert seen == [False, Unavailable("draining"), Unavailable("draining")]
        assert starts == []

    async def test_afterwards_the_answers_stay_the_same(self, autojump_clock: object) -> None:
        async with open_simulated() as runtime:
            pass

        assert not runtime.ready()
        assert runtime.registry.lookup_nowait(("a", 1)) == Unavailable("draining")
        assert await runtime.get_or_start(("a", 1), note([], "a")) == Unavailable("draining")
        with pytest.raises(RuntimeClosed, match="stopped"):
            await runtime.spawn(Note, [], "a")
        with pytest.raises(StoreUnavailable, match="the runtime has stopped"):
            _ = runtime.store
        assert runtime.tree().children == ()

    async def test_a_crashed_child_with_a_key_is_still_restarted(
        self, events: list[str], autojump_clock: object
    ) -> None:
        """A service that drains for a while needs what it consists of until the end."""
        spec = note(events, "kept", key=("kept", 1))
        async with open_simulated(children=[spec, note(events, "slow", 2.0)]) as runtime:
            ref = runtime.registry.whereis(("kept", 1))
            assert ref is not None
            runtime.begin_stop()
            ref.tell(Crash())
            await trio.sleep(0.5)

        assert events == ["+kept", "+slow", "-kept", "-slow", "+kept", "+slow", "-slow", "-kept"]


class TestSeveralRuntimes:
    async def test_two_in_one_process_know_nothing_of_each_other(self, tmp_path: Path, autojump_clock: object) -> None:
        async with open_simulated(store=tmp_path / "one.db") as one:
            await one.get_or_start(("a", 1), note([], "a"))
            with pytest.raises(RuntimeFailed):
                async with open_simulated(store=tmp_path / "two.db") as two:
                    assert two.registry.whereis(("a", 1)) is None
                    two.root.kill()
                    await trio.sleep_forever()

            assert one.ready()
            assert one.registry.whereis(("a", 1)) is not None


class TestSimulatedExit:
    @pytest.mark.row("BR-74")
    async def test_a_signal_a_budget_and_a_hanging_shield_end_the_process(self, autojump_clock: object) -> None:
        class Hang(Actor):
            async def on_stop(self, reason: ExitReason) -> None:
                with trio.CancelScope(shield=True):
                    await trio.sleep(60)

        environment = SimulatedEnvironment()
        with pytest.raises(SystemExit) as ended:
            async with open_simulated(environment=environment, children=[child(Hang)], shutdown_timeout=1.0):
                signal.raise_signal(signal.SIGTERM)
                await trio.sleep_forever()

        assert environment.exit_code == 128 + signal.SIGTERM
        assert ended.value.code == 128 + signal.SIGTERM


def test_a_ready_runtime_is_made_by_the_function_alone() -> None:
    assert open_runtime.__module__ == "sapwood"
    assert Runtime.__module__ == "sapwood"
