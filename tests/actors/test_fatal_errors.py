"""What ends the run instead of one actor, on every path, and what does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import outcome
import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Actor, ActorSystem, Birth, Cell, Crashed, ExitReason, Killed, Ref, open_system, start
from sapwood.actors._exits import members_of
from sapwood.errors import ActorDown
from tests.actors.kit import Call, Do, Probe, SlowDo, Way, ask_by, end_of, raising, settle, ways


class Interrupted(BaseException):
    """Like KeyboardInterrupt, which pytest would take for the user's."""


FATAL = [Interrupted("now"), MemoryError("full"), SystemExit(3), trio.TrioInternalError("broken")]
fatal = pytest.mark.parametrize("error", FATAL, ids=[type(error).__name__ for error in FATAL])


async def survive(error: BaseException, use: Any) -> None:
    """Run something in a system and check that it ends the run with the error."""

    async def run() -> None:
        async with open_system() as system:
            # A caller that would catch everything cannot keep the run alive.
            await use(system)
            await trio.sleep_forever()

    result = await outcome.acapture(run)
    assert isinstance(result, outcome.Error)
    # Whoever waited for the actor may have failed as well, with ActorDown.
    ended = list(leaves(result.error))
    assert error in ended
    assert all(other is error or isinstance(other, ActorDown) for other in ended)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group, at whatever depth."""
    if isinstance(error, BaseExceptionGroup):
        for member in members_of(error):
            yield from leaves(member)
    else:
        yield error


class TestFatalErrors:
    @pytest.mark.row("J17")
    @fatal
    @ways
    async def test_a_fatal_error_in_a_handler_ends_the_run_and_not_only_its_caller(
        self, autojump_clock: MockClock, error: BaseException, way: Way
    ) -> None:
        refs: list[Ref] = []

        async def use(system: ActorSystem) -> None:
            refs.append(await system.spawn(Probe))

            async def caller() -> None:
                try:
                    await ask_by(way, refs[0], raising(error), timeout=None)
                except ActorDown:
                    await trio.sleep_forever()

            system.nursery.start_soon(caller)

        await survive(error, use)
        assert refs[0].exit_reason == Killed()

    @fatal
    async def test_a_fatal_error_in_a_told_message_or_a_task_ends_the_run(
        self, autojump_clock: MockClock, error: BaseException
    ) -> None:
        async def fail(_actor: Any = None) -> None:
            await trio.lowlevel.checkpoint()
            raise error

        async def tell(system: ActorSystem) -> None:
            (await system.spawn(Probe)).tell(Do(raising(error)))

        async def tell_slowly(system: ActorSystem) -> None:
            (await system.spawn(Probe)).tell(SlowDo(fail))

        async def run_task(system: ActorSystem) -> None:
            ref = await system.spawn(Probe)
            await ref.ask(Call(lambda actor: actor.start_task(fail)))

        for use in (tell, tell_slowly, run_task):
            await survive(error, use)

    @fatal
    @pytest.mark.parametrize("slow", [False, True])
    async def test_a_fatal_error_in_a_start_or_a_stop_ends_the_run_and_frees_the_key(
        self, autojump_clock: MockClock, error: BaseException, slow: Any
    ) -> None:
        class Starting(Actor):
            def on_start(self) -> Any:
                raise error

        class SlowStarting(Actor):
            async def on_start(self) -> None:
                await trio.lowlevel.checkpoint()
                raise error

        class Stopping(Probe):
            def on_stop(self, reason: ExitReason) -> Any:
                raise error

        class SlowStopping(Probe):
            async def on_stop(self, reason: ExitReason) -> None:
                await trio.lowlevel.checkpoint()
                raise error

        async def start(system: ActorSystem) -> None:
            systems.append(system)
            await system.spawn(SlowStarting if slow else Starting, key="taken")

        async def stop(system: ActorSystem) -> None:
            systems.append(system)
            ref = await system.spawn(SlowStopping if slow else Stopping, key="taken")
            ref.tell(Do(lambda actor: actor.stop()))

        systems: list[ActorSystem] = []
        for use in (start, stop):
            await survive(error, use)
        for system in systems:
            system.registrar.claim("taken", None)  # type: ignore[arg-type]  # raises if it is still held
            assert system.statistics().actors == 0

    async def test_a_fatal_error_inside_a_group_ends_the_run(self, autojump_clock: MockClock) -> None:
        async def handler(actor: Any) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                raise MemoryError("in a nursery")

        async def main() -> None:
            async with open_system() as system:
                ref = await system.spawn(Probe)
                ref.tell(SlowDo(handler))
                await trio.sleep_forever()

        with pytest.RaisesGroup(MemoryError):
            await main()

    async def test_a_fatal_error_in_introspection_or_a_listener_is_not_swallowed(
        self, autojump_clock: MockClock
    ) -> None:
        error = MemoryError("full")

        async def look(system: ActorSystem) -> None:
            ref = await system.spawn(Probe)
            await ref.replace_state(raising(error))

        async def listen(system: ActorSystem) -> None:
            system.telemetry.subscribe(raising(error))
            ref = await system.spawn(Probe)
            await end_of(ref)

        for use in (look, listen):
            await survive(error, use)


class TestContainedErrors:
    @pytest.mark.row("J17")
    @ways
    async def test_a_recursion_without_end_is_a_crash_of_its_actor(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        def recurse(actor: Any) -> Any:
            return recurse(actor)

        ref, other = await system.spawn(Probe), await system.spawn(Probe)
        with pytest.raises(ActorDown, match="RecursionError"):
            await ask_by(way, ref, recurse)
        assert await other.ask(Call(lambda actor: "alive")) == "alive"

    @pytest.mark.row("J17")
    async def test_an_uncaught_exception_is_the_exit_reason_with_its_traceback_as_text(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        def inner() -> None:
            raise ValueError("deep")

        def outer(actor: Any) -> None:
            inner()

        ref = await system.spawn(Probe)
        ref.tell(Do(outer))
        reason = await end_of(ref)
        assert isinstance(reason, Crashed)
        assert [frame[2] for frame in reason.frames][-2:] == ["outer", "inner"]
        assert reason.exception.__traceback__ is None
        text = reason.traceback()
        assert text.startswith("Traceback (most recent call last):")
        assert 'raise ValueError("deep")' in text
        assert text.endswith("ValueError: deep")
        assert str(reason) == "crashed with ValueError: deep"

    async def test_an_exception_group_of_several_is_kept_as_a_group(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(Do(raising(ExceptionGroup("two", [ValueError(1), KeyError(2)]))))
        reason = await end_of(ref)
        assert isinstance(reason, Crashed)
        assert isinstance(reason.exception, ExceptionGroup)
        assert len(reason.exception.exceptions) == 2

    @pytest.mark.row("BR-20")
    async def test_a_crash_mixed_with_an_outer_cancellation_is_reported_and_leaves_no_group(
        self, autojump_clock: MockClock
    ) -> None:
        async def handler(actor: Any) -> None:
            async def fail_when_cancelled() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    raise ValueError("in the cleanup")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail_when_cancelled)
                nursery.start_soon(trio.sleep_forever)

        async with open_system() as system:
            cell = Cell(system, Birth(Probe), None)
            async with trio.open_nursery() as nursery:
                await start(cell, nursery)
                cell.ref.tell(SlowDo(handler))
                await settle()
                # The nursery around the actor is cancelled, not the actor.
                nursery.cancel_scope.cancel()
            assert nursery.cancel_scope.cancelled_caught
            assert "in the cleanup" in str(cell.ref.exit_reason)
            assert system.busy == 1
