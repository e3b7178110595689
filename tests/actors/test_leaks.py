"""What must be gone when actors and asks have ended: table entries, deadlines, buffers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Actor, ActorSystem, Failure, Ref, Reply, Request, handle, message
from sapwood.errors import ActorDown, AskTimeout
from tests.actors.kit import (
    Call,
    Do,
    Note,
    Probe,
    SlowCall,
    SlowDo,
    Way,
    ask_by,
    cell_of,
    end_of,
    settle,
    sleeping,
    ways,
)


@message("tests.actors.leaks.take")
class Take(Request[int]):
    """Taken over, and answered never or late."""


class Taker(Actor):
    """Takes over replies and gives none."""

    def __init__(self) -> None:
        self.last: Reply[int] | None = None

    @handle
    def take(self, message: Take) -> None:
        self.last = self.reply_later()


def sizes(system: ActorSystem, *refs: Ref) -> list[Any]:
    """Return the sizes of every table that could grow."""
    tables = [(ref.statistics(), len(cell_of(ref).asking or ())) for ref in refs]
    counted = [
        (s.waiting, s.tasks, s.timers, s.monitors, s.monitoring, s.links, s.pending_replies, asking)
        for s, asking in tables
    ]
    return [system.statistics().actors, system.statistics().deadlines, system.busy, counted]


class TestAsks:
    @pytest.mark.row("BR-16")
    async def test_a_hundred_thousand_asks_that_are_never_answered_leave_nothing(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        refs = [await system.spawn(Taker)]
        await settle()
        before = sizes(system, *refs)
        ended = dict.fromkeys(("timeout", "cancellation", "death"), 0)

        async def time_out() -> None:
            for _ in range(350):
                with pytest.raises(AskTimeout):
                    await refs[0].ask(Take(), timeout=0.001)
                ended["timeout"] += 1

        async def cancel() -> None:
            for _ in range(350):
                with trio.move_on_after(0.001):
                    await refs[0].ask(Take(), timeout=None)
                ended["cancellation"] += 1

        async def see_it_die() -> None:
            with pytest.raises(ActorDown):
                await refs[0].ask(Take(), timeout=1_000)
            ended["death"] += 1

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(time_out)
                nursery.start_soon(cancel)
        for _ in range(30):
            async with trio.open_nursery() as nursery:
                for _ in range(1_000):
                    nursery.start_soon(see_it_die)
                await settle()
                assert refs[0].statistics().pending_replies == 1_000
                refs[0].kill()
            refs[0] = await system.spawn(Taker)
            await settle()
        assert sum(ended.values()) == 100_000
        assert sizes(system, *refs) == before
        assert len(system.deadlines._heap) <= 128

    @pytest.mark.row("BR-16")
    async def test_asks_from_handlers_leave_nothing_in_their_callers_either(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        taker, caller = await system.spawn(Taker), await system.spawn(Probe)

        async def handler(actor: Any) -> None:
            for _ in range(500):
                with pytest.raises(AskTimeout):
                    await taker.ask(Take(), timeout=0.001)
                with trio.move_on_after(0.001):
                    await taker.ask(Take(), timeout=None)

        await settle()
        before = sizes(system, taker, caller)
        await caller.ask(SlowCall(handler))
        await settle()
        assert sizes(system, taker, caller) == before


class TestActors:
    @pytest.mark.row("BR-80")
    async def test_short_lived_actors_with_ties_of_every_kind_leave_nothing(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        peer = await system.spawn(Probe)
        await peer.ask(Call(lambda actor: setattr(actor, "trap_exits", True)))
        before = sizes(system, peer)

        def tie(actor: Any) -> None:
            actor.monitor(peer)
            actor.link(peer)
            actor.send_after(1_000, Note(1))
            actor.send_after(1_000, Note(1), peer)
            actor.send_every(1_000, Note(1), peer)
            actor.start_task(trio.sleep_forever)
            actor.set_idle_timeout(1_000)

        for number in range(300):
            ref = await system.spawn(Probe, key=("short", number % 7))
            await ref.ask(Call(tie))
            await peer.ask(Call(lambda actor: actor.monitor(ref)))  # noqa: B023  # called at once
            await peer.ask(Call(lambda actor: actor.send_every(1_000, Note(1), ref)))  # noqa: B023  # called at once
            match number % 4:
                case 0:
                    ref.kill()
                case 1:
                    ref.tell(Do(lambda actor: 1 / 0))
                case 2:
                    ref.tell(Do(lambda actor: actor.stop()))
                case _:
                    ref.tell(SlowDo(sleeping(1_000)))
                    await settle()
                    ref.kill()
            await end_of(ref)
        await peer.ask(Call(lambda actor: actor.log.clear()))
        await settle()
        assert sizes(system, peer) == before
        assert len(system.nursery.child_tasks) == 2
        assert cell_of(peer).aimed in (None, {})
        assert not cell_of(peer).watching
        assert len(system.deadlines._heap) <= 128

    @pytest.mark.row("BR-80")
    async def test_starts_that_fail_leave_nothing(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        class Failing(Probe):
            def __init__(self, *, slow: bool) -> None:
                super().__init__()
                self.send_every(1_000, Note(1))
                self.slow = slow

            async def on_start(self) -> None:
                if self.slow:
                    await trio.sleep(1)
                raise ValueError("no")

        for slow in (False, True) * 50:
            with pytest.raises(ValueError, match="no"):
                await system.spawn(Failing, slow=slow, key="one")
        assert sizes(system)[:3] == [0, 0, 1]


class Buffer:
    """Something large that can be watched."""

    def __init__(self, size: int) -> None:
        self.content = bytearray(size)

    def __len__(self) -> int:
        return len(self.content)


def look_up(key: int) -> None:
    raise LookupError(key)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.row("BR-79")
@pytest.mark.usefixtures("no_collector")
class TestBuffers:
    """Without the cycle collector, what an actor held is gone when it has ended."""

    @pytest.mark.parametrize("end", ["crash", "kill", "stop", "killed in a handler"])
    async def test_what_a_dead_actor_held_is_gone_though_its_ref_and_reason_are_kept(
        self, autojump_clock: MockClock, system: ActorSystem, end: str
    ) -> None:
        alive: weakref.WeakSet[Buffer] = weakref.WeakSet()
        kept: list[Any] = []

        def hold(actor: Any) -> None:
            actor.buffer = Buffer(1_000)
            alive.add(actor.buffer)

        def crash(actor: Any) -> None:
            buffer = actor.buffer
            raise ValueError(f"holding {len(buffer)} bytes")

        async def hang(actor: Any) -> None:
            buffer = actor.buffer
            await trio.sleep_forever()
            buffer.content.clear()

        for _ in range(20):
            ref = await system.spawn(Probe)
            await ref.ask(Call(hold))
            match end:
                case "crash":
                    ref.tell(Do(crash))
                case "kill":
                    ref.kill()
                case "stop":
                    ref.tell(Do(lambda actor: actor.stop()))
                case _:
                    ref.tell(SlowDo(hang))
                    await settle()
                    ref.kill()
            kept.append((ref, await end_of(ref)))
        await settle()
        assert len(alive) <= 2

    @ways
    async def test_a_crash_in_a_request_keeps_no_buffer_in_caller_or_target(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        alive: weakref.WeakSet[Buffer] = weakref.WeakSet()
        kept: list[Any] = []

        def handler(actor: Any) -> None:
            buffer = Buffer(1_000)
            alive.add(buffer)
            raise ValueError(f"holding {len(buffer)} bytes")

        for _ in range(20):
            ref = await system.spawn(Probe)
            try:
                await ask_by(way, ref, handler)
            except ActorDown as error:
                kept.append((ref, error.reason))
        await settle()
        assert len(alive) <= 2

    @ways
    async def test_a_failure_keeps_no_buffer_of_the_actor_that_returned_it(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        alive: weakref.WeakSet[Buffer] = weakref.WeakSet()
        kept: list[Any] = []

        def handler(actor: Any) -> Any:
            buffer = Buffer(1_000)
            alive.add(buffer)
            try:
                look_up(len(buffer))
            except LookupError as error:
                return Failure(error)

        ref = await system.spawn(Probe)
        for _ in range(20):
            try:
                await ask_by(way, ref, handler)
            except LookupError as error:
                kept.append(error)
        await settle()
        assert len(alive) <= 2

    async def test_handlers_whose_callers_timed_out_keep_nothing(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        alive: weakref.WeakSet[Buffer] = weakref.WeakSet()

        async def handler(actor: Any) -> None:
            buffer = Buffer(1_000)
            alive.add(buffer)
            await trio.sleep(1)

        ref = await system.spawn(Probe)
        for _ in range(20):
            with pytest.raises(AskTimeout):
                await ref.ask(SlowCall(handler), timeout=0.5)
            await trio.sleep(1)
        assert len(alive) <= 2

    async def test_a_start_that_fails_keeps_nothing(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        alive: weakref.WeakSet[Buffer] = weakref.WeakSet()
        kept: list[Exception] = []

        class Failing(Probe):
            def __init__(self, *, slow: bool) -> None:
                super().__init__()
                self.buffer = Buffer(1_000)
                alive.add(self.buffer)
                if not slow:
                    raise ValueError(len(self.buffer))

            async def on_start(self) -> None:
                await trio.sleep(1)
                raise ValueError(len(self.buffer))

        for slow in (False, True) * 10:
            try:
                await system.spawn(Failing, slow=slow)
            except ValueError as error:
                kept.append(error)
        await settle()
        assert len(alive) <= 2

    async def test_a_task_that_failed_keeps_nothing(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        alive: weakref.WeakSet[Buffer] = weakref.WeakSet()

        async def task() -> None:
            buffer = Buffer(1_000)
            alive.add(buffer)
            await trio.sleep(1)
            raise ValueError(len(buffer))

        ref = await system.spawn(Probe)
        for _ in range(20):
            await ref.ask(Call(lambda actor: actor.start_task(task)))
            await trio.sleep(2)
        assert len(alive) <= 2
