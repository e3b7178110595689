"""What a lookup answers, and the forms that raise where there is no room for the third answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

import pytest
import trio

from sapwood import Runtime
from sapwood.actors import (
    Actor,
    CrashReport,
    DeadLetter,
    LookupUnavailable,
    Ref,
    Request,
    TelemetryEvent,
    handle,
    message,
)
from sapwood.errors import ActorDown, AskTimeout, InvalidKey, InvalidMessage, RegistryUnavailable
from sapwood.registry import Key, Lookup, NotRunning, Running, Unavailable, check_key
from sapwood.supervision import child, start_child


@message("lookups.add")
class Add:
    number: int


@message("lookups.total")
class Total(Request[int]):
    pass


@message("lookups.leave")
class Leave:
    pass


@message("lookups.crash")
class Crash:
    pass


class Counter(Actor):
    def __init__(self) -> None:
        self.sum = 0

    @handle
    def add(self, message: Add) -> None:
        self.sum += message.number

    @handle
    def total(self, message: Total) -> int:
        return self.sum

    @handle
    def leave(self, message: Leave) -> None:
        self.stop()

    @handle
    def crash(self, message: Crash) -> None:
        raise ValueError("crashes")


class Slow(Actor):
    async def on_start(self) -> None:
        await trio.sleep(1)

    @handle
    async def total(self, message: Total) -> int:
        await trio.sleep(100)
        return 0


KEY: Key = ("counter", 1)

pytestmark = pytest.mark.sapwood(seeds=3)


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until something holds."""
    for _ in range(10_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    pytest.fail("what was waited for did not come")


def kill_partitions(runtime: Runtime) -> None:
    for node in runtime.tree().walk():
        if node.label.startswith("partition"):
            node.ref.kill()


async def lose(runtime: Runtime) -> None:
    """Leave the registry without its tables, while an actor has a key."""
    await spawn(runtime)
    kill_partitions(runtime)
    await until(lambda: "up" not in runtime.registry.statistics().partitions)


async def spawn(runtime: Runtime, key: Key = KEY) -> Ref:
    return await runtime.spawn(Counter, key=key)


@pytest.mark.row("S4-044")
async def test_a_lookup_has_exactly_three_answers(runtime: Runtime) -> None:
    def name(found: Lookup[Ref]) -> str:
        match found:
            case Running(ref):
                return f"running {ref.label}"
            case NotRunning():
                return "not running"
            case Unavailable(reason, retry_after):
                return f"{reason}, again in {retry_after:g} s"
            case _:
                assert_never(found)

    registry = runtime.registry
    assert name(registry.lookup_nowait(KEY)) == "not running"
    await spawn(runtime)
    assert name(registry.lookup_nowait(KEY)) == "running Counter(('counter', 1))"
    assert registry.lookup_nowait(KEY) == await registry.lookup(KEY)
    kill_partitions(runtime)
    await until(lambda: not isinstance(registry.lookup_nowait(KEY), Running))
    assert name(registry.lookup_nowait(KEY)) in {"registry_down, again in 1 s", "recovering, again in 1 s"}
    assert isinstance(await registry.lookup(KEY), Unavailable)


@pytest.mark.row("S4-045", "S4-046", "AR-24.40", "UP-50")
class TestWhileTheRegistryCannotTell:
    async def test_functions_without_room_for_that_raise(self, runtime: Runtime) -> None:
        await lose(runtime)
        registry = runtime.registry
        with pytest.raises(RegistryUnavailable) as refused:
            registry.whereis(KEY)
        assert refused.value.reason in {"registry_down", "recovering"}
        assert refused.value.retry_after == 1.0
        with pytest.raises(RegistryUnavailable):
            registry.running()
        with pytest.raises(RegistryUnavailable):
            registry.running("counter")
        with pytest.raises(RegistryUnavailable):
            registry.tell(KEY, Add(1))
        with pytest.raises(RegistryUnavailable):
            await registry.ask(KEY, Total())
        assert runtime.telemetry.dead_letter_count == 0

    async def test_the_error_is_no_lookup_error_that_code_for_absence_would_catch(self, runtime: Runtime) -> None:
        await lose(runtime)
        with pytest.raises(RegistryUnavailable) as refused:
            runtime.registry.whereis(KEY)
        assert not isinstance(refused.value, LookupError | ValueError | TypeError | OSError)
        assert "start nothing" in str(refused.value)

    async def test_statistics_are_still_given_and_say_so(self, runtime: Runtime) -> None:
        await lose(runtime)
        statistics = runtime.registry.statistics()
        assert set(statistics.partitions) <= {"down", "recovering"}
        assert statistics.keys == 0
        assert not runtime.registry.available

    async def test_every_such_answer_is_told_to_telemetry(self, runtime: Runtime) -> None:
        await lose(runtime)
        events: list[TelemetryEvent] = []
        runtime.telemetry.subscribe(events.append)
        found = runtime.registry.lookup_nowait(KEY)
        assert isinstance(found, Unavailable)
        assert LookupUnavailable(KEY, found.reason) in events

    async def test_what_is_no_key_is_still_refused_as_such(self, runtime: Runtime) -> None:
        await lose(runtime)
        for drained in (False, True):
            if drained:
                runtime.registry.drain()
            with pytest.raises(InvalidKey):
                runtime.registry.lookup_nowait(("counter", True))
            with pytest.raises(InvalidKey):
                await runtime.registry.lookup(("counter", 1.0))


class TestKeys:
    @pytest.mark.row("S4-042", "K06")
    @pytest.mark.parametrize(
        ("key", "problem"),
        [
            ("counter", "a tuple that begins with its kind"),
            ((), "a tuple that begins with its kind"),
            ((1, 2), "a tuple that begins with its kind"),
            (["counter", 1], "a tuple that begins with its kind"),
            (("counter", 1.0), "1.0 is of type float"),
            (("counter", True), "True is of type bool"),
            (("counter", ("a", (None,))), "None is of type NoneType"),
            (("counter", [1]), r"\[1\] is of type list"),
        ],
    )
    def test_what_is_none_is_refused_with_what_to_write(self, key: Any, problem: str) -> None:
        with pytest.raises(InvalidKey, match=problem):
            check_key(key)

    def test_one_is_returned_as_it_is(self) -> None:
        for key in [("a",), ("a", 1, b"x", "y"), ("a", ("b", (1, ())), "")]:
            assert check_key(key) is key

    @pytest.mark.row("K06")
    async def test_a_lookup_never_takes_true_or_a_float_for_one(self, runtime: Runtime) -> None:
        await spawn(runtime)
        assert isinstance(runtime.registry.lookup_nowait(("counter", 1)), Running)
        for key in (("counter", True), ("counter", 1.0)):
            with pytest.raises(InvalidKey):
                runtime.registry.lookup_nowait(key)

    @pytest.mark.row("S4-043", "AR-22.22")
    async def test_what_runs_is_listed_by_kind(self, runtime: Runtime) -> None:
        counters = {("counter", number): await spawn(runtime, ("counter", number)) for number in range(5)}
        other = await spawn(runtime, ("other", 1))
        await runtime.spawn(Counter)

        assert runtime.registry.running("counter") == counters
        assert runtime.registry.running() == {**counters, ("other", 1): other}
        assert runtime.registry.running("none") == {}
        assert runtime.registry.statistics().keys == 6


class TestUseByKey:
    @pytest.mark.row("K10")
    async def test_a_message_and_a_question_reach_the_holder(self, runtime: Runtime) -> None:
        ref = await spawn(runtime)
        runtime.registry.tell(KEY, Add(2))
        runtime.registry.tell(KEY, Add(3))

        assert await runtime.registry.ask(KEY, Total()) == 5
        assert runtime.registry.whereis(KEY) is ref

    @pytest.mark.row("K19")
    async def test_a_key_that_nobody_holds_is_no_actor_for_a_question_and_a_dead_letter_for_a_message(
        self, runtime: Runtime
    ) -> None:
        assert runtime.registry.whereis(KEY) is None
        with pytest.raises(ActorDown, match=r"\('counter', 1\) is down: no such actor"):
            await runtime.registry.ask(KEY, Total())
        runtime.registry.tell(KEY, Add(1))

        (letter,) = runtime.telemetry.dead_letters
        assert isinstance(letter, DeadLetter)
        assert (letter.key, letter.message, letter.reason) == (KEY, Add(1), "dead")

    async def test_what_is_no_message_is_refused_whether_or_not_the_key_is_held(self, runtime: Runtime) -> None:
        for _ in range(2):
            with pytest.raises(InvalidMessage):
                runtime.registry.tell(KEY, {"add": 1})
            await runtime.get_or_start(KEY, child(Counter))
        assert runtime.telemetry.dead_letter_count == 0

    @pytest.mark.row("AR-22.23")
    async def test_an_answer_that_is_late_is_not_taken_for_an_actor_that_does_not_run(self, runtime: Runtime) -> None:
        await runtime.spawn(Slow, key=("slow", 1))
        with pytest.raises(AskTimeout):
            await runtime.registry.ask(("slow", 1), Total(), timeout=0.1)


class TestTheMomentsAroundALife:
    @pytest.mark.row("K02")
    async def test_an_actor_is_found_while_it_starts_and_takes_its_messages_afterwards(self, runtime: Runtime) -> None:
        class Late(Counter):
            async def on_start(self) -> None:
                await trio.sleep(1)
                self.sum = 10

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: runtime.spawn(Late, key=KEY))
            await trio.sleep(0.5)
            ref = runtime.registry.whereis(KEY)
            assert ref is not None
            ref.tell(Add(1))
            assert await ref.ask(Total()) == 11
        assert runtime.registry.whereis(KEY) is ref

    @pytest.mark.row("K01")
    async def test_a_start_that_fails_frees_the_key_and_its_early_messages_are_dead_letters(
        self, runtime: Runtime
    ) -> None:
        class Failing(Counter):
            async def on_start(self) -> None:
                await trio.sleep(1)
                raise ValueError("fails")

        async def start() -> None:
            with pytest.raises(Exception, match="fails"):
                await runtime.spawn(Failing, key=KEY)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            await trio.sleep(0.5)
            runtime.registry.tell(KEY, Add(1))
        assert runtime.registry.lookup_nowait(KEY) == NotRunning()
        assert [letter.message for letter in runtime.telemetry.dead_letters] == [Add(1)]

    @pytest.mark.row("BR-05", "K07", "K08")
    async def test_the_dead_are_never_found_and_never_in_the_way(self, runtime: Runtime) -> None:
        for farewell in (Leave(), Crash()):
            for _ in range(20):
                ref = await spawn(runtime)
                ref.tell(farewell)
                while isinstance(found := runtime.registry.lookup_nowait(KEY), Running):
                    assert found.ref.alive
                    await trio.lowlevel.checkpoint()
                assert found == NotRunning()
                found = await runtime.get_or_start(KEY, child(Counter, restart="temporary"))
                assert isinstance(found, Running)
                assert found.ref is not ref
                assert await found.ref.ask(Total()) == 0
                found.ref.kill()
                await found.ref.wait_stopped()

    async def test_not_even_a_crash_report_comes_while_the_dead_can_be_found(self, runtime: Runtime) -> None:
        seen: list[Lookup[Ref]] = []

        def hear(event: TelemetryEvent) -> None:
            if isinstance(event, CrashReport):
                seen.append(runtime.registry.lookup_nowait(KEY))

        runtime.telemetry.subscribe(hear)
        ref = await spawn(runtime)
        ref.tell(Crash())
        await ref.wait_stopped()

        assert seen == [NotRunning()]

    async def test_a_restarted_actor_has_a_new_ref_under_its_old_key(self, runtime: Runtime) -> None:
        home = next(node.ref for node in runtime.tree().walk() if node.label == "agents")
        old = await start_child(home, child(Counter, key=KEY, restart="permanent"))
        assert old is not None
        old.tell(Crash())
        await old.wait_stopped()
        await until(lambda: runtime.registry.whereis(KEY) is not None)

        new = runtime.registry.whereis(KEY)
        assert new is not None
        assert new is not old
        with pytest.raises(ActorDown):
            await old.ask(Total())
        assert await new.ask(Total()) == 0
