"""Delays between restarts, which OTP does not have."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood.errors import InvalidChildSpec
from sapwood.supervision import (
    Backoff,
    DynamicSupervisor,
    restart_child,
    start_child,
    supervisor_statistics,
    terminate_child,
)
from tests.supervision.kit import Stage, info_of, states

PLAIN = Backoff(initial=1.0, factor=2.0, maximum=8.0, jitter=0.0, reset_after=100.0)


@pytest.mark.parametrize("dynamic", [False, True])
async def test_delays_grow_by_the_factor_up_to_the_maximum_and_start_over_after_a_long_life(
    autojump_clock: MockClock, stage: Stage, dynamic: Any
) -> None:
    top = await stage.system.spawn(DynamicSupervisor, restarts=100) if dynamic else await stage.supervise(restarts=100)
    await start_child(top, stage.worker("a", backoff=PLAIN))
    delays: list[float] = []
    for life in (0, 0, 0, 0, 0, 99.0, 100.0, 0):
        await trio.sleep(life)
        begun = stage.clock()
        stage.forget()
        await stage.crash("a")
        await stage.plan.tried(1)
        delays.append(stage.clock() - begun)
        await stage.settle()

    assert delays == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 1.0, 2.0]


async def test_failing_restarts_lengthen_the_delay_too(autojump_clock: MockClock, stage: Stage) -> None:
    await stage.supervise(stage.worker("a", backoff=PLAIN), restarts=100)
    stage.plan.script("a", "fail", "fail", "ok")
    times: list[float] = []
    begun = stage.clock()

    await stage.crash("a")
    for count in (1, 2, 3):
        await stage.plan.tried(count)
        times.append(stage.clock() - begun)

    assert times == [1.0, 3.0, 7.0]


@pytest.mark.row("G13", "D07")
async def test_a_waiting_child_is_shown_as_restarting_and_costs_budget_only_when_it_is_restarted(
    autojump_clock: MockClock,
    stage: Stage,
) -> None:
    top = await stage.supervise(stage.worker("a", backoff=PLAIN))
    await stage.crash("a")

    assert await states(top) == {"a": "restarting"}
    assert (await info_of(top, "a")).ref is None
    statistics = await supervisor_statistics(top)
    assert (statistics.restarting, statistics.active, statistics.restarts) == (1, 0, 0)
    await trio.sleep(1.5)

    assert await states(top) == {"a": "running"}
    assert (await supervisor_statistics(top)).restarts == 1


@pytest.mark.row("D01")
async def test_the_intensity_holds_with_a_backoff_too(autojump_clock: MockClock, stage: Stage) -> None:
    quick = Backoff(initial=0.5, factor=1.0, jitter=0.0)
    top = await stage.supervise(stage.worker("a", backoff=quick), restarts=2, period=60)
    stage.plan.script("a", *["fail"] * 10)

    await stage.crash("a")
    await trio.sleep(10)

    assert stage.plan.attempts == ["a", "a"]
    assert not top.alive


@pytest.mark.row("C02", "C03")
@pytest.mark.parametrize(
    ("strategy", "fallen", "back"),
    [
        ("one_for_one", [], ["+b"]),
        ("one_for_all", ["-c shutdown", "-a shutdown"], ["+a", "+b", "+c"]),
        ("rest_for_one", ["-c shutdown"], ["+b", "+c"]),
    ],
)
async def test_what_falls_with_a_child_falls_at_once_and_comes_back_after_the_delay(
    autojump_clock: MockClock, stage: Stage, strategy: Any, fallen: list[str], back: list[str]
) -> None:
    await stage.supervise(stage.worker("a"), stage.worker("b", backoff=PLAIN), stage.worker("c"), strategy=strategy)

    await stage.crash("b")
    assert stage.events == ["-b BoomError", *fallen]
    await trio.sleep(0.9)
    assert stage.events == ["-b BoomError", *fallen]
    await trio.sleep(0.2)

    assert stage.events == ["-b BoomError", *fallen, *back]


@pytest.mark.row("C10")
async def test_one_for_all_waits_out_the_delay_of_the_member_that_failed_with_nobody_running(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(
        stage.worker("a"), stage.worker("b", backoff=PLAIN), stage.worker("c"), strategy="one_for_all", restarts=10
    )
    stage.plan.script("b", "fail", "ok")

    await stage.crash("a")
    assert await states(top) == {"a": "stopped", "b": "restarting", "c": "stopped"}
    await trio.sleep(1.5)

    assert set((await states(top)).values()) == {"running"}
    assert stage.events == [
        "-a BoomError",
        "-c shutdown",
        "-b shutdown",
        "+a",
        "-b BoomError",
        "-a shutdown",
        "+a",
        "+b",
        "+c",
    ]


@pytest.mark.row("C07", "BR-02")
async def test_a_group_restart_for_another_reason_takes_the_place_of_the_waiting_one(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(
        stage.worker("a"), stage.worker("b", backoff=PLAIN), stage.worker("c"), strategy="rest_for_one", restarts=10
    )
    await stage.crash("b")
    await trio.sleep(0.5)

    await stage.crash("a")
    assert set((await states(top)).values()) == {"running"}
    current = stage.refs("a", "b", "c")
    await trio.sleep(10)

    assert stage.refs("a", "b", "c") == current
    assert (await supervisor_statistics(top)).restarts == 1


async def test_a_sibling_that_was_started_by_hand_during_the_delay_is_replaced_with_the_group(
    autojump_clock: MockClock, stage: Stage
) -> None:
    await stage.supervise(stage.worker("a", backoff=PLAIN), stage.worker("b"), strategy="one_for_all")
    await stage.crash("a")
    top = stage.ref("Supervisor#1")
    by_hand = await restart_child(top, "b")
    assert by_hand is not None
    await trio.sleep(2)

    assert not by_hand.alive
    assert stage.ref("b").alive


async def test_ending_the_wait_by_hand_leaves_the_fallen_siblings_at_rest(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a", backoff=PLAIN), stage.worker("b"), strategy="one_for_all")
    await stage.crash("a")

    await terminate_child(top, "a")
    await trio.sleep(10)

    assert await states(top) == {"a": "stopped", "b": "stopped"}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"initial": 0}, "initial"),
        ({"initial": "1"}, "initial"),
        ({"factor": 0.5}, "factor"),
        ({"maximum": 0.05}, "maximum"),
        ({"jitter": 1.5}, "jitter"),
        ({"jitter": -0.1}, "jitter"),
        ({"reset_after": -1}, "reset_after"),
        ({"initial": float("nan")}, "initial"),
    ],
)
def test_a_backoff_that_cannot_work_is_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidChildSpec, match=f"backoff.{field}"):
        Backoff(**options)


@given(
    initial=st.floats(0.001, 10),
    factor=st.floats(1, 10),
    more=st.floats(0, 1000),
    jitter=st.floats(0, 1),
    failures=st.integers(1, 10**6),
    seed=st.integers(),
)
def test_a_delay_lies_between_its_unjittered_share_and_the_maximum(
    *, initial: float, factor: float, more: float, jitter: float, failures: int, seed: int
) -> None:
    backoff = Backoff(initial=initial, factor=factor, maximum=initial + more, jitter=jitter)
    without = Backoff(initial=initial, factor=factor, maximum=initial + more, jitter=0.0)
    source = random.Random(seed)

    full = without.delay(failures, source)
    delay = backoff.delay(failures, source)

    assert full * (1 - jitter) <= delay * (1 + 1e-9)
    assert delay <= full <= initial + more
