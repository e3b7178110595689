"""One start for one key, however many ask for it, whatever becomes of it and of those who ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio

from sapwood import Runtime
from sapwood.actors import Actor, Ignore, Ref, Request, handle, message
from sapwood.errors import (
    ActorDown,
    AlreadyStarted,
    ChildFailed,
    InvalidChildSpec,
    InvalidKey,
    MaxChildren,
    RegistryUnavailable,
    StartError,
    StartTimeout,
    WrongThread,
)
from sapwood.registry import Key, NotRunning, Running, Unavailable
from sapwood.supervision import ChildSpec, DynamicSupervisor, Supervisor, child, start_child

KEY: Key = ("counter", 1)

pytestmark = pytest.mark.sapwood(seeds=3)


@message("get_or_start.increment")
class Increment:
    pass


@message("get_or_start.total")
class Total(Request[int]):
    pass


class Counter(Actor):
    """Counts how often it was made, takes `seconds` to start, and fails then if told so."""

    def __init__(self, made: list[str], seconds: float = 0.0, error: Exception | None = None) -> None:
        made.append("made")
        self.seconds = seconds
        self.error = error
        self.total = 0

    async def on_start(self) -> None:
        await trio.sleep(self.seconds)
        if self.error is not None:
            raise self.error

    @handle
    def increment(self, message: Increment) -> None:
        self.total += 1

    @handle
    def tell_total(self, message: Total) -> int:
        return self.total


def counter(made: list[str], seconds: float = 0.0, error: Exception | None = None, **options: Any) -> ChildSpec:
    options.setdefault("restart", "temporary")
    return child(Counter, made, seconds, error, **options)


def home(runtime: Runtime) -> Ref:
    return next(node.ref for node in runtime.tree().walk() if node.label == "agents")


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until something holds."""
    for _ in range(10_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    pytest.fail("what was waited for did not come")


async def get(runtime: Runtime, spec: ChildSpec, under: Ref | None = None) -> Ref:
    found = await runtime.registry.get_or_start(KEY, spec, under=under)
    assert isinstance(found, Running)
    return found.ref


@pytest.mark.row("S4-047", "BR-08", "UP-8")
class TestOneStart:
    @pytest.mark.parametrize("seconds", [0.0, 0.5])
    async def test_fifty_callers_at_once_get_one_actor_and_lose_no_message(
        self, runtime: Runtime, seconds: float
    ) -> None:
        made: list[str] = []
        refs: list[Ref] = []

        async def call() -> None:
            ref = await get(runtime, counter(made, seconds))
            ref.tell(Increment())
            refs.append(ref)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(call)

        assert made == ["made"]
        assert len(refs) == 50
        assert len(set(refs)) == 1
        assert await refs[0].ask(Total()) == 50
        assert runtime.registry.statistics().starting == 0

    @pytest.mark.parametrize("seconds", [0.0, 0.5])
    async def test_a_failure_is_the_same_one_for_all_and_leaves_the_key_free(
        self, runtime: Runtime, seconds: float
    ) -> None:
        made: list[str] = []
        failures: list[ChildFailed] = []

        async def call(after: float) -> None:
            await trio.sleep(after)
            with pytest.raises(ChildFailed, match="boom") as failed:
                await get(runtime, counter(made, seconds, ValueError("boom")))
            failures.append(failed.value)

        async with trio.open_nursery() as nursery:
            for number in range(50):
                # Half of them come when the key is claimed and the actor is starting.
                nursery.start_soon(call, number % 2 * seconds / 2)

        assert made == ["made"]
        assert len(failures) == 50
        assert all(failure is failures[0] for failure in failures)
        assert runtime.registry.lookup_nowait(KEY) == NotRunning()
        assert (await get(runtime, counter(made))).alive

    @pytest.mark.row("UP-7")
    async def test_what_runs_is_returned_and_nothing_is_started(self, runtime: Runtime) -> None:
        made: list[str] = []
        first = await get(runtime, counter(made))
        assert await get(runtime, counter(made, error=ValueError("never made"))) is first
        assert made == ["made"]

    async def test_the_key_given_here_replaces_the_one_of_the_spec(self, runtime: Runtime) -> None:
        ref = await get(runtime, counter([], key=("other", 2)))
        assert ref.key == KEY
        assert runtime.registry.lookup_nowait(("other", 2)) == NotRunning()

    async def test_different_keys_start_side_by_side(self, runtime: Runtime) -> None:
        async def call(number: int) -> None:
            under = await runtime.spawn(DynamicSupervisor)
            await runtime.registry.get_or_start(("counter", number), counter([], 1.0), under=under)

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(call, number)
        assert trio.current_time() - began == pytest.approx(1)
        assert len(runtime.registry.running("counter")) == 10


class TestCallersWhoGo:
    async def test_a_start_goes_on_when_the_caller_who_caused_it_is_cancelled(self, runtime: Runtime) -> None:
        made: list[str] = []
        refs: list[Ref] = []

        async def stay() -> None:
            refs.append(await get(runtime, counter(made, 1.0)))

        async with trio.open_nursery() as nursery:
            with trio.move_on_after(0.2):
                async with trio.open_nursery() as first:
                    first.start_soon(get, runtime, counter(made, 1.0))
                    await trio.sleep(0.1)
                    nursery.start_soon(stay)
                    await trio.sleep_forever()
            assert runtime.registry.statistics().starting == 1

        assert made == ["made"]
        assert refs == [runtime.registry.whereis(KEY)]
        assert runtime.registry.statistics().starting == 0

    async def test_the_failure_of_a_start_whose_caller_is_gone_reaches_the_others(self, runtime: Runtime) -> None:
        made: list[str] = []

        async def stay() -> None:
            with pytest.raises(ChildFailed, match="boom"):
                await get(runtime, counter(made, 1.0, ValueError("boom")))

        async with trio.open_nursery() as nursery:
            with trio.move_on_after(0.2):
                async with trio.open_nursery() as first:
                    first.start_soon(get, runtime, counter(made, 1.0, ValueError("boom")))
                    await trio.sleep(0.1)
                    nursery.start_soon(stay)
                    await trio.sleep_forever()

        assert made == ["made"]
        assert runtime.registry.lookup_nowait(KEY) == NotRunning()

    async def test_a_start_whose_callers_are_all_gone_ends_all_the_same(self, runtime: Runtime) -> None:
        with trio.move_on_after(0.2):
            await get(runtime, counter([], 1.0))
        assert runtime.registry.statistics().starting == 1
        await trio.sleep(1)
        assert runtime.registry.statistics().starting == 0
        assert isinstance(runtime.registry.lookup_nowait(KEY), Running)

    async def test_an_actor_may_die_while_it_waits_for_a_start_it_caused(self, runtime: Runtime) -> None:
        class Caller(Actor):
            @handle
            async def call(self, message: Increment) -> None:
                await get(runtime, counter([], 1.0))

        caller = await runtime.spawn(Caller)
        caller.tell(Increment())
        await trio.sleep(0.5)
        caller.kill()
        await trio.sleep(1)
        assert isinstance(runtime.registry.lookup_nowait(KEY), Running)


class TestOthersWhoStart:
    async def test_a_start_by_other_means_at_the_same_time_wins_or_loses_but_is_the_only_one(
        self, runtime: Runtime
    ) -> None:
        made: list[str] = []
        found: list[Ref] = []

        async def spawn() -> None:
            try:
                found.append(await runtime.spawn(Counter, made, key=KEY))
            except AlreadyStarted as taken:
                found.append(taken.ref)

        async def call() -> None:
            found.append(await get(runtime, counter(made)))

        for _ in range(50):
            async with trio.open_nursery() as nursery:
                for function in (spawn, call, call):
                    nursery.start_soon(function)
            assert len(set(found)) == 1
            assert made == ["made"]
            found[0].kill()
            await found[0].wait_stopped()
            made.clear()
            found.clear()

    async def test_an_id_that_is_taken_by_another_child_is_no_answer_about_the_key(self, runtime: Runtime) -> None:
        static = await runtime.spawn(lambda: Supervisor([child(Counter, [], id="taken")], strategy="one_for_one"))
        with pytest.raises(AlreadyStarted, match="taken"):
            await runtime.registry.get_or_start(KEY, counter([], id="taken"), under=static)
        assert runtime.registry.lookup_nowait(KEY) == NotRunning()


class TestWhatCannotStart:
    async def test_an_actor_that_has_nothing_to_do(self, runtime: Runtime) -> None:
        class Idle(Actor):
            def on_start(self) -> Ignore:
                return Ignore()

        with pytest.raises(StartError, match=r"Ignore\(\)"):
            await get(runtime, child(Idle))
        assert runtime.registry.lookup_nowait(KEY) == NotRunning()

    async def test_an_actor_that_takes_too_long(self, runtime: Runtime) -> None:
        with pytest.raises(StartTimeout):
            await get(runtime, counter([], 5.0, start_timeout=1.0))
        assert runtime.registry.lookup_nowait(KEY) == NotRunning()

    async def test_an_actor_that_ended_before_it_could_be_handed_over(self, runtime: Runtime) -> None:
        class Brief(Actor):
            def on_start(self) -> None:
                self.stop_soon()

            def stop_soon(self) -> None:
                self.send_after(0, Increment())

            @handle
            def end(self, message: Increment) -> None:
                self.stop()

        for _ in range(20):
            with suppress(ActorDown):
                ref = await get(runtime, child(Brief, restart="temporary"))
                await ref.wait_stopped()
            assert runtime.registry.lookup_nowait(KEY) == NotRunning()

    async def test_a_supervisor_that_is_full(self, runtime: Runtime) -> None:
        full = await start_child(home(runtime), child(lambda: DynamicSupervisor(max_children=0)))
        with pytest.raises(MaxChildren):
            await get(runtime, counter([]), under=full)

    @pytest.mark.parametrize("key", ["counter", ("counter", True), (1,)])
    async def test_what_is_no_key(self, runtime: Runtime, key: Any) -> None:
        made: list[str] = []
        with pytest.raises(InvalidKey):
            await runtime.registry.get_or_start(key, counter(made))
        assert made == []

    @pytest.mark.parametrize("spec", [Counter, None, "spec"])
    async def test_what_is_no_spec(self, runtime: Runtime, spec: Any) -> None:
        with pytest.raises(InvalidChildSpec, match="a spec made with child"):
            await runtime.registry.get_or_start(KEY, spec)

    async def test_a_spec_that_its_supervisor_refuses(self, runtime: Runtime) -> None:
        with pytest.raises(InvalidChildSpec, match="significant"):
            await get(runtime, counter([], significant=True))

    async def test_a_call_from_another_thread(self, runtime: Runtime) -> None:
        errors: list[Exception] = []

        def elsewhere() -> None:
            try:
                trio.run(runtime.registry.get_or_start, KEY, counter([]))
            except Exception as error:  # the thread's only way to tell
                errors.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert [type(error) for error in errors] == [WrongThread]


@pytest.mark.row("AR-24.41", "S4-047", "UP-50")
class TestWhileTheRegistryCannotTell:
    async def test_nothing_at_all_is_started(self, runtime: Runtime) -> None:
        made: list[str] = []
        answers: set[str] = set()

        class Slow(Actor):
            async def on_stop(self, reason: object) -> None:
                await trio.sleep(1)

        await runtime.spawn(Slow)
        for node in runtime.tree().walk():
            if node.label.startswith("partition"):
                node.ref.kill()
        await until(lambda: not isinstance(runtime.registry.lookup_nowait(KEY), NotRunning))
        end = trio.current_time() + 0.9
        while trio.current_time() < end:
            found = await runtime.registry.get_or_start(KEY, counter(made))
            assert isinstance(found, Unavailable)
            answers.add(found.reason)
            with pytest.raises(RegistryUnavailable):
                await runtime.spawn(Counter, made, key=KEY)
            await trio.sleep(0.05)
        assert made == []
        assert answers <= {"registry_down", "recovering"}
        await trio.sleep(1)
        await get(runtime, counter(made))
        assert made == ["made"]

    async def test_a_partition_that_dies_during_a_start_takes_the_start_along(self, runtime: Runtime) -> None:
        made: list[str] = []
        found: list[object] = []

        async def call() -> None:
            found.append(await runtime.registry.get_or_start(KEY, counter(made, 1.0)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await trio.sleep(0.5)
            assert made == ["made"]
            for node in runtime.tree().walk():
                if node.label.startswith("partition"):
                    node.ref.kill()
        assert found == [Unavailable("recovering")]
        await trio.sleep(5)
        assert runtime.registry.lookup_nowait(KEY) == NotRunning()
        assert (await get(runtime, counter(made))).alive
        assert made == ["made", "made"]

    async def test_a_dead_supervisor_to_start_under_counts_as_one_that_is_being_restarted(
        self, runtime: Runtime
    ) -> None:
        dead = await runtime.spawn(DynamicSupervisor)
        dead.kill()
        await dead.wait_stopped()
        made: list[str] = []
        assert await runtime.registry.get_or_start(KEY, counter(made), under=dead) == Unavailable("recovering")
        assert made == []

    async def test_what_the_start_itself_could_not_look_up_is_passed_on(self, runtime: Runtime) -> None:
        error = RegistryUnavailable("look up a helper", "unreachable", 7.0)
        assert await runtime.registry.get_or_start(KEY, counter([], error=error)) == Unavailable("unreachable", 7.0)
        error = RegistryUnavailable("look up a helper", "of a kind that nobody knows", 7.0)
        assert await runtime.registry.get_or_start(KEY, counter([], error=error)) == Unavailable("unreachable", 7.0)

    @pytest.mark.row("S4-056", "BR-07")
    async def test_a_runtime_that_stops_starts_nothing_and_says_so(self, runtime: Runtime) -> None:
        made: list[str] = []
        ref = await get(runtime, counter(made))
        runtime.begin_stop()
        for key in (KEY, ("counter", 2)):
            assert await runtime.registry.get_or_start(key, counter(made)) == Unavailable("draining")
        assert ref.alive
        assert made == ["made"]

    async def test_callers_who_wait_when_the_runtime_is_cancelled_are_told_that_it_stops(
        self, runtime: Runtime
    ) -> None:
        found: list[object] = []

        async def call() -> None:
            found.append(await runtime.registry.get_or_start(KEY, counter([], 100.0)))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call)
            await trio.sleep(1)
            runtime.begin_stop()
            runtime.system.nursery.cancel_scope.cancel()
        assert found == [Unavailable("draining")] * 3
