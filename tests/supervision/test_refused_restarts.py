"""Restarts that the registry cannot allow for a while, beside failures of the same child and of its siblings."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Ref, Restarted, Shutdown
from sapwood.errors import RegistryUnavailable
from sapwood.supervision import (
    Backoff,
    ChildSpec,
    DynamicSupervisor,
    child,
    start_child,
    supervisor_statistics,
    which_children,
)
from tests.supervision.kit import PlainWorker, Stage, Worker, states


class Unsure:
    """A registrar that cannot tell while `sure` is False."""

    def __init__(self) -> None:
        self.sure = True

    def claim(self, key: object, ref: Ref) -> None:
        if not self.sure:
            raise RegistryUnavailable(f"register {key!r}", "recovering")

    def release(self, key: object, ref: Ref) -> None: ...


def keyed(stage: Stage, name: str, **options: Any) -> ChildSpec:
    return child(Worker, name, stage.plan, id=name, key=(name,), **options)


async def supervise(stage: Stage, *children: ChildSpec, dynamic: Any = False, **options: Any) -> Ref:
    if not dynamic:
        return await stage.supervise(*children, **options)
    top = await stage.system.spawn(DynamicSupervisor, **options)
    for spec in children:
        await start_child(top, spec)
    stage.forget()
    return top


@pytest.mark.parametrize("dynamic", [False, True])
async def test_failures_after_a_refusal_use_the_budget_again(
    autojump_clock: MockClock, stage: Stage, dynamic: Any
) -> None:
    registrar = stage.system.registrar = Unsure()
    top = await supervise(stage, keyed(stage, "a"), dynamic=dynamic, restarts=3, period=60.0)
    registrar.sure = False
    await stage.kill("a(('a',))")
    await trio.sleep(10)
    assert (await supervisor_statistics(top)).restarts == 1

    stage.plan.script("a", *["fail"] * 10)
    registrar.sure = True
    await trio.sleep(1)

    assert top.exit_reason == Shutdown("reached max restart intensity")
    # The attempt that was refused is made again for the unit that it has used already; two more fit into the budget.
    assert stage.plan.attempts == ["a"] * 3


async def test_a_sibling_that_is_refused_while_the_group_restarts_is_tried_until_it_runs(
    autojump_clock: MockClock, stage: Stage
) -> None:
    registrar = stage.system.registrar = Unsure()
    top = await supervise(stage, stage.worker("a"), keyed(stage, "b"), strategy="rest_for_one", restarts=1)
    registrar.sure = False
    await stage.crash("a")
    await trio.sleep(30)
    assert await states(top) == {"a": "running", "b": "restarting"}

    registrar.sure = True
    await trio.sleep(1)

    assert await states(top) == {"a": "running", "b": "running"}
    assert (await supervisor_statistics(top)).restarts == 1


async def test_a_refusal_is_forgotten_when_a_sibling_restarts_the_group(
    autojump_clock: MockClock, stage: Stage
) -> None:
    registrar = stage.system.registrar = Unsure()
    top = await supervise(stage, stage.worker("a"), keyed(stage, "b"), strategy="rest_for_one", restarts=3, period=60.0)
    registrar.sure = False
    await stage.kill("b(('b',))")
    await trio.sleep(10)
    assert (await supervisor_statistics(top)).restarts == 1

    registrar.sure = True
    stage.plan.script("b", "fail")
    await stage.crash("a")

    # One for b, one for a and what comes after it, and one for b that failed to start with it.
    assert (await supervisor_statistics(top)).restarts == 3
    assert await states(top) == {"a": "running", "b": "running"}


@pytest.mark.parametrize("dynamic", [False, True])
async def test_a_restart_after_failed_ones_is_told_with_the_reason_of_the_last_failure(
    autojump_clock: MockClock, stage: Stage, dynamic: Any
) -> None:
    spec = stage.worker("a", backoff=Backoff(initial=1.0, jitter=0.0))
    top = await supervise(stage, spec, dynamic=dynamic)
    stage.plan.script("a", "fail")
    await stage.crash("a", text="first")
    await trio.sleep(10)

    [told] = [event for event in stage.history if isinstance(event, Restarted)]
    assert (told.supervisor, told.child) == (top.label, "a")
    assert "start of a" in str(told.reason)


async def test_a_dynamic_child_that_still_starts_is_listed_as_stopped_and_counts_as_no_process(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.system.spawn(DynamicSupervisor)
    stage.plan.script("a", "5")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_child, top, stage.worker("a"))
        await stage.settle()
        assert [cell.label for cell in stage.system.actors] == [top.label, "a"]
        # A request would have to wait until the child has started, so the table is looked at.
        actor = top._cell.actor
        assert isinstance(actor, DynamicSupervisor)
        [starting] = actor._children.values()
        assert (starting.state, starting.ref) == ("stopped", None)
    [info] = await which_children(top)
    assert (info.state, info.ref) == ("running", stage.ref("a"))


async def test_a_supervisor_that_restarts_in_vain_lets_others_run_between_any_two_attempts(
    autojump_clock: MockClock, stage: Stage
) -> None:
    attempts: list[int] = []
    for dynamic in (False, True):
        name = f"w{dynamic}"
        spec = child(PlainWorker, name, stage.plan, id=name)
        await supervise(stage, spec, dynamic=dynamic, restarts=200, period=60.0)
        stage.plan.script(name, *["fail"] * 100)
        attempts.clear()
        stage.ref(name).kill()
        while len(stage.plan.attempts) < 100:
            attempts.append(len(stage.plan.attempts))
            await trio.lowlevel.checkpoint()
        assert max(after - before for before, after in pairwise(attempts)) <= 2
