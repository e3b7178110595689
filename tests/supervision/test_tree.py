"""The tree as data, and restarts that wait for a registry that cannot tell."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Ref
from sapwood.errors import RegistryUnavailable
from sapwood.supervision import (
    DynamicSupervisor,
    child,
    start_child,
    supervision_tree,
    supervisor,
    supervisor_statistics,
)
from tests.supervision.kit import Block, Stage, Worker, states


@pytest.mark.row("G12")
async def test_the_tree_shows_what_runs_below_whom_in_start_order(autojump_clock: MockClock, stage: Stage) -> None:
    inner = supervisor([stage.worker("x"), stage.worker("y")], strategy="one_for_one", id="inner")
    top = await stage.supervise(stage.worker("a"), inner, child(DynamicSupervisor, id="many"))
    await start_child(stage.ref("many"), stage.worker("z"))
    await stage.crash("x")
    stage.ref("a").tell(Block(trio.Event()))
    await stage.settle()
    stage.ref("a").tell(Block(trio.Event()))

    tree = supervision_tree(stage.system, top)

    assert tree.render().splitlines() == [
        "Supervisor#1",
        "├── a · 1 waiting",
        "├── inner",
        "│   ├── x · started 2 times",
        "│   └── y",
        "└── many",
        "    └── z",
    ]
    assert [node.label for node in tree.walk()] == ["Supervisor#1", "a", "inner", "x", "y", "many", "z"]
    assert [node.label for node in tree.walk() if node.supervises] == ["Supervisor#1", "inner", "many"]


async def test_the_tree_shows_an_actor_that_is_starting(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(stage.worker("a"))
    stage.plan.script("b", "5")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_child, top, stage.worker("b"))
        await stage.settle()

        assert supervision_tree(stage.system, top).render().splitlines()[1:] == ["├── a", "└── b · starting"]


class Unsure:
    """A registrar that cannot tell for a while."""

    def __init__(self) -> None:
        self.sure = True
        self.asked = 0

    def claim(self, key: object, ref: Ref) -> None:
        self.asked += 1
        if not self.sure:
            raise RegistryUnavailable(f"register {key!r}", "recovering")

    def release(self, key: object, ref: Ref) -> None: ...


@pytest.mark.parametrize("dynamic", [False, True])
async def test_a_restart_that_the_registry_cannot_allow_waits_for_it_and_uses_no_budget(
    autojump_clock: MockClock, stage: Stage, dynamic: Any
) -> None:
    registrar = stage.system.registrar = Unsure()
    spec = child(Worker, "a", id="a", key=("a",))
    top = await stage.system.spawn(DynamicSupervisor, restarts=1) if dynamic else await stage.supervise(restarts=1)
    await start_child(top, spec)
    registrar.sure = False

    await stage.kill("a(('a',))")
    await trio.sleep(60)
    assert list((await states(top)).values()) == ["restarting"]
    assert (await supervisor_statistics(top)).restarts == 1
    assert registrar.asked > 100
    registrar.sure = True
    await trio.sleep(1)

    assert list((await states(top)).values()) == ["running"]
    assert (await supervisor_statistics(top)).restarts == 1


async def test_a_first_start_that_the_registry_cannot_allow_is_refused_to_its_caller(
    autojump_clock: MockClock, stage: Stage
) -> None:
    stage.system.registrar = registrar = Unsure()
    registrar.sure = False
    for top in (await stage.supervise(), await stage.system.spawn(DynamicSupervisor)):
        with pytest.raises(RegistryUnavailable):
            await start_child(top, child(Worker, "a", key=("a",)))
        assert await states(top) == {}
