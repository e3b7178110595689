"""Leases of shared resources."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from sapwood import Actor, handle
from sapwood.actors import ActorSystem, Killed, Normal, Ref, SimulatedEnvironment, message, open_system
from sapwood.errors import ActorDown, AskTimeout, InvalidOption, LeaseUnavailable
from sapwood.messaging.patterns import Acquire, Holders, Lease, LeaseKeeper, Release, held


@message("test.patterns.hold")
class Hold:
    resource: str
    seconds: float


class Holder(Actor):
    def __init__(self, keeper: Ref, log: list[str], name: str) -> None:
        self.keeper = keeper
        self.log = log
        self.name = name

    @handle
    def hold(self, command: Hold) -> None:
        self.start_task(self._hold, command)

    async def _hold(self, command: Hold) -> None:
        async with held(self.keeper, command.resource):
            self.log.append(f"{self.name} in")
            await trio.sleep(command.seconds)
            self.log.append(f"{self.name} out")


@pytest.fixture
async def system(autojump_clock: MockClock) -> AsyncIterator[ActorSystem]:
    async with open_system(SimulatedEnvironment()) as made:
        yield made


async def holders(keeper: Ref, resource: str = "printer") -> int:
    return len(await keeper.ask(Holders(resource)))


@pytest.mark.row("S2-058")
async def test_those_who_share_a_resource_have_it_in_turn_and_other_resources_do_not_wait(
    system: ActorSystem,
    autojump_clock: MockClock,
) -> None:
    keeper, log = await system.spawn(LeaseKeeper), list[str]()
    for name in ("a", "b", "c"):
        (await system.spawn(Holder, keeper, log, name)).tell(Hold("printer", 1.0))
        await trio.sleep(0.01)
    (await system.spawn(Holder, keeper, log, "other")).tell(Hold("scanner", 0.5))
    await trio.sleep(3.1)
    assert log == ["a in", "other in", "other out", "a out", "b in", "b out", "c in", "c out"]
    assert (await keeper.get_state())["_resources"] == {}
    assert (await keeper.get_state())["_monitors"] == {}


@pytest.mark.row("S2-058")
@pytest.mark.parametrize("end", ["kill", "stop", "crash"])
async def test_a_holder_that_ends_in_whatever_way_gives_back_what_it_holds_and_its_place_in_line(
    system: ActorSystem, autojump_clock: MockClock, end: str
) -> None:
    keeper, log = await system.spawn(LeaseKeeper), list[str]()
    refs = [await system.spawn(Holder, keeper, log, name) for name in ("a", "b", "c")]
    for ref in refs:
        ref.tell(Hold("printer", 60.0))
        await trio.sleep(0.1)
    for ref in refs[:2][::-1]:
        match end:
            case "kill":
                ref.kill()
            case "stop":
                await ref.stop()
            case _:
                ref.exit(Killed())
        await ref.wait_stopped()
    await trio.sleep(1)
    assert [entry for entry in log if entry.endswith("in")] == ["a in", "c in"]
    (lease,) = await keeper.ask(Holders("printer"))
    assert lease.owner is refs[2]


async def test_whoever_waits_no_longer_gets_no_lease_and_holds_nobody_up(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    keeper = await system.spawn(LeaseKeeper)
    async with held(keeper, "printer"):
        with pytest.raises(AskTimeout):
            async with held(keeper, "printer", timeout=1):
                pytest.fail("there was none")
        with trio.move_on_after(1):
            async with held(keeper, "printer"):
                pytest.fail("there was none")
        with pytest.raises(LeaseUnavailable, match="nobody in particular"):
            async with held(keeper, "printer", wait=False):
                pytest.fail("there was none")
        assert await holders(keeper) == 1
    async with held(keeper, "printer", wait=False) as lease:
        assert await holders(keeper) == 1
    keeper.tell(Release(lease))
    assert await holders(keeper) == 0


async def test_a_lease_ends_after_its_time_and_its_token_is_below_that_of_the_next(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    keeper = await system.spawn(LeaseKeeper, 1, 10.0)
    first = await keeper.ask(Acquire("printer"))
    async with held(keeper, "printer", timeout=20) as second:
        assert trio.current_time() == pytest.approx(10)
        assert second.token > first.token
        keeper.tell(Release(first))
        assert await keeper.ask(Holders("printer")) == (second,), "a late release harms nobody"
    await keeper.stop()
    assert keeper.exit_reason == Normal()
    await trio.sleep(0.001)
    again = await (await system.spawn(LeaseKeeper)).ask(Acquire("printer"))
    assert again.token > second.token


@pytest.mark.row("S2-058")
async def test_no_schedule_of_holders_that_come_leave_die_and_lose_patience_exceeds_the_capacity_or_leaks(
    system: ActorSystem,
    autojump_clock: MockClock,
) -> None:
    source = random.Random(58)
    keeper = await system.spawn(LeaseKeeper, 3)
    inside: Counter[str] = Counter()
    most = 0

    async def visit(owner: Ref, patience: float, stay: float) -> None:
        nonlocal most
        resource = source.choice(["x", "y"])
        try:
            with trio.move_on_after(patience):
                async with held(keeper, resource, owner=owner):
                    inside[resource] += 1
                    most = max(most, inside[resource])
                    try:
                        await trio.sleep(stay)
                    finally:
                        inside[resource] -= 1
        except ActorDown:
            pytest.fail("the keeper died")

    async with trio.open_nursery() as nursery:
        for _ in range(300):
            owner = await system.spawn(Actor)
            nursery.start_soon(visit, owner, source.uniform(0.1, 3), source.uniform(0.05, 1))
            await trio.sleep(source.uniform(0, 0.3))
    assert most == 3
    assert await holders(keeper, "x") == await holders(keeper, "y") == 0
    state = await keeper.get_state()
    assert (state["_resources"], state["_monitors"]) == ({}, {})


async def test_a_lease_of_an_owner_that_is_dead_already_ends_at_once(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    keeper = await system.spawn(LeaseKeeper)
    owner = await system.spawn(Actor)
    await owner.stop()
    lease = await keeper.ask(Acquire("printer", owner))
    assert isinstance(lease, Lease)
    assert await holders(keeper) == 0


@pytest.mark.parametrize(("capacity", "lease_for"), [(0, None), (True, None), (1, 0), (1, float("nan"))])
def test_a_keeper_with_options_out_of_their_range_is_refused(capacity: int, lease_for: float | None) -> None:
    with pytest.raises(InvalidOption, match="lease keeper"):
        LeaseKeeper(capacity, lease_for)


async def test_a_lease_that_was_given_back_leaves_no_timer_behind(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    keeper = await system.spawn(LeaseKeeper, 1, 3600.0)
    for _ in range(50):
        async with held(keeper, "printer"):
            await trio.lowlevel.checkpoint()
    assert await holders(keeper) == 0
    (cell,) = [cell for cell in system.actors if cell.ref is keeper]
    assert not cell.timers


async def test_those_who_lost_patience_do_not_stand_in_the_line_for_ever(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    keeper = await system.spawn(LeaseKeeper)
    async with held(keeper, "printer"):
        for _ in range(500):
            with pytest.raises(AskTimeout):
                await keeper.ask(Acquire("printer", None), timeout=0.1)
        state = await keeper.get_state()
        assert len(state["_resources"]["printer"].line) <= 32
