"""Children that do not die: reported, waited for, or detached and fenced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import ChildStuck, Killed, Shutdown
from sapwood.errors import ActorDown, NotRunningInside, StartTimeout
from sapwood.supervision import (
    ChildSpec,
    DynamicSupervisor,
    child,
    start_child,
    supervisor,
    terminate_child,
)
from tests.supervision.kit import Block, Call, Crash, Name, Stage, Stubborn, Worker, states


@pytest.fixture
async def gate() -> AsyncIterator[trio.Event]:
    """What the stubborn children wait for; opened in the end, for else the run could not end."""
    event = trio.Event()
    await trio.lowlevel.checkpoint()
    yield event
    event.set()


def stuck(stage: Stage) -> list[tuple[str, float, bool]]:
    return [(event.child, event.waited, event.detached) for event in stage.history if isinstance(event, ChildStuck)]


def stubborn(*, shutdown: Any = 1.0, **options: Any) -> ChildSpec:
    """A spec whose actor swallows its cancellation once it was told to block."""
    return child(Stubborn, "s", id="s", key=("s",), shutdown=shutdown, **options)


async def block(stage: Stage, gate: trio.Event) -> None:
    [ref] = [cell.ref for cell in stage.system.actors if cell.birth.key == ("s",)]
    ref.tell(Block(gate))
    await stage.settle()


@pytest.mark.row("E02")
@pytest.mark.parametrize("dynamic", [False, True])
async def test_a_child_that_survives_its_kill_is_reported_and_waited_for(
    autojump_clock: MockClock, stage: Stage, gate: trio.Event, dynamic: Any
) -> None:
    spec = stubborn()
    top = await stage.system.spawn(DynamicSupervisor) if dynamic else await stage.supervise(stage.worker("a"))
    await start_child(top, spec)
    await block(stage, gate)
    stage.forget()
    stopped = trio.Event()

    async def stop() -> None:
        await top.stop()
        stopped.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop)
        await trio.sleep(1.0 + 4.9)
        assert stuck(stage) == []
        await trio.sleep(0.2)
        assert stuck(stage) == [("s(('s',))", 5.0, False)]
        await trio.sleep(1000)
        assert not stopped.is_set()
        assert top.alive
        gate.set()

    assert stopped.is_set()
    assert "-s(('s',)) killed" in stage.events
    assert stage.reports == [("shutdown_error", "s", "killed")]


@pytest.mark.row("E04")
async def test_a_child_that_survives_a_brutal_kill_is_reported_from_the_kill_on(
    autojump_clock: MockClock, stage: Stage, gate: trio.Event
) -> None:
    top = await stage.supervise(stubborn(shutdown="brutal_kill", detach_stuck=True))
    await block(stage, gate)
    begun = stage.clock()

    await top.stop()

    assert stage.clock() - begun == 5.0
    assert stage.reports == []


async def test_a_detached_child_is_fenced_and_its_supervisor_goes_on(
    autojump_clock: MockClock, stage: Stage, gate: trio.Event
) -> None:
    top = await stage.supervise(stubborn(detach_stuck=True), stage.worker("b"))
    [ref] = [cell.ref for cell in stage.system.actors if cell.birth.key == ("s",)]
    await block(stage, gate)
    begun = stage.clock()

    await terminate_child(top, "s")

    assert stage.clock() - begun == 1.0 + 5.0
    assert stuck(stage) == [("s(('s',))", 5.0, True)]
    assert ref.exit_reason == Killed()
    assert not ref.alive
    with pytest.raises(ActorDown):
        await ref.ask(Name())
    ref.tell(Crash())
    assert stage.dead_letters == ["Crash"]
    assert stage.events == ["-s(('s',)) killed"]
    taken = await stage.system.spawn(Worker, "new", key=("s",))
    assert await states(top) == {"s": "stopped", "b": "running"}

    gate.set()
    await stage.settle()

    assert stage.events == ["-s(('s',)) killed", "+Worker(('s',))"]
    assert taken.alive
    assert stage.system.registrar.table == {("s",): taken}  # type: ignore[attr-defined]  # a bare system's registrar


async def test_a_detached_child_is_replaced_by_a_group_restart(
    autojump_clock: MockClock, stage: Stage, gate: trio.Event
) -> None:
    await stage.supervise(stage.worker("a"), stubborn(detach_stuck=True), strategy="one_for_all")
    await block(stage, gate)

    await stage.crash("a")
    await trio.sleep(10)

    assert stage.events == ["-a BoomError", "-s(('s',)) killed", "+a", "+s(('s',))"]


@pytest.mark.parametrize("levels", [0, 2])
async def test_supervisors_above_a_detached_child_stop_though_its_task_goes_on(
    autojump_clock: MockClock, stage: Stage, gate: trio.Event, levels: int
) -> None:
    spec = stubborn(detach_stuck=True)
    for level in range(levels):
        spec = supervisor([stage.worker(f"w{level}"), spec], strategy="one_for_one", id=f"level{level}")
    top = await stage.supervise(spec)
    await block(stage, gate)

    with trio.fail_after(20):
        await top.stop(Shutdown("done"))

    assert top.exit_reason == Shutdown("done")
    assert stage.alive == []
    assert stage.system.busy == 1
    gate.set()
    await stage.settle()
    assert stage.system.busy == 1


async def test_a_detached_supervisor_takes_all_below_it_along(
    autojump_clock: MockClock, stage: Stage, gate: trio.Event
) -> None:
    inner = supervisor(
        [stage.worker("b"), stubborn()],
        strategy="one_for_one",
        id="inner",
        shutdown=0,
        detach_stuck=True,
    )
    top = await stage.supervise(inner)
    await block(stage, gate)

    await terminate_child(top, "inner")

    assert stage.alive == ["Supervisor#1"]
    assert stuck(stage) == [("inner", 5.0, True)]
    await top.stop()


async def test_a_stubborn_function_is_detached_too(autojump_clock: MockClock, stage: Stage, gate: trio.Event) -> None:
    async def serve() -> None:
        with trio.CancelScope(shield=True):
            await gate.wait()

    top = await stage.supervise(child(serve, id="f", shutdown=1.0, detach_stuck=True))

    with trio.fail_after(20):
        await top.stop()

    assert stuck(stage) == [("f", 5.0, True)]
    assert stage.alive == []


async def test_a_child_stuck_in_its_start_is_reported_and_detached(
    autojump_clock: MockClock, stage: Stage, gate: trio.Event
) -> None:
    class Slow(Worker):
        async def on_start(self) -> None:
            with trio.CancelScope(shield=True):
                await gate.wait()

    spec = child(Slow, "s", id="s", key=("s",), start_timeout=2.0, detach_stuck=True)
    for top in (await stage.supervise(), await stage.system.spawn(DynamicSupervisor)):
        begun = stage.clock()
        with pytest.raises(StartTimeout):
            await start_child(top, spec)
        assert stage.clock() - begun == 2.0 + 5.0

    gate.set()
    await stage.settle()
    assert stage.alive == ["Supervisor#1", "DynamicSupervisor#1"]
    assert [event for event in stage.events if event.startswith("+s")] == []


async def test_a_detached_actor_can_start_nothing_more(
    autojump_clock: MockClock, stage: Stage, gate: trio.Event
) -> None:
    errors: list[Exception] = []

    class Zombie(Stubborn):
        async def linger(self) -> None:
            await Stubborn.block(self, Block(gate))
            for deed in (partial(self.start_task, trio.sleep_forever), partial(self.send_after, 1.0, Crash())):
                try:
                    deed()
                except NotRunningInside as error:
                    errors.append(error)

    top = await stage.supervise(child(Zombie, "s", id="s", shutdown=0, detach_stuck=True))
    zombie: Any = stage.ref("s")._cell.actor
    stage.ref("s").tell(Call(zombie.linger))
    await stage.settle()
    await terminate_child(top, "s")

    gate.set()
    await stage.settle()

    assert len(errors) == 2
    assert stage.alive == ["Supervisor#1"]
