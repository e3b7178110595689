"""Group F: children whose end stops their supervisor."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Crashed, ExitReason, Killed, Normal, Shutdown
from sapwood.errors import InvalidChildSpec
from sapwood.supervision import (
    AutoShutdown,
    Backoff,
    DynamicSupervisor,
    Restart,
    Supervisor,
    child,
    start_child,
    supervisor,
    terminate_child,
)
from tests.supervision.kit import BoomError, Stage, Worker, states


def significant(stage: Stage, name: str, restart: Restart = "transient", **options: Any) -> Any:
    return stage.worker(name, restart=restart, significant=True, **options)


@pytest.mark.row("F01")
async def test_a_significant_child_is_refused_where_auto_shutdown_is_never(
    autojump_clock: MockClock, stage: Stage
) -> None:
    spec = significant(stage, "a")

    with pytest.raises(InvalidChildSpec, match="significant"):
        await stage.system.spawn(Supervisor, [stage.worker("b"), spec], strategy="one_for_one")
    top = await stage.supervise(stage.worker("b"))
    with pytest.raises(InvalidChildSpec, match="significant"):
        await start_child(top, spec)

    assert stage.plan.attempts == []
    assert await states(top) == {"b": "running"}


@pytest.mark.row("F02")
def test_a_permanent_child_cannot_be_significant() -> None:
    with pytest.raises(InvalidChildSpec, match="'significant': expected False for a permanent child"):
        child(Worker, "a", significant=True)


async def end(stage: Stage, name: str, how: ExitReason) -> None:
    if isinstance(how, Crashed):
        await stage.crash(name)
    elif isinstance(how, Killed):
        await stage.kill(name)
    else:
        await stage.end(name, how)


@pytest.mark.row("F03")
@pytest.mark.parametrize("how", [Normal(), Shutdown(), Killed(), Crashed(BoomError())], ids=str)
async def test_any_end_of_a_temporary_significant_child_stops_the_others_in_reverse_order(
    autojump_clock: MockClock, stage: Stage, how: ExitReason
) -> None:
    top = await stage.supervise(
        stage.worker("a"), significant(stage, "b", "temporary"), stage.worker("c"), auto_shutdown="any_significant"
    )

    await end(stage, "b", how)

    assert stage.events[1:] == ["-c shutdown", "-a shutdown", "-Supervisor#1 shutdown (auto shutdown)"]
    assert isinstance(top.exit_reason, Shutdown)


@pytest.mark.row("F04")
@pytest.mark.parametrize(
    ("how", "stops"), [(Normal(), True), (Shutdown(), True), (Killed(), False), (Crashed(BoomError()), False)], ids=str
)
@pytest.mark.parametrize("mode", ["any_significant", "all_significant"])
async def test_an_orderly_end_of_a_transient_significant_child_stops_and_an_abnormal_one_restarts(
    autojump_clock: MockClock, stage: Stage, how: ExitReason, stops: Any, mode: AutoShutdown
) -> None:
    top = await stage.supervise(significant(stage, "a"), stage.worker("b"), auto_shutdown=mode)

    await end(stage, "a", how)

    assert top.alive is not stops
    assert ("a" in stage.alive) is not stops


@pytest.mark.row("F05")
async def test_all_significant_waits_for_the_last_significant_child(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.supervise(
        significant(stage, "a"),
        significant(stage, "b", "temporary"),
        significant(stage, "c"),
        stage.worker("d"),
        auto_shutdown="all_significant",
    )

    await stage.end("a")
    await stage.crash("b")
    assert stage.alive == ["Supervisor#1", "c", "d"]
    await stage.end("c")

    assert not top.alive


@pytest.mark.row("F06")
async def test_significant_children_without_a_process_do_not_hold_the_supervisor(
    autojump_clock: MockClock, stage: Stage
) -> None:
    stage.plan.script("ignored", "ignore")
    top = await stage.supervise(
        significant(stage, "ignored"),
        significant(stage, "stopped"),
        significant(stage, "a"),
        auto_shutdown="all_significant",
    )
    await terminate_child(top, "stopped")
    assert top.alive

    await stage.end("a")

    assert not top.alive


@pytest.mark.row("F06")
async def test_a_significant_child_that_waits_for_its_restart_holds_the_supervisor(
    autojump_clock: MockClock, stage: Stage
) -> None:
    backoff = Backoff(initial=10, jitter=0)
    top = await stage.supervise(
        significant(stage, "a", backoff=backoff), significant(stage, "b"), auto_shutdown="all_significant"
    )
    await stage.crash("a")

    await stage.end("b")

    assert top.alive
    assert await states(top) == {"a": "restarting", "b": "stopped"}


@pytest.mark.row("F07")
@pytest.mark.parametrize("mode", ["any_significant", "all_significant"])
async def test_stopping_a_significant_child_by_hand_does_not_stop_the_supervisor(
    autojump_clock: MockClock, stage: Stage, mode: AutoShutdown
) -> None:
    top = await stage.supervise(
        significant(stage, "a"), significant(stage, "b", "temporary"), stage.worker("c"), auto_shutdown=mode
    )

    await terminate_child(top, "a")
    await terminate_child(top, "b")
    await stage.settle()

    assert stage.alive == ["Supervisor#1", "c"]


@pytest.mark.row("F07", "C06")
@pytest.mark.parametrize("mode", ["any_significant", "all_significant"])
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_significant_child_that_falls_with_its_group_does_not_stop_the_supervisor(
    autojump_clock: MockClock, stage: Stage, mode: AutoShutdown, strategy: Any
) -> None:
    top = await stage.supervise(
        stage.worker("x"),
        significant(stage, "a"),
        significant(stage, "b", "temporary"),
        strategy=strategy,
        auto_shutdown=mode,
    )

    await stage.crash("x")

    assert await states(top) == {"x": "running", "a": "running"}
    assert stage.events == ["-x BoomError", "-b shutdown", "-a shutdown", "+x", "+a"]


@pytest.mark.row("F07")
async def test_a_dead_significant_bystander_whose_end_is_consumed_does_not_stop_the_supervisor(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(
        stage.worker("x"), significant(stage, "a"), strategy="one_for_all", auto_shutdown="any_significant"
    )
    # The supervisor is busy, so that it sees both ends only afterwards, that of x first.
    stage.plan.script("slow", "1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_child, top, stage.worker("slow", restart="temporary"))
        await stage.settle()
        await stage.crash("x")
        await stage.end("a")
    await stage.settle()

    assert await states(top) == {"x": "running", "a": "running"}


@pytest.mark.row("F08")
@pytest.mark.parametrize("inner_is_significant", [True, False])
async def test_automatic_shutdown_goes_up_only_through_significance(
    autojump_clock: MockClock, stage: Stage, inner_is_significant: Any
) -> None:
    inner = supervisor(
        [significant(stage, "leaf")],
        strategy="one_for_one",
        id="inner",
        auto_shutdown="any_significant",
        restart="transient",
        significant=inner_is_significant,
    )
    top = await stage.supervise(inner, stage.worker("b"), auto_shutdown="any_significant")

    await stage.end("leaf")

    assert "inner" not in stage.alive
    assert top.alive is not inner_is_significant
    assert ("b" in stage.alive) is not inner_is_significant


@pytest.mark.row("F09")
async def test_a_dynamic_supervisor_knows_neither_automatic_shutdown_nor_significant_children(
    autojump_clock: MockClock, stage: Stage
) -> None:
    with pytest.raises(TypeError, match="auto_shutdown"):
        await stage.system.spawn(DynamicSupervisor, auto_shutdown="any_significant")
    dynamic = await stage.system.spawn(DynamicSupervisor)

    with pytest.raises(InvalidChildSpec, match="'significant': expected False below a dynamic supervisor"):
        await start_child(dynamic, significant(stage, "a"))

    assert stage.plan.attempts == []


@pytest.mark.row("F01")
async def test_auto_shutdown_is_never_by_default_and_an_orderly_end_stops_nothing(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a", restart="transient"))

    await stage.end("a")

    assert top.alive
