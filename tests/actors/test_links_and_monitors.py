"""Links, monitors and exit signals."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import (
    ActorSystem,
    Birth,
    Cell,
    ChildExit,
    Continue,
    Crashed,
    Down,
    Exit,
    ExitReason,
    Killed,
    Monitor,
    Normal,
    Ref,
    Shutdown,
    SimulatedEnvironment,
    handle,
    open_system,
    start,
)
from sapwood.errors import ActorDown, InvalidOption
from sapwood.testing import simulate
from tests.actors.kit import (
    Call,
    Do,
    Note,
    Probe,
    SlowDo,
    StopNotes,
    TrappingProbe,
    Way,
    ask_by,
    cell_of,
    end_of,
    later,
    log_of,
    raising,
    settle,
    sleeping,
    ways,
)

CRASH = ValueError("crash")


async def link(one: Ref, other: Ref) -> None:
    await one.ask(Call(lambda actor: actor.link(other)))


async def monitor(one: Ref, other: Ref) -> Monitor:
    made = await one.ask(Call(lambda actor: actor.monitor(other)))
    assert isinstance(made, Monitor)
    return made


async def end(ref: Ref, reason: ExitReason) -> None:
    """End an actor for a reason."""
    match reason:
        case Killed():
            ref.kill()
        case Crashed(exception):
            ref.tell(Do(raising(exception)))
        case _:
            ref.tell(Do(lambda actor: actor.stop(reason)))
    assert await end_of(ref) == reason
    await settle()


abnormal = pytest.mark.parametrize("reason", [Shutdown("x"), Killed(), Crashed(CRASH)], ids=str)
any_reason = pytest.mark.parametrize("reason", [Normal(), Shutdown("x"), Killed(), Crashed(CRASH)], ids=str)


class TestLinks:
    @pytest.mark.row("J02", "J05")
    @abnormal
    async def test_an_abnormal_end_cascades_along_links_with_the_same_reason(
        self, autojump_clock: MockClock, system: ActorSystem, reason: ExitReason
    ) -> None:
        ends: list[ExitReason] = []
        chain = [await system.spawn(StopNotes, ends) for _ in range(4)]
        for one, other in pairwise(chain):
            await link(other, one)
        await end(chain[0], reason)
        assert [ref.exit_reason for ref in chain] == [reason] * 4
        # Only the first one was stopped in turn, if that was how it ended.
        assert ends == ([] if reason == Killed() else [reason])

    @pytest.mark.row("J03")
    async def test_a_normal_end_does_not_affect_an_actor_that_does_not_trap_exits(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        one, other = await system.spawn(Probe), await system.spawn(Probe)
        await link(one, other)
        await end(one, Normal())
        assert other.alive
        assert await log_of(other) == []
        assert other.statistics().links == 0

    @pytest.mark.row("J04", "J05")
    @any_reason
    async def test_an_actor_that_traps_exits_gets_every_end_as_a_message(
        self, autojump_clock: MockClock, system: ActorSystem, reason: ExitReason
    ) -> None:
        one, trapping = await system.spawn(Probe), await system.spawn(TrappingProbe)
        await link(trapping, one)
        await end(one, reason)
        [exit_message] = await log_of(trapping)
        assert isinstance(exit_message, Exit)
        assert (exit_message.ref, exit_message.reason) == (one, reason)

    @pytest.mark.row("J01")
    async def test_a_link_is_mutual_and_there_is_one_however_often_it_is_made(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        one, trapping = await system.spawn(Probe), await system.spawn(TrappingProbe)
        for _ in range(3):
            await link(one, trapping)
            await link(trapping, one)
        assert one.statistics().links == trapping.statistics().links == 1
        await end(one, Killed())
        assert len(await log_of(trapping)) == 1

    @pytest.mark.row("J01", "J08")
    @pytest.mark.parametrize("remover", [0, 1])
    async def test_either_side_may_remove_a_link(
        self, autojump_clock: MockClock, system: ActorSystem, remover: int
    ) -> None:
        pair = [await system.spawn(Probe), await system.spawn(Probe)]
        await link(*pair)
        await pair[remover].ask(Call(lambda actor: actor.unlink(pair[1 - remover])))
        await end(pair[0], Killed())
        assert pair[1].alive
        assert pair[1].statistics().links == 0

    @pytest.mark.row("J08")
    @pytest.mark.parametrize("flush", [False, True])
    async def test_unlink_leaves_a_queued_exit_unless_it_is_flushed(
        self, autojump_clock: MockClock, system: ActorSystem, flush: Any
    ) -> None:
        one, trapping = await system.spawn(Probe), await system.spawn(TrappingProbe)
        await link(trapping, one)

        async def handler(actor: Any) -> None:
            one.kill()
            await end_of(one)
            actor.unlink(one, flush=flush)
            actor.unlink(one, flush=flush)  # harmless when there is nothing to remove

        trapping.tell(SlowDo(handler))
        trapping.tell(Note("after"))
        log = await log_of(trapping)
        assert [entry for entry in log if entry == "after"] == ["after"]
        assert len(log) == (1 if flush else 2)

    @pytest.mark.row("J07")
    async def test_linking_to_a_dead_actor_gives_one_that_traps_exits_an_exit_without_a_reason(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        dead, trapping = await system.spawn(Probe), await system.spawn(TrappingProbe)
        await end(dead, Normal())
        await link(trapping, dead)
        [exit_message] = await log_of(trapping)
        assert (exit_message.ref, exit_message.reason) == (dead, None)

    @pytest.mark.row("J07")
    async def test_linking_to_a_dead_actor_fails_at_once_in_one_that_does_not_trap_exits(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        dead, one = await system.spawn(Probe), await system.spawn(Probe)
        await end(dead, Normal())

        def handler(actor: Any) -> str:
            with pytest.raises(ActorDown) as caught:
                actor.link(dead)
            return str(caught.value.reason)

        assert await one.ask(Call(handler)) == "normal"
        assert one.alive
        assert one.statistics().links == 0

    async def test_a_link_to_oneself_does_nothing(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref = await system.spawn(Probe)
        await link(ref, ref)
        assert ref.statistics().links == 0
        await ref.stop()

    @pytest.mark.row("J15")
    async def test_trapping_counts_when_the_signal_arrives(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        one, other = await system.spawn(Probe), await system.spawn(Probe)
        await link(one, other)
        await other.ask(Call(lambda actor: setattr(actor, "trap_exits", True)))
        await end(one, Killed())
        assert isinstance((await log_of(other))[0], Exit)

    @ways
    async def test_a_handler_that_links_and_monitors_does_so_as_its_actor_wherever_it_runs(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        one, other = await system.spawn(Probe), await system.spawn(Probe)
        await ask_by(way, one, lambda actor: (actor.link(other), actor.monitor(other)))
        info = one.info()
        assert info is not None
        assert (info.links, info.monitoring) == ((other,), (other,))


class TestExitSignals:
    @pytest.mark.row("J06")
    @pytest.mark.parametrize("from_actor", [False, True])
    async def test_a_signal_ends_an_actor_with_its_reason_unless_that_is_normal(
        self, autojump_clock: MockClock, system: ActorSystem, from_actor: Any
    ) -> None:
        ends: list[ExitReason] = []
        target, other = await system.spawn(StopNotes, ends), await system.spawn(Probe)

        async def signal(reason: ExitReason) -> None:
            if from_actor:
                await other.ask(Call(lambda actor: target.exit(reason)))
            else:
                target.exit(reason)
            await settle()

        await signal(Normal())
        assert target.alive
        await signal(Shutdown("enough"))
        assert target.exit_reason == Shutdown("enough")
        assert ends == []

    @pytest.mark.row("J06")
    @any_reason
    async def test_a_trapped_signal_is_a_message_and_removes_no_link(
        self, autojump_clock: MockClock, system: ActorSystem, reason: ExitReason
    ) -> None:
        target, other = await system.spawn(TrappingProbe), await system.spawn(Probe)
        await link(target, other)
        await other.ask(Call(lambda actor: target.exit(reason)))
        target.exit(reason)
        log = await log_of(target)
        assert [(message.ref, message.reason) for message in log] == [(other, reason), (target, reason)]
        assert target.statistics().links == 1

    @pytest.mark.row("J06")
    async def test_a_normal_signal_to_oneself_ends_the_actor(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(Do(lambda actor: actor.ref.exit(Normal())))
        assert await end_of(ref) == Normal()

    @pytest.mark.row("J05")
    async def test_a_kill_cannot_be_trapped_and_what_it_causes_can(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        killed, trapping = await system.spawn(TrappingProbe), await system.spawn(TrappingProbe)
        await link(killed, trapping)
        killed.kill()
        assert await end_of(killed) == Killed()
        assert [message.reason for message in await log_of(trapping)] == [Killed()]

    @pytest.mark.row("J14")
    @any_reason
    async def test_a_signal_of_the_parent_stops_a_trapping_child_and_reaches_no_handler(
        self, autojump_clock: MockClock, system: ActorSystem, reason: ExitReason
    ) -> None:
        class Trapping(StopNotes):
            trap_exits = True

        ends: list[ExitReason] = []
        parent = await system.spawn(Probe)
        cell = Cell(system, Birth(Trapping, (ends,)), cell_of(parent))
        await start(cell, system.nursery)
        await parent.ask(Call(lambda actor: cell.ref.exit(reason)))
        assert await end_of(cell.ref) == reason
        assert ends == [reason]


class TestMonitors:
    @pytest.mark.row("J10")
    @any_reason
    async def test_each_monitor_gets_exactly_one_down_with_the_reason(
        self, autojump_clock: MockClock, system: ActorSystem, reason: ExitReason
    ) -> None:
        watcher, target = await system.spawn(Probe), await system.spawn(Probe)
        monitors = [await monitor(watcher, target) for _ in range(3)]
        await end(target, reason)
        log = await log_of(watcher)
        assert [down.monitor for down in log] == monitors
        assert {(down.ref, down.reason) for down in log} == {(target, reason)}
        assert watcher.statistics().monitoring == 0
        assert watcher.alive

    @pytest.mark.row("J11")
    async def test_monitoring_a_dead_actor_gives_a_down_at_once_without_a_reason(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        watcher, target = await system.spawn(Probe), await system.spawn(Probe)
        await end(target, Killed())
        made = await monitor(watcher, target)
        [down] = await log_of(watcher)
        assert (down.monitor, down.ref, down.reason) == (made, target, None)

    @pytest.mark.row("J12")
    async def test_after_demonitor_no_down_comes(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        watcher, target = await system.spawn(Probe), await system.spawn(Probe)
        made = await monitor(watcher, target)
        kept = await monitor(watcher, target)
        await watcher.ask(Call(lambda actor: actor.demonitor(made)))
        assert target.statistics().monitors == 1
        await end(target, Killed())
        assert [down.monitor for down in await log_of(watcher)] == [kept]

    @pytest.mark.row("J12")
    @pytest.mark.parametrize("flush", [False, True])
    async def test_a_down_that_waits_is_taken_out_only_if_it_is_flushed(
        self, autojump_clock: MockClock, system: ActorSystem, flush: Any
    ) -> None:
        watcher, target = await system.spawn(Probe), await system.spawn(Probe)
        made = await monitor(watcher, target)
        kept = await monitor(watcher, target)

        async def handler(actor: Any) -> None:
            target.kill()
            await end_of(target)
            actor.demonitor(made, flush=flush)
            actor.demonitor(made, flush=flush)  # harmless when there is nothing to remove

        watcher.tell(SlowDo(handler))
        assert [down.monitor for down in await log_of(watcher)] == ([kept] if flush else [made, kept])

    async def test_only_the_actor_that_made_a_monitor_can_end_it(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        watcher, target = await system.spawn(Probe), await system.spawn(Probe)
        made = await monitor(watcher, target)

        def handler(actor: Any) -> None:
            with pytest.raises(InvalidOption, match="expected a monitor that Probe#2 made"):
                actor.demonitor(made)

        await target.ask(Call(handler))
        assert target.statistics().monitors == 1

    @pytest.mark.row("J13")
    async def test_when_a_down_or_an_exit_comes_the_key_is_free(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Heir(TrappingProbe):
            pass

        target, heir = await system.spawn(Probe, key="throne"), await system.spawn(Heir)

        async def succeed(actor: Any) -> None:
            actor.monitor(target)
            actor.link(target)
            target.kill()
            await end_of(target)
            await system.spawn(Probe, key="throne")

        heir.tell(SlowDo(succeed))
        assert {type(message) for message in await log_of(heir)} == {Down, Exit}

    @pytest.mark.row("J13")
    async def test_whoever_waits_for_the_end_finds_the_key_free(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        for _ in range(10):
            ref = await system.spawn(Probe, key="name")
            ref.kill()
            await ref.wait_stopped()

    async def test_a_monitor_of_a_watcher_that_ends_is_forgotten(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        watcher, target = await system.spawn(Probe), await system.spawn(Probe)
        await monitor(watcher, target)
        await end(watcher, Killed())
        assert target.statistics().monitors == 0
        await end(target, Killed())

    async def test_an_actor_may_monitor_itself_to_no_effect(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await monitor(ref, ref)
        await end(ref, Normal())

    @pytest.mark.row("J10", "J11", "J12", "J13")
    @pytest.mark.parametrize("seed", range(60))
    def test_every_monitor_gives_one_down_or_none_in_every_interleaving(self, seed: int) -> None:
        async def main() -> None:
            async with open_system(SimulatedEnvironment(seed)) as system:
                random = system.environment.random
                watcher = await system.spawn(Probe)
                live: list[Monitor] = []
                removed: set[Monitor] = set()

                def watch(actor: Any, target: Ref) -> None:
                    live.append(actor.monitor(target))

                def unwatch(actor: Any) -> None:
                    if live:
                        made = random.choice(live)
                        removed.add(made)
                        actor.demonitor(made, flush=True)
                        actor.log = [down for down in actor.log if down.monitor is not made]

                async def live_and_die() -> None:
                    target = await system.spawn(Probe, key=f"k{random.randrange(10**9)}")
                    for _ in range(3):
                        watcher.tell(Do(lambda actor: watch(actor, target)))
                        watcher.tell(Do(unwatch))
                        if random.random() < 0.5:
                            await trio.lowlevel.checkpoint()
                    target.kill()

                async with trio.open_nursery() as nursery:
                    for _ in range(5):
                        nursery.start_soon(live_and_die)
                await settle()
                downs = [down.monitor for down in await log_of(watcher)]
                assert len(downs) == len(set(downs))
                assert set(downs) == set(live) - removed
                assert watcher.statistics().monitoring == 0

        simulate(seed, main)


class Parent(Probe):
    """Notes the ends of its children."""

    @handle
    def child_ended(self, message: ChildExit) -> None:
        self.log.append(message)


class Brief(Probe):
    """Ends at a moment that it is told."""

    def __init__(self, moment: str) -> None:
        super().__init__()
        self.moment = moment
        self.end_at("init")

    def end_at(self, moment: str) -> None:
        if self.moment == moment:
            raise CRASH

    async def on_start(self) -> Continue:
        self.end_at("start")
        await trio.lowlevel.checkpoint()
        self.end_at("end of the start")
        return Continue()

    def on_continue(self, token: Any) -> None:
        self.end_at("continue")


class TestStartingTogether:
    @pytest.mark.row("J09")
    @pytest.mark.parametrize("moment", ["init", "start", "end of the start", "continue", "killed"])
    @pytest.mark.parametrize("seed", range(10))
    def test_whoever_starts_an_actor_is_told_of_its_end_whenever_that_is(self, seed: int, moment: str) -> None:
        async def main() -> None:
            async with open_system(SimulatedEnvironment(seed)) as system:
                parent = await system.spawn(Parent)
                cell = Cell(system, Birth(Brief, (moment,)), cell_of(parent))
                failed = 0
                async with trio.open_nursery() as nursery:
                    if moment == "killed":
                        for _ in range(system.environment.random.randrange(5)):
                            await trio.lowlevel.checkpoint()
                        nursery.start_soon(later, cell.ref.kill)
                    try:
                        await start(cell, system.nursery)
                    except (ValueError, ActorDown):
                        failed = 1
                await end_of(cell.ref)
                assert failed + len(await log_of(parent)) == 1

        simulate(seed, main)

    @pytest.mark.row("J09", "J07")
    @pytest.mark.parametrize("kind", [Probe, TrappingProbe])
    @pytest.mark.parametrize("seed", range(10))
    def test_an_actor_that_starts_another_and_links_to_it_is_told_of_its_end(
        self, seed: int, kind: type[Probe]
    ) -> None:
        async def main() -> None:
            async with open_system(SimulatedEnvironment(seed)) as system:
                told: list[str] = []

                async def start_link(actor: Any) -> None:
                    ref = await system.spawn(Brief, "continue")
                    for _ in range(system.environment.random.randrange(3)):
                        await trio.lowlevel.checkpoint()
                    try:
                        actor.link(ref)
                    except ActorDown:
                        told.append("at once")

                starter = await system.spawn(kind)
                starter.tell(SlowDo(start_link))
                await settle()
                if kind is TrappingProbe:
                    told.extend(type(message).__name__ for message in await log_of(starter))
                elif not starter.alive:
                    told.append("with it")
                assert len(told) == 1

        simulate(seed, main)


class TestSimultaneousEnds:
    @pytest.mark.row("J02", "J04")
    @pytest.mark.parametrize("seed", range(40))
    def test_a_web_of_links_ends_as_a_whole_and_each_trapping_actor_is_told_once_for_each_link(self, seed: int) -> None:
        async def main() -> None:
            async with open_system(SimulatedEnvironment(seed)) as system:
                random = system.environment.random
                web = [await system.spawn(Probe) for _ in range(8)]
                trapping = await system.spawn(TrappingProbe)
                for one, other in pairwise(web):
                    await link(one, other)
                tied = random.sample(web, 4)
                for ref in tied:
                    await link(trapping, ref)
                web[1].tell(SlowDo(sleeping(10)))
                for ref in random.sample(web, 2):
                    ref.kill()
                for ref in web:
                    assert await end_of(ref) == Killed()
                messages = await log_of(trapping)
                assert sorted(message.ref.label for message in messages) == sorted(ref.label for ref in tied)
                assert trapping.statistics().links == 0

        simulate(seed, main)
